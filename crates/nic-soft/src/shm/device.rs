//! The device: its segment, its objects by number, and what happens when something of it fails.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};

use host::{Bytes, Host, Wake};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, MrOps, PdOps, QpOps, SrqOps, own};
use verbs::{
    Access, AsyncEvent, AtomicCap, Buf, CompChannel, DeviceAttr, DmAccess, Error, MemoryKind, QpInit, Result,
    SrqInit, WriteOrder,
};

use super::cm::{CmHandle, CmInner};
use super::copy_path::{CopyPath, CopyState};
use super::cq::{ChannelInner, CqInner};
use super::everything::{AllMemory, implicit_rights};
use super::heap::Heap;
use super::layout::{CQ_MAX, DM_BASE, HEAP_BASE, Header, MR_MAX, QP_MAX, SRQ_MAX, VERSION, qp_at, state};
use super::mr::ShmMr;
use super::nic::Nic;
use super::peer::Peer;
use super::place::SGE_MAX;
use super::qp::{QpHandle, QpInner};
use super::segment::{FileId, Ref, SEGMENT_MAX, Segment};
use super::srq::SrqInner;
use super::table::Table;
use super::visits::Visits;
use crate::events::Events;
use crate::fork::Birth;
use crate::limits::{half_of_memory, raise_file_limit};
use crate::sync::Spin;
use crate::sync::fence;
use crate::tide::Tide;

/// How a shared-memory device is set up.
#[derive(Clone, Debug, Default)]
pub struct ShmConfig {
    /// How private memory of other processes is reached.
    pub copy: CopyPath,
    /// Bytes of NIC memory that can be allocated. If not given, half of the machine's memory, or less where the limits of
    /// this process leave no room for that. Memory is taken from the machine only as it is allocated.
    pub dm_size: Option<Bytes>,
}

/// Numbers of objects, lowest first.
#[derive(Default)]
pub(super) struct Numbers {
    next: usize,
    free: Vec<usize>,
}

impl Numbers {
    pub(super) fn take(&mut self, what: &'static str, max: usize) -> Result<usize> {
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if self.next == max {
            return Err(Error::Limit { what, given: max as u64 + 1, limit: max as u64 });
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    pub(super) fn give(&mut self, index: usize) {
        self.free.push(index);
    }
}

impl Indices {
    /// A queue pair's number may be used again.
    pub(super) fn give_qp(&mut self, index: usize) {
        self.qp.give(index);
    }
}

/// Numbers of every kind of object.
#[derive(Default)]
pub(super) struct Indices {
    pub(super) mr: Numbers,
    pub(super) cq: Numbers,
    pub(super) srq: Numbers,
    pub(super) channel: Numbers,
    qp: Numbers,
    /// How often each number of a queue pair has been given.
    qp_generations: Vec<u32>,
    /// How many queue pairs have their shared part on each page.
    qps_on_page: Vec<u32>,
}

/// What peers bring about without a word: whoever asks for asynchronous events looks at these.
#[derive(Default)]
struct Watched {
    /// Completion queues that may be overrun, as more may be outstanding than they hold.
    cqs: BTreeMap<usize, Weak<CqInner>>,
    /// Shared receive queues with a limit.
    srqs: BTreeMap<usize, Weak<SrqInner>>,
}

/// What all objects of a device share.
pub(super) struct Inner {
    pub(super) host: Host,
    pub(super) birth: Birth,
    pub(super) attr: DeviceAttr,
    pub(super) name: String,
    pub(super) segment: Segment,
    pub(super) table: Arc<Table>,
    pub(super) header: Ref<Header>,
    pub(super) token: u64,
    pub(super) process: u64,
    pub(super) copy: CopyState,
    pub(super) indices: Spin<Indices>,
    heap: Mutex<Heap>,
    dm: Mutex<Heap>,
    pds: AtomicU32,
    keys: AtomicU64,
    stamps: AtomicU64,
    qps: RwLock<BTreeMap<usize, Arc<QpInner>>>,
    pub(super) cqs: RwLock<BTreeMap<usize, Weak<CqInner>>>,
    pub(super) peers: Mutex<BTreeMap<FileId, Weak<Peer>>>,
    /// Queue pairs that were destroyed while their peer was inside.
    pub(super) departed: Mutex<Vec<Arc<QpInner>>>,
    events: Events<AsyncEvent>,
    failures: AtomicBool,
    watched: Mutex<Watched>,
    /// Held while peers are woken that wait for shared receives.
    feeding: Spin<()>,
    /// Held while it is looked which completion queues report.
    pub(super) hearing: Spin<()>,
    pub(super) tide: Tide,
    pub(super) visits: Visits,
    condemned_cqs: Mutex<Vec<usize>>,
    condemned_qps: Mutex<Vec<usize>>,
    pub(super) nic: Nic,
}

/// A random number that this process was born with; it stands still in memory, for peers to probe.
pub(super) fn process_token() -> &'static u64 {
    static TOKEN: OnceLock<u64> = OnceLock::new();
    TOKEN.get_or_init(random)
}

/// 64 random bits from the kernel; never 0.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // The kernel's generator is always ready by the time programs run; a short read leaves zeros, handled below.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes) | 1
}

/// Opens the shared-memory device.
///
/// # Errors
/// [`Error::System`] when shared memory, descriptors or a thread cannot be had.
pub fn open(host: &Host, config: &ShmConfig) -> Result<verbs::Device> {
    let birth = Birth::here()?;
    fence::register();
    let files = raise_file_limit();
    let whole_pages = |bytes: u64| bytes.next_multiple_of(PAGE).max(PAGE);
    let (segment, dm_size) = match config.dm_size.map(|wanted| whole_pages(wanted.0)) {
        Some(wanted) => {
            Error::check_limit("bytes of NIC memory", wanted, SEGMENT_MAX - DM_BASE)?;
            (Segment::create(DM_BASE + wanted)?, wanted)
        }
        None => Segment::create_within_limits(whole_pages(half_of_memory()).min(SEGMENT_MAX - DM_BASE))?,
    };
    let token = random();
    let header: Ref<Header> = Ref::new(&segment.map, 0)?;
    header.token.store(token, Ordering::Relaxed);
    header.version.store(VERSION, Ordering::Release);
    let copy = CopyState::new(config.copy);
    let attr = attributes(dm_size, files, &copy);
    let inner = Arc::new(Inner {
        host: host.clone(),
        birth,
        attr,
        name: "shm".into(),
        table: Table::own(&segment.map, segment.id()?),
        segment,
        header,
        token,
        process: *process_token(),
        copy,
        indices: Spin::new(Indices::default()),
        heap: Mutex::new(Heap::new("bytes of the segment's rings", HEAP_BASE, DM_BASE)),
        dm: Mutex::new(Heap::new("bytes of NIC memory", DM_BASE, DM_BASE + dm_size)),
        pds: AtomicU32::new(1),
        keys: AtomicU64::new(random()),
        stamps: AtomicU64::new(1),
        qps: RwLock::new(BTreeMap::new()),
        cqs: RwLock::new(BTreeMap::new()),
        peers: Mutex::new(BTreeMap::new()),
        departed: Mutex::new(Vec::new()),
        events: Events::asynchronous()?,
        failures: AtomicBool::new(false),
        watched: Mutex::default(),
        feeding: Spin::new(()),
        hearing: Spin::new(()),
        tide: Tide::default(),
        visits: Visits::default(),
        condemned_cqs: Mutex::default(),
        condemned_qps: Mutex::default(),
        nic: Nic::new()?,
    });
    inner.nic.start(&inner)?;
    Ok(verbs::Device::new(Arc::new(ShmDevice(inner))))
}

const PAGE: u64 = 4096;

/// The page of the table on which a queue pair's shared part lies.
fn qp_page(index: usize) -> usize {
    ((qp_at(index) - qp_at(0)) / PAGE) as usize
}

/// Of writes into host memory of another process, the kernel copies the last byte by itself (`place`); that stores stay in
/// order is the x86's.
const HOST_ORDER: WriteOrder =
    if cfg!(target_arch = "x86_64") { WriteOrder::LastByteLast } else { WriteOrder::None };

fn attributes(dm_size: u64, files: Option<u64>, copy: &CopyState) -> DeviceAttr {
    let barriers = if fence::register() { "expedited membarrier(2)" } else { "full fences" };
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
        implicit_mr: implicit_rights(),
        firmware: None,
        max_srq: SRQ_MAX as u32,
        max_srq_wr: 16_384,
        max_private_data: super::wire::PRIVATE_MAX as u32,
        max_rd_atomic: 255,
        max_dm_size: dm_size,
        atomic_cap: AtomicCap::Hca,
        atomic_cap_dm: AtomicCap::Global,
        write_order: HOST_ORDER,
        write_order_dm: WriteOrder::LastByteLast,
        dm_access: DmAccess::Coherent,
        write_ring: true,
        link_rate: None,
        port_addrs: Vec::new(),
        ports: 1,
        notes: vec![
            copy.describe(),
            format!("deregistration waits for accesses by {barriers}"),
            match files {
                Some(n) => format!("{n} descriptors allow about {} connections", n / 5),
                None => "descriptors are not limited".into(),
            },
        ],
    }
}

impl Inner {
    /// A key for region `index` that differs from its last.
    pub(super) fn fresh_key(&self, index: usize) -> u32 {
        // An odd factor permutes the 65,536 values, so that none comes back before all have been used; the
        // start is random. Key 0 is nobody's.
        let low = loop {
            let count = self.keys.fetch_add(1, Ordering::Relaxed);
            let low = count.wrapping_mul(40_503) as u32 & 0xffff;
            if low != 0 {
                break low;
            }
        };
        (index as u32) << 16 | low
    }

    /// A number for a registration that no other has.
    pub(super) fn fresh_stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether NIC memory lies in this device.
    pub(super) fn owns_nic_memory(&self, buf: &Buf) -> bool {
        self.segment
            .map
            .bytes(buf.nic_offset(), buf.len() as u64)
            .is_some_and(|at| at == buf.as_ptr() && buf.nic_offset() >= DM_BASE)
    }

    /// Room for a ring, committed and zeroed.
    pub(super) fn take_ring(self: &Arc<Self>, len: u64) -> Result<Ring> {
        let len = len.next_multiple_of(64);
        let at = unpoisoned(&self.heap).take(len, 64)?;
        let ring = Ring { device: self.clone(), at, len };
        self.segment.commit(at, len)?;
        if let Some(bytes) = self.segment.map.bytes(at, len) {
            // SAFETY: the range is ours alone until its place is published. Test: all that makes queue pairs.
            unsafe { std::ptr::write_bytes(bytes, 0, len as usize) };
        }
        Ok(ring)
    }

    pub(super) fn take_qp_index(&self) -> Result<(usize, u32)> {
        let mut indices = self.indices.lock();
        let index = indices.qp.take("queue pairs", QP_MAX)?;
        // By number in one piece: what lived on between the queue pairs' own would keep their pages from going back.
        if indices.qp_generations.len() <= index {
            indices.qp_generations.resize(index + 1, 0);
            indices.qps_on_page.resize(qp_page(index) + 1, 0);
        }
        let generation = indices.qp_generations[index].wrapping_add(1);
        indices.qp_generations[index] = generation;
        indices.qps_on_page[qp_page(index)] += 1;
        Ok((index, generation))
    }

    pub(super) fn register_qp(&self, qp: &Arc<QpInner>) {
        self.qps.write().unwrap_or_else(|e| e.into_inner()).insert(qp.index, qp.clone());
    }

    /// An object has gone that took so much of malloc(3).
    pub(super) fn fall(&self, bytes: usize) {
        if !self.birth.is_elsewhere() && self.tide.fall(bytes) {
            self.nic.wake();
        }
    }

    pub(super) fn forget_qp(&self, index: usize, reuse: bool) {
        self.qps.write().unwrap_or_else(|e| e.into_inner()).remove(&index);
        if reuse {
            let mut indices = self.indices.lock();
            indices.qp.give(index);
            let page = qp_page(index);
            indices.qps_on_page[page] -= 1;
            if indices.qps_on_page[page] == 0 {
                // Under the lock: from then on somebody may make a queue pair there.
                self.segment.release(qp_at(0) + page as u64 * PAGE, PAGE);
            }
        }
    }

    pub(super) fn register_cq(&self, cq: &Arc<CqInner>) {
        self.cqs.write().unwrap_or_else(|e| e.into_inner()).insert(cq.index, Arc::downgrade(cq));
    }

    pub(super) fn forget_cq(&self, index: usize) {
        // First: whoever has the index next is another. What is forgotten is what a weak handle keeps of its memory.
        self.cqs.write().unwrap_or_else(|e| e.into_inner()).remove(&index);
        self.indices.lock().cq.give(index);
    }

    /// A completion queue may be overrun from now on.
    pub(super) fn watch_for_overrun(&self, cq: &Arc<CqInner>) {
        unpoisoned(&self.watched).cqs.insert(cq.index, Arc::downgrade(cq));
    }

    /// A shared receive queue has a limit from now on.
    pub(super) fn watch_limit(&self, index: usize, srq: &Weak<SrqInner>) {
        unpoisoned(&self.watched).srqs.insert(index, srq.clone());
    }

    /// Looks at what peers may have brought about.
    fn look_at_watched(&self) {
        let mut watched = unpoisoned(&self.watched);
        watched.cqs.retain(|_, cq| {
            let live = cq.upgrade();
            live.inspect(|cq| cq.look_for_overrun()).is_some()
        });
        watched.srqs.retain(|_, srq| {
            let limited = srq.upgrade().filter(|srq| srq.has_limit());
            limited.inspect(|srq| srq.check_limit()).is_some()
        });
    }

    /// A queue pair by its number.
    pub(super) fn qp(&self, index: usize) -> Option<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(|e| e.into_inner()).get(&index).cloned()
    }

    pub(super) fn live_qps(&self) -> Vec<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(|e| e.into_inner()).values().cloned().collect()
    }

    /// A completion queue by its number.
    pub(super) fn cq(&self, index: usize) -> Option<Arc<CqInner>> {
        self.cqs.read().unwrap_or_else(|e| e.into_inner()).get(&index)?.upgrade()
    }

    pub(super) fn live_cqs(&self) -> Vec<Arc<CqInner>> {
        self.cqs.read().unwrap_or_else(|e| e.into_inner()).values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn async_event(&self, event: AsyncEvent) {
        self.events.push(event);
    }

    /// A queue pair is to fail, found out where it cannot be done at once.
    pub(super) fn condemn(&self, qp: &QpInner) {
        if qp.failure.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            unpoisoned(&self.condemned_qps).push(qp.index);
        }
        self.failures.store(true, Ordering::Release);
        self.nic.wake();
    }

    /// All queue pairs that use an overrun completion queue are to fail.
    pub(super) fn condemn_users_of(&self, cq_index: usize) {
        unpoisoned(&self.condemned_cqs).push(cq_index);
        self.failures.store(true, Ordering::Release);
        self.nic.wake();
    }

    #[inline]
    pub(super) fn has_failures(&self) -> bool {
        self.failures.load(Ordering::Relaxed)
    }

    /// Deals with what was condemned; holding no lock.
    pub(super) fn settle_failures(&self) {
        if !self.failures.swap(false, Ordering::AcqRel) {
            return;
        }
        let cqs = std::mem::take(&mut *unpoisoned(&self.condemned_cqs));
        for cq in self.live_cqs().iter().filter(|cq| cqs.contains(&cq.index)) {
            for qp in cq.users() {
                // Its completions are lost: the peer must not go on as if nothing had happened.
                self.nic.part(self, &qp, true);
                qp.fail();
            }
        }
        let qps = std::mem::take(&mut *unpoisoned(&self.condemned_qps));
        for qp in qps.into_iter().filter_map(|index| self.qp(index)) {
            if qp.failure.load(Ordering::Acquire) == 1 {
                qp.fail();
            }
        }
    }

    /// Wakes peers that wait for a receive of a shared queue, those that have said so.
    #[cold]
    pub(super) fn feed_starving(&self, srq: &SrqInner) {
        // One at a time: who waits for another queue is out of the set for a moment.
        let _feeding = self.feeding.lock();
        if !srq.take_hunger() {
            return;
        }
        for index in self.header.starving.taken() {
            let Some(qp) = self.qp(index) else { continue };
            match &qp.srq {
                Some(its) if its.index != srq.index => self.header.starving.add(index),
                _ => qp.feed_if_starved(),
            }
        }
    }
}

impl QpInner {
    /// Fails: both ends go to the error state, everything that waits is flushed, everybody is woken. Holding no lock.
    pub(super) fn fail(&self) {
        if self.is_failed_by_peer() {
            self.peer_parted.store(true, Ordering::Release);
        }
        for from in [state::INIT, state::RTR, state::RTS] {
            self.advance(from, state::ERROR);
        }
        let first = self.failure.swap(2, Ordering::AcqRel) != 2;
        if let Some(link) = self.link.get().filter(|_| !self.peer_parted.load(Ordering::Acquire)) {
            for from in [state::RTS, state::RTR] {
                let (from, to) =
                    (state::word(link.generation, from), state::word(link.generation, state::ERROR));
                if link.qp.status.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    link.kick();
                }
            }
        }
        self.flush_sends();
        if first && !self.quiet.load(Ordering::Acquire) {
            self.device.async_event(AsyncEvent::QpAccessError { qp_num: self.num });
        }
        self.recv_cq.alarm(self.index);
        self.send_cq.notify(true);
        if self.peer_is_inside() {
            self.device.look_at(self.index);
        }
    }
}

pub(super) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks half-way through a change.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// A piece of the segment's heap, given back when dropped.
pub(super) struct Ring {
    device: Arc<Inner>,
    pub(super) at: u64,
    len: u64,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        let mut heap = unpoisoned(&self.device.heap);
        let (at, len) = heap.give(self.at, self.len);
        // Pages that hold nothing else any more; under the lock, as somebody may take them from then on.
        let from = at.next_multiple_of(PAGE).max(self.at / PAGE * PAGE);
        let to = ((at + len) / PAGE * PAGE).min((self.at + self.len).next_multiple_of(PAGE));
        if from < to {
            self.device.segment.release(from, to - from);
        }
    }
}

/// A piece of NIC memory, given back with its last handle.
struct DmPiece {
    device: Arc<Inner>,
    at: u64,
    len: u64,
}

impl Drop for DmPiece {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.device.segment.release(self.at, self.len);
        unpoisoned(&self.device.dm).give(self.at, self.len);
    }
}

/// The opened device.
struct ShmDevice(Arc<Inner>);

/// What is behind a device of this kind.
#[cfg(test)]
pub(super) fn of(device: &verbs::Device) -> Result<Arc<Inner>> {
    let shm: Arc<ShmDevice> = own(device.ops().clone(), "the device")?;
    Ok(shm.0.clone())
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.birth.is_elsewhere() {
            self.nic.stop();
        }
    }
}

impl DeviceOps for ShmDevice {
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

    fn check_mtu(&self, _mtu: u32) -> Result<()> {
        let what = "an MTU: it copies messages within memory, and there are no packets";
        Err(Error::Unsupported { device: self.0.name.clone(), what })
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        self.0.birth.check()?;
        let id = self.0.pds.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(ShmPd { device: self.0.clone(), id }))
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
        Ok(ChannelInner::create(&self.0)?)
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.0.birth.check()?;
        if len == 0 {
            return Err(Error::Invalid("NIC memory needs at least one byte".into()));
        }
        let rounded = (len as u64).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let at = {
            let mut dm = unpoisoned(&self.0.dm);
            Error::check_limit("bytes of NIC memory", rounded, dm.total())?;
            dm.take(rounded, PAGE)?
        };
        let piece = Arc::new(DmPiece { device: self.0.clone(), at, len: rounded });
        self.0.segment.commit(at, rounded)?;
        let base = self.0.segment.map.bytes(at, rounded).and_then(std::ptr::NonNull::new);
        let base = base.ok_or_else(|| Error::Invalid("NIC memory outside the segment".into()))?;
        // SAFETY: the piece keeps the device and with it the mapping; nobody makes references into it.
        Ok(unsafe { Buf::from_raw(base, len, MemoryKind::Nic, at, piece) })
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.birth.check().ok()?;
        // Peers fill queues and take receives without a word; whoever asks finds out.
        self.0.look_at_watched();
        self.0.settle_failures();
        self.0.events.pop(|| {})
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        Some(self.0.events.prepare_wait())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.events.fd())
    }
}

/// A protection domain: a number.
struct ShmPd {
    device: Arc<Inner>,
    id: u32,
}

impl PdOps for ShmPd {
    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.birth.check()?;
        Ok(Box::new(AllMemory::register(&self.device, self.id, access)?))
    }

    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.birth.check()?;
        Ok(Box::new(ShmMr::register(&self.device, self.id, buf, access)?))
    }

    fn create_qp(&self, init: &QpInit) -> Result<Arc<dyn QpOps>> {
        self.device.birth.check()?;
        Ok(Arc::new(QpHandle(QpInner::create(&self.device, self.id, init)?)))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        self.device.birth.check()?;
        Ok(SrqInner::create(&self.device, self.id, init)?)
    }
}

/// Whether the kernel's Yama module restricts process_vm access, as the number in its file; `None` without Yama.
pub(super) fn yama_scope() -> Option<u8> {
    let file = Path::new("/proc/sys/kernel/yama/ptrace_scope");
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use verbs::Qp;

    use super::*;

    /// Bytes that a device's segment takes of the machine's memory.
    fn committed(device: &Inner) -> u64 {
        rustix::fs::fstat(&device.segment).expect("a file").st_blocks as u64 * 512
    }

    /// Goal: a queue pair that has gone leaves no memory in its device, however late its peer notices. Method: a peer whose
    /// thread has ended, so that its own destroying is the first that it does about it.
    #[test]
    fn a_peer_that_goes_later_takes_no_memory_of_the_one_that_went() {
        let (near, far) = super::super::lies::connected();
        let device_of = |qp: &Qp| {
            let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair").expect("ours");
            handle.0.device.clone()
        };
        let (left, other) = (device_of(&near), device_of(&far));
        other.nic.stop();
        let before = committed(&left);
        drop(near);
        let gone = committed(&left);
        assert!(gone < before, "its page is given back: {gone} of {before}");
        drop(far);
        assert_eq!(committed(&left), gone, "touched again");
    }
}
