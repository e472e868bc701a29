//! The device: its rails, its objects by number, and the news that rails bring.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use host::{ClockKind, Host, Rate, Span};

use super::channel::ChannelInner;
use super::cm::{CmHandle, CmInner};
use super::cq::CqInner;
use super::domain::RailsPd;
use super::keys::{Chance, ENTRIES, Keys};
use super::lock::unpoisoned;
use super::qp::{OWN_REQUESTS, QpInner, state};
use super::request::PIECES_MAX;
use super::srq::SrqInner;
use super::wake::WakeUp;
use super::worker::{INLINE_MAX, Worker};
use super::{Engine, RAILS_MAX, RailsConfig, hello};
use crate::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps, own};
use crate::{
    Access, AsyncEvent, AtomicCap, Buf, Cm, CmEvent, CompChannel, Device, DeviceAttr, DmAccess, Error,
    Listener, Mr, Pd, QpState, Result, WriteOrder,
};

/// Asynchronous events that wait to be fetched; with so many there, further ones are lost.
const EVENTS_MAX: usize = 4096;

/// What all objects of a device share.
pub(super) struct Inner {
    pub(super) host: Host,
    pub(super) attr: DeviceAttr,
    pub(super) config: RailsConfig,
    name: String,
    pub(super) rails: Vec<Device>,
    /// Their names, for events.
    pub(super) rail_names: Vec<Arc<str>>,
    pub(super) keys: Keys,
    /// On each rail, a region without rights in a domain of its own: its keys are wrong everywhere.
    nobody: Vec<(Pd, Mr)>,
    next: AtomicU32,
    turn: AtomicU32,
    chance: Mutex<Chance>,
    qps: RwLock<BTreeMap<u32, Weak<QpInner>>>,
    /// Queue pairs by rail and their lane's own number.
    lanes: RwLock<BTreeMap<(usize, u32), Weak<QpInner>>>,
    /// How many lanes have been forgotten, whose numbers others may have now.
    forgotten: AtomicU64,
    cqs: RwLock<BTreeMap<(usize, u32), Weak<CqInner>>>,
    srqs: RwLock<BTreeMap<(usize, u32), Weak<SrqInner>>>,
    cms: RwLock<Vec<Weak<CmInner>>>,
    back_door: OnceLock<BackDoor>,
    /// Accepted queue pairs, by the token with which their further lanes come in, and come back.
    pub(super) tokens: Mutex<BTreeMap<u64, Weak<QpInner>>>,
    /// Accepted queue pairs that are not complete.
    pub(super) expected: Mutex<Vec<Weak<QpInner>>>,
    /// Queue pairs that have lost a lane, and have not settled what that means.
    pub(super) mending: Mutex<Vec<Weak<QpInner>>>,
    /// Queue pairs that lack a lane.
    pub(super) lame: Mutex<Vec<Weak<QpInner>>>,
    events: Mutex<VecDeque<AsyncEvent>>,
    /// Where completion queues of each rail report to, where the rail has channels.
    pub(super) channels: Vec<Option<CompChannel>>,
    /// Wakes the service.
    pub(super) service: WakeUp,
    /// The rails' threads; none if the program's serve all rails.
    pub(super) workers: Vec<Arc<Worker>>,
}

/// Where further lanes of accepted queue pairs come in.
struct BackDoor {
    cms: Vec<Cm>,
    listeners: Vec<Listener>,
}

/// What is left of a map's entry.
fn live<K: Ord, T>(map: &RwLock<BTreeMap<K, Weak<T>>>, key: K) -> Option<Arc<T>> {
    map.read().unwrap_or_else(|e| e.into_inner()).get(&key)?.upgrade()
}

fn put<K: Ord, T>(map: &RwLock<BTreeMap<K, Weak<T>>>, key: K, value: &Arc<T>) {
    map.write().unwrap_or_else(|e| e.into_inner()).insert(key, Arc::downgrade(value));
}

fn take<K: Ord, T>(map: &RwLock<BTreeMap<K, Weak<T>>>, key: K) {
    map.write().unwrap_or_else(|e| e.into_inner()).remove(&key);
}

/// Makes one device of several, in this order; the first one's addresses are those of the whole.
///
/// # Errors
/// [`Error::Invalid`] for none, more than [`RAILS_MAX`], the same device twice, devices of different kinds of time, weights
/// that are not one positive number for each, or rails whose private data are too short; those of the rails.
pub fn open(rails: Vec<Device>, config: &RailsConfig) -> Result<Device> {
    check(&rails, config)?;
    let host = rails[0].host().clone();
    let is_virtual = host.clock() == ClockKind::Virtual;
    let name = format!("rails({})", rails.iter().map(Device::name).collect::<Vec<_>>().join(","));
    let channels = rails.iter().map(|rail| rail.create_comp_channel().ok()).collect();
    let inner = Arc::new(Inner {
        attr: attributes(&rails, config)?,
        config: config.clone(),
        name,
        rail_names: rails.iter().map(|rail| rail.name().into()).collect(),
        keys: Keys::new(Chance::new(is_virtual)),
        nobody: rails.iter().map(nobody).collect::<Result<_>>()?,
        next: AtomicU32::new(1),
        turn: AtomicU32::new(0),
        chance: Mutex::new(Chance::new(is_virtual)),
        qps: RwLock::default(),
        lanes: RwLock::default(),
        forgotten: AtomicU64::new(0),
        cqs: RwLock::default(),
        srqs: RwLock::default(),
        cms: RwLock::default(),
        back_door: OnceLock::new(),
        tokens: Mutex::default(),
        expected: Mutex::default(),
        mending: Mutex::default(),
        lame: Mutex::default(),
        events: Mutex::default(),
        channels,
        service: WakeUp::new(is_virtual)?,
        workers: match config.engine {
            Engine::One => Vec::new(),
            Engine::Threads => rails.iter().map(|_| Arc::new(Worker::new())).collect(),
        },
        host,
        rails,
    });
    super::service::start(&inner)?;
    super::threads::start(&inner)?;
    Ok(Device::new(Arc::new(RailsDevice(inner))))
}

fn check(rails: &[Device], config: &RailsConfig) -> Result<()> {
    let invalid = |why: String| Err(Error::Invalid(why));
    if rails.is_empty() || rails.len() > RAILS_MAX {
        return invalid(format!("{} rails were given; write 1 to {RAILS_MAX}", rails.len()));
    }
    for (at, rail) in rails.iter().enumerate() {
        if rails[..at].iter().any(|other| Arc::ptr_eq(other.ops(), rail.ops())) {
            return invalid(format!("{} is given twice; each rail needs a device of its own", rail.name()));
        }
        if rail.host().clock() != rails[0].host().clock() {
            return invalid(format!(
                "{} and {} live in different kinds of time; rails are all modelled or all real",
                rails[0].name(),
                rail.name()
            ));
        }
    }
    let weights = &config.weights;
    if !weights.is_empty() && weights.len() != rails.len() {
        return invalid(format!("{} weights for {} rails; write one for each", weights.len(), rails.len()));
    }
    if weights.iter().any(|weight| !weight.is_finite() || *weight <= 0.0) {
        return invalid("weights of rails are positive numbers".into());
    }
    Ok(())
}

fn nobody(rail: &Device) -> Result<(Pd, Mr)> {
    let pd = rail.alloc_pd()?;
    let mr = pd.reg_mr(&Buf::alloc(1)?, Access::empty())?;
    Ok((pd, mr))
}

fn attributes(rails: &[Device], config: &RailsConfig) -> Result<DeviceAttr> {
    let least = |of: fn(&DeviceAttr) -> u32| rails.iter().map(|rail| of(rail.attr())).min().unwrap_or(0);
    let least_long = |of: fn(&DeviceAttr) -> u64| rails.iter().map(|rail| of(rail.attr())).min().unwrap_or(0);
    let private = least(|a| a.max_private_data);
    let used = (hello::LEN + hello::addrs_room(rails.len() - 1, private as usize)) as u32;
    let Some(max_private_data) = private.checked_sub(used).filter(|left| *left > 0) else {
        let why = format!("{} rails need {used} bytes of private data, and have {private}", rails.len());
        return Err(Error::Invalid(why));
    };
    let weak = rails.iter().map(|rail| rail.attr().atomic_cap).min_by_key(|cap| match cap {
        AtomicCap::None => 0,
        AtomicCap::Hca => 1,
        AtomicCap::Global => 2,
    });
    // Queue pairs have different message lanes, so that atomics of two of them meet on different rails.
    let atomic_cap = match weak.unwrap_or(AtomicCap::None) {
        AtomicCap::Hca if rails.len() > 1 => AtomicCap::None,
        cap => cap,
    };
    let sum = |a: Option<Rate>, rail: &Device| Some(Rate(a?.0 + rail.attr().link_rate?.0));
    let stripes =
        format!("messages from {} bytes on are striped over {} rails", config.stripe_min, rails.len());
    let of_rail = |rail: &Device| rail.attr().notes.iter().map(|n| format!("{}: {n}", rail.name())).collect();
    let notes: Vec<Vec<String>> = rails.iter().map(of_rail).collect();
    Ok(DeviceAttr {
        max_qp: least(|a| a.max_qp),
        max_qp_wr: least(|a| a.max_qp_wr).saturating_sub(OWN_REQUESTS),
        max_sge: least(|a| a.max_sge).min(PIECES_MAX as u32),
        max_inline: least(|a| a.max_inline).min(INLINE_MAX as u32),
        max_cq: least(|a| a.max_cq),
        max_cqe: least(|a| a.max_cqe) / 2,
        max_mr: ENTRIES.min(least(|a| a.max_mr) / 2),
        max_mr_size: least_long(|a| a.max_mr_size),
        max_msg_size: least_long(|a| a.max_msg_size),
        implicit_mr: None,
        firmware: None,
        max_srq: least(|a| a.max_srq),
        max_srq_wr: least(|a| a.max_srq_wr),
        max_private_data,
        max_rd_atomic: least(|a| a.max_rd_atomic),
        max_dm_size: 0,
        atomic_cap,
        atomic_cap_dm: AtomicCap::None,
        write_order: WriteOrder::None,
        write_order_dm: WriteOrder::None,
        dm_access: DmAccess::None,
        write_ring: false,
        link_rate: rails.iter().try_fold(Rate(0.0), |a, rail| sum(Some(a), rail)),
        ports: 1,
        port_addrs: rails[0].attr().port_addrs.first().copied().into_iter().collect(),
        notes: std::iter::once(stripes).chain(notes.into_iter().flatten()).collect(),
    })
}

impl Inner {
    /// Refuses a call in a forked child, of which the first rail knows as well as any: before this side's own state, of which the
    /// child has a copy that may be half changed.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        self.rails[0].ops().check()
    }

    /// A number that no other object of the device has.
    pub(super) fn fresh(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The lane whose turn it is to take messages.
    pub(super) fn next_lane(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) as usize % self.rails.len()
    }

    pub(super) fn forget_token(&self, token: u64) {
        unpoisoned(&self.tokens).remove(&token);
    }

    pub(super) fn token(&self) -> u64 {
        unpoisoned(&self.chance).next()
    }

    /// A key of a rail, as it has it, that allows nothing: for keys that name nothing.
    pub(super) fn nobody(&self, rail: usize) -> &Mr {
        &self.nobody[rail].1
    }

    pub(super) fn qp(&self, num: u32) -> Option<Arc<QpInner>> {
        live(&self.qps, num)
    }

    pub(super) fn qp_of_lane(&self, rail: usize, num: u32) -> Option<Arc<QpInner>> {
        live(&self.lanes, (rail, num))
    }

    pub(super) fn add_qp(&self, qp: &Arc<QpInner>) {
        put(&self.qps, qp.num, qp);
        for (rail, lane) in qp.lanes().iter().enumerate() {
            self.add_lane(rail, lane.num(), qp);
        }
    }

    pub(super) fn forget_qp(&self, qp: &QpInner) {
        take(&self.qps, qp.num);
        for (rail, lane) in qp.lanes().iter().enumerate() {
            self.forget_lane(rail, lane.num());
        }
    }

    pub(super) fn add_lane(&self, rail: usize, num: u32, qp: &Arc<QpInner>) {
        put(&self.lanes, (rail, num), qp);
    }

    /// A lane has gone, or is about to go: its number may be another's from then on.
    pub(super) fn forget_lane(&self, rail: usize, num: u32) {
        take(&self.lanes, (rail, num));
        self.forgotten.fetch_add(1, Ordering::Release);
    }

    /// Changes when a lane goes.
    #[inline]
    pub(super) fn lanes_forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// The queue pairs there are, one at a time: whoever goes through them holds one of them at most, so that the others go at
    /// once when the program drops them.
    pub(super) fn live_qps(&self) -> impl Iterator<Item = Arc<QpInner>> + use<> {
        let all: Vec<_> = self.qps.read().unwrap_or_else(|e| e.into_inner()).values().cloned().collect();
        all.into_iter().filter_map(|qp| qp.upgrade())
    }

    pub(super) fn add_cq(&self, cq: &Arc<CqInner>) {
        cq.lane_ids().for_each(|(rail, id)| put(&self.cqs, (rail, id), cq));
    }

    pub(super) fn forget_cq(&self, cq: &CqInner) {
        cq.lane_ids().for_each(|(rail, id)| take(&self.cqs, (rail, id)));
    }

    /// The completion queues on a rail.
    pub(super) fn cqs_into(&self, rail: usize, cqs: &mut Vec<Arc<CqInner>>) {
        let all = self.cqs.read().unwrap_or_else(|e| e.into_inner());
        cqs.extend(all.range((rail, 0)..(rail + 1, 0)).filter_map(|(_, cq)| cq.upgrade()));
    }

    pub(super) fn add_srq(&self, rail: usize, id: u32, srq: &Arc<SrqInner>) {
        put(&self.srqs, (rail, id), srq);
    }

    pub(super) fn forget_srq(&self, rail: usize, id: u32) {
        take(&self.srqs, (rail, id));
    }

    pub(super) fn async_event(&self, event: AsyncEvent) {
        let mut events = unpoisoned(&self.events);
        // Peers cause them, and nobody need fetch them.
        if events.len() < EVENTS_MAX {
            events.push_back(event);
        }
        drop(events);
        self.host.signal();
    }

    /// Where further lanes come in: made when the first queue pair is accepted.
    fn back_door(&self) -> Result<&BackDoor> {
        if let Some(door) = self.back_door.get() {
            return Ok(door);
        }
        let cms: Vec<Cm> = self.rails.iter().map(Device::create_cm).collect::<Result<_>>()?;
        let open = |(cm, rail): (&Cm, &Device)| {
            let any = SocketAddr::from(([0, 0, 0, 0], 0));
            let addr = rail.attr().port_addrs.first().map_or(any, |ip| SocketAddr::new(*ip, 0));
            cm.listen(addr, 256)
        };
        let listeners = cms.iter().zip(&self.rails).map(open).collect::<Result<_>>()?;
        let door = self.back_door.get_or_init(|| BackDoor { cms, listeners });
        self.service.wake();
        Ok(door)
    }

    /// The addresses at which lanes come in, for a peer that reached this device at `local`.
    pub(super) fn lane_addrs(&self, local: SocketAddr) -> Result<Vec<SocketAddr>> {
        let reachable = |addr: SocketAddr| match addr.ip().is_unspecified() {
            true => SocketAddr::new(local.ip(), addr.port()),
            false => addr,
        };
        Ok(self.back_door()?.listeners.iter().map(|l| reachable(l.addr())).collect())
    }

    pub(super) fn add_cm(&self, cm: &Arc<CmInner>) {
        let mut cms = self.cms.write().unwrap_or_else(|e| e.into_inner());
        cms.retain(|cm| cm.strong_count() > 0);
        cms.push(Arc::downgrade(cm));
        drop(cms);
        self.service.wake();
    }

    pub(super) fn live_cms(&self) -> Vec<Arc<CmInner>> {
        self.cms.read().unwrap_or_else(|e| e.into_inner()).iter().filter_map(Weak::upgrade).collect()
    }

    /// The back door's channels, if it is open.
    pub(super) fn back_cms(&self) -> &[Cm] {
        self.back_door.get().map_or(&[], |door| &door.cms)
    }

    /// Takes whatever rails have to say, and goes on with what waited for it.
    pub(super) fn progress(&self) {
        for cm in self.live_cms() {
            cm.progress();
        }
        for (rail, cm) in self.back_cms().iter().enumerate() {
            while let Some(event) = cm.poll_event() {
                self.on_event(rail, cm, event, None);
            }
        }
        self.progress_channels();
        self.give_up_waiting();
    }

    /// What the service does each time it wakes up.
    pub(super) fn serve(&self) {
        self.progress();
        for qp in self.live_qps() {
            if qp.uses_an_overrun_queue() && qp.state_now() != QpState::Error {
                qp.fail();
            }
            qp.look_at_mail();
            qp.look_at_shared();
        }
        let mending = std::mem::take(&mut *unpoisoned(&self.mending));
        let still = mending.into_iter().filter(|qp| qp.upgrade().is_some_and(|qp| qp.mend()));
        let still: Vec<_> = still.collect();
        unpoisoned(&self.mending).extend(still);
        let lame = std::mem::take(&mut *unpoisoned(&self.lame));
        let still = lame.into_iter().filter(|qp| qp.upgrade().is_some_and(|qp| qp.rejoin()));
        let still: Vec<_> = still.collect();
        unpoisoned(&self.lame).extend(still);
    }

    /// How soon the service is to look again, even if nothing is announced.
    pub(super) fn patience(&self) -> Span {
        if !unpoisoned(&self.mending).is_empty() {
            return Span::from_ms(2);
        }
        if !unpoisoned(&self.expected).is_empty() || !unpoisoned(&self.lame).is_empty() {
            return Span::from_ms(50);
        }
        // A peer may have closed a lane, and written so; that is not announced.
        let connected = self.live_qps().any(|qp| qp.now() == state::READY_TO_SEND);
        if connected { Span::from_ms(100) } else { Span::from_secs(5) }
    }

    /// Completion queues that have reported.
    pub(super) fn progress_channels(&self) {
        for (rail, channel) in self.channels.iter().enumerate() {
            let Some(channel) = channel else { continue };
            while let Some(id) = channel.poll_event() {
                if let Some(cq) = live(&self.cqs, (rail, id)) {
                    cq.on_report();
                }
            }
        }
    }

    /// Something happened to a connection of a rail; `of` is the program's channel that it came by.
    pub(super) fn on_event(&self, rail: usize, cm: &Cm, event: CmEvent, of: Option<&Arc<CmInner>>) {
        match event {
            CmEvent::ConnectRequest(request) => match of {
                Some(of) => of.on_request(request),
                None => super::link::join(self, rail, cm, request),
            },
            CmEvent::Established { qp_num, private_data, info } => {
                if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                    qp.lane_is_up(rail, qp_num, &private_data, info);
                }
            }
            CmEvent::Rejected { qp_num, private_data } => {
                if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                    qp.lane_was_rejected(rail, qp_num, private_data);
                }
            }
            CmEvent::ConnectFailed { qp_num, why } => {
                if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                    qp.lane_failed(rail, qp_num, why);
                }
            }
            CmEvent::Disconnected { qp_num } => {
                if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                    qp.lane_disconnected(rail, qp_num);
                }
            }
        }
    }

    /// Accepted queue pairs whose lanes did not come in time have failed.
    fn give_up_waiting(&self) {
        let expected = std::mem::take(&mut *unpoisoned(&self.expected));
        let still = expected.into_iter().filter(|qp| qp.upgrade().is_some_and(|qp| !qp.give_up_if_overdue()));
        let still: Vec<_> = still.collect();
        unpoisoned(&self.expected).extend(still);
    }

    /// Takes what rails say about their objects.
    pub(super) fn poll_rails(&self) {
        for (rail, device) in self.rails.iter().enumerate() {
            while let Some(event) = device.poll_async_event() {
                match event {
                    AsyncEvent::QpAccessError { qp_num } => {
                        if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                            self.async_event(AsyncEvent::QpAccessError { qp_num: qp.num });
                            qp.is_blamed();
                        }
                    }
                    AsyncEvent::QpFatal { qp_num, why } => {
                        if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                            self.async_event(AsyncEvent::QpFatal { qp_num: qp.num, why });
                            qp.is_blamed();
                        }
                    }
                    AsyncEvent::SrqLimitReached { srq } => {
                        if let Some(srq) = live(&self.srqs, (rail, srq)) {
                            srq.limit_is_reached(rail);
                        }
                    }
                    AsyncEvent::CqError { cq } => {
                        if let Some(cq) = live(&self.cqs, (rail, cq)) {
                            cq.overrun();
                        }
                    }
                    // Rails are not made of rails.
                    AsyncEvent::RailDown { .. } | AsyncEvent::RailUp { .. } => {}
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.service.stop();
        self.workers.iter().for_each(|worker| worker.stop(&self.host));
        self.host.signal();
    }
}

/// The opened device.
struct RailsDevice(Arc<Inner>);

impl DeviceOps for RailsDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn host(&self) -> &Host {
        &self.0.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        Ok(Arc::new(RailsPd::alloc(&self.0)?))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&CompChannel>) -> Result<Arc<dyn CqOps>> {
        let channel =
            channel.map(|channel| own(channel.ops().clone(), "the completion channel")).transpose()?;
        Ok(CqInner::create(&self.0, cqe, channel)?)
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        Ok(Arc::new(CmHandle(CmInner::create(&self.0)?)))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        if self.0.channels.iter().any(Option::is_none) {
            return Err(Error::Unsupported { device: self.0.name.clone(), what: "completion channels" });
        }
        Ok(ChannelInner::create(&self.0)?)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.poll_rails();
        // Overruns show when completions are taken from the rails.
        let cqs: Vec<_> = self.0.cqs.read().unwrap_or_else(|e| e.into_inner()).values().cloned().collect();
        for cq in cqs.iter().filter_map(Weak::upgrade) {
            cq.progress();
        }
        unpoisoned(&self.0.events).pop_front()
    }
}
