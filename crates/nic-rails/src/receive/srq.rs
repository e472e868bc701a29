//! Shared receive queues: one on each rail; only one rail at a time holds the receives.
//!
//! All queue pairs of the queue receive messages on that rail. When the lane of a queue pair fails there, and the queue
//! pair lives on, the queue *leaves* the rail: each of its queue pairs closes its lane there, and reports when every
//! message that can have arrived on it has been counted. Receives that are not consumed by then are posted to another
//! rail, once, in order. Lane reports about such lanes (`failover`) are written after that; what a closed lane
//! completes later is dropped, and sent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use host::{Lock, LockGuard, Span, Time};
use verbs::{AsyncEvent, Error, RecvWr, Result, Sge, Srq, SrqInit};

use crate::memory::domain::PdInner;

/// How long a lane must have been closed before all of its completions are assumed to be visible. The queue pair is
/// assumed to live on after the same time: a peer that disconnects closes all lanes at about the same time.
pub(crate) const GRACE: Span = Span::from_ms(10);

/// The slot of a receive, from its posting until its completion is taken.
#[derive(Clone, Default)]
struct SrqSlot {
    wr_id: u64,
    pieces: Vec<Sge>,
    /// The sequence number among all posted receives; none if the slot is free.
    number: Option<u64>,
    /// How often the slot has been posted to a rail: part of the number that the rail returns.
    lap: u32,
}

/// The state of a queue pair with respect to the rail that the queue leaves.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LaneUse {
    /// Messages may arrive on its lanes, now or soon.
    #[default]
    On,
    /// Its lane was found closed at this time.
    Closed(Time),
    /// Nothing more arrives on its lane; or it has no connected lane.
    Off,
}

struct SrqState {
    rail_srqs: Vec<Srq>,
    /// The rail that holds the receives.
    lane: usize,
    /// The rail to which they move.
    moving_to: Option<usize>,
    members: BTreeMap<u32, LaneUse>,
    slots: Vec<SrqSlot>,
    free: Vec<u32>,
    next: u64,
    limit: u32,
}

pub(crate) struct SrqInner {
    pub(crate) pd: Arc<PdInner>,
    pub(crate) id: u32,
    /// Maximum number of receives.
    pub(crate) depth: u32,
    init: SrqInit,
    state: Lock<SrqState>,
}

impl SrqInner {
    pub(crate) fn new(pd: &Arc<PdInner>, init: SrqInit) -> Result<Self> {
        let shared = &pd.shared;
        let rail_srqs: Vec<Srq> = pd.pds.iter().map(|pd| pd.create_srq(init)).collect::<Result<_>>()?;
        let state = SrqState {
            rail_srqs,
            lane: shared.next_lane(),
            moving_to: None,
            members: BTreeMap::new(),
            slots: vec![SrqSlot::default(); init.max_wr as usize],
            free: (0..init.max_wr).rev().collect(),
            next: 0,
            limit: 0,
        };
        let (pd, id, depth) = (pd.clone(), shared.new_id(), init.max_wr);
        Ok(Self { id, pd, depth, init, state: Lock::new(state) })
    }

    fn state(&self) -> LockGuard<'_, SrqState> {
        self.state.lock(&self.pd.shared.host)
    }

    /// The rail's queue, for a new lane.
    pub(crate) fn rail_srq(&self, rail: usize) -> Srq {
        self.state().rail_srqs[rail].clone()
    }

    /// Whether a lane uses the rail's current queue.
    pub(crate) fn is_current_srq(&self, rail: usize, of_lane: &Srq) -> bool {
        Arc::ptr_eq(self.state().rail_srqs[rail].ops(), of_lane.ops())
    }

    /// The rail on which queue pairs receive messages, unless they are about to leave it.
    pub(crate) fn lane(&self) -> usize {
        self.state().lane
    }

    /// The rail that the queue leaves, if this queue pair has not finished its part.
    pub(crate) fn rail_being_left(&self, num: u32) -> Option<usize> {
        let mut state = self.state();
        state.moving_to?;
        if state.members.get(&num) == Some(&LaneUse::Off) {
            // The queue pairs that were still missing may have been dropped.
            self.finish_move_if_done(&mut state);
            return None;
        }
        Some(state.lane)
    }

    /// Adds a queue pair that is about to connect. Returns the rail on which it receives messages.
    pub(crate) fn add_qp(&self, num: u32) -> usize {
        let mut state = self.state();
        let lane_use = if state.moving_to.is_some() { LaneUse::Off } else { LaneUse::On };
        state.members.insert(num, lane_use);
        state.moving_to.unwrap_or(state.lane)
    }

    /// Removes a dropped queue pair.
    pub(crate) fn remove_qp(&self, num: u32) {
        self.state().members.remove(&num);
    }

    /// The numbers of the rails' queues.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.state().rail_srqs.iter().map(Srq::id).collect()
    }

    /// Starts to leave a rail for another, if that rail holds the receives. Returns the old queue on that rail, and the
    /// number of the new one.
    ///
    /// # Errors
    /// If the rail has no room for a new queue, which reconnected lanes need.
    pub(crate) fn start_move(&self, rail: usize, other: usize) -> Result<Option<(Srq, u32)>> {
        let mut state = self.state();
        if state.lane != rail || state.moving_to.is_some() {
            return Ok(None);
        }
        // Receives on the old queue are never consumed: it is dropped with its lanes.
        let new_srq = self.pd.pds[rail].create_srq(self.init)?;
        let id = new_srq.id();
        let old = std::mem::replace(&mut state.rail_srqs[rail], new_srq);
        state.moving_to = Some(other);
        state.members.values_mut().for_each(|lane_use| *lane_use = LaneUse::On);
        Ok(Some((old, id)))
    }

    /// Records that a queue pair has closed its lane on the rail. Returns whether that was long enough ago that all of
    /// its completions can be taken.
    pub(crate) fn record_closed(&self, num: u32) -> bool {
        let now = self.pd.shared.host.now();
        let mut state = self.state();
        match state.members.get(&num).copied().unwrap_or(LaneUse::Off) {
            LaneUse::On => drop(state.members.insert(num, LaneUse::Closed(now))),
            LaneUse::Closed(then) => return now.since(then) >= GRACE,
            LaneUse::Off => {}
        }
        false
    }

    /// Ignores further completions of a queue pair's lane; once that holds for all, the receives are posted to the
    /// other rail.
    pub(crate) fn record_done(&self, num: u32) {
        let mut state = self.state();
        state.members.insert(num, LaneUse::Off);
        self.finish_move_if_done(&mut state);
    }

    fn finish_move_if_done(&self, state: &mut SrqState) {
        let Some(lane) = state.moving_to else { return };
        if state.members.values().any(|lane_use| *lane_use != LaneUse::Off) {
            return;
        }
        (state.lane, state.moving_to) = (lane, None);
        let mut order: Vec<(u64, u32)> = (0..)
            .zip(&state.slots)
            .filter_map(|(at, slot): (u32, &SrqSlot)| Some((slot.number?, at)))
            .collect();
        order.sort_unstable();
        for (_, at) in order {
            // Its queue is as deep as this one, and empty.
            let posted = self.post_to_rail(state, at);
            debug_assert!(posted.is_ok(), "a rail refused: {posted:?}");
        }
        if state.limit > 0 {
            // It was within the limits before.
            let _ = state.rail_srqs[lane].arm_limit(state.limit);
        }
    }

    /// Posts the receive in a slot to the rail.
    fn post_to_rail(&self, state: &mut SrqState, at: u32) -> Result<()> {
        let slot = &mut state.slots[at as usize];
        slot.lap = slot.lap.wrapping_add(1);
        let number = u64::from(slot.lap) << 32 | u64::from(at);
        let rail_srq = &state.rail_srqs[state.lane];
        self.pd
            .shared
            .local_pieces(state.lane, &slot.pieces, |sges| rail_srq.post_recv(&RecvWr::new(number, sges)))
    }

    /// A receive has been consumed: returns the program's number. `None` if it has been posted elsewhere since.
    pub(crate) fn take_wr_id(&self, number: u64) -> Option<u64> {
        let (at, lap) = (number as u32, (number >> 32) as u32);
        let mut state = self.state();
        let slot = state.slots.get_mut(at as usize).filter(|slot| slot.lap == lap)?;
        slot.number.take()?;
        let wr_id = slot.wr_id;
        state.free.push(at);
        Some(wr_id)
    }

    /// Handles a rail's report that few receives are left.
    pub(crate) fn on_limit_reached(&self, rail: usize) {
        let mut state = self.state();
        let counts = state.lane == rail;
        if counts {
            state.limit = 0;
        }
        drop(state);
        if counts {
            self.pd.shared.async_event(AsyncEvent::SrqLimitReached { srq: self.id });
        }
    }

    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let max_sge = self.init.max_sge.into();
        Error::check_limit("the number of pieces of the receive", wr.sges.len() as u64, max_sge)?;
        let mut state = self.state();
        let full = Error::QueueFull { queue: "shared receive", depth: self.depth };
        let at = state.free.pop().ok_or(full)?;
        let number = state.next;
        let slot = &mut state.slots[at as usize];
        slot.wr_id = wr.wr_id;
        slot.number = Some(number);
        slot.pieces.clear();
        slot.pieces.extend_from_slice(wr.sges);
        // While the queue leaves a rail, receives are posted when it arrives at the next one.
        if state.moving_to.is_none()
            && let Err(why) = self.post_to_rail(&mut state, at)
        {
            state.slots[at as usize].number = None;
            state.free.push(at);
            return Err(why);
        }
        state.next += 1;
        Ok(())
    }

    /// The armed limit. The rail may have reached it already, with the event still pending.
    pub(crate) fn limit(&self) -> u32 {
        let state = self.state();
        state.limit.min(state.rail_srqs[state.lane].limit())
    }

    pub(crate) fn arm_limit(&self, limit: u32) -> Result<()> {
        let mut state = self.state();
        state.limit = limit;
        state.rail_srqs[state.lane].arm_limit(limit)
    }
}
