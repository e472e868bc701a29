//! Data path: [`Lane`], the records of one queue of an endpoint for its requests, until they complete.
//!
//! A device's completion holds 64 bits of ours. The user's cookie has as many, and an event has further fields: so those bits
//! identify a record here, and the record has the rest. Requests of a queue complete in order, so records are a ring.
//!
//! A lane has two users. The poster holds the endpoint's lock, fills a record, and posts the request, which orders the record
//! before its completion. The thread that completes, binds or restarts holds the dispatcher's only [`Turn`]. Only [`Lane::done`]
//! passes information from the second user to the first.
//!
//! A lane belongs to a dispatcher and is reused by later endpoints; its generation distinguishes their completions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use verbs::Wc;

use crate::event::{Dto, DtoEvent, DtoStatus};
use crate::sync::lock;
use crate::{Error, Event, Kind, Label, Result, Subtype};

/// Lanes of a block, and blocks of a dispatcher.
const BLOCK: usize = 256;
const BLOCKS: usize = 64;

/// A request's number consists of its lane's number, the lane's generation, and the request's index in the lane.
const TAG_SHIFT: u32 = 32;
const GENERATION_BITS: u32 = 16;

/// Bits of a record's second word, above the length.
const QUIET: u64 = 1 << 32;
const UNSIGNALLED: u64 = 1 << 33;
const OPERATION_SHIFT: u32 = 34;

/// The right to change what completions change. Each dispatcher has one, behind a lock.
#[derive(Default)]
pub(crate) struct Turn(());

/// The record of one request.
#[derive(Default)]
struct Record {
    cookie: AtomicU64,
    meta: AtomicU64,
}

/// The data of a request that its completion needs.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) cookie: u64,
    pub(crate) length: u32,
    pub(crate) operation: Dto,
    /// No event if it succeeds.
    pub(crate) quiet: bool,
    /// Its event wakes no waiter.
    pub(crate) unsignalled: bool,
}

/// The requests of one queue of an endpoint.
pub(crate) struct Lane {
    records: Box<[Record]>,
    /// Its number in the dispatcher, and its generation: the upper half of request numbers.
    tag: AtomicU32,
    /// The endpoint's label in events.
    label: AtomicU64,
    /// The first request that has not completed.
    done: AtomicU32,
    /// A request failed, other than by a flush.
    failed: AtomicBool,
    /// Binds that wait for the requests posted before them.
    binds: Mutex<VecDeque<Bind>>,
    has_binds: AtomicBool,
}

impl Lane {
    fn new(index: usize, depth: u32) -> Self {
        // Twice the depth, since completions may be seen a little late.
        let len = (depth.max(1) as usize * 2).next_power_of_two();
        Self {
            records: (0..len).map(|_| Record::default()).collect(),
            tag: AtomicU32::new((index as u32) << GENERATION_BITS),
            label: AtomicU64::new(0),
            done: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            binds: Mutex::new(VecDeque::new()),
            has_binds: AtomicBool::new(false),
        }
    }

    /// How many requests it can record.
    pub(crate) fn room(&self) -> u32 {
        self.records.len() as u32
    }

    /// Advances the generation, so that completions of earlier requests are ignored.
    fn forget(&self) -> u32 {
        let tag = self.tag.load(Ordering::Relaxed);
        let generation = tag.wrapping_add(1) & ((1 << GENERATION_BITS) - 1);
        let tag = tag >> GENERATION_BITS << GENERATION_BITS | generation;
        self.tag.store(tag, Ordering::Release);
        tag
    }

    /// Restarts it without the earlier requests. Returns the upper half of request numbers.
    pub(crate) fn restart(&self, _turn: &mut Turn) -> u64 {
        let tag = self.forget();
        self.done.store(0, Ordering::Release);
        self.failed.store(false, Ordering::Relaxed);
        self.has_binds.store(false, Ordering::Relaxed);
        lock(&self.binds).clear();
        u64::from(tag) << TAG_SHIFT
    }

    pub(crate) fn set_label(&self, label: Label) {
        self.label.store(label, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The first request that has not completed.
    #[inline]
    pub(crate) fn done(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }

    /// Records request number `ticket`; the request `room` before it must have completed.
    #[inline]
    pub(crate) fn remember(&self, ticket: u32, wanted: Wanted) {
        let record = &self.records[ticket as usize & (self.records.len() - 1)];
        let flags = if wanted.quiet { QUIET } else { 0 } | if wanted.unsignalled { UNSIGNALLED } else { 0 };
        let meta = u64::from(wanted.length) | flags | (wanted.operation as u64) << OPERATION_SHIFT;
        record.cookie.store(wanted.cookie, Ordering::Relaxed);
        // The store itself orders nothing: posting the request orders it before its completion.
        record.meta.store(meta, Ordering::Release);
    }

    /// The event of a completion, and whether it wakes a waiter; `None` for suppressed events and requests of earlier
    /// endpoints.
    pub(crate) fn complete(&self, turn: &mut Turn, wc: &Wc) -> Option<(DtoEvent, bool)> {
        let record = self.record_of(wc)?;
        let meta = record.meta.load(Ordering::Acquire);
        self.advance(turn, wc);
        let ok = wc.is_ok();
        if !ok {
            self.note_failure(wc);
        }
        let event = self.event(record, meta, wc);
        (meta & QUIET == 0 || !ok).then_some((event, meta & UNSIGNALLED == 0 || !ok))
    }

    /// Handles most completions in one step: those of successful requests whose event wakes a waiter, and for which no bind
    /// waits. `None` for others, and nothing has happened.
    #[inline(always)]
    pub(crate) fn complete_plain(&self, turn: &mut Turn, wc: &Wc) -> Option<DtoEvent> {
        let record = self.record_of(wc)?;
        let meta = record.meta.load(Ordering::Acquire);
        if !wc.is_ok() || meta & (QUIET | UNSIGNALLED) != 0 || self.has_binds() {
            return None;
        }
        self.advance(turn, wc);
        Some(self.event(record, meta, wc))
    }

    /// The record of a completed request, unless the request belongs to an earlier endpoint.
    #[inline(always)]
    fn record_of(&self, wc: &Wc) -> Option<&Record> {
        self.knows(wc.wr_id).then(|| &self.records[wc.wr_id as usize & (self.records.len() - 1)])
    }

    /// Whether a request with this number belongs to the current endpoint.
    #[inline(always)]
    pub(crate) fn knows(&self, wr_id: u64) -> bool {
        (wr_id >> TAG_SHIFT) as u32 == self.tag.load(Ordering::Acquire)
    }

    /// The request of a completion has completed, as have all before it. A bind after it may have completed already.
    #[inline(always)]
    fn advance(&self, _turn: &mut Turn, wc: &Wc) {
        let next = (wc.wr_id as u32).wrapping_add(1);
        if next.wrapping_sub(self.done.load(Ordering::Relaxed)) < 1 << 31 {
            self.done.store(next, Ordering::Release);
        }
    }

    #[inline(always)]
    fn event(&self, record: &Record, meta: u64, wc: &Wc) -> DtoEvent {
        let mut operation = Dto::from_bits(meta >> OPERATION_SHIFT);
        let received = operation == Dto::Receive;
        if received && wc.invalidated.is_some() {
            operation = Dto::ReceiveWithInvalidate;
        }
        DtoEvent {
            ep: self.label.load(Ordering::Relaxed),
            cookie: record.cookie.load(Ordering::Relaxed),
            status: wc.status.into(),
            length: if received { wc.byte_len } else { meta as u32 },
            operation,
            invalidated: wc.invalidated,
        }
    }

    #[cold]
    fn note_failure(&self, wc: &Wc) {
        if DtoStatus::from(wc.status) != DtoStatus::Flushed {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Completes bind number `ticket` when request number `after` has completed; returns its event, if it has one, if that
    /// is now.
    pub(crate) fn bind(
        &self,
        _turn: &mut Turn,
        ticket: u32,
        after: Option<u32>,
        event: Option<Event>,
    ) -> Option<Event> {
        let mut binds = lock(&self.binds);
        match after.filter(|after| !self.is_done(*after)) {
            None if binds.is_empty() => {
                if self.done() == ticket {
                    self.done.store(ticket.wrapping_add(1), Ordering::Release);
                }
                event
            }
            after => {
                // Without a request before it, it follows the bind before it.
                binds.push_back(Bind { ticket, after: after.unwrap_or(ticket.wrapping_sub(1)), event });
                self.has_binds.store(true, Ordering::Release);
                None
            }
        }
    }

    /// Whether request number `ticket` has completed.
    pub(crate) fn is_done(&self, ticket: u32) -> bool {
        self.done().wrapping_sub(ticket.wrapping_add(1)) < 1 << 31
    }

    /// Whether binds may wait for the last completion.
    #[inline]
    pub(crate) fn has_binds(&self) -> bool {
        self.has_binds.load(Ordering::Acquire)
    }

    /// Completes the next bind, if the request before it has completed; returns its event, if it has one.
    pub(crate) fn take_bind(&self, _turn: &mut Turn) -> Option<Option<Event>> {
        let mut binds = lock(&self.binds);
        let bind = if self.is_done(binds.front()?.after) { binds.pop_front() } else { None }?;
        if self.done() == bind.ticket {
            self.done.store(bind.ticket.wrapping_add(1), Ordering::Release);
        }
        self.has_binds.store(!binds.is_empty(), Ordering::Release);
        Some(bind.event)
    }
}

/// A bind queued after a request.
struct Bind {
    ticket: u32,
    after: u32,
    /// `None` if it is suppressed.
    event: Option<Event>,
}

type Block = Box<[OnceLock<Arc<Lane>>]>;

/// The lanes of a dispatcher.
pub(crate) struct Lanes {
    blocks: [OnceLock<Block>; BLOCKS],
    vacant: Mutex<Vacant>,
}

#[derive(Default)]
struct Vacant {
    /// Unused lanes.
    free: Vec<Arc<Lane>>,
    /// The number of lanes created.
    made: usize,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self { blocks: [const { OnceLock::new() }; BLOCKS], vacant: Mutex::default() }
    }

    /// The lane of a completion; `None` for a shared receive, whose first bit is beyond all lanes.
    #[inline]
    pub(crate) fn of(&self, wr_id: u64) -> Option<&Arc<Lane>> {
        let index = (wr_id >> (TAG_SHIFT + GENERATION_BITS)) as usize;
        self.blocks.get(index / BLOCK)?.get()?.get(index % BLOCK)?.get()
    }

    /// Returns a lane for `depth` requests.
    pub(crate) fn take(&self, depth: u32) -> Result<Arc<Lane>> {
        let mut vacant = lock(&self.vacant);
        if let Some(at) = vacant.free.iter().position(|lane| lane.room() >= depth * 2) {
            return Ok(vacant.free.swap_remove(at));
        }
        let index = vacant.made;
        let Some(block) = self.blocks.get(index / BLOCK) else {
            return Err(Error::new(Kind::InsufficientResources, Subtype::ResourceTevd));
        };
        let block = block.get_or_init(|| (0..BLOCK).map(|_| OnceLock::new()).collect());
        let lane = block[index % BLOCK].get_or_init(|| Arc::new(Lane::new(index, depth))).clone();
        vacant.made += 1;
        Ok(lane)
    }

    /// Takes back a lane from its endpoint.
    pub(crate) fn give(&self, lane: Arc<Lane>) {
        lane.forget();
        lock(&self.vacant).free.push(lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{WcOpcode, WcStatus};

    fn wc(tag: u64, ticket: u32, status: WcStatus) -> Wc {
        Wc { wr_id: tag | u64::from(ticket), status, opcode: WcOpcode::Send, ..Wc::default() }
    }

    fn wanted(cookie: u64, quiet: bool) -> Wanted {
        Wanted { cookie, length: 7, operation: Dto::Send, quiet, unsignalled: false }
    }

    #[test]
    fn records_come_back_over_the_end_of_the_ring() {
        let lanes = Lanes::new();
        let lane = lanes.take(3).expect("room");
        let tag = lane.restart(&mut Turn(()));
        lane.set_label(99);
        for ticket in 0..100_u32 {
            lane.remember(ticket, wanted(u64::MAX - u64::from(ticket), false));
            let done = wc(tag, ticket, WcStatus::Success);
            let (event, wakes) =
                lanes.of(done.wr_id).expect("the lane").complete(&mut Turn(()), &done).expect("an event");
            assert_eq!(
                (event.ep, event.cookie, event.length, wakes),
                (99, u64::MAX - u64::from(ticket), 7, true)
            );
            assert_eq!(lane.done(), ticket + 1);
        }
    }

    #[test]
    fn quiet_requests_speak_only_when_they_fail() {
        let lane = Lane::new(0, 4);
        let tag = lane.restart(&mut Turn(()));
        lane.remember(0, wanted(1, true));
        lane.remember(1, wanted(2, true));
        assert!(lane.complete(&mut Turn(()), &wc(tag, 0, WcStatus::Success)).is_none());
        assert!(!lane.has_failed());
        assert!(lane.complete(&mut Turn(()), &wc(tag, 1, WcStatus::RemAccessErr)).is_some());
        assert!(lane.has_failed());
    }

    #[test]
    fn what_was_before_a_restart_is_not_known() {
        let lanes = Lanes::new();
        let lane = lanes.take(4).expect("room");
        let old = lane.restart(&mut Turn(()));
        lane.remember(0, wanted(1, false));
        lanes.give(lane);
        let lane = lanes.take(4).expect("room");
        let new = lane.restart(&mut Turn(()));
        assert!(lane.complete(&mut Turn(()), &wc(old, 0, WcStatus::Success)).is_none());
        lane.remember(0, wanted(2, false));
        assert!(lane.complete(&mut Turn(()), &wc(new, 0, WcStatus::Success)).is_some());
    }

    #[test]
    fn a_bind_waits_for_what_was_posted_before_it() {
        let lane = Lane::new(0, 4);
        let tag = lane.restart(&mut Turn(()));
        let bound = || Some(Event::RmrBind { rmr: 5, cookie: 6, status: DtoStatus::Success });
        assert!(lane.bind(&mut Turn(()), 0, None, bound()).is_some(), "nothing is before it");
        lane.remember(1, wanted(1, false));
        assert!(lane.bind(&mut Turn(()), 2, Some(1), bound()).is_none());
        assert!(lane.bind(&mut Turn(()), 3, Some(1), bound()).is_none(), "nor before the other");
        assert!(lane.take_bind(&mut Turn(())).is_none());
        assert!(lane.complete(&mut Turn(()), &wc(tag, 1, WcStatus::Success)).is_some());
        assert!(lane.take_bind(&mut Turn(())).is_some() && lane.take_bind(&mut Turn(())).is_some());
        assert!(lane.take_bind(&mut Turn(())).is_none() && !lane.has_binds());
        assert_eq!(lane.done(), 4);
    }
}
