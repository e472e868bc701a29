//! [`Shared`]: the state that all objects of a device use, and the faults that happen by it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::{ClockKind, Host, Lock, Span};
use verbs::provider::{DeviceOps, MrOps, QpOps, SrqOps};
use verbs::{Access, AsyncEvent, Buf, DeviceAttr, Error, Result, Sge};

use crate::effect::{Effect, Injected};
use crate::engine::{Engine, Hit};
use crate::event_lane::EventLane;
use crate::operation::Operation;
use crate::plans::Plans;
use crate::rule::Rule;
use crate::timer::Timer;

/// A queue pair, as faults of the device see it.
pub(crate) struct KnownQp {
    pub(crate) ops: Weak<dyn QpOps>,
    /// Its peer, once it connects.
    pub(crate) peer: Arc<Mutex<Option<SocketAddr>>>,
    pub(crate) has_srq: bool,
}

/// What the objects of a device share.
pub(crate) struct Shared {
    pub(crate) below: Arc<dyn DeviceOps>,
    pub(crate) attr: DeviceAttr,
    pub(crate) name: String,
    pub(crate) engine: Engine,
    pub(crate) plans: Plans,
    pub(crate) timer: Arc<Timer>,
    pub(crate) events: EventLane<AsyncEvent>,
    pub(crate) is_dead: AtomicBool,
    qps: Mutex<Vec<KnownQp>>,
    srqs: Mutex<Vec<Weak<dyn SrqOps>>>,
    /// A region in a protection domain of its own: the NIC refuses its key to every queue pair of a program.
    refused: Lock<Option<Box<dyn MrOps>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // In a forked child, a thread that does not exist there may hold the lock.
        if self.below.check().is_ok() {
            self.timer.stop();
        }
    }
}

impl Shared {
    pub(crate) fn new(below: Arc<dyn DeviceOps>, seed: u64, note: String) -> Result<Self> {
        let host = below.host().clone();
        let mut attr = below.attr().clone();
        attr.notes.push(note);
        Ok(Self {
            attr,
            name: format!("faults({})", below.name()),
            engine: Engine::new(&host, seed),
            plans: Plans::default(),
            timer: Timer::new(&host),
            events: EventLane::new(below.async_fd())?,
            is_dead: AtomicBool::new(false),
            qps: Mutex::default(),
            srqs: Mutex::default(),
            refused: Lock::new(None),
            below,
        })
    }

    pub(crate) fn host(&self) -> &Host {
        &self.engine.host
    }

    /// Adds a rule; returns its number.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a process that has to vanish in simulated time; the system's, if the timer cannot start.
    pub(crate) fn add(self: &Arc<Self>, rule: Rule, place: String) -> Result<usize> {
        if rule.effect == Effect::Vanish && self.host().clock() == ClockKind::Virtual {
            return Err(Error::Invalid(format!(
                "{place}: action = vanish ends the process, which simulates all machines; leave it out in simulated time"
            )));
        }
        let (is_timed, after) = (rule.on == Operation::Time, rule.after);
        let number = self.engine.add(rule, place);
        if is_timed {
            let own = Arc::downgrade(self);
            self.timer.at(self.engine.time_of(after), move || {
                if let Some(own) = own.upgrade()
                    && let Some((rule, hit)) = own.engine.fire_now(number)
                {
                    own.happen_at_its_time(&rule, &hit);
                }
            })?;
        }
        Ok(number)
    }

    /// Remembers a queue pair.
    pub(crate) fn know_qp(&self, qp: KnownQp) {
        let mut qps = self.qps.lock().unwrap_or_else(|e| e.into_inner());
        qps.retain(|qp| qp.ops.strong_count() != 0);
        qps.push(qp);
    }

    pub(crate) fn know_srq(&self, srq: Weak<dyn SrqOps>) {
        let mut srqs = self.srqs.lock().unwrap_or_else(|e| e.into_inner());
        srqs.retain(|srq| srq.strong_count() != 0);
        srqs.push(srq);
    }

    /// The peer of a queue pair, by the device's number.
    pub(crate) fn peer_of(&self, qp_num: u32) -> Option<SocketAddr> {
        let qps = self.qps.lock().unwrap_or_else(|e| e.into_inner());
        let qp = qps.iter().find(|qp| qp.ops.upgrade().is_some_and(|ops| ops.num() == qp_num))?;
        *qp.peer.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn live_qps(&self, is_meant: impl Fn(&KnownQp) -> bool) -> Vec<Arc<dyn QpOps>> {
        let qps = self.qps.lock().unwrap_or_else(|e| e.into_inner());
        qps.iter().filter(|qp| is_meant(qp)).filter_map(|qp| qp.ops.upgrade()).collect()
    }

    /// A call that creates an object.
    ///
    /// # Errors
    /// The error of a fault, or of a device that has failed.
    pub(crate) fn creates(&self, what: Operation) -> Result<()> {
        self.below.check()?;
        if self.is_dead.load(Ordering::Relaxed) {
            return Err(self.gone());
        }
        match self.engine.decide(what, None, None) {
            None => Ok(()),
            Some(hit) => self.happen_to_call(what, &hit),
        }
    }

    fn gone(&self) -> Error {
        let why = "an injected fault has ended it (event DEVICE_FATAL)".into();
        Error::DeviceGone { device: self.name.clone(), why }
    }

    /// What a fault does to a call that posts nothing.
    ///
    /// # Errors
    /// The error of the fault.
    #[cold]
    pub(crate) fn happen_to_call(&self, what: Operation, hit: &Hit) -> Result<()> {
        match hit.effect {
            Effect::Error(errno) => Err(injected_error(what, errno, hit)),
            Effect::Vanish => vanish(),
            _ => Ok(()),
        }
    }

    /// What a rule does when its time has come: to all connected queue pairs of its peers.
    fn happen_at_its_time(&self, rule: &Rule, hit: &Hit) {
        let is_meant = |qp: &KnownQp| {
            let peer = *qp.peer.lock().unwrap_or_else(|e| e.into_inner());
            peer.is_some() && rule.is_about(peer)
        };
        match hit.effect {
            Effect::Vanish => vanish(),
            Effect::Event(Injected::QpFatal) => {
                self.live_qps(is_meant).into_iter().for_each(|qp| self.fail_qp(&*qp))
            }
            Effect::Event(Injected::LastWqeReached) => {
                let qps = self.live_qps(|qp| qp.has_srq && is_meant(qp));
                qps.into_iter().for_each(|qp| qp.to_error());
            }
            Effect::Event(event) => self.report(event),
            _ => {}
        }
    }

    /// A queue pair fails, and its program gets the event.
    pub(crate) fn fail_qp(&self, qp: &dyn QpOps) {
        qp.to_error();
        self.push_event(AsyncEvent::QpFatal { qp_num: qp.num(), why: "an injected fault (event QP_FATAL)" });
    }

    /// Reports an event that is not of one queue pair.
    #[cold]
    pub(crate) fn report(&self, event: Injected) {
        match event {
            Injected::PortError => self.push_event(AsyncEvent::PortError { port: 1 }),
            Injected::PortActive => self.push_event(AsyncEvent::PortActive { port: 1 }),
            Injected::GidChange => self.push_event(AsyncEvent::GidChange { port: 1 }),
            Injected::DeviceFatal => {
                self.is_dead.store(true, Ordering::Relaxed);
                self.push_event(AsyncEvent::DeviceFatal);
                self.live_qps(|_| true).into_iter().for_each(|qp| qp.to_error());
            }
            Injected::SrqLimit => {
                let known = self.srqs.lock().unwrap_or_else(|e| e.into_inner());
                let srqs: Vec<_> = known.iter().filter_map(Weak::upgrade).collect();
                drop(known);
                for srq in srqs.into_iter().filter(|srq| srq.limit() != 0) {
                    // The limit is disarmed when it is reported.
                    if srq.arm_limit(0).is_ok() {
                        self.push_event(AsyncEvent::SrqLimitReached { srq: srq.id() });
                    }
                }
            }
            Injected::QpFatal | Injected::LastWqeReached => {}
        }
    }

    fn push_event(&self, event: AsyncEvent) {
        self.events.push(self.host().now(), event);
        self.events.wake(self.host(), self.below.prepare_wait());
    }

    /// An element that the NIC refuses to every queue pair of a program, of `length` bytes.
    ///
    /// # Errors
    /// The NIC's, if it has no room for the region.
    pub(crate) fn refused_sge(&self, length: u32) -> Result<Sge> {
        // Registering may suspend a fiber.
        let mut refused = self.refused.lock(self.host());
        if refused.is_none() {
            *refused = Some(self.below.alloc_pd()?.reg_mr(&Buf::alloc(8)?, Access::LOCAL_WRITE)?);
        }
        let mr = refused.as_ref().ok_or_else(|| self.gone())?;
        Ok(Sge { addr: mr.addr(), length, lkey: mr.lkey() })
    }
}

/// The error of a call that fails by a fault.
#[cold]
pub(crate) fn injected_error(what: Operation, errno: i32, hit: &Hit) -> Error {
    Error::System {
        what: format!("{} fails by an injected fault", what.word()),
        why: hit.name.clone(),
        errno: Some(errno),
    }
}

/// How long the event of a delay waits.
pub(crate) fn delay_of(hit: &Hit) -> Option<Span> {
    match hit.effect {
        Effect::Delay(span, _) => Some(span + hit.jitter),
        _ => None,
    }
}

/// Ends the process as the end of its host does: nothing is flushed, and no destructor runs.
#[cold]
pub(crate) fn vanish() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
