//! Shared receive queues: one on each rail; only one rail at a time holds the receives.
//!
//! All queue pairs of the queue receive messages on that rail. When the lane of a queue pair fails there, and the queue
//! pair lives on, the queue *leaves* the rail: each of its queue pairs closes its lane there, and reports when every
//! message that can have arrived on it has been counted. Receives that are not consumed by then are posted to another
//! rail, once, in order. Letters about such lanes (`mend`) are written after that; what a closed lane completes later
//! is dropped, and sent again.

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
struct Posted {
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

struct Receives {
    of_rails: Vec<Srq>,
    /// The rail that holds the receives.
    lane: usize,
    /// The rail to which they move.
    moving_to: Option<usize>,
    members: BTreeMap<u32, LaneUse>,
    places: Vec<Posted>,
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
    receives: Lock<Receives>,
}

impl SrqInner {
    pub(crate) fn new(pd: &Arc<PdInner>, init: SrqInit) -> Result<Self> {
        let shared = &pd.shared;
        let of_rails: Vec<Srq> = pd.pds.iter().map(|pd| pd.create_srq(init)).collect::<Result<_>>()?;
        let receives = Receives {
            of_rails,
            lane: shared.next_lane(),
            moving_to: None,
            members: BTreeMap::new(),
            places: vec![Posted::default(); init.max_wr as usize],
            free: (0..init.max_wr).rev().collect(),
            next: 0,
            limit: 0,
        };
        let (pd, id, depth) = (pd.clone(), shared.fresh(), init.max_wr);
        Ok(Self { id, pd, depth, init, receives: Lock::new(receives) })
    }

    fn receives(&self) -> LockGuard<'_, Receives> {
        self.receives.lock(&self.pd.shared.host)
    }

    /// The rail's queue, for a new lane.
    pub(crate) fn on(&self, rail: usize) -> Srq {
        self.receives().of_rails[rail].clone()
    }

    /// Whether a lane uses the rail's current queue.
    pub(crate) fn is_on(&self, rail: usize, of_lane: &Srq) -> bool {
        Arc::ptr_eq(self.receives().of_rails[rail].ops(), of_lane.ops())
    }

    /// The rail on which queue pairs receive messages, unless they are about to leave it.
    pub(crate) fn lane(&self) -> usize {
        self.receives().lane
    }

    /// The rail that the queue leaves, if this queue pair has not finished its part.
    pub(crate) fn left(&self, num: u32) -> Option<usize> {
        let mut receives = self.receives();
        receives.moving_to?;
        if receives.members.get(&num) == Some(&LaneUse::Off) {
            // The queue pairs that were still missing may have been dropped.
            self.finish_move(&mut receives);
            return None;
        }
        Some(receives.lane)
    }

    /// Adds a queue pair that is about to connect. Returns the rail on which it receives messages.
    pub(crate) fn enter(&self, num: u32) -> usize {
        let mut receives = self.receives();
        let lane_use = if receives.moving_to.is_some() { LaneUse::Off } else { LaneUse::On };
        receives.members.insert(num, lane_use);
        receives.moving_to.unwrap_or(receives.lane)
    }

    /// Removes a dropped queue pair.
    pub(crate) fn forget(&self, num: u32) {
        self.receives().members.remove(&num);
    }

    /// The numbers of the rails' queues.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.receives().of_rails.iter().map(Srq::id).collect()
    }

    /// Starts to leave a rail for another, if that rail holds the receives. Returns the old queue on that rail, and the
    /// number of the new one.
    ///
    /// # Errors
    /// If the rail has no room for a new queue, which reconnected lanes need.
    pub(crate) fn leave(&self, rail: usize, other: usize) -> Result<Option<(Srq, u32)>> {
        let mut receives = self.receives();
        if receives.lane != rail || receives.moving_to.is_some() {
            return Ok(None);
        }
        // Receives on the old queue are never consumed: it is dropped with its lanes.
        let fresh = self.pd.pds[rail].create_srq(self.init)?;
        let id = fresh.id();
        let old = std::mem::replace(&mut receives.of_rails[rail], fresh);
        receives.moving_to = Some(other);
        receives.members.values_mut().for_each(|lane_use| *lane_use = LaneUse::On);
        Ok(Some((old, id)))
    }

    /// Records that a queue pair has closed its lane on the rail. Returns whether that was long enough ago that all of
    /// its completions can be taken.
    pub(crate) fn is_closed(&self, num: u32) -> bool {
        let now = self.pd.shared.host.now();
        let mut receives = self.receives();
        match receives.members.get(&num).copied().unwrap_or(LaneUse::Off) {
            LaneUse::On => drop(receives.members.insert(num, LaneUse::Closed(now))),
            LaneUse::Closed(then) => return now.since(then) >= GRACE,
            LaneUse::Off => {}
        }
        false
    }

    /// Ignores further completions of a queue pair's lane; once that holds for all, the receives are posted to the
    /// other rail.
    pub(crate) fn is_off(&self, num: u32) {
        let mut receives = self.receives();
        receives.members.insert(num, LaneUse::Off);
        self.finish_move(&mut receives);
    }

    fn finish_move(&self, receives: &mut Receives) {
        let Some(lane) = receives.moving_to else { return };
        if receives.members.values().any(|lane_use| *lane_use != LaneUse::Off) {
            return;
        }
        (receives.lane, receives.moving_to) = (lane, None);
        let mut order: Vec<(u64, u32)> = (0..)
            .zip(&receives.places)
            .filter_map(|(at, place): (u32, &Posted)| Some((place.number?, at)))
            .collect();
        order.sort_unstable();
        for (_, at) in order {
            // Its queue is as deep as this one, and empty.
            let laid = self.post_to_rail(receives, at);
            debug_assert!(laid.is_ok(), "a rail refused: {laid:?}");
        }
        if receives.limit > 0 {
            // It was within the limits before.
            let _ = receives.of_rails[lane].arm_limit(receives.limit);
        }
    }

    /// Posts the receive in a slot to the rail.
    fn post_to_rail(&self, receives: &mut Receives, at: u32) -> Result<()> {
        let place = &mut receives.places[at as usize];
        place.lap = place.lap.wrapping_add(1);
        let number = u64::from(place.lap) << 32 | u64::from(at);
        let of_rail = &receives.of_rails[receives.lane];
        self.pd
            .shared
            .local_pieces(receives.lane, &place.pieces, |sges| of_rail.post_recv(&RecvWr::new(number, sges)))
    }

    /// A receive has been consumed: returns the program's number. `None` if it has been posted elsewhere since.
    pub(crate) fn take(&self, number: u64) -> Option<u64> {
        let (at, lap) = (number as u32, (number >> 32) as u32);
        let mut receives = self.receives();
        let place = receives.places.get_mut(at as usize).filter(|place| place.lap == lap)?;
        place.number.take()?;
        let wr_id = place.wr_id;
        receives.free.push(at);
        Some(wr_id)
    }

    /// Handles a rail's report that few receives are left.
    pub(crate) fn limit_is_reached(&self, rail: usize) {
        let mut receives = self.receives();
        let counts = receives.lane == rail;
        if counts {
            receives.limit = 0;
        }
        drop(receives);
        if counts {
            self.pd.shared.async_event(AsyncEvent::SrqLimitReached { srq: self.id });
        }
    }

    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let most = self.init.max_sge.into();
        Error::check_limit("the number of pieces of the receive", wr.sges.len() as u64, most)?;
        let mut receives = self.receives();
        let full = Error::QueueFull { queue: "shared receive", depth: self.depth };
        let at = receives.free.pop().ok_or(full)?;
        let number = receives.next;
        let place = &mut receives.places[at as usize];
        place.wr_id = wr.wr_id;
        place.number = Some(number);
        place.pieces.clear();
        place.pieces.extend_from_slice(wr.sges);
        // While the queue leaves a rail, receives are posted when it arrives at the next one.
        if receives.moving_to.is_none()
            && let Err(why) = self.post_to_rail(&mut receives, at)
        {
            receives.places[at as usize].number = None;
            receives.free.push(at);
            return Err(why);
        }
        receives.next += 1;
        Ok(())
    }

    /// The armed limit. The rail may have reached it already, with the event still pending.
    pub(crate) fn limit(&self) -> u32 {
        let receives = self.receives();
        receives.limit.min(receives.of_rails[receives.lane].limit())
    }

    pub(crate) fn arm_limit(&self, limit: u32) -> Result<()> {
        let mut receives = self.receives();
        receives.limit = limit;
        receives.of_rails[receives.lane].arm_limit(limit)
    }
}
