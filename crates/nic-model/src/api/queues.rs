//! Completion queues, queue pairs, and receive queues.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{EventCount, Span, Wake};
use verbs::provider::{CompChannelOps, CqOps, QpOps, SrqOps};
use verbs::{AtomicCap, Data, QpState, RecvWr, Result, SendOp, SendWr, Wc};

use super::opened::OpenedDevice;

/// A completion queue.
pub(super) struct CqObject {
    pub(super) opened: Arc<OpenedDevice>,
    pub(super) key: u32,
    pub(super) cqe: u32,
    /// No thread sleeps on it: the world wakes the waiters.
    pub(super) wakeup: EventCount,
    pub(super) _channel: Option<Arc<ChannelObject>>,
}

impl CqOps for CqObject {
    fn id(&self) -> u32 {
        self.key
    }

    fn cqe(&self) -> u32 {
        self.cqe
    }

    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let (mut network, _) = self.opened.lock_synced();
        let found = network.poll(self.key, wcs);
        let calls = &self.opened.calls;
        if calls.wake > Span::ZERO
            && let Some(rank) = self.opened.node.running()
        {
            let some = found.as_ref().is_ok_and(|count| *count > 0);
            let slept = network.record_poll(rank, self.key, some);
            self.opened.charge(if slept { calls.wake } else { Span::ZERO });
        }
        drop(network);
        self.opened.charge(match found {
            Ok(0) | Err(_) => calls.poll_empty,
            Ok(count) => wcs[..count]
                .iter()
                .fold(calls.poll_full * count as u64, |sum, wc| sum + self.opened.kernel_receive_time(wc)),
        });
        if found.as_ref().is_ok_and(|count| *count > 0) {
            self.opened.notify_card();
        }
        found
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        let (mut network, _) = self.opened.lock_synced();
        network.arm(self.key, solicited_only)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.wakeup)
    }
}

impl Drop for CqObject {
    fn drop(&mut self) {
        self.opened.net.lock().drop_cq(self.key);
    }
}

/// A completion channel.
pub(super) struct ChannelObject {
    pub(super) opened: Arc<OpenedDevice>,
    pub(super) key: u32,
    pub(super) wakeup: EventCount,
}

impl CompChannelOps for ChannelObject {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_event(&self) -> Option<u32> {
        let (mut network, _) = self.opened.lock_synced();
        let found = network.poll_channel(self.key);
        drop(network);
        if found.is_some() {
            self.opened.charge(self.opened.wake_up);
        }
        found
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.wakeup)
    }
}

impl Drop for ChannelObject {
    fn drop(&mut self) {
        self.opened.net.lock().drop_channel(self.key);
    }
}

/// A queue pair.
pub(super) struct QpObject {
    pub(super) opened: Arc<OpenedDevice>,
    pub(super) key: u32,
}

impl QpOps for QpObject {
    fn num(&self) -> u32 {
        self.key
    }

    fn state(&self) -> QpState {
        self.opened.lock_synced().0.qp_state(self.key)
    }

    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        let atomic = matches!(wr.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        if atomic && self.opened.attr.atomic_cap == AtomicCap::None {
            return self.opened.unsupported("atomics");
        }
        if wr.op.is_of_window() {
            return Err(verbs::provider::no_windows(&self.opened.name));
        }
        self.opened.net.lock().check_send(self.key, wr)?;
        let calls = &self.opened.calls;
        let (sges, bytes) = match wr.data {
            Data::Sges(sges) => (calls.sges(sges.len()), sges.iter().map(|sge| u64::from(sge.length)).sum()),
            Data::Inline(bytes) => (Span::ZERO, bytes.len() as u64),
        };
        let given = if wr.op.fetches() { 0 } else { bytes };
        self.opened.charge(calls.post_send + sges + self.opened.sockets.send_cost(given));
        if calls.drains {
            // Threads take turns at the card, so everything that others have done until now matters.
            let (mut network, now) = self.opened.lock_synced();
            let wait = network.wait_for_doorbell(now, self.opened.card);
            // They may have used the last free slot meanwhile.
            network.check_send(self.key, wr)?;
            drop(network);
            self.opened.charge(wait);
        }
        let (mut network, now) = self.opened.lock();
        network.post_send(now, self.key, wr);
        drop(network);
        if matches!(wr.op, SendOp::WriteImm(..)) {
            self.opened.charge(calls.post_notice);
        }
        Ok(())
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.opened.net.lock().check_receive(self.key, wr)?;
        let calls = &self.opened.calls;
        self.opened.charge(calls.post_receive + calls.sges(wr.sges.len()));
        let (mut network, now) = self.opened.lock();
        network.post_receive(now, self.key, wr);
        drop(network);
        self.opened.notify_card();
        Ok(())
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.opened.lock_synced().0.set_rnr_retry(self.key, retries);
        Ok(())
    }

    fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        self.opened.lock_synced().0.set_rnr_pause(self.key, pause);
        Ok(())
    }

    fn to_error(&self) {
        let (mut network, now) = self.opened.lock_synced();
        network.fail(now, self.key);
    }
}

impl Drop for QpObject {
    fn drop(&mut self) {
        self.opened.charge(self.opened.calls.destroy);
        let (mut network, now) = self.opened.lock_synced();
        network.drop_qp(now, self.key);
    }
}

/// A shared receive queue.
pub(super) struct SrqObject {
    pub(super) opened: Arc<OpenedDevice>,
    pub(super) key: u32,
}

impl SrqOps for SrqObject {
    fn id(&self) -> u32 {
        self.key
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let calls = &self.opened.calls;
        let cost = calls.post_receive + calls.sges(wr.sges.len());
        let mut network = self.opened.net.lock();
        // The receive becomes available when the call ends.
        let at = self.opened.net.now() + cost;
        network.post_shared(at, self.key, wr)?;
        drop(network);
        self.opened.charge(cost);
        self.opened.notify_card();
        Ok(())
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        let (mut network, _) = self.opened.lock_synced();
        network.arm_limit(self.key, limit);
        Ok(())
    }

    fn limit(&self) -> u32 {
        self.opened.lock_synced().0.limit(self.key)
    }
}

impl Drop for SrqObject {
    fn drop(&mut self) {
        self.opened.net.lock().drop_srq(self.key);
    }
}
