//! [`Cno`]: a consumer notification object, on which a thread waits for events of several dispatchers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::Span;

use crate::ia::IaInner;
use crate::sync::{UseGuard, lock};
use crate::{Error, ErrorKind, Ia, Label, Result, Subtype};

/// A dispatcher, as seen by its notification object.
pub(crate) trait CnoMember: Send + Sync {
    /// Arms the device's queue if it is not armed, and queues the events that arrived before that; reports to the object if
    /// there are any.
    fn poll_and_arm(&self);
    /// Called when its report is taken: returns whether it still has events. From now on it reports again.
    fn take_report(&self) -> bool;
    /// The object no longer exists.
    fn forget_cno(&self);
}

type WeakCnoMember = Weak<dyn CnoMember>;

/// A callback for a dispatcher of the object that has events, called with the dispatcher's label.
pub type Agent = Box<dyn Fn(Label) + Send>;

/// A notification object (`DAT_CNO`); cheap to clone.
#[derive(Clone)]
pub struct Cno(pub(crate) Arc<CnoInner>);

pub(crate) struct CnoInner {
    pub(crate) ia: Arc<IaInner>,
    _use: UseGuard,
    evds: Mutex<Vec<WeakCnoMember>>,
    /// Dispatchers with events, in the order in which they reported.
    triggered: Mutex<VecDeque<(Label, WeakCnoMember)>>,
    /// Called by a thread of its own, if set.
    agent: Mutex<Option<Agent>>,
    has_thread: AtomicBool,
    waiting: AtomicBool,
    label: AtomicU64,
}

impl std::fmt::Debug for Cno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cno({} dispatchers)", lock(&self.0.evds).len())
    }
}

/// How long an agent's thread waits before it checks whether it is still needed.
const AGENT_CHECK_INTERVAL: Span = Span::from_ms(200);

impl Cno {
    /// Creates a notification object; `agent`, if given, is called from a thread of its own (`dat_cno_create`).
    ///
    /// # Errors
    /// `InsufficientResources` when no thread for the agent can be created; `NotImplemented` on a device without completion
    /// channels.
    pub fn create(ia: &Ia, agent: Option<Agent>) -> Result<Self> {
        if ia.0.channel.is_none() {
            return Err(Error::new(ErrorKind::NotImplemented, Subtype::None));
        }
        let cno = Self(Arc::new(CnoInner {
            ia: ia.0.clone(),
            _use: ia.0.uses.add(),
            evds: Mutex::default(),
            triggered: Mutex::default(),
            agent: Mutex::new(None),
            has_thread: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            label: AtomicU64::new(ia.0.next_label()),
        }));
        cno.modify_agent(agent)?;
        Ok(cno)
    }

    /// Replaces the agent (`dat_cno_modify_agent`).
    ///
    /// # Errors
    /// `InsufficientResources` when no thread for it can be created.
    pub fn modify_agent(&self, agent: Option<Agent>) -> Result<()> {
        let wanted = agent.is_some();
        *lock(&self.0.agent) = agent;
        if wanted && !self.0.has_thread.swap(true, Ordering::AcqRel) {
            let weak = Arc::downgrade(&self.0);
            let body = move || {
                while let Some(inner) = weak.upgrade() {
                    inner.serve();
                }
            };
            self.0.ia.host.spawn("dapl-agent", None, body).map_err(|_| {
                self.0.has_thread.store(false, Ordering::Release);
                Error::new(ErrorKind::InsufficientResources, Subtype::ResourceMemory)
            })?;
        }
        Ok(())
    }

    /// Whether it has an agent.
    pub fn has_agent(&self) -> bool {
        lock(&self.0.agent).is_some()
    }

    /// Waits until one of its dispatchers has events, and returns its label. `None` waits forever (`dat_cno_wait`).
    ///
    /// Events that a dispatcher already held when it was last triggered do not trigger it again.
    ///
    /// # Errors
    /// `TimeoutExpired`; `InvalidState` while another thread waits or an agent is set.
    pub fn wait(&self, timeout: Option<Span>) -> Result<Label> {
        if self.has_agent() || self.0.waiting.swap(true, Ordering::AcqRel) {
            return Err(Error::state(Subtype::CnoInUse));
        }
        let found = self.0.wait(timeout);
        self.0.waiting.store(false, Ordering::Release);
        found.ok_or(Error::new(ErrorKind::TimeoutExpired, Subtype::None))
    }

    /// Returns the dispatcher that triggered it, without waiting (`dat_cno_trigger`).
    pub fn poll(&self) -> Option<Label> {
        self.0.poll_all()
    }

    /// Its label in dispatchers.
    pub fn label(&self) -> Label {
        self.0.label()
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
    }

    /// Checks that no thread waits on it, so that it may be freed. Its dispatchers then report to no object.
    ///
    /// # Errors
    /// `InvalidState` while a thread waits, or a dispatcher reports to it.
    pub fn release(&self) -> Result<()> {
        if self.0.waiting.load(Ordering::Acquire) {
            return Err(Error::state(Subtype::CnoInUse));
        }
        if lock(&self.0.evds).iter().any(|evd| evd.upgrade().is_some()) {
            return Err(Error::state(Subtype::CnoInUse));
        }
        *lock(&self.0.agent) = None;
        Ok(())
    }
}

impl CnoInner {
    pub(crate) fn label(&self) -> Label {
        self.label.load(Ordering::Relaxed)
    }

    pub(crate) fn attach(&self, evd: WeakCnoMember) {
        let mut evds = lock(&self.evds);
        evds.retain(|other| other.strong_count() > 0);
        evds.push(evd);
        drop(evds);
        self.ia.wake_waiters();
    }

    pub(crate) fn detach(&self, evd: &dyn CnoMember) {
        lock(&self.evds).retain(|other| !std::ptr::addr_eq(other.as_ptr(), evd));
    }

    /// Records that a dispatcher has events.
    pub(crate) fn push(&self, label: Label, evd: &dyn CnoMember) {
        let weak = lock(&self.evds).iter().find(|other| std::ptr::addr_eq(other.as_ptr(), evd)).cloned();
        if let Some(weak) = weak {
            lock(&self.triggered).push_back((label, weak));
        }
        self.ia.wake_waiters();
    }

    fn wait(&self, timeout: Option<Span>) -> Option<Label> {
        self.ia
            .host
            .wait("Cno::wait", &self.ia.any_event_source(), self.ia.deadline(timeout), || self.poll_all())
    }

    fn poll_all(&self) -> Option<Label> {
        if let Some(found) = self.take() {
            return Some(found);
        }
        self.ia.dispatch();
        self.ia.dispatch_channel();
        let mut at = 0;
        while let Some(evd) = self.evd(at) {
            if let Some(evd) = evd.upgrade() {
                evd.poll_and_arm();
            }
            at += 1;
        }
        self.take()
    }

    fn evd(&self, at: usize) -> Option<WeakCnoMember> {
        lock(&self.evds).get(at).cloned()
    }

    fn take(&self) -> Option<Label> {
        loop {
            let (label, evd) = lock(&self.triggered).pop_front()?;
            let Some(evd) = evd.upgrade() else { continue };
            // Another thread may have taken the events from the dispatcher meanwhile.
            if evd.take_report() {
                return Some(label);
            }
        }
    }

    /// One iteration of the agent's thread.
    fn serve(&self) {
        let found = self.wait(Some(AGENT_CHECK_INTERVAL));
        if let (Some(label), Some(agent)) = (found, &*lock(&self.agent)) {
            agent(label);
        }
    }
}

impl Drop for CnoInner {
    fn drop(&mut self) {
        for evd in lock(&self.evds).iter().filter_map(Weak::upgrade) {
            evd.forget_cno();
        }
    }
}
