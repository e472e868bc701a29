//! Layout of a device's segment, and the words that processes share.
//!
//! Everything here consists of atomics: any bytes are valid, and all zero is a new object. A connected peer
//! can write all of it, including this side's protection table: it is a process of the same user, and trusted
//! as such.
//!
//! ```text
//! 0          header
//! 64 KiB     memory regions     65,536 x 64 B
//! 8 MiB      queue pairs         8,192 x 1 KiB
//! 16 MiB     completion queues   4,096 x 2 KiB
//! 28 MiB     shared receive queues, completion channels
//! 32 MiB     heap of rings
//! 1 GiB      NIC memory
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use host::EventCount;
use verbs::RNR_PAUSE;

use nic_util::sync::adaptive_fence::AdaptiveFence;
use nic_util::sync::asymmetric_notify::AsymmetricNotify;
use nic_util::sync::guard::Busy;
use nic_util::sync::ready::{MEMBERS, ReadySet};

/// Must change with every change of this file.
pub(crate) const VERSION: u32 = 9;

pub(crate) const MR_MAX: usize = 65_536;
pub(crate) const QP_MAX: usize = MEMBERS;
pub(crate) const CQ_MAX: usize = 4_096;
pub(crate) const SRQ_MAX: usize = 4_096;
pub(crate) const CHANNEL_MAX: usize = 4_096;

const MR_BASE: u64 = 64 << 10;
const QP_BASE: u64 = 8 << 20;
const CQ_BASE: u64 = 16 << 20;
const CQ_STRIDE: u64 = 2 << 10;
const SRQ_BASE: u64 = 28 << 20;
const CHANNEL_BASE: u64 = 30 << 20;
/// The heap of rings.
pub(crate) const HEAP_BASE: u64 = 32 << 20;
/// NIC memory, up to the end of the segment.
pub(crate) const DM_BASE: u64 = 1 << 30;

/// Marks types that may be mapped onto shared memory.
///
/// # Safety
/// The type is `repr(C)` and consists of atomics (or of types that do), so that every bit pattern is valid and
/// shared references to it are sound whatever other processes do.
pub(crate) unsafe trait ShmObject {}

/// Identifies the owner; the peer checks it before anything else.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) version: AtomicU32,
    /// A random number, chosen when the device was opened.
    pub(crate) token: AtomicU64,
    /// The holder of the lock for atomics on private memory: its queue pair here + 1 in the lower half, the
    /// number of its acquisitions in the upper half; 0 if free.
    pub(crate) atomic_holder: CacheLine<AtomicU64>,
    /// Queue pairs here that the NIC thread must check; written before it is woken.
    pub(crate) kicked: ReadySet,
    /// Queue pairs here whose peers wait for a receive of a shared receive queue.
    pub(crate) rnr: ReadySet,
    /// Completion queues here that have an event for their channels.
    pub(crate) reporting: ReadySet,
    /// Registry of queue pairs here whose peers accessed memory since this device last waited for them; see
    /// [`nic_util::sync::reader_registry`].
    pub(crate) visited: ReadySet,
}

/// A memory region's entry in the protection table.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct MrEntry {
    /// The key; 0 while free. All other fields are written before the key and not changed while it is valid.
    pub(crate) key: AtomicU32,
    pub(crate) access: AtomicU32,
    pub(crate) pd: AtomicU32,
    /// A number of [`region_kind`].
    pub(crate) kind: AtomicU32,
    /// The address of the first byte, as work requests use it.
    pub(crate) addr: AtomicU64,
    pub(crate) len: AtomicU64,
    /// The address of the first byte in the owner's process; for NIC memory, the offset in the segment.
    pub(crate) place: AtomicU64,
    /// A number that only this registration has; 0 while the key is not valid.
    pub(crate) stamp: AtomicU64,
    /// For a memory window: the queue pair of the owner that may use it, or 0 for all of the domain.
    pub(crate) window_owner: AtomicU64,
}

/// The kind of memory of a region.
pub(crate) mod region_kind {
    /// A range of the owner's private memory.
    pub(crate) const HOST: u32 = 0;
    /// NIC memory of the owner.
    pub(crate) const NIC: u32 = 1;
    /// All of the owner's private memory.
    pub(crate) const ALL: u32 = 2;
    /// A memory window: this bit, and the kind of the region that it is bound to.
    pub(crate) const WINDOW: u32 = 1 << 8;
}

/// The shared part of a queue pair.
#[repr(C, align(64))]
pub(crate) struct QpShared {
    /// Generation in the upper half, [`verbs::QpState`] as a number in the lower.
    pub(crate) status: AtomicU64,
    pub(crate) pd: AtomicU32,
    pub(crate) recv_cq: AtomicU32,
    /// Shared receive queue + 1; 0 without one.
    pub(crate) srq: AtomicU32,
    pub(crate) recv_shift: AtomicU32,
    pub(crate) recv_stride: AtomicU32,
    pub(crate) comp_shift: AtomicU32,
    pub(crate) recv_ring: AtomicU64,
    pub(crate) comp_ring: AtomicU64,
    /// The pause before a message that found no receive is retried, in nanoseconds.
    pub(crate) rnr_pause: AtomicU32,
    /// Written by the peer: whether it accesses this device's memory.
    pub(crate) peer: CacheLine<PeerWords>,
    /// Set by a waiting peer, for a receive or for room in the completion ring; cleared by the owner.
    pub(crate) rnr: CacheLine<AtomicU32>,
    /// Number of completions that the owner has consumed from the ring.
    pub(crate) taken: AtomicU64,
    /// Set to the generation by the peer before it fails this queue pair because a request lacked access
    /// rights.
    pub(crate) access_error: AtomicU32,
    /// A copy that the peer requests from this device's NIC thread.
    pub(crate) service: CacheLine<ServiceWords>,
}

impl QpShared {
    /// Resets the state of a predecessor; from here on the entry belongs to this generation.
    pub(crate) fn reset_for_generation(&self, generation: u32) {
        self.taken.store(0, Ordering::Relaxed);
        self.access_error.store(0, Ordering::Relaxed);
        self.rnr.0.store(0, Ordering::Relaxed);
        self.rnr_pause.store(RNR_PAUSE.as_ns() as u32, Ordering::Relaxed);
        self.service.0.turn.store(0, Ordering::Relaxed);
        self.service.0.bounce.store(0, Ordering::Relaxed);
        self.peer.0.busy.reset();
        self.status.store(state::status_word(generation, state::INIT), Ordering::Release);
    }
}

/// Words that only the peer writes, once per operation.
#[repr(C)]
pub(crate) struct PeerWords {
    pub(crate) busy: Busy,
}

/// A copy that the peer requests from the owner of private memory, where the kernel does not allow the peer
/// to copy.
#[repr(C)]
pub(crate) struct ServiceWords {
    /// See `service_client`: the requester increments it to request, the owner increments it to answer.
    pub(crate) turn: AtomicU32,
    /// A number of [`service_op`].
    pub(crate) kind: AtomicU32,
    pub(crate) len: AtomicU64,
    /// The address as requests use it, which the owner checks against `key`.
    pub(crate) addr: AtomicU64,
    pub(crate) key: AtomicU32,
    /// 0: done; 1: refused.
    pub(crate) refused: AtomicU32,
    pub(crate) operand: [AtomicU64; 2],
    /// The bounce buffer's offset in the owner's segment; 0 until the owner has allocated one.
    pub(crate) bounce: AtomicU64,
}

/// A separate cache line (two, as processors fetch pairs).
#[repr(C, align(128))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// The words of a posted receive, in a ring or in the store of a shared receive queue.
pub(crate) mod recv {
    use super::{AtomicU64, Ordering};
    use nic_util::sg_list::SGE_MAX;

    /// Lap mark and number of SGEs (rings only).
    pub(crate) const MARK: usize = 0;
    pub(crate) const WR_ID: usize = 1;
    /// Number of SGEs, for stores, whose slots have no lap.
    pub(crate) const COUNT: usize = 0;
    /// The SGEs: address, then length in the upper half and key in the lower.
    pub(crate) const SGES: usize = 2;

    /// Number of SGEs of a receive, limited to the size of its slot.
    #[inline]
    pub(crate) fn sges(slot: &[AtomicU64]) -> usize {
        let said = (slot[MARK].load(Ordering::Relaxed) & 0xffff) as usize;
        said.min(SGE_MAX).min((slot.len() - SGES) / 2)
    }

    /// Size in bytes of a receive with up to `sges` SGEs.
    pub(crate) const fn stride(sges: u32) -> u64 {
        ((SGES as u64 + 2 * sges as u64) * 8).next_multiple_of(64)
    }
}

/// The words of a receive completion, which the peer writes.
pub(crate) mod comp {
    use verbs::WcStatus;

    /// Lap mark; in the lower half opcode, status, flags and the number of inline bytes.
    pub(crate) const MARK: usize = 0;
    /// Length in the upper half, immediate data or key in the lower.
    pub(crate) const LEN_IMM: usize = 1;
    /// The number of the receive in its shared receive queue's store.
    pub(crate) const RECEIVE: usize = 2;
    /// The first word of inline data.
    pub(crate) const BYTES: usize = 4;
    pub(crate) const STRIDE: u64 = 128;
    pub(crate) const INLINE_MAX: usize = STRIDE as usize - BYTES * 8;

    /// Flags: immediate data is present; a key was invalidated; solicited event; the message is inline.
    pub(crate) const IMM: u32 = 1;
    pub(crate) const INVALIDATE: u32 = 2;
    pub(crate) const SOLICITED: u32 = 4;
    pub(crate) const INLINE: u32 = 8;

    /// The number of a status.
    pub(crate) fn status_number(status: WcStatus) -> u32 {
        match status {
            WcStatus::Success => 0,
            WcStatus::LocLenErr => 1,
            WcStatus::LocProtErr => 2,
            _ => 3,
        }
    }

    /// The status with a number.
    pub(crate) fn status_from_number(number: u32) -> WcStatus {
        match number {
            0 => WcStatus::Success,
            1 => WcStatus::LocLenErr,
            2 => WcStatus::LocProtErr,
            _ => WcStatus::GeneralErr,
        }
    }
}

/// The kinds of requests in [`ServiceWords`].
pub(crate) mod service_op {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const COMPARE_SWAP: u32 = 2;
    pub(crate) const FETCH_ADD: u32 = 3;
    /// Write into a receive.
    pub(crate) const DELIVER: u32 = 4;
    pub(crate) const ALLOC_BOUNCE: u32 = 5;
    /// Size of a bounce buffer in bytes.
    pub(crate) const BOUNCE: u64 = 64 << 10;
}

/// The shared part of a completion queue.
#[repr(C, align(64))]
pub(crate) struct CqShared {
    pub(crate) wakeup: EventCount,
    /// The fence that producers of completions use before they read the event count, `armed` and `many`.
    pub(crate) adaptive_fence: AdaptiveFence,
    /// 0 not armed, 1 for solicited completions, 2 for any.
    pub(crate) armed: AtomicU32,
    /// Completion channel + 1; 0 without one.
    pub(crate) channel: AtomicU32,
    /// Channel events that the owner has not fetched yet.
    pub(crate) events: AtomicU32,
    /// Whether producers use `ready`, as there are too many queue pairs to poll each.
    pub(crate) many: AtomicU32,
    /// Whether peers notify the event count after RDMA writes.
    pub(crate) asymmetric_notify: AsymmetricNotify,
    pub(crate) ready: ReadySet,
}

impl CqShared {
    /// Whether a producer that has just published must notify: a thread sleeps, the queue is armed, or its
    /// poller relies on `ready`.
    #[inline]
    pub(crate) fn must_notify(&self) -> bool {
        self.adaptive_fence.fence_before_waiter_check();
        let armed = self.armed.load(Ordering::Relaxed) | self.many.load(Ordering::Relaxed);
        armed != 0 || self.wakeup.has_waiters()
    }
}

/// The shared part of a completion channel.
#[repr(C, align(64))]
pub(crate) struct ChannelShared {
    pub(crate) wakeup: EventCount,
}

/// The shared part of a shared receive queue.
#[repr(C, align(64))]
pub(crate) struct SrqShared {
    pub(crate) pd: AtomicU32,
    pub(crate) shift: AtomicU32,
    pub(crate) stride: AtomicU32,
    /// Offsets of the ring of entries and of the store of receives.
    pub(crate) ring: AtomicU64,
    pub(crate) store: AtomicU64,
    pub(crate) head: CacheLine<AtomicU64>,
    pub(crate) tail: AtomicU64,
    /// An event is raised when fewer receives are left; 0 if disarmed.
    pub(crate) limit: AtomicU32,
    /// Set by a peer without a receive, after it has entered its queue pair in the header; cleared by the
    /// owner.
    pub(crate) rnr: AtomicU32,
}

macro_rules! shared {
    ($($t:ty),* $(,)?) => {$(
        // SAFETY: `repr(C)` and atomics only, as its definition above shows.
        unsafe impl ShmObject for $t {}
    )*};
}

shared!(Header, MrEntry, QpShared, CqShared, ChannelShared, SrqShared);

const _: () = {
    assert!(size_of::<Header>() as u64 <= MR_BASE);
    assert!(MR_BASE + (MR_MAX * size_of::<MrEntry>()) as u64 <= QP_BASE);
    assert!(size_of::<QpShared>() <= QP_STRIDE as usize);
    assert!(QP_BASE + QP_MAX as u64 * QP_STRIDE <= CQ_BASE);
    assert!(size_of::<CqShared>() <= CQ_STRIDE as usize);
    assert!(CQ_BASE + CQ_MAX as u64 * CQ_STRIDE <= SRQ_BASE);
    assert!(size_of::<SrqShared>() <= SRQ_STRIDE as usize);
    assert!(SRQ_BASE + SRQ_MAX as u64 * SRQ_STRIDE <= CHANNEL_BASE);
    assert!(CHANNEL_BASE + CHANNEL_MAX as u64 * 128 <= HEAP_BASE);
};

const QP_STRIDE: u64 = 1024;
const SRQ_STRIDE: u64 = 512;

/// The offset of region `i`'s entry.
pub(crate) const fn mr_offset(i: usize) -> u64 {
    MR_BASE + (i * size_of::<MrEntry>()) as u64
}

/// The offset of queue pair `i`'s shared part.
pub(crate) const fn qp_offset(i: usize) -> u64 {
    QP_BASE + i as u64 * QP_STRIDE
}

/// The offset of completion queue `i`'s shared part.
pub(crate) const fn cq_offset(i: usize) -> u64 {
    CQ_BASE + i as u64 * CQ_STRIDE
}

/// The offset of shared receive queue `i`'s shared part.
pub(crate) const fn srq_offset(i: usize) -> u64 {
    SRQ_BASE + i as u64 * SRQ_STRIDE
}

/// The offset of completion channel `i`'s shared part.
pub(crate) const fn channel_offset(i: usize) -> u64 {
    CHANNEL_BASE + i as u64 * 128
}

/// The states of a queue pair in its status word.
pub(crate) mod state {
    pub(crate) const INIT: u32 = 1;
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
    pub(crate) const ERROR: u32 = 4;

    /// Packs a status word.
    pub(crate) const fn status_word(generation: u32, state: u32) -> u64 {
        (generation as u64) << 32 | state as u64
    }
}
