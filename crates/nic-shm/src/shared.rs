//! State that all objects of a device share. This module does not depend on any of the objects.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use host::Host;
use verbs::{Access, AsyncEvent, DeviceAttr, MwBind, Result};

use crate::memory::allocator::{PAGE, SegmentAllocator};
use crate::memory::layout::{Header, VERSION, region_kind};
use crate::memory::numbers::Indices;
use crate::memory::segment::SharedRef;
use crate::memory::table::{ProtectionTable, Region};
use crate::peer::device::PeerDevices;
use crate::protocol::token::{process_token, random};
use crate::wake::reactor::Reactor;
use nic_util::events::EventQueue;
use nic_util::fork::ForkGuard;
use nic_util::heap_trim::HeapTrim;
use nic_util::sync::ready::ReadySet;
use nic_util::sync::{Spin, unpoisoned};
use nic_util::windows::{WindowTable, Windows};

/// The name of the device.
pub(crate) const NAME: &str = "shm";

/// State that all objects of a device share.
pub(crate) struct DeviceShared {
    pub(crate) host: Host,
    pub(crate) fork_guard: ForkGuard,
    pub(crate) attr: DeviceAttr,
    pub(crate) memory: Arc<SegmentAllocator>,
    pub(crate) table: Arc<ProtectionTable>,
    pub(crate) header: SharedRef<Header>,
    /// A random number, chosen when the device was opened.
    pub(crate) token: u64,
    /// The random number of the process.
    pub(crate) process: &'static u64,
    pub(crate) peers: PeerDevices,
    pub(crate) indices: Spin<Indices>,
    pub(crate) windows: Windows,
    keys: AtomicU64,
    stamps: AtomicU64,
    pub(crate) events: EventQueue<AsyncEvent>,
    requested_failures: RequestedFailures,
    pub(crate) heap_trim: HeapTrim,
    /// Registries of queue pairs whose send requests this process has carried out, and of completion queues
    /// that it has polled, since it last waited for them; see [`nic_util::sync::reader_registry`].
    pub(crate) posters: ReadySet,
    pub(crate) pollers: ReadySet,
    pub(crate) reactor: Reactor,
}

/// Objects that must fail, found by code that cannot fail them itself.
#[derive(Default)]
struct RequestedFailures {
    any: AtomicBool,
    /// Completion queues that have overrun.
    cqs: Mutex<Vec<usize>>,
    qps: Mutex<Vec<usize>>,
}

/// A part of a region, for a memory window.
pub(crate) struct WindowPart {
    kind: u32,
    place: u64,
    addr: u64,
    len: u64,
}

impl WindowTable for DeviceShared {
    type Part = WindowPart;

    fn part(&self, pd: u32, bind: &MwBind) -> Option<WindowPart> {
        let (kind, place) = self.table.part(pd, bind)?;
        Some(WindowPart { kind, place, addr: bind.addr, len: bind.len })
    }

    fn is_valid(&self, rkey: u32) -> bool {
        self.table.is_valid(rkey)
    }

    fn unbind(&self, rkey: u32) {
        self.table.remove(rkey);
    }

    fn bind(&self, rkey: u32, pd: u32, owner: u64, part: WindowPart, access: Access) {
        let WindowPart { kind, place, addr, len } = part;
        let (kind, stamp) = (kind | region_kind::WINDOW, self.new_stamp());
        self.table.insert(rkey, &Region { access, pd, kind, addr, len, place, stamp, window_owner: owner });
    }
}

impl DeviceShared {
    pub(crate) fn new(
        host: &Host,
        fork_guard: ForkGuard,
        attr: DeviceAttr,
        memory: SegmentAllocator,
        peers: PeerDevices,
    ) -> Result<Self> {
        let token = random()?;
        let header: SharedRef<Header> = SharedRef::new(&memory.segment.map, 0)?;
        header.token.store(token, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Release);
        Ok(Self {
            host: host.clone(),
            fork_guard,
            attr,
            table: ProtectionTable::create_own(&memory.segment.map, memory.segment.id()?),
            memory: Arc::new(memory),
            header,
            token,
            process: process_token()?,
            peers,
            indices: Spin::default(),
            windows: Windows::default(),
            keys: AtomicU64::new(random()?),
            stamps: AtomicU64::new(1),
            events: EventQueue::asynchronous()?,
            requested_failures: RequestedFailures::default(),
            heap_trim: HeapTrim::default(),
            posters: ReadySet::new(),
            pollers: ReadySet::new(),
            reactor: Reactor::new()?,
        })
    }

    /// A key for region `index` that differs from the region's last key.
    pub(crate) fn new_key(&self, index: usize) -> u32 {
        // An odd factor permutes the 65,536 values, so that none is reused before all have been used; the
        // start is random. Key 0 is never valid.
        let low = loop {
            let count = self.keys.fetch_add(1, Ordering::Relaxed);
            let low = count.wrapping_mul(40_503) as u32 & 0xffff;
            if low != 0 {
                break low;
            }
        };
        (index as u32) << 16 | low
    }

    /// A stamp for a registration, never used before.
    pub(crate) fn new_stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    /// Frees a queue pair's number.
    pub(crate) fn free_qp(&self, index: usize) {
        let mut indices = self.indices.lock();
        if let Some(page) = indices.qp.free(index) {
            // Under the lock: from then on another thread may create a queue pair there.
            self.memory.segment.release(page, PAGE);
        }
    }

    /// Counts a freed object of `bytes` bytes, and wakes the NIC thread if memory can be returned to the
    /// system.
    pub(crate) fn count_freed(&self, bytes: usize) {
        if !self.fork_guard.is_forked() && self.heap_trim.count_freed(bytes) {
            self.reactor.wake();
        }
    }

    /// Reports that a large block was freed: the NIC thread checks whether its memory can be returned to the
    /// system.
    pub(crate) fn count_bulk_free(&self) {
        self.heap_trim.request_trim();
        self.reactor.wake();
    }

    /// Queues an asynchronous event for the program.
    pub(crate) fn async_event(&self, event: AsyncEvent) {
        self.events.push(event);
    }

    /// Makes the NIC thread check a queue pair of this device.
    pub(crate) fn kick_qp(&self, index: usize) {
        self.header.kicked.add(index);
        self.reactor.wake();
    }

    /// Marks a queue pair to be failed.
    pub(crate) fn request_qp_failure(&self, index: usize) {
        unpoisoned(&self.requested_failures.qps).push(index);
        self.wake_for_failures();
    }

    /// Marks all queue pairs that use an overrun completion queue to be failed.
    pub(crate) fn request_failure_of_cq_users(&self, cq: usize) {
        unpoisoned(&self.requested_failures.cqs).push(cq);
        self.wake_for_failures();
    }

    fn wake_for_failures(&self) {
        self.requested_failures.any.store(true, Ordering::Release);
        self.reactor.wake();
    }

    /// Whether any object is marked to be failed.
    #[inline]
    pub(crate) fn has_requested_failures(&self) -> bool {
        self.requested_failures.any.load(Ordering::Relaxed)
    }

    /// Overrun completion queues, and queue pairs, that were marked to be failed since the last call.
    pub(crate) fn take_requested_failures(&self) -> (Vec<usize>, Vec<usize>) {
        if !self.requested_failures.any.swap(false, Ordering::AcqRel) {
            return Default::default();
        }
        let take = |list: &Mutex<Vec<usize>>| std::mem::take(&mut *unpoisoned(list));
        (take(&self.requested_failures.cqs), take(&self.requested_failures.qps))
    }
}
