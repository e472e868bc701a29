//! Shared receive queues: one on each rail, of which one at a time holds the receives.
//!
//! All queue pairs of the queue take messages on that rail. When the lane of one of them dies there, and the queue pair lives
//! on, the queue *leaves* the rail: each of its queue pairs closes its lane there, and says when nothing can have come by it any
//! more that it has not counted. What has not been consumed by then is laid on another rail, in its order, once. Letters about
//! such lanes (`mend`) are written after that; what a closed lane says later counts for nothing, and is sent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use host::{Held, Lock, Span, Time};
use verbs::{AsyncEvent, Error, RecvWr, Result, Sge, Srq, SrqInit};

use crate::memory::domain::PdInner;

/// How long a lane is to have been closed before it is believed that all of its completions can be seen. That the queue pair
/// lives on is believed as soon: who disconnects closes all lanes at once.
pub(crate) const GRACE: Span = Span::from_ms(10);

/// A receive's place, from its posting until its completion is taken.
#[derive(Clone, Default)]
struct Posted {
    wr_id: u64,
    pieces: Vec<Sge>,
    /// Which of all that were posted it is; none if nobody has the place.
    number: Option<u64>,
    /// How often the place has been laid on a rail: part of the number by which the rail knows it.
    lap: u32,
}

/// How a queue pair stands to the rail that the queue leaves.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stay {
    /// It has lanes of which messages come, or may soon.
    #[default]
    On,
    /// Its lane was found closed then.
    Closed(Time),
    /// Nothing comes of its lane any more; or it has none that is connected.
    Off,
}

struct Receives {
    of_rails: Vec<Srq>,
    /// The rail on which they lie.
    lane: usize,
    /// Where they go from there.
    leaving_for: Option<usize>,
    members: BTreeMap<u32, Stay>,
    places: Vec<Posted>,
    free: Vec<u32>,
    next: u64,
    limit: u32,
}

pub(crate) struct SrqInner {
    pub(crate) pd: Arc<PdInner>,
    pub(crate) id: u32,
    /// Receives that it holds at most.
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
            leaving_for: None,
            members: BTreeMap::new(),
            places: vec![Posted::default(); init.max_wr as usize],
            free: (0..init.max_wr).rev().collect(),
            next: 0,
            limit: 0,
        };
        let (pd, id, depth) = (pd.clone(), shared.fresh(), init.max_wr);
        Ok(Self { id, pd, depth, init, receives: Lock::new(receives) })
    }

    fn receives(&self) -> Held<'_, Receives> {
        self.receives.lock(&self.pd.shared.host)
    }

    /// The rail's queue, for a lane that is made.
    pub(crate) fn on(&self, rail: usize) -> Srq {
        self.receives().of_rails[rail].clone()
    }

    /// Whether a lane takes from the rail's queue as it is now.
    pub(crate) fn is_on(&self, rail: usize, of_lane: &Srq) -> bool {
        Arc::ptr_eq(self.receives().of_rails[rail].ops(), of_lane.ops())
    }

    /// The rail on which queue pairs take messages, unless they are about to leave it.
    pub(crate) fn lane(&self) -> usize {
        self.receives().lane
    }

    /// The rail that is left, if this queue pair has not done its part.
    pub(crate) fn left(&self, num: u32) -> Option<usize> {
        let mut receives = self.receives();
        receives.leaving_for?;
        if receives.members.get(&num) == Some(&Stay::Off) {
            // Who was waited for may have gone.
            self.arrive(&mut receives);
            return None;
        }
        Some(receives.lane)
    }

    /// A queue pair is about to connect. The rail on which it takes messages.
    pub(crate) fn enter(&self, num: u32) -> usize {
        let mut receives = self.receives();
        let stay = if receives.leaving_for.is_some() { Stay::Off } else { Stay::On };
        receives.members.insert(num, stay);
        receives.leaving_for.unwrap_or(receives.lane)
    }

    /// A queue pair has gone.
    pub(crate) fn forget(&self, num: u32) {
        self.receives().members.remove(&num);
    }

    /// The rails' queues, by their numbers there.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.receives().of_rails.iter().map(Srq::id).collect()
    }

    /// Leaves a rail for another, if it is there. Then: the queue that it had on that rail, and the number of the one that it has
    /// there from now on.
    ///
    /// # Errors
    /// When the rail has no room for a fresh queue, of those that come back.
    pub(crate) fn leave(&self, rail: usize, other: usize) -> Result<Option<(Srq, u32)>> {
        let mut receives = self.receives();
        if receives.lane != rail || receives.leaving_for.is_some() {
            return Ok(None);
        }
        // What lies on the old one is consumed by nobody: it goes with the lanes that it has.
        let fresh = self.pd.pds[rail].create_srq(self.init)?;
        let id = fresh.id();
        let old = std::mem::replace(&mut receives.of_rails[rail], fresh);
        receives.leaving_for = Some(other);
        receives.members.values_mut().for_each(|stay| *stay = Stay::On);
        Ok(Some((old, id)))
    }

    /// A queue pair has closed its lane on the rail that is left. Whether that is so long ago that all that it has brought can be
    /// taken.
    pub(crate) fn is_closed(&self, num: u32) -> bool {
        let now = self.pd.shared.host.now();
        let mut receives = self.receives();
        match receives.members.get(&num).copied().unwrap_or(Stay::Off) {
            Stay::On => drop(receives.members.insert(num, Stay::Closed(now))),
            Stay::Closed(then) => return now.since(then) >= GRACE,
            Stay::Off => {}
        }
        false
    }

    /// Nothing that a queue pair's lane brings counts from now on: when that is so for all, receives are laid on the other rail.
    pub(crate) fn is_off(&self, num: u32) {
        let mut receives = self.receives();
        receives.members.insert(num, Stay::Off);
        self.arrive(&mut receives);
    }

    fn arrive(&self, receives: &mut Receives) {
        let Some(lane) = receives.leaving_for else { return };
        if receives.members.values().any(|stay| *stay != Stay::Off) {
            return;
        }
        (receives.lane, receives.leaving_for) = (lane, None);
        let mut order: Vec<(u64, u32)> = (0..)
            .zip(&receives.places)
            .filter_map(|(at, place): (u32, &Posted)| Some((place.number?, at)))
            .collect();
        order.sort_unstable();
        for (_, at) in order {
            // Its queue is as deep as this one, and empty.
            let laid = self.lay(receives, at);
            debug_assert!(laid.is_ok(), "a rail refused: {laid:?}");
        }
        if receives.limit > 0 {
            // It was within the limits before.
            let _ = receives.of_rails[lane].arm_limit(receives.limit);
        }
    }

    /// Posts the receive at a place to the rail.
    fn lay(&self, receives: &mut Receives, at: u32) -> Result<()> {
        let place = &mut receives.places[at as usize];
        place.lap = place.lap.wrapping_add(1);
        let number = u64::from(place.lap) << 32 | u64::from(at);
        let of_rail = &receives.of_rails[receives.lane];
        self.pd
            .shared
            .local_pieces(receives.lane, &place.pieces, |sges| of_rail.post_recv(&RecvWr::new(number, sges)))
    }

    /// A receive has been consumed: the program's number of it. `None` if it lies elsewhere now.
    pub(crate) fn take(&self, number: u64) -> Option<u64> {
        let (at, lap) = (number as u32, (number >> 32) as u32);
        let mut receives = self.receives();
        let place = receives.places.get_mut(at as usize).filter(|place| place.lap == lap)?;
        place.number.take()?;
        let wr_id = place.wr_id;
        receives.free.push(at);
        Some(wr_id)
    }

    /// A rail says that few receives are left.
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
        // Whoever leaves lays it when it arrives.
        if receives.leaving_for.is_none()
            && let Err(why) = self.lay(&mut receives, at)
        {
            receives.places[at as usize].number = None;
            receives.free.push(at);
            return Err(why);
        }
        receives.next += 1;
        Ok(())
    }

    /// The limit that is armed. The rail may have reached it, and the event may wait to be taken.
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
