//! The device: its objects by number, and what concerns several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use host::{Chore, Host, Wake};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, MrOps, PdOps, QpOps, SrqOps, own};
use verbs::{
    Access, AsyncEvent, AtomicCap, Buf, CompChannel, DeviceAttr, DmAccess, Error, QpInit, Result, SrqInit,
    WriteOrder,
};

use super::channel::ChannelInner;
use super::cm::{CmHandle, CmInner};
use super::config::{Completion, FpduSize, IwarpConfig};
use super::cq::CqInner;
use super::memory::NicMemory;
use super::mr::{IwarpMr, MR_MAX, Table};
use super::nic::Nic;
use super::outbox::Pool;
use super::qp::{QpHandle, QpInner};
use super::ready::TURNS;
use super::socket::check_own;
use super::srq::SrqInner;
use crate::events::AsyncEvents;
use crate::fork::Birth;
use crate::pieces::SGE_MAX;
use crate::sync::Spin;
use crate::tide::Tide;

const QP_MAX: usize = 8192;
const CQ_MAX: usize = 8192;
const SRQ_MAX: usize = 4096;
/// What a request of revision 2 has room for beside its own four bytes (RFC 6581 section 6).
pub(super) const PRIVATE_DATA_MAX: usize = iwarp::mpa::private_data_max(true);

/// Numbers that are taken, each less than a power of two; a number that was given back comes round again late.
struct Numbers {
    taken: BTreeSet<u32>,
    next: u32,
    what: &'static str,
    max: usize,
}

impl Numbers {
    const MASK: u32 = 0xff_ffff;

    fn new(what: &'static str, max: usize) -> Self {
        Self { taken: BTreeSet::new(), next: 1, what, max }
    }

    fn take(&mut self) -> Result<u32> {
        let limit = self.max as u64;
        if self.taken.len() == self.max {
            return Err(Error::Limit { what: self.what, given: limit + 1, limit });
        }
        loop {
            let number = self.next;
            self.next = (self.next + 1) & Self::MASK;
            if number != 0 && self.taken.insert(number) {
                return Ok(number);
            }
        }
    }
}

#[derive(Default)]
struct Connected {
    list: Vec<Arc<QpInner>>,
    turn: usize,
}

/// What all objects of a device share.
pub(super) struct Inner {
    pub(super) host: Host,
    pub(super) birth: Birth,
    pub(super) tide: Tide,
    pub(super) attr: DeviceAttr,
    pub(super) config: IwarpConfig,
    name: String,
    pub(super) regions: Table,
    pub(super) dm: NicMemory,
    pub(super) staging: Pool,
    pds: AtomicU32,
    qp_nums: Mutex<Numbers>,
    cq_ids: Mutex<Numbers>,
    srq_ids: Mutex<Numbers>,
    qps: RwLock<BTreeMap<u32, Arc<QpInner>>>,
    /// Those with a connection, for whoever looks at memory.
    connected: Spin<Connected>,
    /// Whether they are too many to look at each.
    crowded: AtomicBool,
    events: AsyncEvents,
    /// Completion queues that overran, whose queue pairs the thread is to fail.
    condemned: Mutex<Vec<u32>>,
    pub(super) nic: Nic,
}

/// 64 random bits from the kernel.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    // The kernel's generator is always ready by the time programs run.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

pub(super) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks half-way through a change.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Opens an iWARP device.
///
/// # Errors
/// [`Error::System`] when descriptors or a thread cannot be had; [`Error::Address`] for a side that this host does not have.
pub fn open(host: &Host, config: &IwarpConfig) -> Result<verbs::Device> {
    let birth = Birth::here()?;
    config.bind.map_or(Ok(()), check_own)?;
    let files = raise_file_limit();
    let dm_size = config.dm_size.unwrap_or_else(half_of_memory).max(4096);
    let inner = Arc::new(Inner {
        host: host.clone(),
        birth,
        tide: Tide::default(),
        attr: attributes(dm_size, files, config),
        config: config.clone(),
        name: config.bind.map_or_else(|| "iwarp".to_owned(), |ip| format!("iwarp@{ip}")),
        regions: Table::new(),
        dm: NicMemory::new(dm_size),
        staging: Pool::default(),
        pds: AtomicU32::new(1),
        qp_nums: Mutex::new(Numbers::new("queue pairs", QP_MAX)),
        cq_ids: Mutex::new(Numbers::new("completion queues", CQ_MAX)),
        srq_ids: Mutex::new(Numbers::new("shared receive queues", SRQ_MAX)),
        qps: RwLock::new(BTreeMap::new()),
        connected: Spin::new(Connected::default()),
        crowded: AtomicBool::new(false),
        events: AsyncEvents::new()?,
        condemned: Mutex::new(Vec::new()),
        nic: Nic::new()?,
    });
    inner.nic.start(&inner)?;
    let chore: Arc<dyn Chore> = inner.clone();
    host.add_chore(Arc::downgrade(&chore));
    Ok(verbs::Device::new(Arc::new(IwarpDevice(inner))))
}

fn half_of_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram * u64::from(info.mem_unit) / 2).max(64 << 20)
}

/// Connections need descriptors: the soft limit goes up to the hard one.
fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // Refused, the old limit stays, and running out of descriptors says so where it happens.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    getrlimit(Resource::Nofile).current
}

fn attributes(dm_size: u64, files: Option<u64>, config: &IwarpConfig) -> DeviceAttr {
    DeviceAttr {
        max_qp: QP_MAX as u32,
        max_qp_wr: 16_384,
        max_sge: SGE_MAX as u32,
        max_inline: 1024,
        max_cq: CQ_MAX as u32,
        max_cqe: 1 << 22,
        max_mr: MR_MAX as u32,
        max_mr_size: 1 << 46,
        max_msg_size: 1 << 30,
        implicit_mr: Some(Access::LOCAL_WRITE),
        max_srq: SRQ_MAX as u32,
        max_srq_wr: 16_384,
        max_private_data: PRIVATE_DATA_MAX as u32,
        max_rd_atomic: 255,
        max_dm_size: dm_size,
        atomic_cap: AtomicCap::Global,
        atomic_cap_dm: AtomicCap::Global,
        write_order: WriteOrder::LastByteLast,
        write_order_dm: WriteOrder::LastByteLast,
        dm_access: DmAccess::Coherent,
        write_ring: true,
        link_rate: None,
        port_addrs: config.bind.into_iter().collect(),
        ports: 1,
        notes: vec![
            match config.crc {
                true => "CRC32c is asked for".into(),
                false => "CRC32c is used if the peer asks; TCP has a checksum of its own".into(),
            },
            match config.completion {
                Completion::Placed => "a request completes when the peer has placed or delivered it".into(),
                Completion::Sent => "a request completes when TCP has taken it, as on an RNIC".into(),
            },
            match config.fpdu {
                FpduSize::Largest => {
                    "FPDUs are as large as they may be, 63 KiB; with CRCs 60,000 bytes".into()
                }
                FpduSize::Segment => "an FPDU fits a segment of TCP".into(),
                FpduSize::Bytes(bytes) => format!("FPDUs have at most {bytes} bytes"),
            },
            match files {
                Some(n) => format!("{n} descriptors allow about as many connections"),
                None => "descriptors are not limited".into(),
            },
        ],
    }
}

impl Inner {
    pub(super) fn take_qp_num(&self) -> Result<u32> {
        unpoisoned(&self.qp_nums).take()
    }

    pub(super) fn take_cq_id(&self) -> Result<u32> {
        unpoisoned(&self.cq_ids).take()
    }

    pub(super) fn give_cq_id(&self, id: u32) {
        unpoisoned(&self.cq_ids).taken.remove(&id);
    }

    pub(super) fn take_srq_id(&self) -> Result<u32> {
        unpoisoned(&self.srq_ids).take()
    }

    pub(super) fn give_srq_id(&self, id: u32) {
        unpoisoned(&self.srq_ids).taken.remove(&id);
    }

    pub(super) fn register_qp(&self, qp: &Arc<QpInner>) {
        self.tide.rise();
        self.qps.write().unwrap_or_else(|e| e.into_inner()).insert(qp.num, qp.clone());
    }

    pub(super) fn forget_qp(&self, num: u32) {
        self.qps.write().unwrap_or_else(|e| e.into_inner()).remove(&num);
        unpoisoned(&self.qp_nums).taken.remove(&num);
    }

    pub(super) fn qp(&self, num: u32) -> Option<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(|e| e.into_inner()).get(&num).cloned()
    }

    /// A queue pair has a connection from now on.
    pub(super) fn add_connected(&self, qp: &Arc<QpInner>) {
        let mut connected = self.connected.lock();
        connected.list.push(qp.clone());
        let is_first = connected.list.len() == 1;
        self.crowded.store(connected.list.len() > TURNS, Ordering::Relaxed);
        drop(connected);
        if is_first {
            // There was nobody to patrol for.
            self.nic.wake();
        }
    }

    pub(super) fn forget_connected(&self, qp: &QpInner) {
        let mut connected = self.connected.lock();
        connected.list.retain(|other| other.num != qp.num);
        self.crowded.store(connected.list.len() > TURNS, Ordering::Relaxed);
    }

    /// Waits until nobody is in the middle of something that began before the call.
    pub(super) fn pass_all_stages(&self) {
        for qp in self.qps.read().unwrap_or_else(|e| e.into_inner()).values() {
            qp.with(|_| {});
        }
    }

    /// A receive was posted to a shared queue: queue pairs that wait for one look again.
    pub(super) fn feed_starving(&self) {
        for qp in self.qps.read().unwrap_or_else(|e| e.into_inner()).values() {
            if qp.starving.load(Ordering::Relaxed) {
                qp.request();
            }
        }
    }

    pub(super) fn async_event(&self, event: AsyncEvent) {
        self.events.push(event);
    }

    /// All queue pairs that use an overrun completion queue are to fail.
    pub(super) fn condemn_users_of(&self, cq: u32) {
        unpoisoned(&self.condemned).push(cq);
        self.nic.wake();
    }

    /// Completion queues that have overrun since the last call.
    pub(super) fn take_condemned(&self) -> Vec<u32> {
        std::mem::take(&mut *unpoisoned(&self.condemned))
    }

    /// Whether there are more connections than whoever polls looks at one by one.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Those with a connection.
    pub(super) fn connected(&self) -> Vec<Arc<QpInner>> {
        self.connected.lock().list.clone()
    }

    pub(super) fn live_qps(&self) -> Vec<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(|e| e.into_inner()).values().cloned().collect()
    }
}

impl Chore for Inner {
    /// Whoever looks at memory waits for what only a connection can bring.
    fn turn(&self) {
        if self.birth.is_elsewhere() {
            return;
        }
        let Some(mut connected) = self.connected.try_lock() else { return };
        let count = connected.list.len();
        if count <= 1 {
            let only = connected.list.first().cloned();
            drop(connected);
            return only.iter().for_each(|qp| qp.poll());
        }
        let turns = if count > TURNS { 1 } else { count };
        let mut some = [const { None }; TURNS];
        for (step, place) in some.iter_mut().take(turns).enumerate() {
            *place = Some(connected.list[(connected.turn + step) % count].clone());
        }
        connected.turn = if count > TURNS { (connected.turn + turns) % count } else { 0 };
        drop(connected);
        some.iter().flatten().for_each(|qp| qp.poll());
        if count > TURNS {
            self.drive_ready();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.birth.is_elsewhere() {
            self.nic.stop();
        }
    }
}

/// The opened device.
struct IwarpDevice(Arc<Inner>);

impl DeviceOps for IwarpDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn host(&self) -> &Host {
        &self.0.host
    }

    fn check(&self) -> Result<()> {
        self.0.birth.check()
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        self.0.birth.check()?;
        let id = self.0.pds.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(IwarpPd { device: self.0.clone(), id }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&CompChannel>) -> Result<Arc<dyn CqOps>> {
        self.0.birth.check()?;
        let channel =
            channel.map(|channel| own(channel.ops().clone(), "the completion channel")).transpose()?;
        Ok(CqInner::create(&self.0, cqe, channel)?)
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        self.0.birth.check()?;
        Ok(Arc::new(CmHandle(CmInner::create(&self.0)?)))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        self.0.birth.check()?;
        Ok(ChannelInner::create()?)
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.0.birth.check()?;
        self.0.dm.alloc(len)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.events.pop()
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        Some(self.0.events.prepare_wait())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.events.fd())
    }
}

/// A protection domain: a number.
struct IwarpPd {
    device: Arc<Inner>,
    id: u32,
}

impl PdOps for IwarpPd {
    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.birth.check()?;
        Ok(Box::new(IwarpMr::register_all(&self.device, self.id, access)?))
    }

    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.birth.check()?;
        Ok(Box::new(IwarpMr::register(&self.device, self.id, buf, access)?))
    }

    fn create_qp(&self, init: &QpInit) -> Result<Arc<dyn QpOps>> {
        self.device.birth.check()?;
        Ok(Arc::new(QpHandle(QpInner::create(&self.device, self.id, init)?)))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        self.device.birth.check()?;
        Ok(SrqInner::create(&self.device, init)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EVENTS_MAX;

    /// Goal: what peers cause does not pile up where nobody looks. Method: more events than may wait.
    #[test]
    fn events_that_nobody_fetches_are_bounded() {
        let device = open(&host::real::host(), &IwarpConfig::default()).expect("a device");
        let inner: Arc<IwarpDevice> = own(device.ops().clone(), "the device").expect("this one");
        for qp_num in 0..EVENTS_MAX as u32 + 100 {
            inner.0.async_event(AsyncEvent::QpAccessError { qp_num });
        }
        let first = device.poll_async_event();
        assert_eq!(first, Some(AsyncEvent::QpAccessError { qp_num: 0 }), "the first ones are kept");
        assert_eq!(std::iter::from_fn(|| device.poll_async_event()).count(), EVENTS_MAX - 1);
    }
}
