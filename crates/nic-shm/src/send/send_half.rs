//! Data path: sending. The sending half of a queue pair: from the post to the completion, by the fast path or
//! the engine, with the requests that wait for the peer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use host::{BiasedGuard, Span, Time};
use verbs::{Data, Error, QpCap, Result, SendFlags, SendOp, SendWr, WcStatus};

use crate::connection::{Connection, state_of};
use crate::memory::layout::state;
use crate::peer::queue_pair::PeerQp;
use crate::queues::completions::{Completions, SendCompletion};
use crate::send::engine::{ExecuteOutcome, SendEngine};
use crate::send::{failed_request, fast_path};
use nic_util::sync::reader_registry::ReaderLock;

/// The sending half of a queue pair.
pub(crate) struct SendHalf {
    queue: ReaderLock<SendQueue>,
    pub(crate) completions: Arc<Completions>,
    /// Its slot in the completion queue.
    cq_slot: OnceLock<usize>,
    /// Capacity in requests, and the limits of SGEs and inline bytes of each.
    max_wr: u32,
    max_sge: u32,
    max_inline: u32,
    signal_all: bool,
    /// The number that completions of its requests report.
    num: u32,
    /// Whether requests are pending.
    stalled: AtomicBool,
    /// Number of requests whose queue entries have been freed.
    reclaimed: AtomicU64,
}

/// The thread that makes progress on waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgressCaller {
    /// A thread of the program that polls, and is likely to poll again.
    Poller,
    /// The NIC thread.
    NicThread,
}

/// How often a poller checks for the receive that a message waits for: each check takes the cache line away
/// from the thread that posts receives.
const RETRY_PERIOD: Span = Span::from_us(1);
/// A poller retries immediately when this many receives are posted.
const MANY_RECEIVES: u64 = 32;
/// A poller seen within this time counts as active; posting a receive then does not wake the NIC thread.
const POLLER_ACTIVE: Span = Span::from_us(100);

/// The send queue's state under the send lock.
#[derive(Default)]
pub(crate) struct SendQueue {
    posted: u64,
    /// Requests that wait for the peer, in order.
    pending: VecDeque<PendingSend>,
    engine: SendEngine,
    /// Time of the last poll while requests waited, and of the last check for a receive.
    polled: Option<Time>,
    retried: Option<Time>,
}

/// A waiting send request, with copies of everything that the caller may reuse.
struct PendingSend {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    inline: bool,
    sges: Vec<verbs::Sge>,
    bytes: Vec<u8>,
}

impl PendingSend {
    fn copy_of(wr: &SendWr<'_>) -> Self {
        let (inline, sges, bytes) = match wr.data {
            Data::Sges(sges) => (false, sges.to_vec(), Vec::new()),
            Data::Inline(bytes) => (true, Vec::new(), bytes.to_vec()),
        };
        Self { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, inline, sges, bytes }
    }

    fn request(&self) -> SendWr<'_> {
        let data = if self.inline { Data::Inline(&self.bytes) } else { Data::Sges(&self.sges) };
        SendWr { wr_id: self.wr_id, op: self.op, data, flags: self.flags }
    }
}

impl SendQueue {
    fn push(&mut self, wr: &SendWr<'_>) {
        self.posted += 1;
        self.pending.push_back(PendingSend::copy_of(wr));
    }

    /// Whether to retry now. If a message waits for a receive, a poller retries when many are posted or some
    /// time has passed, so that the two sides do not contend for a cache line on each message. The peer has
    /// to notify only while no thread polls.
    fn should_retry(&mut self, link: &PeerQp, caller: ProgressCaller, now: Time) -> bool {
        let within = |at: Option<Time>, span| at.is_some_and(|at| now < at + span);
        let delivery = &mut self.engine.delivery;
        delivery.needs_rnr_notify =
            caller == ProgressCaller::NicThread && !within(self.polled, POLLER_ACTIVE);
        if caller == ProgressCaller::NicThread {
            return true;
        }
        self.polled = Some(now);
        if delivery.is_waiting && within(self.retried, RETRY_PERIOD) && !link.has_receives(MANY_RECEIVES) {
            return false;
        }
        self.retried = Some(now);
        true
    }

    /// Removes the first waiting request; also returns the number of requests posted up to it.
    fn pop(&mut self) -> Option<(PendingSend, u64)> {
        let first = self.pending.pop_front()?;
        Some((first, self.posted - self.pending.len() as u64))
    }
}

impl SendHalf {
    pub(crate) fn new(cap: &QpCap, signal_all: bool, num: u32, completions: Arc<Completions>) -> Self {
        Self {
            queue: ReaderLock::default(),
            completions,
            cq_slot: OnceLock::new(),
            max_wr: cap.max_send_wr,
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline,
            signal_all,
            num,
            stalled: AtomicBool::new(false),
            reclaimed: AtomicU64::new(0),
        }
    }

    /// Capacity in requests.
    pub(crate) fn depth(&self) -> u32 {
        self.max_wr
    }

    /// Its slot in the completion queue.
    #[inline]
    pub(crate) fn cq_slot(&self) -> Option<usize> {
        self.cq_slot.get().copied()
    }

    /// Whether successful completions of its requests wait to be polled.
    pub(crate) fn has_completed(&self) -> bool {
        self.cq_slot().is_some_and(|cq_slot| self.completions.has_completed(cq_slot))
    }

    pub(crate) fn set_cq_slot(&self, cq_slot: usize) {
        let _ = self.cq_slot.set(cq_slot);
    }

    /// Takes the send lock to carry out requests; deregistration waits until it is released.
    #[inline]
    pub(crate) fn enter(&self, connection: &Connection) -> BiasedGuard<'_, SendQueue> {
        self.queue.enter(|| connection.device.posters.add(connection.index))
    }

    /// Takes the send lock for any other purpose.
    pub(crate) fn lock(&self) -> BiasedGuard<'_, SendQueue> {
        self.queue.lock()
    }

    /// Waits until the thread that carries out requests now has finished.
    pub(crate) fn wait_for_reader(&self) {
        self.queue.wait_for_reader();
    }

    /// See [`nic_util::sync::reader_registry::ReaderMark::clear`].
    pub(crate) fn reset_mark(&self) {
        self.queue.reset_mark();
    }

    /// Posts a request; returns whether the queue pair must be failed.
    #[inline]
    pub(crate) fn post(&self, connection: &Connection, wr: &SendWr<'_>) -> Result<bool> {
        if self.post_fast(connection, wr) {
            return Ok(false);
        }
        self.post_any(connection, wr)
    }

    /// Posts a request by the fast path; false if nothing has happened.
    #[inline]
    fn post_fast(&self, connection: &Connection, wr: &SendWr<'_>) -> bool {
        if !fast_path::is_candidate(wr) {
            return false;
        }
        let Some(link) = connection.link() else { return false };
        let mut queue = self.enter(connection);
        if !connection.is_ready() || !queue.pending.is_empty() || self.is_full(&queue) {
            return false;
        }
        let size_max = connection.device.attr.max_msg_size;
        if !fast_path::execute(&mut queue.engine, link, wr, self.max_inline as usize, size_max) {
            return false;
        }
        self.complete(connection, &mut queue, wr, WcStatus::Success, 0);
        true
    }

    #[inline(never)]
    fn post_any(&self, connection: &Connection, wr: &SendWr<'_>) -> Result<bool> {
        self.check(connection, wr)?;
        let mut queue = self.enter(connection);
        if self.is_full(&queue) {
            return Err(Error::QueueFull { queue: "send", depth: self.max_wr });
        }
        let status = connection.state();
        if status != state::RTS {
            return self.post_unready(connection, &mut queue, wr, status);
        }
        if queue.pending.is_empty() {
            // If it has to wait, the NIC thread is woken and checks whether a thread polls.
            queue.engine.delivery.needs_rnr_notify = false;
            match queue.engine.execute(connection, wr) {
                ExecuteOutcome::Done(status, bytes) => {
                    return Ok(self.complete(connection, &mut queue, wr, status, bytes));
                }
                ExecuteOutcome::Wait => self.set_stalled(connection, true),
            }
        }
        queue.push(wr);
        Ok(false)
    }

    /// Posts to a queue pair that cannot send: an error, except in the error state, where the request is flushed. Returns false: the
    /// queue pair has failed already.
    #[cold]
    fn post_unready(
        &self,
        connection: &Connection,
        queue: &mut SendQueue,
        wr: &SendWr<'_>,
        status: u32,
    ) -> Result<bool> {
        if status != state::ERROR {
            return Err(Error::WrongState { call: "post_send", state: state_of(status) });
        }
        if queue.pending.is_empty() {
            self.complete(connection, queue, wr, WcStatus::WrFlushErr, 0);
        } else {
            queue.push(wr);
        }
        Ok(false)
    }

    #[inline]
    fn check(&self, connection: &Connection, wr: &SendWr<'_>) -> Result<()> {
        match wr.data {
            Data::Sges(sges) => {
                Error::check_limit("the number of SGEs", sges.len() as u64, self.max_sge.into())?;
                let total = sges.iter().map(|s| u64::from(s.length)).sum();
                Error::check_limit("bytes in the message", total, connection.device.attr.max_msg_size)
            }
            Data::Inline(_) if wr.op.fetches() => {
                Err(Error::Invalid("inline data cannot take what the operation returns".into()))
            }
            Data::Inline(bytes) => {
                Error::check_limit("inline bytes", bytes.len() as u64, self.max_inline.into())
            }
        }
    }

    /// Whether the queue is full.
    #[inline]
    fn is_full(&self, queue: &SendQueue) -> bool {
        queue.posted - self.reclaimed.load(Ordering::Acquire) >= self.max_wr.into()
    }

    /// Frees the queue entries of requests up to this one; under the poll lock of its completion queue, which holds completions in
    /// the order of their requests.
    #[inline]
    pub(crate) fn reclaim(&self, posted_count: u64) {
        self.reclaimed.store(posted_count, Ordering::Release);
    }

    /// Counts a request that completed immediately and reports it; returns whether the queue pair must be
    /// failed.
    #[inline(always)]
    fn complete(
        &self,
        connection: &Connection,
        queue: &mut SendQueue,
        wr: &SendWr<'_>,
        status: WcStatus,
        bytes: u32,
    ) -> bool {
        queue.posted += 1;
        if status != WcStatus::Success {
            return self.report(connection, wr, queue.posted, status, bytes);
        }
        if self.is_signaled(wr) {
            self.completions.push(self.completion(wr, queue.posted, status, bytes), false);
        }
        false
    }

    /// Whether the request completes with an entry in the completion queue even if it succeeds.
    #[inline]
    fn is_signaled(&self, wr: &SendWr<'_>) -> bool {
        self.signal_all || wr.flags.contains(SendFlags::SIGNALED)
    }

    #[inline]
    fn completion(&self, wr: &SendWr<'_>, posted_count: u64, status: WcStatus, bytes: u32) -> SendCompletion {
        SendCompletion {
            wr_id: wr.wr_id,
            posted_count,
            cq_slot: self.cq_slot().map_or(u32::MAX, |cq_slot| cq_slot as u32),
            qp_num: self.num,
            byte_len: bytes,
            status,
            opcode: wr.op.opcode(),
        }
    }

    /// Reports a completed request unless it is unsignaled; returns whether the queue pair must be failed.
    #[inline(never)]
    fn report(
        &self,
        connection: &Connection,
        wr: &SendWr<'_>,
        posted_count: u64,
        status: WcStatus,
        bytes: u32,
    ) -> bool {
        let failed = status != WcStatus::Success;
        if failed || self.is_signaled(wr) {
            self.completions.push(self.completion(wr, posted_count, status, bytes), failed);
        }
        failed && status != WcStatus::WrFlushErr && {
            connection.record_failed_request(failed_request::explain(connection, wr, status));
            if status == WcStatus::RemAccessErr {
                connection.link().into_iter().for_each(PeerQp::record_access_error);
            }
            // Still under the send lock, so that no thread carries out later requests.
            connection.advance(state::RTS, state::ERROR);
            true
        }
    }

    fn set_stalled(&self, connection: &Connection, stalled: bool) {
        if self.stalled.swap(stalled, Ordering::AcqRel) != stalled && stalled {
            self.cq_slot.get().iter().for_each(|cq_slot| self.completions.mark_stalled(**cq_slot));
            connection.device.kick_qp(connection.index);
        }
    }

    /// Whether requests wait for the peer.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Acquire)
    }

    /// Retries waiting requests. Returns whether the queue pair must be failed.
    pub(crate) fn progress(&self, connection: &Connection, caller: ProgressCaller) -> bool {
        if !self.is_stalled() {
            return false;
        }
        let mut queue = self.enter(connection);
        let now = connection.device.host.now();
        if connection.link().is_some_and(|link| !queue.should_retry(link, caller, now)) {
            return false;
        }
        let mut failed = false;
        while !failed && connection.state() == state::RTS {
            let Some((first, posted_count)) = queue.pop() else { break };
            match queue.engine.execute(connection, &first.request()) {
                ExecuteOutcome::Done(status, bytes) => {
                    failed = self.report(connection, &first.request(), posted_count, status, bytes);
                }
                ExecuteOutcome::Wait => {
                    queue.pending.push_front(first);
                    return false;
                }
            }
        }
        if queue.pending.is_empty() {
            self.set_stalled(connection, false);
        }
        failed
    }

    /// Flushes all waiting requests; the queue pair has failed.
    pub(crate) fn flush(&self, connection: &Connection) {
        let mut queue = self.lock();
        while let Some((first, posted_count)) = queue.pop() {
            self.report(connection, &first.request(), posted_count, WcStatus::WrFlushErr, 0);
        }
        queue.engine.drop_request();
        self.set_stalled(connection, false);
    }
}

#[cfg(test)]
mod tests {
    use verbs::{QpInit, Wc};

    use super::*;
    use crate::fuzzing::link_to_process;
    use crate::hostile_peer::unattended_qp;

    /// Goal: waiting requests keep their queue entries, and are flushed in order. Method: ten sends to a peer
    /// that has eight receives and posts no more.
    #[test]
    fn waiting_requests_keep_their_entries_and_order() {
        let (device, qp) =
            unattended_qp(|_, cq| QpInit::new(cq).cap(QpCap { max_send_wr: 10, ..QpCap::default() }));
        link_to_process(&qp, std::process::id() as i32, None);
        let (half, connection) = (&qp.sending, &qp.connection);
        let send = |wr_id| half.post(connection, &SendWr::inline(wr_id, SendOp::Send, &[1]));
        let over = || {
            let mut wcs = [Wc::default(); 16];
            let count = half.completions.poll_sends(&mut wcs, |done| half.reclaim(done.posted_count));
            wcs[..count].iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>()
        };
        assert!((0..10).all(|wr_id| send(wr_id) == Ok(false)) && half.is_stalled());
        assert_eq!(send(10), Err(Error::QueueFull { queue: "send", depth: 10 }));
        assert_eq!(over(), (0..8).map(|wr_id| (wr_id, WcStatus::Success)).collect::<Vec<_>>());
        let asked = || connection.link().map(|link| link.qp.rnr.0.load(Ordering::Relaxed));
        assert!(!half.progress(connection, ProgressCaller::Poller) && asked() == Some(0), "it polls");
        half.lock().polled = None;
        assert!(
            !half.progress(connection, ProgressCaller::NicThread) && over().is_empty(),
            "there is still no receive"
        );
        assert_eq!(asked(), Some(1), "nobody polls");
        assert_eq!(send(10), Ok(false));
        connection.fail();
        half.flush(connection);
        assert_eq!(over(), [8, 9, 10].map(|wr_id| (wr_id, WcStatus::WrFlushErr)));
        assert!(!half.is_stalled());
        drop(device);
    }
}
