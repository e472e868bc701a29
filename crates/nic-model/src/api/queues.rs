//! Queues: of completions, of requests, of receives.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Bell, Span};
use verbs::provider::{CompChannelOps, CqOps, QpOps, SrqOps};
use verbs::{AtomicCap, Data, QpState, RecvWr, Result, SendOp, SendWr, Wc};

use super::Opened;

/// A completion queue.
pub(super) struct QueueObject {
    pub(super) opened: Arc<Opened>,
    pub(super) key: u32,
    pub(super) cqe: u32,
    /// Nobody sleeps on it: the world wakes who waits.
    pub(super) bell: Bell,
    pub(super) _channel: Option<Arc<ChannelObject>>,
}

impl CqOps for QueueObject {
    fn id(&self) -> u32 {
        self.key
    }

    fn cqe(&self) -> u32 {
        self.cqe
    }

    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let (mut state, _) = self.opened.look();
        let found = state.poll(self.key, wcs);
        let calls = &self.opened.calls;
        if calls.sleeps
            && let Some(rank) = self.opened.node.running()
        {
            let some = found.as_ref().is_ok_and(|count| *count > 0);
            let (slept, turned) = state.looked(rank, self.opened.context, self.key, some);
            self.opened.charge(if slept { calls.wake } else { Span::ZERO });
            self.opened.charge(if turned { calls.turn } else { Span::ZERO });
        }
        drop(state);
        self.opened.charge(match found {
            Ok(0) | Err(_) => calls.poll_empty,
            Ok(count) => calls.poll_full * count as u64,
        });
        found
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        let (mut state, _) = self.opened.look();
        state.arm(self.key, solicited_only)
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl Drop for QueueObject {
    fn drop(&mut self) {
        self.opened.net.lock().drop_queue(self.key);
    }
}

/// A completion channel.
pub(super) struct ChannelObject {
    pub(super) opened: Arc<Opened>,
    pub(super) key: u32,
    pub(super) bell: Bell,
}

impl CompChannelOps for ChannelObject {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_event(&self) -> Option<u32> {
        let (mut state, _) = self.opened.look();
        let found = state.poll_channel(self.key);
        drop(state);
        if found.is_some() {
            self.opened.charge(self.opened.wake_up);
        }
        found
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl Drop for ChannelObject {
    fn drop(&mut self) {
        self.opened.net.lock().drop_channel(self.key);
    }
}

/// A queue pair.
pub(super) struct PairObject {
    pub(super) opened: Arc<Opened>,
    pub(super) key: u32,
}

impl QpOps for PairObject {
    fn num(&self) -> u32 {
        self.key
    }

    fn state(&self) -> QpState {
        self.opened.look().0.pair_state(self.key)
    }

    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        let atomic = matches!(wr.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        if atomic && self.opened.attr.atomic_cap == AtomicCap::None {
            return self.opened.refuse("atomics");
        }
        self.opened.net.lock().check_send(self.key, wr)?;
        let calls = &self.opened.calls;
        let pieces = match wr.data {
            Data::Sges(sges) => calls.pieces(sges.len()),
            Data::Inline(_) => Span::ZERO,
        };
        self.opened.charge(calls.post_send + pieces);
        if calls.drains {
            // Threads take turns at the card, so that it matters what others have done until now.
            let (mut state, now) = self.opened.look();
            let wait = state.wait_for_doorbell(now, self.opened.card);
            // They may have taken the last room meanwhile.
            state.check_send(self.key, wr)?;
            drop(state);
            self.opened.charge(wait);
        }
        let (mut state, now) = self.opened.post();
        state.post_send(now, self.key, wr);
        drop(state);
        if matches!(wr.op, SendOp::WriteImm(..)) {
            self.opened.charge(calls.post_notice);
        }
        Ok(())
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.opened.net.lock().check_receive(self.key, wr)?;
        let calls = &self.opened.calls;
        self.opened.charge(calls.post_receive + calls.pieces(wr.sges.len()));
        let (mut state, now) = self.opened.post();
        state.post_receive(now, self.key, wr);
        Ok(())
    }

    fn to_error(&self) {
        let (mut state, now) = self.opened.look();
        state.give_up_pair(now, self.key);
    }
}

impl Drop for PairObject {
    fn drop(&mut self) {
        self.opened.charge(self.opened.calls.destroy);
        let (mut state, now) = self.opened.look();
        state.drop_pair(now, self.key);
    }
}

/// A shared receive queue.
pub(super) struct SharedObject {
    pub(super) opened: Arc<Opened>,
    pub(super) key: u32,
}

impl SrqOps for SharedObject {
    fn id(&self) -> u32 {
        self.key
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let calls = &self.opened.calls;
        let cost = calls.post_receive + calls.pieces(wr.sges.len());
        let mut state = self.opened.net.lock();
        // It becomes ready when the call ends.
        let at = self.opened.net.now() + cost;
        state.post_shared(at, self.key, wr)?;
        drop(state);
        self.opened.charge(cost);
        Ok(())
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        let (mut state, _) = self.opened.look();
        state.arm_limit(self.key, limit);
        Ok(())
    }
}

impl Drop for SharedObject {
    fn drop(&mut self) {
        self.opened.net.lock().drop_shared(self.key);
    }
}
