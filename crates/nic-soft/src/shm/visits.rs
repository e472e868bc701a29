//! Waiting for whoever is inside, after a right was taken away: peers, and threads of this process.
//!
//! It takes as long as there are queue pairs and queues that were used since the last time, however many there are.

use std::sync::Arc;

use host::Span;

use super::device::{Inner, unpoisoned};
use super::qp::QpInner;
use crate::sync::fence;
use crate::sync::ready::Ready;
use crate::sync::roll::Suspects;

/// How long a poll waits for peers that are inside when it finds that a region was invalidated.
const INVALIDATION_PATIENCE: Span = Span::from_ms(500);

/// Who was inside. The roll of peers is in the header, where they find it.
pub(super) struct Visits {
    peers: Suspects,
    /// Queue pairs whose send requests this process carried out, and completion queues that it polled.
    pub(super) posters: Ready,
    pub(super) pollers: Ready,
    posting: Suspects,
    polling: Suspects,
}

impl Default for Visits {
    fn default() -> Self {
        let (posters, pollers) = (Ready::new(), Ready::new());
        let (peers, posting, polling) = Default::default();
        Self { peers, posters, pollers, posting, polling }
    }
}

impl Inner {
    /// Waits until no thread and no peer is in the middle of an operation that began before the call; the
    /// number of the queue pair that would not end otherwise.
    pub(super) fn quiesce(&self, call: &'static str, patience: Span) -> Result<(), u32> {
        let visits = &self.visits;
        let peers = self.begin_with_peers();
        let erase_qp = |index| self.qp(index).map(|qp| qp.send.erase()).is_some();
        let posting = visits.posting.begin(visits.posters.taken(), erase_qp);
        let erase_cq = |index| self.cq(index).map(|cq| cq.poll.erase()).is_some();
        let polling = visits.polling.begin(visits.pollers.taken(), erase_cq);
        fence::heavy();
        // Our own threads work under these locks, which all can be passed in the end; in what is gone there are none.
        let pass_qp = |index| self.qp(index).map(|qp| drop(qp.send.lock())).is_none_or(|()| true);
        let pass_cq = |index| self.cq(index).map(|cq| drop(cq.poll.lock())).is_none_or(|()| true);
        let _ = visits.posting.each(posting, pass_qp);
        let _ = visits.polling.each(polling, pass_cq);
        self.wait_for_peers(call, patience, peers)
    }

    /// After a key was invalidated: waits until peers that saw it valid have left.
    pub(super) fn wait_for_peers_outside(&self) {
        let round = self.begin_with_peers();
        fence::heavy();
        // A peer that is stopped inside was there before the invalidation; it cannot be waited for.
        let _ = self.wait_for_peers("send with invalidate", INVALIDATION_PATIENCE, round);
    }

    fn begin_with_peers(&self) -> u64 {
        let erase = |qp: Arc<QpInner>| qp.shared.peer.0.busy.mark.erase();
        self.visits
            .peers
            .begin(self.header.visited.taken(), |index| self.holder_of(index).map(erase).is_some())
    }

    fn wait_for_peers(&self, call: &'static str, patience: Span, round: u64) -> Result<(), u32> {
        let deadline = self.host.after(patience);
        let mut stays = 0;
        let is_out = |index| {
            let Some(qp) = self.holder_of(index) else { return true };
            let out = || (!qp.peer_is_inside()).then_some(());
            let is_out = self.host.poll(call, deadline, out).is_some();
            stays = if is_out { stays } else { qp.num };
            is_out
        };
        self.visits.peers.each(round, is_out).map_err(|_| stays)
    }

    /// The queue pair that has a number, be it one that was destroyed while its peer was inside.
    pub(super) fn holder_of(&self, index: usize) -> Option<Arc<QpInner>> {
        self.qp(index).or_else(|| unpoisoned(&self.departed).iter().find(|qp| qp.index == index).cloned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use verbs::provider::own;
    use verbs::{Access, Buf, Error, QpInit};

    use super::super::device::of;
    use super::super::qp::QpHandle;

    use super::*;

    /// Goal: deregistering costs those who were inside, however many queue pairs and queues there are. Method: queue pairs whose
    /// words and locks say "inside" without their having come in: who looks at them, waits for ever.
    #[test]
    fn deregistering_asks_nobody_who_was_not_there() {
        let device = super::super::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = of(&device).expect("this kind");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let qps: Vec<_> = (0..100).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        let all = inner.live_qps();
        all.iter().for_each(|qp| qp.shared.peer.0.busy.inside.store(1, Ordering::Relaxed));
        let locks: Vec<_> = all.iter().map(|qp| qp.send.lock()).collect();
        let mr = pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
        mr.dereg().expect("nobody has come in");
        inner.wait_for_peers_outside();
        drop(locks);
        all.iter().for_each(|qp| qp.shared.peer.0.busy.leave());
        drop(qps);
    }

    /// Goal: memory stays while a peer is in the middle of an access to it, also when the queue pair is gone by which it came.
    #[test]
    fn deregistering_waits_for_peers_of_queue_pairs_that_are_gone() {
        let device = super::super::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = of(&device).expect("this kind");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let region = || pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
        let (first, second, third) = (region(), region(), region());
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
        let of_qp: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair").expect("ours");
        let its = of_qp.0.clone();
        drop(of_qp);
        its.shared.peer.0.busy.enter(&inner.header.visited, its.index);
        drop(qp);
        for mr in [first, second] {
            assert!(matches!(mr.dereg(), Err(Error::Busy { .. })), "the peer is inside still");
        }
        its.shared.peer.0.busy.leave();
        third.dereg().expect("it has left");
    }
}
