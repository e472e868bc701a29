//! [`Engine`]: an opened device of this process, which all contexts of that device share, and the thread that takes its events.
//!
//! The thread is for what has to go on while a program does nothing: accepting a paired queue pair, posting what waited for its
//! connection, reporting asynchronous events and those of librdmacm by descriptors. Messages pass without it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use cface::lock;
use verbs::host::real::remark;
use verbs::host::{Bell, Span, Time};
use verbs::pairing::{Accept, Offered, PORTS, Pairing};
use verbs::{AsyncEvent, Cm, CmEvent};

use rdma_abi::verbs::{ibv_ah_attr, ibv_gid};

use crate::address::{self, Target};
use crate::answer::Answer;
use crate::cm::connect::{self, Later};
use crate::cm::id::CmId;
use crate::cq::Cq;
use crate::device::{self, Kind};
use crate::errno::Errno;
use crate::event;
use crate::interface;
use crate::qp::Qp;
use crate::slab::{Handle, Held};
use crate::srq::Srq;
use crate::ud::Datagrams;

/// An opened device.
pub(crate) struct Engine {
    pub(crate) device: verbs::Device,
    pub(crate) cm: Cm,
    pub(crate) pairing: Pairing,
    /// It reaches this host alone.
    pub(crate) is_local: bool,
    /// The table of its port.
    pub(crate) gids: Vec<ibv_gid>,
    /// Objects by number, for the reports of events. Locked while an object is in use.
    pub(crate) objects: Mutex<Objects>,
    /// Opened for the first queue pair of type UD.
    datagrams: Mutex<Option<Arc<Datagrams>>>,
    /// What identifiers do after a while, and when.
    pub(crate) later: Mutex<Vec<(Time, Handle<CmId>, Later)>>,
    /// There is or was a shared receive queue with a limit that only who looks finds.
    has_limits: AtomicBool,
    /// How often something was added that the thread is to do at some time, and what has it see that.
    plans: AtomicU32,
    planned: Bell,
}

/// How often the thread looks whether a peer has taken receives below such a limit.
const LIMIT_LOOK: Span = Span::from_ms(10);

/// Objects by number.
#[derive(Default)]
pub(crate) struct Objects {
    /// By the numbers that programs know, which completions carry.
    pub(crate) qps: HashMap<u32, Handle<Qp>>,
    /// By the device's numbers, which events carry.
    pub(crate) lives: HashMap<u32, Handle<Qp>>,
    pub(crate) cqs: HashMap<u32, Handle<Cq>>,
    pub(crate) srqs: HashMap<u32, Handle<Srq>>,
    /// Identifiers of librdmacm by the numbers of their queue pairs.
    pub(crate) ids: HashMap<u32, Handle<CmId>>,
    /// Those that listen, and where.
    pub(crate) listeners: Vec<(SocketAddr, Handle<CmId>)>,
}

impl Objects {
    /// The queue pair whose number an event carries.
    fn of_event(&self, number: u32) -> Option<Held<Qp>> {
        self.lives.get(&number)?.look().ok()
    }
}

/// Engines of this process, by the names of their devices. What a parent opened stays its alone.
static ENGINES: Mutex<Vec<(u32, String, Arc<Engine>)>> = Mutex::new(Vec::new());

impl Engine {
    /// The engine of the device with this name, which begins with the first who asks.
    ///
    /// # Errors
    /// As [`fabric::open`], which is told on standard error, too.
    pub(crate) fn of(name: &str) -> Answer<Arc<Self>> {
        let own = std::process::id();
        let mut engines = lock(&ENGINES);
        if let Some((.., engine)) = engines.iter().find(|(pid, known, _)| *pid == own && known == name) {
            return Ok(engine.clone());
        }
        let engine = Self::open(name).inspect_err(|why| remark(format_args!("cannot open {name}: {why}")))?;
        engines.push((own, name.to_owned(), engine.clone()));
        Ok(engine)
    }

    fn open(name: &str) -> verbs::Result<Arc<Self>> {
        let device = fabric::open(name, &host::real::host())?;
        let cm = device.create_cm()?;
        let pairing = Pairing::new(&cm, own_ip(name), std::process::id())?;
        let gids = gids(name, &pairing);
        let is_local = fabric::is_local(name);
        let engine = Arc::new(Self {
            device,
            cm,
            pairing,
            is_local,
            gids,
            objects: Mutex::default(),
            datagrams: Mutex::default(),
            later: Mutex::default(),
            has_limits: AtomicBool::new(false),
            plans: AtomicU32::new(0),
            planned: Bell::new(),
        });
        let (thread, run) = (std::thread::Builder::new().name("nicety-verbs".into()), engine.clone());
        thread
            .spawn(move || run.serve())
            .map_err(|why| verbs::Error::system("cannot start a thread", why))?;
        Ok(engine)
    }

    /// The engine of the device with this name, if this process has opened it. While one is being opened, none has.
    pub(crate) fn opened(name: &str) -> Option<Arc<Self>> {
        let own = std::process::id();
        // Opening a device may look at files that this is asked for.
        let engines = ENGINES.try_lock().ok()?;
        let (.., engine) = engines.iter().find(|(pid, known, _)| *pid == own && known == name)?;
        Some(engine.clone())
    }

    /// What has become of datagrams, by the names of counters; none before there is a queue pair for them.
    pub(crate) fn datagram_counts(&self) -> Vec<(&'static str, u64)> {
        lock(&self.datagrams).as_ref().map(|datagrams| datagrams.counts.all().collect()).unwrap_or_default()
    }

    /// The first GID of this process's port, if it has one.
    pub(crate) fn gid(&self) -> Option<ibv_gid> {
        self.gids.first().copied()
    }

    /// The GID that an address vector says its sender has.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for an index that the table does not have.
    pub(crate) fn source(&self, vector: &ibv_ah_attr) -> Answer<ibv_gid> {
        let index = if vector.is_global == 0 { 0 } else { vector.grh.sgid_index };
        self.gids.get(usize::from(index)).copied().ok_or(Errno::INVAL)
    }

    /// Where an address vector leads from here.
    ///
    /// # Errors
    /// As [`Target::of`] and [`Engine::source`]; [`Errno::INVAL`] for an address of the other family; `ENETUNREACH` for another host's address on a device that reaches this one
    /// alone, which is told on standard error, too.
    pub(crate) fn target(&self, vector: &ibv_ah_attr) -> Answer<Target> {
        self.source(vector)?;
        let own = self.pairing.addr().ip();
        match Target::of(vector)? {
            Target::Host(ip) if ip.is_ipv4() != own.is_ipv4() => Err(Errno::INVAL),
            Target::Host(ip) if self.is_local => {
                if !ip.is_loopback() && interface::of(Some(ip)).is_none() {
                    remark(format_args!(
                        "{} reaches this host alone, and {ip} is none of its addresses: name a device that reaches it, as by \
                         nicety run --device iwarp@ADDRESS",
                        self.device.name()
                    ));
                    return Err(Errno(libc::ENETUNREACH));
                }
                Ok(Target::Host(own))
            }
            target => Ok(target),
        }
    }

    /// Where the process listens that an address vector and the number of a queue pair lead to.
    ///
    /// # Errors
    /// As [`Engine::target`] and [`Target::process_of`], of which the latter is told on standard error, too.
    pub(crate) fn process_of(&self, vector: &ibv_ah_attr, qp_num: u32) -> Answer<SocketAddr> {
        let target = self.target(vector)?;
        target.process_of(qp_num).inspect_err(|_| {
            remark(format_args!(
                "queue pair {qp_num:#x} of {target} names no process there: exchange ibv_qp.qp_num as it is, of a process \
                 whose port shows a GID of this kind, or GID 0, which leads to the process by itself"
            ));
        })
    }

    /// Its datagrams, which begin with the first who asks.
    pub(crate) fn datagrams(&self) -> Answer<Arc<Datagrams>> {
        let mut datagrams = lock(&self.datagrams);
        if let Some(datagrams) = &*datagrams {
            return Ok(datagrams.clone());
        }
        if self.gids.is_empty() {
            return Err(Errno::OPNOTSUPP);
        }
        let opened = Datagrams::open(&self.device, self.is_local, self.pairing.addr(), self.gids.clone())?;
        Ok(datagrams.insert(opened).clone())
    }

    /// What the thread does, until its process ends.
    fn serve(&self) {
        // What it does for a connection may copy to and from the program's memory; its signal mask is that of a thread of the program.
        let _ = uaccess::unblock();
        let sources = ((&self.cm, &self.device), &self.planned);
        loop {
            let plans = self.plans.load(Ordering::Acquire);
            let look = || match (self.cm.poll_event(), self.device.poll_async_event()) {
                (None, None) if plans == self.plans.load(Ordering::Acquire) => None,
                news => Some(news),
            };
            let later = lock(&self.later).iter().map(|(at, ..)| *at).min();
            let has_limits = self.has_limits.load(Ordering::Acquire);
            let limits = has_limits.then(|| self.device.host().now() + LIMIT_LOOK);
            let deadline = [later, limits].into_iter().flatten().min();
            match self.device.host().wait("events", &sources, deadline, look) {
                Some((connection, other)) => {
                    connection.into_iter().for_each(|event| self.connection(event));
                    other.into_iter().for_each(|event| self.asynchronous(&event));
                }
                None if deadline.is_some() => self.go_on(),
                None => return,
            }
        }
    }

    /// A shared receive queue has got a limit. On shm peers take receives without a word, and who waits for the event does not poll.
    pub(crate) fn expect_limits(&self) {
        if self.is_local && !self.has_limits.swap(true, Ordering::AcqRel) {
            self.plan();
        }
    }

    /// Has an identifier do something at a time. With the objects locked, so that it does nothing after it was destroyed.
    pub(crate) fn do_later(&self, at: Time, id: Handle<CmId>, what: Later) {
        lock(&self.later).push((at, id, what));
        self.plan();
    }

    /// The thread is to look what it waits for.
    fn plan(&self) {
        self.plans.fetch_add(1, Ordering::AcqRel);
        self.planned.ring();
    }

    /// Has those identifiers do whose time has come what they do later.
    fn go_on(&self) {
        let now = self.device.host().now();
        // An identifier that is destroyed takes what it has planned out of the list under this lock.
        let mut objects = lock(&self.objects);
        let due: Vec<_> = lock(&self.later).extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, id, later) in due {
            let Ok(held) = id.look() else { continue };
            match later {
                Later::Connect => connect::again(self, &mut objects, id),
                Later::End(until) => connect::ended(self, held, until),
                Later::TimeWait => connect::time_wait_is_over(held),
            }
        }
    }

    fn connection(&self, event: CmEvent) {
        match event {
            CmEvent::ConnectRequest(request) => {
                // A queue pair that is being reset accepts before that, or not at all.
                let objects = lock(&self.objects);
                match self.pairing.offer(request) {
                    Offered::Wanted(accept) => self.accept(&objects, accept),
                    Offered::Kept => {}
                    Offered::Other(request) => {
                        drop(objects);
                        connect::requested(self, request);
                    }
                }
            }
            CmEvent::Established { qp_num, private_data, info } => {
                let Some(qp_num) = self.pairing.established(qp_num) else { return };
                self.with(qp_num, Qp::established, |id| connect::established(id, private_data, &info));
            }
            CmEvent::Rejected { qp_num, private_data } => {
                let qp_num = self.pairing.whose(qp_num);
                self.with(qp_num, Qp::failed, |id| connect::rejected(id, private_data));
            }
            CmEvent::ConnectFailed { qp_num, why } => {
                let qp_num = self.pairing.whose(qp_num);
                self.with(qp_num, Qp::failed, |id| connect::not_connected(self, id, &why));
            }
            // A pair is not told.
            CmEvent::Disconnected { qp_num } => {
                let until = self.device.host().now() + connect::UNPOLLED;
                self.with(qp_num, |_| {}, |id| connect::ended(self, id, until));
            }
        }
    }

    /// Accepts with one of a pair: the program's, or the other end of one.
    fn accept(&self, objects: &Objects, accept: Accept) {
        let qp = objects.qps.get(&accept.qp_num).and_then(|qp| qp.look().ok());
        if let Some(qp) = qp {
            if self.pairing.accept(qp.verbs(), accept).is_err() {
                qp.failed();
            }
        } else if let Some(bridge) = lock(&self.datagrams).as_ref().and_then(|all| all.by_end(accept.qp_num))
        {
            // Its program's queue pair hears that there is no connection.
            let _ = self.pairing.accept(bridge.end(), accept);
        }
    }

    /// Tells the identifier that a queue pair is connected by, or the queue pair, if it is one of a pair. Both stay meanwhile.
    fn with(&self, qp_num: u32, tell_pair: impl FnOnce(&Qp), tell_id: impl FnOnce(Held<CmId>)) {
        let objects = lock(&self.objects);
        if let Some(id) = objects.ids.get(&qp_num) {
            if let Ok(id) = id.look() {
                tell_id(id);
            }
        } else if let Some(qp) = objects.of_event(qp_num) {
            tell_pair(&qp);
        } else if let Some(bridge) = lock(&self.datagrams).as_ref().and_then(|all| all.of_event(qp_num)) {
            bridge.wake();
        }
    }

    fn asynchronous(&self, event: &AsyncEvent) {
        let objects = lock(&self.objects);
        match event {
            AsyncEvent::CqError { cq } => objects.cqs.get(cq).into_iter().for_each(|cq| event::of_cq(*cq)),
            AsyncEvent::QpAccessError { qp_num } => {
                let qp = objects.of_event(*qp_num);
                qp.into_iter().for_each(|qp| event::of_qp(qp.handle(), event::Kind::QpAccessError));
            }
            AsyncEvent::QpFatal { qp_num, .. } => {
                let qp = objects.of_event(*qp_num);
                qp.into_iter().for_each(|qp| event::of_qp(qp.handle(), event::Kind::QpFatal));
            }
            AsyncEvent::SrqLimitReached { srq } => {
                objects.srqs.get(srq).into_iter().for_each(|srq| event::of_srq(*srq));
            }
            AsyncEvent::LastWqeReached { qp_num } => {
                objects.of_event(*qp_num).into_iter().for_each(Qp::drained);
            }
            // Of no concern to a program that knows of one device.
            _ => {}
        }
    }
}

/// The table of a port. That an entry is missing is said.
fn gids(name: &str, pairing: &Pairing) -> Vec<ibv_gid> {
    let addr = pairing.addr();
    if !pairing.is_found_by_number() {
        let Range { start, end } = PORTS;
        remark(format_args!(
            "{name} has no GID of its address {}, as all ports from {start} to {} of it are taken: exchange GID 0, or end \
             what listens there",
            addr.ip(),
            end - 1
        ));
    }
    shown(address::gids(addr, std::process::id() as u16, pairing.is_found_by_number()))
}

/// The table of a port whose device this process has not opened: its first entry names no process.
pub(crate) fn gids_before(name: &str) -> Vec<ibv_gid> {
    shown(address::gids(SocketAddr::new(own_ip(name), 0), 0, true))
}

/// What looks like an RNIC has the first entry alone, as those do.
fn shown(mut gids: Vec<ibv_gid>) -> Vec<ibv_gid> {
    gids.truncate(if device::kind() == Kind::Rnic { 1 } else { usize::MAX });
    gids
}

/// Where a device of this name is reached.
fn own_ip(name: &str) -> IpAddr {
    side(name).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The address of this host that a device of this name keeps to, if it says one.
pub(crate) fn side(name: &str) -> Option<IpAddr> {
    let side = name.split(['@', '(']).nth(1).filter(|_| name.contains('@'));
    side.and_then(|side| side.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_to_its_side() {
        let side_of = |name| side(name).map(|side| side.to_string());
        for name in ["shm", "shm(dm=1M)", "iwarp"] {
            assert_eq!(side_of(name), None, "{name}");
        }
        assert_eq!(side_of("iwarp@10.0.0.1(crc=on)").as_deref(), Some("10.0.0.1"));
    }
}
