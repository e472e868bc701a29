//! Receives that peers of several queue pairs claim: a shared receive queue as its queue pairs use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use host::SpinGuard;
use verbs::{AsyncEvent, Error, RecvWr, Result, SrqInit};

use crate::memory::layout::{SRQ_MAX, SrqShared, recv, srq_at};
use crate::memory::parts::Ring;
use crate::memory::segment::{Ref, Slots};
use crate::shared::Shared;
use nic_util::heap_trim::queue;
use nic_util::sync::Spin;
use nic_util::sync::shared_queue;

/// The poster's state, under the lock.
struct PostSide {
    /// Free slots of the store.
    free: Vec<u16>,
    /// The receive in each slot of the store.
    occupants: Vec<Option<Occupant>>,
    posted: u64,
}

/// A receive between its posting and its completion.
#[derive(Clone, Copy)]
struct Occupant {
    /// The position in the ring.
    position: u64,
    /// The claimant, once the ring's entry has been reused; until then the entry holds it.
    claimant: Option<u16>,
}

/// A claimed receive.
pub(crate) struct Claimed<'q> {
    side: SpinGuard<'q, PostSide>,
    receive: u16,
}

impl Claimed<'_> {
    /// Frees its slot in the store, after its completion was polled.
    pub(crate) fn give_back(mut self) {
        self.side.occupants[self.receive as usize] = None;
        self.side.free.push(self.receive);
    }
}

/// A shared receive queue.
pub(crate) struct SharedReceives {
    device: Arc<Shared>,
    pub(crate) index: usize,
    max_sge: u32,
    max_wr: u32,
    pub(crate) shared: Ref<SrqShared>,
    ring: Slots,
    store: Slots,
    _rings: [Ring; 2],
    side: Spin<PostSide>,
}

impl SharedReceives {
    pub(crate) fn new(device: &Arc<Shared>, pd: u32, init: SrqInit) -> Result<Self> {
        let shift = init.max_wr.next_power_of_two().trailing_zeros();
        let stride = recv::stride(init.max_sge);
        let rings = [device.memory.take_ring(8 << shift)?, device.memory.take_ring(stride << shift)?];
        let index = device.indices.lock().srq.take("shared receive queues", SRQ_MAX)?;
        let map = &device.table.map;
        let shared: Ref<SrqShared> = Ref::new(map, srq_at(index))?;
        shared.pd.store(pd, Ordering::Relaxed);
        shared.shift.store(shift, Ordering::Relaxed);
        shared.stride.store(stride as u32, Ordering::Relaxed);
        shared.ring.store(rings[0].at, Ordering::Relaxed);
        shared.store.store(rings[1].at, Ordering::Relaxed);
        shared.head.0.store(0, Ordering::Relaxed);
        shared.tail.store(0, Ordering::Relaxed);
        shared.rnr.store(0, Ordering::Relaxed);
        shared.limit.store(0, Ordering::Release);
        let side = PostSide {
            free: (0..init.max_wr as u16).rev().collect(),
            occupants: vec![None; init.max_wr as usize],
            posted: 0,
        };
        let ring = Slots::new(map, rings[0].at, 8, shift)?;
        let store = Slots::new(map, rings[1].at, stride, shift)?;
        device.tide.rise(queue(init.max_wr));
        Ok(Self {
            ring,
            store,
            device: device.clone(),
            index,
            max_sge: init.max_sge,
            max_wr: init.max_wr,
            shared,
            _rings: rings,
            side: Spin::new(side),
        })
    }

    /// Posts a receive; returns whether a peer waits for one.
    pub(crate) fn post(&self, wr: &RecvWr<'_>) -> Result<bool> {
        check_sges(wr, self.max_sge)?;
        let mut side = self.side.lock();
        let Some(receive) = side.free.pop() else {
            return Err(Error::QueueFull { queue: "shared receive", depth: self.max_wr });
        };
        let slot = self.store.slot(receive.into());
        fill(slot, wr);
        slot[recv::COUNT].store(wr.sges.len() as u64, Ordering::Relaxed);
        let (position, shift) = (side.posted, self.ring.shift());
        if let Some(old) = shared_queue::post(&self.ring.slot(position)[0], position, shift, receive)
            && let Some(Some(occupant)) = side.occupants.get_mut(old.receive as usize)
            && occupant.position + (1 << shift) == position
        {
            occupant.claimant = Some(old.claimant);
        }
        side.occupants[receive as usize] = Some(Occupant { position, claimant: None });
        side.posted += 1;
        self.shared.tail.store(side.posted, Ordering::Release);
        drop(side);
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
        let side = self.side.lock();
        let occupant = side.occupants.get(receive as usize).copied().flatten()?;
        (self.claimant(&occupant) == Some(claimant)).then_some(Claimed { side, receive })
    }

    /// Frees a receive that `claimant` has claimed and will not complete.
    pub(crate) fn give_back(&self, receive: u16, claimant: u16) {
        if let Some(claimed) = self.claimed(receive, claimant) {
            claimed.give_back();
        }
    }

    fn claimant(&self, occupant: &Occupant) -> Option<u16> {
        occupant.claimant.or_else(|| self.entry(occupant.position).map(|e| e.claimant))
    }

    /// Receives that `claimant` has claimed and that have not been freed.
    pub(crate) fn claims_of(&self, claimant: u16) -> Vec<u16> {
        let side = self.side.lock();
        let claimed = |o: &Occupant| self.claimant(o) == Some(claimant);
        (0_u16..)
            .zip(&side.occupants)
            .filter(|(_, o)| o.as_ref().is_some_and(claimed))
            .map(|(receive, _)| receive)
            .collect()
    }

    fn entry(&self, position: u64) -> Option<shared_queue::Entry> {
        shared_queue::look(&self.ring.slot(position)[0])
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
        let left = self.side.lock().posted.saturating_sub(self.shared.head.0.load(Ordering::Acquire));
        if left < limit && self.shared.limit.swap(0, Ordering::AcqRel) != 0 {
            self.device.async_event(AsyncEvent::SrqLimitReached { srq: self.index as u32 });
        }
    }
}

/// Writes a receive's words, except the first; the caller has checked the number of SGEs.
#[inline]
pub(crate) fn fill(slot: &[AtomicU64], wr: &RecvWr<'_>) {
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
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.device.indices.lock().srq.give(self.index);
        self.device.fall(queue(self.max_wr));
    }
}
