//! Data path: [`WorkQueue`], the records of one queue of an endpoint for its requests, until they complete.
//!
//! A device's completion holds 64 bits of ours. The user's cookie has as many, and an event has further fields: so those bits
//! identify a record here, and the record has the rest. Requests of a queue complete in order, so records are a ring.
//!
//! A work queue has two users. The poster holds the endpoint's lock, fills a record, and posts the request, which orders the
//! record before its completion. The thread that completes, binds or restarts holds the dispatcher's only
//! [`CompletionToken`]. Only [`WorkQueue::done`] passes information from the second user to the first.
//!
//! A work queue belongs to a dispatcher and is reused by later endpoints; its generation distinguishes their completions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use verbs::Wc;

use crate::event::{Dto, DtoEvent, DtoStatus};
use crate::sync::lock;
use crate::{Error, ErrorKind, Event, Label, Result, Subtype};

/// Work queues of a block, and blocks of a dispatcher.
const BLOCK: usize = 256;
const BLOCKS: usize = 64;

/// A request's number consists of its work queue's number, the work queue's generation, and the request's index in the work
/// queue.
const TAG_SHIFT: u32 = 32;
const GENERATION_BITS: u32 = 16;

/// Bits of a record's second word, above the length.
const SUPPRESSED: u64 = 1 << 32;
const UNSIGNALLED: u64 = 1 << 33;
const OPERATION_SHIFT: u32 = 34;

/// The right to change what completions change. Each dispatcher has one, behind a lock.
#[derive(Default)]
pub(crate) struct CompletionToken(());

/// The record of one request.
#[derive(Default)]
struct Record {
    cookie: AtomicU64,
    meta: AtomicU64,
}

/// The data of a request that its completion needs.
#[derive(Clone, Copy)]
pub(crate) struct RequestInfo {
    pub(crate) cookie: u64,
    pub(crate) length: u32,
    pub(crate) operation: Dto,
    /// No event if it succeeds.
    pub(crate) suppressed: bool,
    /// Its event wakes no waiter.
    pub(crate) unsignalled: bool,
}

/// The requests of one queue of an endpoint.
pub(crate) struct WorkQueue {
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
    binds: Mutex<VecDeque<PendingBind>>,
    has_binds: AtomicBool,
}

impl WorkQueue {
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
    pub(crate) fn record_count(&self) -> u32 {
        self.records.len() as u32
    }

    /// Advances the generation, so that completions of earlier requests are ignored.
    fn invalidate(&self) -> u32 {
        let tag = self.tag.load(Ordering::Relaxed);
        let generation = tag.wrapping_add(1) & ((1 << GENERATION_BITS) - 1);
        let tag = tag >> GENERATION_BITS << GENERATION_BITS | generation;
        self.tag.store(tag, Ordering::Release);
        tag
    }

    /// Restarts it without the earlier requests. Returns the upper half of request numbers.
    pub(crate) fn restart(&self, _token: &mut CompletionToken) -> u64 {
        let tag = self.invalidate();
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
    pub(crate) fn store_record(&self, ticket: u32, wanted: RequestInfo) {
        let record = &self.records[ticket as usize & (self.records.len() - 1)];
        let flags =
            if wanted.suppressed { SUPPRESSED } else { 0 } | if wanted.unsignalled { UNSIGNALLED } else { 0 };
        let meta = u64::from(wanted.length) | flags | (wanted.operation as u64) << OPERATION_SHIFT;
        record.cookie.store(wanted.cookie, Ordering::Relaxed);
        // The store itself orders nothing: posting the request orders it before its completion.
        record.meta.store(meta, Ordering::Release);
    }

    /// The event of a completion, and whether it wakes a waiter; `None` for suppressed events of requests that succeeded, and for
    /// requests of earlier endpoints. Failures are never suppressed, and wake waiters.
    pub(crate) fn complete(&self, token: &mut CompletionToken, wc: &Wc) -> Option<(DtoEvent, bool)> {
        let record = self.record_of(wc)?;
        let meta = record.meta.load(Ordering::Acquire);
        self.advance(token, wc);
        let ok = wc.is_ok();
        if !ok {
            self.record_failure(wc);
        }
        let event = self.event(record, meta, wc);
        (meta & SUPPRESSED == 0 || !ok).then_some((event, meta & UNSIGNALLED == 0 || !ok))
    }

    /// Handles most completions in one step: those of successful requests whose event wakes a waiter, and for which no bind
    /// waits. `None` for others, and nothing has happened.
    #[inline(always)]
    pub(crate) fn complete_plain(&self, token: &mut CompletionToken, wc: &Wc) -> Option<DtoEvent> {
        let record = self.record_of(wc)?;
        let meta = record.meta.load(Ordering::Acquire);
        if !wc.is_ok() || meta & (SUPPRESSED | UNSIGNALLED) != 0 || self.has_binds() {
            return None;
        }
        self.advance(token, wc);
        Some(self.event(record, meta, wc))
    }

    /// The record of a completed request, unless the request belongs to an earlier endpoint.
    #[inline(always)]
    fn record_of(&self, wc: &Wc) -> Option<&Record> {
        self.is_current(wc.wr_id).then(|| &self.records[wc.wr_id as usize & (self.records.len() - 1)])
    }

    /// Whether a request with this number belongs to the current endpoint.
    #[inline(always)]
    pub(crate) fn is_current(&self, wr_id: u64) -> bool {
        (wr_id >> TAG_SHIFT) as u32 == self.tag.load(Ordering::Acquire)
    }

    /// The request of a completion has completed, as have all before it. A bind after it may have completed already.
    #[inline(always)]
    fn advance(&self, _token: &mut CompletionToken, wc: &Wc) {
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
    fn record_failure(&self, wc: &Wc) {
        if DtoStatus::from(wc.status) != DtoStatus::Flushed {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Completes bind number `ticket` when request number `after` has completed; returns its event, if it has one, if that
    /// is now.
    pub(crate) fn add_bind(
        &self,
        _token: &mut CompletionToken,
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
                binds.push_back(PendingBind {
                    ticket,
                    after: after.unwrap_or(ticket.wrapping_sub(1)),
                    event,
                });
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
    pub(crate) fn next_ready_bind(&self, _token: &mut CompletionToken) -> Option<Option<Event>> {
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
struct PendingBind {
    ticket: u32,
    after: u32,
    /// `None` if it is suppressed.
    event: Option<Event>,
}

type Block = Box<[OnceLock<Arc<WorkQueue>>]>;

/// The work queues of a dispatcher.
pub(crate) struct WorkQueues {
    blocks: [OnceLock<Block>; BLOCKS],
    free_list: Mutex<FreeList>,
}

#[derive(Default)]
struct FreeList {
    /// Unused work queues.
    free: Vec<Arc<WorkQueue>>,
    /// The number of work queues created.
    made: usize,
}

impl WorkQueues {
    pub(crate) fn new() -> Self {
        Self { blocks: [const { OnceLock::new() }; BLOCKS], free_list: Mutex::default() }
    }

    /// The work queue of a completion; `None` for a shared receive, whose first bit is beyond all work queues.
    #[inline]
    pub(crate) fn find(&self, wr_id: u64) -> Option<&Arc<WorkQueue>> {
        let index = (wr_id >> (TAG_SHIFT + GENERATION_BITS)) as usize;
        self.blocks.get(index / BLOCK)?.get()?.get(index % BLOCK)?.get()
    }

    /// Returns a work queue for `depth` requests.
    pub(crate) fn acquire(&self, depth: u32) -> Result<Arc<WorkQueue>> {
        let mut free_list = lock(&self.free_list);
        if let Some(at) = free_list.free.iter().position(|work_queue| work_queue.record_count() >= depth * 2)
        {
            return Ok(free_list.free.swap_remove(at));
        }
        let index = free_list.made;
        let Some(block) = self.blocks.get(index / BLOCK) else {
            return Err(Error::new(ErrorKind::InsufficientResources, Subtype::ResourceTevd));
        };
        let block = block.get_or_init(|| (0..BLOCK).map(|_| OnceLock::new()).collect());
        let work_queue = block[index % BLOCK].get_or_init(|| Arc::new(WorkQueue::new(index, depth))).clone();
        free_list.made += 1;
        Ok(work_queue)
    }

    /// Takes back a work queue from its endpoint.
    pub(crate) fn release(&self, work_queue: Arc<WorkQueue>) {
        work_queue.invalidate();
        lock(&self.free_list).free.push(work_queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{WcOpcode, WcStatus};

    fn wc(tag: u64, ticket: u32, status: WcStatus) -> Wc {
        Wc { wr_id: tag | u64::from(ticket), status, opcode: WcOpcode::Send, ..Wc::default() }
    }

    fn request_info(cookie: u64, suppressed: bool) -> RequestInfo {
        RequestInfo { cookie, length: 7, operation: Dto::Send, suppressed, unsignalled: false }
    }

    #[test]
    fn records_are_found_across_the_end_of_the_ring() {
        let work_queues = WorkQueues::new();
        let work_queue = work_queues.acquire(3).expect("room");
        let tag = work_queue.restart(&mut CompletionToken(()));
        work_queue.set_label(99);
        for ticket in 0..100_u32 {
            work_queue.store_record(ticket, request_info(u64::MAX - u64::from(ticket), false));
            let done = wc(tag, ticket, WcStatus::Success);
            let (event, wakes) = work_queues
                .find(done.wr_id)
                .expect("the work queue")
                .complete(&mut CompletionToken(()), &done)
                .expect("an event");
            assert_eq!(
                (event.ep, event.cookie, event.length, wakes),
                (99, u64::MAX - u64::from(ticket), 7, true)
            );
            assert_eq!(work_queue.done(), ticket + 1);
        }
    }

    #[test]
    fn suppressed_requests_report_only_failures() {
        let work_queue = WorkQueue::new(0, 4);
        let tag = work_queue.restart(&mut CompletionToken(()));
        work_queue.store_record(0, request_info(1, true));
        work_queue.store_record(1, request_info(2, true));
        assert!(work_queue.complete(&mut CompletionToken(()), &wc(tag, 0, WcStatus::Success)).is_none());
        assert!(!work_queue.has_failed());
        assert!(work_queue.complete(&mut CompletionToken(()), &wc(tag, 1, WcStatus::RemAccessErr)).is_some());
        assert!(work_queue.has_failed());
    }

    #[test]
    fn completions_from_before_a_restart_are_ignored() {
        let work_queues = WorkQueues::new();
        let work_queue = work_queues.acquire(4).expect("room");
        let old = work_queue.restart(&mut CompletionToken(()));
        work_queue.store_record(0, request_info(1, false));
        work_queues.release(work_queue);
        let work_queue = work_queues.acquire(4).expect("room");
        let new = work_queue.restart(&mut CompletionToken(()));
        assert!(work_queue.complete(&mut CompletionToken(()), &wc(old, 0, WcStatus::Success)).is_none());
        work_queue.store_record(0, request_info(2, false));
        assert!(work_queue.complete(&mut CompletionToken(()), &wc(new, 0, WcStatus::Success)).is_some());
    }

    #[test]
    fn a_bind_completes_after_earlier_requests() {
        let work_queue = WorkQueue::new(0, 4);
        let tag = work_queue.restart(&mut CompletionToken(()));
        let bound = || Some(Event::RmrBind { rmr: 5, cookie: 6, status: DtoStatus::Success });
        assert!(
            work_queue.add_bind(&mut CompletionToken(()), 0, None, bound()).is_some(),
            "nothing is before it"
        );
        work_queue.store_record(1, request_info(1, false));
        assert!(work_queue.add_bind(&mut CompletionToken(()), 2, Some(1), bound()).is_none());
        assert!(
            work_queue.add_bind(&mut CompletionToken(()), 3, Some(1), bound()).is_none(),
            "nor before the other"
        );
        assert!(work_queue.next_ready_bind(&mut CompletionToken(())).is_none());
        assert!(work_queue.complete(&mut CompletionToken(()), &wc(tag, 1, WcStatus::Success)).is_some());
        assert!(
            work_queue.next_ready_bind(&mut CompletionToken(())).is_some()
                && work_queue.next_ready_bind(&mut CompletionToken(())).is_some()
        );
        assert!(work_queue.next_ready_bind(&mut CompletionToken(())).is_none() && !work_queue.has_binds());
        assert_eq!(work_queue.done(), 4);
    }
}
