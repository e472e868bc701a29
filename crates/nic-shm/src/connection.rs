//! Data path: the connection. State that both halves of a queue pair use: its identity, its status word, and
//! its peer.
//!
//! State and generation are one word in shared memory, which the peer may change: when its queue pair fails,
//! it fails this one, too.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use host::Span;
use verbs::{Access, Error, QpState, Result, SendOp};

use crate::memory::layout::{QpShared, state};
use crate::memory::numbers::QpNumber;
use crate::memory::segment::SharedRef;
use crate::memory::table::window_owner;
use crate::peer::queue_pair::PeerQp;
use crate::shared::DeviceShared;
use nic_util::refusal;

/// There was no failure.
const NO_FAILURE: u32 = 0;
/// It is marked to be failed, but has not failed yet.
const REQUESTED: u32 = 1;
/// It has failed.
const FAILED: u32 = 2;

/// The program has not set a retry limit.
const UNSET: u8 = u8::MAX;

/// A queue pair's connection.
pub(crate) struct Connection {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) index: usize,
    pub(crate) generation: u32,
    pub(crate) num: u32,
    /// The number that completions report.
    pub(crate) reported_qp_num: u32,
    pub(crate) pd: u32,
    /// The part of the queue pair that peers see.
    pub(crate) words: SharedRef<QpShared>,
    /// The status word in state RTS.
    ready: u64,
    /// The furthest state that this side has reached.
    reached: AtomicU32,
    link: OnceLock<PeerQp>,
    /// The number of its socket, even after that is closed; 0 before it has one.
    pub(crate) socket: AtomicU64,
    /// The peer process has ended: it accesses nothing any more.
    peer_ended: AtomicBool,
    /// The peer has disconnected: its queue pair is in the error state, or destroyed, and must not be
    /// accessed any more.
    peer_disconnected: AtomicBool,
    /// [`NO_FAILURE`], [`REQUESTED`] or [`FAILED`].
    failure: AtomicU32,
    /// A failure raises no event, as the program or the peer has requested it.
    expected: AtomicBool,
    /// The program's retry limit, or [`UNSET`].
    rnr_retry: AtomicU8,
    /// Why its first request failed that did.
    failed_request: OnceLock<Box<str>>,
}

impl Connection {
    /// Creates the connection of the queue pair with this number and shared part; not connected.
    pub(crate) fn new(
        device: &Arc<DeviceShared>,
        number: QpNumber,
        reported_qp_num: Option<u32>,
        pd: u32,
        words: SharedRef<QpShared>,
    ) -> Self {
        let QpNumber { index, generation, num } = number;
        Self {
            device: device.clone(),
            index,
            generation,
            num,
            reported_qp_num: reported_qp_num.unwrap_or(num),
            pd,
            words,
            ready: state::status_word(generation, state::RTS),
            reached: AtomicU32::new(state::INIT),
            link: OnceLock::new(),
            socket: AtomicU64::new(0),
            peer_ended: AtomicBool::new(false),
            peer_disconnected: AtomicBool::new(false),
            failure: AtomicU32::new(NO_FAILURE),
            expected: AtomicBool::new(false),
            rnr_retry: AtomicU8::new(UNSET),
            failed_request: OnceLock::new(),
        }
    }

    /// The peer's queue pair, once connected.
    #[inline]
    pub(crate) fn link(&self) -> Option<&PeerQp> {
        self.link.get()
    }

    /// Sets the peer's queue pair.
    pub(crate) fn connect(&self, link: PeerQp) -> Result<()> {
        self.link.set(link).map_err(|_| Error::Invalid("the queue pair was connected before".into()))?;
        self.apply_rnr_retry();
        Ok(())
    }

    /// Sets the retry limit for messages that find no receive; it replaces the peer's limit.
    pub(crate) fn set_rnr_retry(&self, retries: u8) {
        self.rnr_retry.store(retries, Ordering::Relaxed);
        self.apply_rnr_retry();
    }

    fn apply_rnr_retry(&self) {
        // If one thread connects and another one sets the limit, the later of the two sees both.
        fence(Ordering::SeqCst);
        let retries = self.rnr_retry.load(Ordering::Relaxed);
        if let Some(link) = self.link().filter(|_| retries != UNSET) {
            link.rnr_retry.store(retries, Ordering::Relaxed);
        }
    }

    /// Sets the pause before the peer retries messages that find no receive.
    pub(crate) fn set_rnr_pause(&self, pause: Span) {
        self.words.rnr_pause.store(pause.as_ns() as u32, Ordering::Relaxed);
    }

    /// Whether requests may be carried out.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.words.status.load(Ordering::Acquire) == self.ready
    }

    /// The number of the state; see [`state`].
    #[inline]
    pub(crate) fn state(&self) -> u32 {
        // Read first: the status word has had this state before.
        let reached = self.reached.load(Ordering::Acquire);
        let word = self.words.status.load(Ordering::Acquire);
        // The entry belongs to a successor once this queue pair is destroyed. Peers may fail it and confirm
        // the connection; they may not move it back to an earlier state.
        let (generation, state) = ((word >> 32) as u32, word as u32);
        let stands = generation == self.generation && state >= reached;
        if stands && state <= state::ERROR { state } else { state::ERROR }
    }

    /// Moves from one state to another; false if it was not in the first.
    pub(crate) fn advance(&self, from: u32, to: u32) -> bool {
        if to == state::ERROR {
            // Before the status word changes; see `is_failed_by_peer`.
            self.reached.fetch_max(to, Ordering::Release);
        }
        let word = |s| state::status_word(self.generation, s);
        let status = &self.words.status;
        let done = status.compare_exchange(word(from), word(to), Ordering::AcqRel, Ordering::Acquire).is_ok();
        if done {
            self.reached.fetch_max(to, Ordering::Release);
        }
        done
    }

    /// Whether the peer failed this queue pair. The peer's own has then failed and may be destroyed:
    /// accessing it would allocate its memory again.
    fn is_failed_by_peer(&self) -> bool {
        let word = self.words.status.load(Ordering::Acquire);
        word == state::status_word(self.generation, state::ERROR)
            && self.reached.load(Ordering::Acquire) < state::ERROR
    }

    /// The address of a range of this process's memory that is registered in the queue pair's domain.
    #[inline]
    pub(crate) fn own_memory(&self, key: u32, need: Access, addr: u64, len: u64) -> Option<*mut u8> {
        self.device.table.own_memory(key, self.pd, need, addr, len)
    }

    /// Its domain, and its number as the owner of memory windows.
    pub(crate) fn domain(&self) -> (u32, u64) {
        (self.pd, window_owner(self.index, self.generation))
    }

    /// Carries out a request that changes a memory window; false if it is not allowed.
    #[cold]
    pub(crate) fn change_window(&self, op: SendOp) -> bool {
        let (device, (pd, owner)) = (&*self.device, self.domain());
        match op {
            SendOp::BindMw(bind) => device.windows.bind(device, pd, owner, &bind),
            SendOp::LocalInv(key) => {
                device.windows.may_invalidate(key, pd) && device.table.invalidate(key, (pd, owner))
            }
            _ => false,
        }
    }

    /// Whether the peer is in the middle of an operation on this device's memory.
    pub(crate) fn peer_is_inside(&self) -> bool {
        self.words.peer.0.busy.is_inside()
            && !self.peer_ended.load(Ordering::Acquire)
            && !self.link().is_some_and(|link| link.peer.is_gone())
    }

    /// Notifies the peer if it waits for a receive or for room in the completion ring.
    #[inline]
    pub(crate) fn notify_rnr_waiter(&self) {
        let rnr = &self.words.rnr.0;
        if rnr.load(Ordering::Relaxed) != 0 {
            rnr.store(0, Ordering::Release);
            self.kick();
        }
    }

    /// Makes the peer's NIC thread check its queue pair, if there is a peer.
    pub(crate) fn kick(&self) {
        if let Some(link) = self.link() {
            link.kick();
        }
    }

    /// Whether the peer has failed this queue pair because one of its requests lacked access rights.
    pub(crate) fn has_access_error(&self) -> bool {
        self.words.access_error.load(Ordering::Acquire) == self.generation
    }

    /// From now on a failure raises no event.
    pub(crate) fn expect_failure(&self) {
        self.expected.store(true, Ordering::Release);
    }

    /// Whether a failure raises no event.
    pub(crate) fn expects_failure(&self) -> bool {
        self.expected.load(Ordering::Acquire)
    }

    /// Records that the peer's process takes no part any more; if `gone`, it has ended and accesses nothing.
    pub(crate) fn set_peer_lost(&self, gone: bool) {
        self.peer_ended.store(gone, Ordering::Release);
        self.expect_failure();
    }

    /// Records that the peer has disconnected.
    pub(crate) fn set_peer_disconnected(&self) {
        self.expect_failure();
        self.peer_disconnected.store(true, Ordering::Release);
    }

    /// Marks the queue pair to be failed, for code that cannot fail it itself.
    pub(crate) fn request_failure(&self) {
        if self.failure.compare_exchange(NO_FAILURE, REQUESTED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.device.request_qp_failure(self.index);
        }
    }

    /// Whether it is marked to be failed, or has failed.
    #[inline]
    pub(crate) fn is_failing(&self) -> bool {
        self.failure.load(Ordering::Relaxed) != NO_FAILURE
    }

    /// Whether it is marked to be failed, and has not failed yet.
    pub(crate) fn is_failure_requested(&self) -> bool {
        self.failure.load(Ordering::Acquire) == REQUESTED
    }

    /// Whether its failure has been handled.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.load(Ordering::Acquire) == FAILED
    }

    /// Records why a request failed, unless one has failed before.
    #[cold]
    pub(crate) fn record_failed_request(&self, why: String) {
        // Only the first counts.
        let _ = self.failed_request.set(why.into());
    }

    /// Why the queue pair has failed, if it was not by the program's request.
    #[cold]
    pub(crate) fn failure(&self) -> Option<String> {
        let own = self.failed_request.get().map(|why| why.to_string());
        own.or_else(|| self.has_access_error().then(|| refusal::BY_PEER.to_owned()))
    }

    /// Moves both ends to the error state; returns whether this is the first time.
    pub(crate) fn fail(&self) -> bool {
        if self.is_failed_by_peer() {
            self.peer_disconnected.store(true, Ordering::Release);
        }
        for from in [state::INIT, state::RTR, state::RTS] {
            self.advance(from, state::ERROR);
        }
        let first = self.failure.swap(FAILED, Ordering::AcqRel) != FAILED;
        if let Some(link) = self.link().filter(|_| !self.peer_disconnected.load(Ordering::Acquire)) {
            link.fail();
        }
        first
    }
}

/// The state with a number of [`state`].
pub(crate) fn state_of(number: u32) -> QpState {
    match number {
        state::INIT => QpState::Init,
        state::RTR => QpState::ReadyToReceive,
        state::RTS => QpState::ReadyToSend,
        state::ERROR => QpState::Error,
        _ => QpState::Reset,
    }
}

#[cfg(test)]
mod tests {
    use verbs::QpInit;

    use super::*;
    use crate::hostile_peer::unattended_qp;

    /// Goal: a peer may confirm and fail this queue pair, and do nothing else, whatever it writes. Method: it
    /// writes every state, of this generation and of the next, after each state that this side reached.
    #[test]
    fn peer_cannot_move_a_queue_pair_back() {
        let (device, qp) = unattended_qp(|_, cq| QpInit::new(cq));
        let connection = &qp.connection;
        let said = |generation, state| {
            connection.words.status.store(state::status_word(generation, state), Ordering::Release);
            connection.state()
        };
        let generation = connection.generation;
        for (from, to) in [(state::INIT, state::RTR), (state::RTR, state::RTS)] {
            assert!(connection.advance(from, to));
            for state in 0..=state::ERROR + 1 {
                let forward = (to..=state::ERROR).contains(&state);
                assert_eq!(said(generation, state), if forward { state } else { state::ERROR });
                assert_eq!(said(generation + 1, state), state::ERROR, "that is another queue pair");
            }
            said(generation, to);
        }
        said(generation, state::ERROR);
        assert!(connection.is_failed_by_peer() && connection.fail() && !connection.fail());
        assert!(!connection.is_failed_by_peer(), "this side has handled it");
        drop(device);
    }

    #[test]
    fn repeated_failure_request_is_queued_once() {
        let (device, qp) = unattended_qp(|_, cq| QpInit::new(cq));
        let connection = &qp.connection;
        assert!(!connection.is_failing());
        connection.request_failure();
        connection.request_failure();
        assert!(connection.is_failure_requested());
        assert_eq!(connection.device.take_requested_failures().1, [connection.index]);
        connection.fail();
        connection.request_failure();
        assert!(connection.has_failed() && connection.device.take_requested_failures().1.is_empty());
        drop(device);
    }
}
