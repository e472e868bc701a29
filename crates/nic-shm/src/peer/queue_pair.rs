//! Data path: the peer's queue pair as this side uses it, mapped: its status word, its queues, its rings and
//! this side's position in them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, compiler_fence};

use host::Span;
use verbs::{Error, RNR_PAUSE_MAX, RNR_RETRY_FOREVER, Result};

use crate::memory::layout::{
    CHANNEL_MAX, CQ_MAX, ChannelShared, CqShared, QP_MAX, QpShared, SRQ_MAX, SrqShared, channel_offset, comp,
    cq_offset, qp_offset, recv, srq_offset, state,
};
use crate::memory::segment::{MappedSegment, SharedRef, SlotArray};
use crate::memory::table::window_owner;
use crate::peer::device::PeerDevice;
use crate::peer::notify::notify_cq;
use crate::protocol::wire::Hello;
use nic_util::fork::ForkSafeFd;
use nic_util::sync::guard::Busy;
use nic_util::sync::ring;

/// The peer's queue pair of a connection, as this side uses it.
pub(crate) struct PeerQp {
    pub(crate) peer: Arc<PeerDevice>,
    pub(crate) qp: SharedRef<QpShared>,
    /// The index in the peer's device.
    pub(crate) index: usize,
    generation: u32,
    pub(crate) pd: u32,
    /// Its number as the owner of memory windows.
    window_owner: u64,
    /// The source of its receives: its own ring...
    pub(crate) recvs: Option<SlotArray>,
    /// ...or a shared receive queue.
    pub(crate) srq: Option<SrqLink>,
    pub(crate) comps: SlotArray,
    pub(crate) cq: SharedRef<CqShared>,
    /// The completion queue's index in the peer's device.
    cq_index: usize,
    channel: Option<(SharedRef<ChannelShared>, ForkSafeFd)>,
    /// The retry limit for a message that finds no receive.
    pub(crate) rnr_retry: AtomicU8,
    /// The status word of the peer's queue pair in state RTS.
    ready: u64,
    /// Number of messages delivered to its rings, which is the position of the next one; advanced under the
    /// send lock.
    delivered: AtomicU64,
    /// This side has announced its notifications, and a light fence is enough for each.
    is_notifier_registered: AtomicBool,
}

/// A peer's shared receive queue.
pub(crate) struct SrqLink {
    pub(crate) shared: SharedRef<SrqShared>,
    pub(crate) ring: SlotArray,
    pub(crate) store: SlotArray,
}

impl PeerQp {
    /// The queue pair that sent a hello. This checks all its offsets once.
    pub(crate) fn new(peer: Arc<PeerDevice>, hello: &Hello, channel: Option<OwnedFd>) -> Result<Self> {
        let bad = |what: &str| Error::Invalid(format!("the peer's {what} does not exist"));
        let map = &peer.table.map;
        let index = hello.qp_index as usize;
        if index >= QP_MAX {
            return Err(bad("queue pair"));
        }
        let qp: SharedRef<QpShared> = SharedRef::new(map, qp_offset(index))?;
        let cq_index = qp.recv_cq.load(Ordering::Relaxed) as usize;
        if cq_index >= CQ_MAX {
            return Err(bad("completion queue"));
        }
        let cq: SharedRef<CqShared> = SharedRef::new(map, cq_offset(cq_index))?;
        let stride = u64::from(qp.recv_stride.load(Ordering::Relaxed));
        let shift = qp.recv_shift.load(Ordering::Relaxed);
        let (mut recvs, mut srq) = (None, None);
        match qp.srq.load(Ordering::Relaxed) as usize {
            0 if stride < recv::stride(1) => return Err(bad("receive ring")),
            0 => recvs = Some(SlotArray::new(map, qp.recv_ring.load(Ordering::Relaxed), stride, shift)?),
            n if n <= SRQ_MAX => srq = Some(SrqLink::new(map, n - 1)?),
            _ => return Err(bad("shared receive queue")),
        }
        let comp_shift = qp.comp_shift.load(Ordering::Relaxed);
        let comps = SlotArray::new(map, qp.comp_ring.load(Ordering::Relaxed), comp::STRIDE, comp_shift)?;
        let channel = match (cq.channel.load(Ordering::Relaxed) as usize, channel) {
            (n @ 1..=CHANNEL_MAX, Some(fd)) => Some((SharedRef::new(map, channel_offset(n - 1))?, fd.into())),
            _ => None,
        };
        let pd = qp.pd.load(Ordering::Relaxed);
        let generation = hello.generation;
        let ready = state::status_word(generation, state::RTS);
        Ok(Self {
            qp,
            index,
            generation,
            pd,
            window_owner: window_owner(index, generation),
            recvs,
            srq,
            comps,
            cq,
            cq_index,
            channel,
            rnr_retry: AtomicU8::new(hello.rnr_retry),
            ready,
            delivered: AtomicU64::new(0),
            is_notifier_registered: AtomicBool::new(false),
            peer,
        })
    }

    /// Its domain, and its number as the owner of memory windows.
    #[inline]
    pub(crate) fn domain(&self) -> (u32, u64) {
        (self.pd, self.window_owner)
    }

    /// How long a message may wait for a receive; `None` without a limit.
    pub(crate) fn patience(&self) -> Option<Span> {
        let retries = self.rnr_retry.load(Ordering::Relaxed);
        let pause = Span::from_ns(self.qp.rnr_pause.load(Ordering::Relaxed).into()).min(RNR_PAUSE_MAX);
        (retries < RNR_RETRY_FOREVER).then(|| pause * retries.into())
    }

    /// Wakes threads that sleep on the peer's receive completion queue, after stores to the peer's memory.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.is_notifier_registered.load(Ordering::Acquire) {
            // Partner: the heavy fence in `AsymmetricNotify::fence_before_wait`. The check for waiters must not move
            // before the stores.
            compiler_fence(Ordering::SeqCst);
        } else {
            self.register_notifier();
        }
        self.cq.wakeup.notify_after_fence();
    }

    /// Announces notifications, with a full fence. Done once; with a peer that passes no heavy fences, each
    /// time.
    #[cold]
    fn register_notifier(&self) {
        self.cq.asymmetric_notify.announce_writer();
        // Another thread that sees this may skip it.
        self.is_notifier_registered.store(!nic_util::sync::fence::must_be_full(), Ordering::Release);
    }

    /// Marks this side as inside the peer's memory, until dropped. Check afterwards whether the access is
    /// allowed.
    #[inline]
    pub(crate) fn enter(&self) -> AccessGuard<'_> {
        let busy = &self.qp.peer.0.busy;
        busy.enter(self.peer.reader_registry(), self.index);
        AccessGuard(busy)
    }

    /// The position of the next message.
    #[inline]
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Counts a delivered message; under the send lock.
    #[inline]
    pub(crate) fn count_delivery(&self) {
        self.delivered.store(self.delivered() + 1, Ordering::Relaxed);
    }

    /// The peer's next posted receive, if it has its own receive ring; claims nothing.
    #[inline]
    pub(crate) fn waiting_receive(&self) -> Option<&[AtomicU64]> {
        let (recvs, next) = (self.recvs.as_ref()?, self.delivered());
        let slot = recvs.slot(next);
        ring::filled(&slot[recv::MARK], ring::lap(next, recvs.shift())).map(|_| slot)
    }

    /// Whether its own receive ring has `count` posted receives, or at least a quarter of its capacity.
    pub(crate) fn has_receives(&self, count: u64) -> bool {
        self.recvs.as_ref().is_some_and(|recvs| {
            let last = self.delivered() + count.min(1 << recvs.shift() >> 2).max(1) - 1;
            ring::filled(&recvs.slot(last)[recv::MARK], ring::lap(last, recvs.shift())).is_some()
        })
    }

    /// Prefetches the receive for the next message: after sending a message, as the peer may have posted
    /// many, and after receiving one, as the peer posts a receive for the answer before it sends the request.
    #[inline]
    pub(crate) fn fetch_next_receive(&self) {
        if let Some(recvs) = &self.recvs {
            host::prefetch(std::ptr::from_ref(&recvs.slot(self.delivered())[recv::MARK]).addr(), 1);
        }
    }

    /// Makes the peer's NIC thread check its queue pair.
    pub(crate) fn kick(&self) {
        self.peer.kick(self.index);
    }

    /// Notifies the poller of the peer's queue, after publishing and a full fence: marks the queue pair as
    /// ready if the poller does not poll all, wakes waiters and raises an event.
    #[cold]
    pub(crate) fn notify_after_fence(&self, solicited: bool) {
        if self.cq.many.load(Ordering::Relaxed) != 0 {
            self.cq.ready.add(self.index);
        }
        let channel = self.channel.as_ref().map(|(shared, fd)| (&**shared, fd.as_fd()));
        notify_cq(&self.cq, &self.peer.header.reporting, self.cq_index, channel, solicited);
    }

    /// Records that this side waits for a receive of a shared receive queue, so that posting one notifies it.
    pub(crate) fn announce_rnr_wait(&self) {
        if let Some(srq) = &self.srq {
            self.peer.header.rnr.add(self.index);
            srq.shared.rnr.store(1, Ordering::Release);
        }
    }

    /// Allows the peer to send, before it has read our confirmation.
    pub(crate) fn allow_sends(&self) {
        let _ = self.advance(state::RTR, state::RTS);
    }

    /// Records that the peer's queue pair is about to fail because a request of this side lacked access
    /// rights.
    pub(crate) fn record_access_error(&self) {
        self.qp.access_error.store(self.generation, Ordering::Release);
    }

    /// Moves the peer's queue pair to the error state. States are tried in the order in which it passes them, so that one which
    /// becomes ready to send meanwhile is not missed.
    pub(crate) fn fail(&self) {
        for from in [state::RTR, state::RTS] {
            if self.advance(from, state::ERROR) {
                self.kick();
            }
        }
    }

    fn advance(&self, from: u32, to: u32) -> bool {
        let word = |s| state::status_word(self.generation, s);
        let status = &self.qp.status;
        status.compare_exchange(word(from), word(to), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the peer's queue pair is (still) fully connected. Call only while inside
    /// ([`crate::memory::layout::PeerWords`]).
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.qp.status.load(Ordering::Acquire) == self.ready
    }

    /// Whether it accepts operations: also while the peer waits for our confirmation.
    #[inline]
    pub(crate) fn accepts_operations(&self) -> bool {
        let word = self.qp.status.load(Ordering::Acquire);
        word == self.ready || word == state::status_word(self.generation, state::RTR)
    }
}

/// Marks this side as inside the peer's memory, until dropped.
pub(crate) struct AccessGuard<'a>(&'a Busy);

impl Drop for AccessGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl SrqLink {
    fn new(map: &Arc<MappedSegment>, index: usize) -> Result<Self> {
        let shared: SharedRef<SrqShared> = SharedRef::new(map, srq_offset(index))?;
        let shift = shared.shift.load(Ordering::Relaxed);
        let stride = u64::from(shared.stride.load(Ordering::Relaxed));
        if stride < recv::stride(1) {
            return Err(Error::Invalid("the peer's shared receives do not exist".into()));
        }
        let ring = SlotArray::new(map, shared.ring.load(Ordering::Relaxed), 8, shift)?;
        let store = SlotArray::new(map, shared.store.load(Ordering::Relaxed), stride, shift)?;
        Ok(Self { shared, ring, store })
    }
}
