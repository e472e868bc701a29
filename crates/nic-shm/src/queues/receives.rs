//! Receives that peers of several queue pairs claim: a shared receive queue as its queue pairs use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use host::SpinGuard;
use verbs::{AsyncEvent, Error, RecvWr, Result, SrqInit};

use crate::memory::allocator::Ring;
use crate::memory::layout::{SRQ_MAX, SrqShared, recv, srq_offset};
use crate::memory::segment::{SharedRef, SlotArray};
use crate::shared::DeviceShared;
use nic_util::heap_trim::queue_size;
use nic_util::sync::Spin;
use nic_util::sync::shared_queue;

/// The poster's state, under the lock.
struct PostState {
    /// Free slots of the store.
    free_slots: Vec<u16>,
    /// The receive in each slot of the store.
    posted_receives: Vec<Option<PostedReceive>>,
    posted: u64,
}

/// A receive between its posting and its completion.
#[derive(Clone, Copy)]
struct PostedReceive {
    /// The position in the ring.
    position: u64,
    /// The claimant, once the ring's entry has been reused; until then the entry holds it.
    claimant: Option<u16>,
}

/// A claimed receive.
pub(crate) struct Claimed<'q> {
    state: SpinGuard<'q, PostState>,
    receive: u16,
}

impl Claimed<'_> {
    /// Frees its slot in the store, after its completion was polled.
    pub(crate) fn free(mut self) {
        self.state.posted_receives[self.receive as usize] = None;
        self.state.free_slots.push(self.receive);
    }
}

/// A shared receive queue.
pub(crate) struct SharedReceives {
    device: Arc<DeviceShared>,
    pub(crate) index: usize,
    max_sge: u32,
    max_wr: u32,
    pub(crate) shared: SharedRef<SrqShared>,
    ring: SlotArray,
    store: SlotArray,
    _rings: [Ring; 2],
    state: Spin<PostState>,
}

impl SharedReceives {
    pub(crate) fn new(device: &Arc<DeviceShared>, pd: u32, init: SrqInit) -> Result<Self> {
        let shift = init.max_wr.next_power_of_two().trailing_zeros();
        let stride = recv::stride(init.max_sge);
        let rings = [device.memory.alloc_ring(8 << shift)?, device.memory.alloc_ring(stride << shift)?];
        let index = device.indices.lock().srq.alloc("shared receive queues", SRQ_MAX)?;
        let map = &device.table.map;
        let shared: SharedRef<SrqShared> = SharedRef::new(map, srq_offset(index))?;
        shared.pd.store(pd, Ordering::Relaxed);
        shared.shift.store(shift, Ordering::Relaxed);
        shared.stride.store(stride as u32, Ordering::Relaxed);
        shared.ring.store(rings[0].at, Ordering::Relaxed);
        shared.store.store(rings[1].at, Ordering::Relaxed);
        shared.head.0.store(0, Ordering::Relaxed);
        shared.tail.store(0, Ordering::Relaxed);
        shared.rnr.store(0, Ordering::Relaxed);
        shared.limit.store(0, Ordering::Release);
        let state = PostState {
            free_slots: (0..init.max_wr as u16).rev().collect(),
            posted_receives: vec![None; init.max_wr as usize],
            posted: 0,
        };
        let ring = SlotArray::new(map, rings[0].at, 8, shift)?;
        let store = SlotArray::new(map, rings[1].at, stride, shift)?;
        device.heap_trim.count_allocated(queue_size(init.max_wr));
        Ok(Self {
            ring,
            store,
            device: device.clone(),
            index,
            max_sge: init.max_sge,
            max_wr: init.max_wr,
            shared,
            _rings: rings,
            state: Spin::new(state),
        })
    }

    /// Posts a receive; returns whether a peer waits for one.
    pub(crate) fn post(&self, wr: &RecvWr<'_>) -> Result<bool> {
        check_sges(wr, self.max_sge)?;
        let mut state = self.state.lock();
        let Some(receive) = state.free_slots.pop() else {
            return Err(Error::QueueFull { queue: "shared receive", depth: self.max_wr });
        };
        let slot = self.store.slot(receive.into());
        write_receive(slot, wr);
        slot[recv::COUNT].store(wr.sges.len() as u64, Ordering::Relaxed);
        let (position, shift) = (state.posted, self.ring.shift());
        if let Some(old) = shared_queue::post(&self.ring.slot(position)[0], position, shift, receive)
            && let Some(Some(posted_receive)) = state.posted_receives.get_mut(old.receive as usize)
            && posted_receive.position + (1 << shift) == position
        {
            posted_receive.claimant = Some(old.claimant);
        }
        state.posted_receives[receive as usize] = Some(PostedReceive { position, claimant: None });
        state.posted += 1;
        self.shared.tail.store(state.posted, Ordering::Release);
        drop(state);
        nic_util::sync::fence::light();
        Ok(self.shared.rnr.load(Ordering::Relaxed) != 0)
    }

    /// The posted receive in slot `receive` of the store.
    pub(crate) fn receive(&self, receive: u16) -> &[AtomicU64] {
        self.store.slot(receive.into())
    }

    /// The receive in a slot of the store, if `claimant` has claimed it. Posting is locked out while the
    /// result is held.
    pub(crate) fn claimed(&self, receive: u16, claimant: u16) -> Option<Claimed<'_>> {
        let state = self.state.lock();
        let posted_receive = state.posted_receives.get(receive as usize).copied().flatten()?;
        (self.claimant(&posted_receive) == Some(claimant)).then_some(Claimed { state, receive })
    }

    /// Frees a receive that `claimant` has claimed and will not complete.
    pub(crate) fn free(&self, receive: u16, claimant: u16) {
        if let Some(claimed) = self.claimed(receive, claimant) {
            claimed.free();
        }
    }

    fn claimant(&self, posted_receive: &PostedReceive) -> Option<u16> {
        posted_receive.claimant.or_else(|| self.entry(posted_receive.position).map(|e| e.claimant))
    }

    /// Receives that `claimant` has claimed and that have not been freed.
    pub(crate) fn claims_of(&self, claimant: u16) -> Vec<u16> {
        let state = self.state.lock();
        let claimed = |o: &PostedReceive| self.claimant(o) == Some(claimant);
        (0_u16..)
            .zip(&state.posted_receives)
            .filter(|(_, o)| o.as_ref().is_some_and(claimed))
            .map(|(receive, _)| receive)
            .collect()
    }

    fn entry(&self, position: u64) -> Option<shared_queue::Entry> {
        shared_queue::read(&self.ring.slot(position)[0])
    }

    /// Whether a peer has announced that it waits, since the last call.
    pub(crate) fn take_rnr(&self) -> bool {
        self.shared.rnr.swap(0, Ordering::AcqRel) != 0
    }

    /// The limit below which an event is raised; 0 for none.
    pub(crate) fn limit(&self) -> u32 {
        self.shared.limit.load(Ordering::Acquire)
    }

    /// Requests the limit event for when fewer receives are left.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.shared.limit.store(limit, Ordering::Release);
    }

    /// Raises the limit event if the limit is reached; called when completions are polled.
    pub(crate) fn check_limit(&self) {
        let limit = u64::from(self.shared.limit.load(Ordering::Relaxed));
        if limit == 0 {
            return;
        }
        let left = self.state.lock().posted.saturating_sub(self.shared.head.0.load(Ordering::Acquire));
        if left < limit && self.shared.limit.swap(0, Ordering::AcqRel) != 0 {
            self.device.async_event(AsyncEvent::SrqLimitReached { srq: self.index as u32 });
        }
    }
}

/// Writes a receive's words, except the first; the caller has checked the number of SGEs.
#[inline]
pub(crate) fn write_receive(slot: &[AtomicU64], wr: &RecvWr<'_>) {
    // The common case of one SGE, without a loop.
    if let ([_, wr_id, addr, length_key, ..], [sge]) = (slot, wr.sges) {
        wr_id.store(wr.wr_id, Ordering::Relaxed);
        addr.store(sge.addr, Ordering::Relaxed);
        length_key.store(u64::from(sge.length) << 32 | u64::from(sge.lkey), Ordering::Relaxed);
        return;
    }
    slot[recv::WR_ID].store(wr.wr_id, Ordering::Relaxed);
    for (words, sge) in slot[recv::SGES..].chunks_exact(2).zip(wr.sges) {
        words[0].store(sge.addr, Ordering::Relaxed);
        words[1].store(u64::from(sge.length) << 32 | u64::from(sge.lkey), Ordering::Relaxed);
    }
}

/// Checks the number of SGEs of a receive.
#[inline]
pub(crate) fn check_sges(wr: &RecvWr<'_>, max: u32) -> Result<()> {
    Error::check_limit("the number of SGEs of the receive", wr.sges.len() as u64, max.into())
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        if self.device.fork_guard.is_forked() {
            return;
        }
        self.device.indices.lock().srq.free(self.index);
        self.device.count_freed(queue_size(self.max_wr));
    }
}
