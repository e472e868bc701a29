//! Grace periods: after a right was revoked, waits until no peer and no thread of this process
//! uses it any more.
//!
//! The cost grows with the number of queue pairs and queues used since the last wait, not with the number
//! that exist.

use std::sync::Arc;

use host::Span;

use crate::objects::Objects;
use crate::qp::QpInner;
use crate::shared::DeviceShared;
use nic_util::sync::fence;
use nic_util::sync::reader_registry::GracePeriods;

/// How long a poll that finds an invalidated region waits for peers that are inside.
const INVALIDATION_PATIENCE: Span = Span::from_ms(500);

/// Readers that may be inside: peers, threads that carried out requests, and threads that polled. Their
/// registries are in the header, where peers can write, and in [`DeviceShared`].
#[derive(Default)]
pub(crate) struct GracePeriodSet {
    peers: GracePeriods,
    posting: GracePeriods,
    polling: GracePeriods,
}

impl GracePeriodSet {
    /// Waits until no thread and no peer is in the middle of an operation that began before the call. The
    /// error is the number of the queue pair whose operation does not end.
    pub(crate) fn quiesce(
        &self,
        device: &DeviceShared,
        objects: &Objects,
        call: &'static str,
        patience: Span,
    ) -> Result<(), u32> {
        let peers = self.begin_round_of_peers(device, objects);
        let reset_qp = |index| objects.qp(index).map(|qp| qp.sending.reset_mark()).is_some();
        let posting = self.posting.begin(device.posters.drain(), reset_qp);
        let reset_cq = |index| objects.cq(index).map(|cq| cq.reset_mark()).is_some();
        let polling = self.polling.begin(device.pollers.drain(), reset_cq);
        fence::heavy();
        // Threads of this process work under these locks and will release them; destroyed objects have no
        // such threads.
        let wait_for_qp =
            |index| objects.qp(index).map(|qp| qp.sending.wait_for_reader()).is_none_or(|()| true);
        let wait_for_cq = |index| objects.cq(index).map(|cq| cq.wait_for_reader()).is_none_or(|()| true);
        let _ = self.posting.each(posting, wait_for_qp);
        let _ = self.polling.each(polling, wait_for_cq);
        self.wait_for_peers(device, objects, call, patience, peers)
    }

    /// Waits, after a key was invalidated, until peers that saw it valid have finished their accesses.
    pub(crate) fn wait_for_peers_to_leave(&self, device: &DeviceShared, objects: &Objects) {
        let round = self.begin_round_of_peers(device, objects);
        fence::heavy();
        // A peer that was stopped during an access began it before the invalidation; waiting for it is
        // limited.
        let _ = self.wait_for_peers(device, objects, "send with invalidate", INVALIDATION_PATIENCE, round);
    }

    fn begin_round_of_peers(&self, device: &DeviceShared, objects: &Objects) -> u64 {
        let reset_mark = |qp: Arc<QpInner>| qp.connection.words.peer.0.busy.mark.clear();
        let is_known = |index| objects.qp_or_lingering(index).map(reset_mark).is_some();
        self.peers.begin(device.header.visited.drain(), is_known)
    }

    fn wait_for_peers(
        &self,
        device: &DeviceShared,
        objects: &Objects,
        call: &'static str,
        patience: Span,
        round: u64,
    ) -> Result<(), u32> {
        let deadline = device.host.after(patience);
        let mut busy_qp = 0;
        let is_out = |index| {
            let Some(qp) = objects.qp_or_lingering(index) else { return true };
            let out = || (!qp.peer_is_inside()).then_some(());
            let is_out = device.host.poll(call, deadline, out).is_some();
            busy_qp = if is_out { busy_qp } else { qp.num() };
            is_out
        };
        self.peers.each(round, is_out).map_err(|_| busy_qp)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use verbs::provider::downcast;
    use verbs::{Access, Buf, Error, QpInit};

    use crate::api::handle::QpHandle;
    use crate::device::device_inner_of;

    use super::*;

    /// Goal: deregistration waits for queue pairs that were used, not for all that exist. Method: queue pairs
    /// have words and locks that say "inside", but are in no registry: checking them would wait forever.
    #[test]
    fn dereg_waits_for_no_unused_queue_pair() {
        let device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = device_inner_of(&device).expect("a device of this NIC");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let qps: Vec<_> = (0..100).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        let all = inner.objects.live_qps();
        all.iter().for_each(|qp| qp.connection.words.peer.0.busy.inside.store(1, Ordering::Relaxed));
        let locks: Vec<_> = all.iter().map(|qp| qp.sending.lock()).collect();
        let mr = pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
        mr.dereg().expect("no access is in progress");
        inner.wait_for_peers_to_leave();
        drop(locks);
        all.iter().for_each(|qp| qp.connection.words.peer.0.busy.leave());
        drop(qps);
    }

    /// Goal: memory stays registered during a peer's access, even if the access's queue pair was destroyed.
    #[test]
    fn dereg_waits_for_peers_of_destroyed_queue_pairs() {
        let device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = device_inner_of(&device).expect("a device of this NIC");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let region = || pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
        let (first, second, third) = (region(), region(), region());
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
        let of_qp: Arc<QpHandle> =
            downcast(qp.ops().clone(), "the queue pair").expect("a queue pair of this NIC");
        let its = of_qp.qp.clone();
        drop(of_qp);
        its.connection.words.peer.0.busy.enter(&inner.shared.header.visited, its.index());
        drop(qp);
        for mr in [first, second] {
            assert!(matches!(mr.dereg(), Err(Error::Busy { .. })), "the peer is still inside");
        }
        its.connection.words.peer.0.busy.leave();
        third.dereg().expect("it has left");
    }
}
