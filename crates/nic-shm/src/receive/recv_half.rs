//! Data path: receiving. The receiving half of a queue pair: posted receives, the ring in which the peer
//! completes them, and polling it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use host::BiasedLock;
use verbs::{Error, QpCap, RecvWr, Result, Wc, WcOpcode, WcStatus};

use crate::connection::Connection;
use crate::memory::allocator::{Ring, SegmentAllocator};
use crate::memory::layout::{QpShared, comp, recv, state};
use crate::memory::segment::SlotArray;
use crate::queues::completions::Completions;
use crate::queues::receives::{Claimed, SharedReceives, check_sges, write_receive};
use crate::receive::arrival;
use nic_util::sync::ring;

/// Capacity of the completion ring of a queue pair with a shared receive queue; if it is full, the peer must
/// wait.
const SRQ_COMPS: u32 = 64;

/// The receiving half of a queue pair.
pub(crate) struct RecvHalf {
    /// The completion ring, which the peer writes.
    comps: SlotArray,
    /// Its own receive ring...
    recvs: Option<SlotArray>,
    /// ...or a shared receive queue.
    pub(crate) srq: Option<Arc<SharedReceives>>,
    pub(crate) completions: Arc<Completions>,
    /// Capacity in receives, and the limit of SGEs of each.
    max_wr: u32,
    max_sge: u32,
    /// Held while a receive is posted.
    post: BiasedLock<()>,
    /// Receives posted so far.
    posted: AtomicU64,
    /// Number of completions polled so far; advanced under the poll lock.
    taken: AtomicU64,
    /// Position up to which completions have been counted; under the poll lock, as the next field.
    counted: AtomicU64,
    /// Whether it is in the poller's list of queue pairs to poll.
    pub(crate) is_due: AtomicBool,
}

impl RecvHalf {
    /// Creates the half of an unconnected queue pair, and its rings, the completion ring first; they must
    /// live as long as peers use them.
    pub(crate) fn new(
        memory: &Arc<SegmentAllocator>,
        cap: &QpCap,
        completions: Arc<Completions>,
        srq: Option<Arc<SharedReceives>>,
    ) -> Result<(Self, Vec<Ring>)> {
        let depth = if srq.is_some() { SRQ_COMPS } else { cap.max_recv_wr };
        let shift = depth.next_power_of_two().trailing_zeros();
        let stride = recv::stride(cap.max_recv_sge);
        let map = &memory.segment.map;
        let mut rings = vec![memory.alloc_ring(comp::STRIDE << shift)?];
        let mut recvs = None;
        if srq.is_none() {
            let ring = memory.alloc_ring(stride << shift)?;
            recvs = Some(SlotArray::new(map, ring.at, stride, shift)?);
            rings.push(ring);
        }
        let half = Self {
            comps: SlotArray::new(map, rings[0].at, comp::STRIDE, shift)?,
            recvs,
            srq,
            completions,
            max_wr: cap.max_recv_wr,
            max_sge: cap.max_recv_sge,
            post: BiasedLock::new(()),
            posted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
        };
        Ok((half, rings))
    }

    /// Publishes the offsets of rings and queues for the peer.
    pub(crate) fn publish_layout(&self, words: &QpShared, rings: &[Ring]) {
        let shift = self.comps.shift();
        words.recv_cq.store(self.completions.index as u32, Ordering::Relaxed);
        words.srq.store(self.srq.as_ref().map_or(0, |s| s.index as u32 + 1), Ordering::Relaxed);
        words.recv_shift.store(shift, Ordering::Relaxed);
        words.recv_stride.store(recv::stride(self.max_sge) as u32, Ordering::Relaxed);
        words.comp_shift.store(shift, Ordering::Relaxed);
        words.comp_ring.store(rings[0].at, Ordering::Relaxed);
        words.recv_ring.store(rings.get(1).map_or(0, |r| r.at), Ordering::Relaxed);
    }

    /// Maximum number of outstanding completions.
    pub(crate) fn depth(&self) -> u32 {
        if self.srq.is_some() { SRQ_COMPS } else { self.max_wr }
    }

    #[inline]
    pub(crate) fn post(&self, connection: &Connection, wr: &RecvWr<'_>) -> Result<()> {
        let Some(recvs) = &self.recvs else {
            return Err(Error::Invalid(
                "the queue pair takes its receives from a shared queue; post there".into(),
            ));
        };
        check_sges(wr, self.max_sge)?;
        let lock = self.post.lock();
        let posted = self.posted.load(Ordering::Relaxed);
        if posted - self.taken.load(Ordering::Acquire) >= self.max_wr.into() {
            return Err(Error::QueueFull { queue: "receive", depth: self.max_wr });
        }
        let (slot, shift) = (recvs.slot(posted), recvs.shift());
        write_receive(slot, wr);
        // Before the peer can see it: the peer completes only receives that were posted.
        self.posted.store(posted + 1, Ordering::Release);
        ring::publish(&slot[recv::MARK], ring::lap(posted, shift), wr.sges.len() as u32);
        drop(lock);
        nic_util::sync::fence::light();
        connection.notify_rnr_waiter();
        if !connection.is_ready() && connection.state() == state::ERROR {
            self.completions.wake_all(connection.index);
        }
        Ok(())
    }

    /// The end of positions that can hold completions: a peer completes only receives that were posted.
    #[inline]
    fn end_of_posted(&self) -> u64 {
        match self.recvs {
            Some(_) => self.posted.load(Ordering::Acquire),
            None => self.taken.load(Ordering::Relaxed) + (1 << self.comps.shift()),
        }
    }

    /// Number of completions that can be polled.
    pub(crate) fn pollable(&self) -> usize {
        let first = self.taken.load(Ordering::Relaxed);
        (self.first_uncompleted(first) - first) as usize
    }

    /// Number of completions that can be polled, including those of receives that a poll will flush.
    pub(crate) fn pollable_or_flushable(&self, connection: &Connection) -> usize {
        if connection.is_ready() || connection.state() != state::ERROR {
            return self.pollable();
        }
        match &self.srq {
            Some(srq) => srq.claims_of(claimant(connection)).len(),
            None => (self.posted.load(Ordering::Acquire) - self.taken.load(Ordering::Relaxed)) as usize,
        }
    }

    /// The first position, from `next` on, without a completion.
    fn first_uncompleted(&self, mut next: u64) -> u64 {
        let (end, shift) = (self.end_of_posted(), self.comps.shift());
        while next < end && ring::filled(&self.comps.slot(next)[comp::MARK], ring::lap(next, shift)).is_some()
        {
            next += 1;
        }
        next
    }

    /// Counts completions, each once; returns the number of new ones.
    pub(crate) fn count_arrivals(&self) -> usize {
        let first = self.counted.load(Ordering::Relaxed).max(self.taken.load(Ordering::Relaxed));
        let next = self.first_uncompleted(first);
        self.counted.store(next, Ordering::Relaxed);
        (next - first) as usize
    }

    /// Number of counted completions that have not been polled.
    pub(crate) fn counted_arrivals(&self) -> usize {
        self.counted.load(Ordering::Relaxed).saturating_sub(self.taken.load(Ordering::Relaxed)) as usize
    }

    /// Polls completions, in order; under the poll lock.
    #[inline]
    pub(crate) fn poll(&self, connection: &Connection, wcs: &mut [Wc]) -> usize {
        match &self.recvs {
            Some(recvs) => self.poll_own(recvs, connection, wcs),
            None => self.poll_shared(connection, wcs),
        }
    }

    /// Does [`RecvHalf::poll`] for its own receive ring, the common case.
    #[inline]
    fn poll_own(&self, recvs: &SlotArray, connection: &Connection, wcs: &mut [Wc]) -> usize {
        let (first, shift) = (self.taken.load(Ordering::Relaxed), self.comps.shift());
        let mut next = first;
        for wc in &mut *wcs {
            let slot = self.comps.slot(next);
            let Some(low) = ring::filled(&slot[comp::MARK], ring::lap(next, shift)) else { break };
            // A peer completes only receives that were posted.
            if next >= self.posted.load(Ordering::Acquire) {
                break;
            }
            arrival::complete(connection, slot, low, recvs.slot(next), wc);
            next += 1;
        }
        if next != first {
            self.taken.store(next, Ordering::Release);
            if let Some(link) = connection.link() {
                link.fetch_next_receive();
            }
        } else if !connection.is_ready() && connection.state() == state::ERROR && !wcs.is_empty() {
            return self.flush(connection, next, wcs);
        }
        (next - first) as usize
    }

    /// Does [`RecvHalf::poll`] for a shared receive queue.
    #[inline(never)]
    fn poll_shared(&self, connection: &Connection, wcs: &mut [Wc]) -> usize {
        let (first, end, shift) =
            (self.taken.load(Ordering::Relaxed), self.end_of_posted(), self.comps.shift());
        let mut next = first;
        let mut got = 0;
        while got < wcs.len() && next < end {
            let slot = self.comps.slot(next);
            let Some(low) = ring::filled(&slot[comp::MARK], ring::lap(next, shift)) else { break };
            match self.claimed_receive(connection, slot) {
                Some((receive, claimed)) => {
                    arrival::complete(connection, slot, low, receive, &mut wcs[got]);
                    got += 1;
                    claimed.free();
                }
                // It refers to no receive that the peer has claimed: skip it.
                None => connection.request_failure(),
            }
            next += 1;
        }
        if next != first {
            self.taken.store(next, Ordering::Release);
            if let Some(link) = connection.link() {
                link.fetch_next_receive();
            }
            if let Some(srq) = &self.srq {
                publish_polled(connection, srq, next);
            }
        } else if connection.state() == state::ERROR && !wcs.is_empty() {
            got = self.flush(connection, next, wcs);
        }
        got
    }

    /// The shared receive of the completion in a slot, with the claim on it.
    #[inline]
    fn claimed_receive(
        &self,
        connection: &Connection,
        slot: &[AtomicU64],
    ) -> Option<(&[AtomicU64], Claimed<'_>)> {
        let (srq, at) = (self.srq.as_ref()?, slot[comp::RECEIVE].load(Ordering::Relaxed) as u16);
        Some((srq.receive(at), srq.claimed(at, claimant(connection))?))
    }

    /// Flushes posted receives, once the peer cannot complete any more.
    #[cold]
    fn flush(&self, connection: &Connection, mut next: u64, wcs: &mut [Wc]) -> usize {
        nic_util::sync::fence::heavy();
        if connection.peer_is_inside() || self.pollable() > 0 {
            return 0;
        }
        let flushed = |wr_id| Wc {
            wr_id,
            status: WcStatus::WrFlushErr,
            opcode: WcOpcode::Recv,
            qp_num: connection.reported_qp_num,
            ..Wc::default()
        };
        let mut got = 0;
        if let Some(recvs) = &self.recvs {
            let posted = self.posted.load(Ordering::Acquire);
            while got < wcs.len() && next < posted {
                wcs[got] = flushed(recvs.slot(next)[recv::WR_ID].load(Ordering::Relaxed));
                got += 1;
                next += 1;
            }
            self.taken.store(next, Ordering::Release);
        } else if let Some(srq) = &self.srq {
            let me = claimant(connection);
            for receive in srq.claims_of(me).into_iter().take(wcs.len()) {
                wcs[got] = flushed(srq.receive(receive)[recv::WR_ID].load(Ordering::Relaxed));
                srq.free(receive, me);
                got += 1;
            }
        }
        got
    }

    /// Frees the receives of a shared receive queue that the peer has claimed and will not complete.
    pub(crate) fn free_claims(&self, connection: &Connection) {
        if let Some(srq) = &self.srq {
            let me = claimant(connection);
            srq.claims_of(me).into_iter().for_each(|receive| srq.free(receive, me));
        }
    }
}

/// The claimant number of this queue pair's peer in a shared receive queue.
fn claimant(connection: &Connection) -> u16 {
    connection.index as u16 + 1
}

/// Publishes that completions up to this position have been polled, so that the peer may continue.
#[cold]
fn publish_polled(connection: &Connection, srq: &SharedReceives, taken: u64) {
    connection.words.taken.store(taken, Ordering::Release);
    nic_util::sync::fence::light();
    connection.notify_rnr_waiter();
    srq.check_limit();
}

#[cfg(test)]
mod tests {
    use verbs::{QpInit, SrqInit};

    use super::*;
    use crate::hostile_peer::unattended_qp;

    /// Publishes a completion as a peer does: a message of no bytes.
    fn complete(half: &RecvHalf, position: u64) {
        let slot = half.comps.slot(position);
        ring::publish(&slot[comp::MARK], ring::lap(position, half.comps.shift()), 0);
    }

    fn polled(half: &RecvHalf, connection: &Connection) -> Vec<u64> {
        let mut wcs = [Wc::default(); 8];
        let got = half.poll(connection, &mut wcs);
        wcs[..got].iter().map(|wc| wc.wr_id).collect()
    }

    /// Goal: a peer completes posted receives, in order, and no others. Method: it publishes four completions
    /// ahead.
    #[test]
    fn peer_completes_only_posted_receives() {
        let (device, qp) =
            unattended_qp(|_, cq| QpInit::new(cq).cap(QpCap { max_recv_wr: 4, ..QpCap::default() }));
        let (half, connection) = (&qp.receiving, &qp.connection);
        let post = |wr_id| half.post(connection, &RecvWr::new(wr_id, &[]));
        assert_eq!((post(5), post(6)), (Ok(()), Ok(())));
        (0..4).for_each(|position| complete(half, position));
        assert_eq!((half.count_arrivals(), half.pollable()), (2, 2));
        assert_eq!((polled(half, connection), polled(half, connection)), (vec![5, 6], vec![]));
        assert_eq!((post(7), polled(half, connection)), (Ok(()), vec![7]));
        assert!((8..12).all(|wr_id| post(wr_id).is_ok()));
        assert_eq!(post(12), Err(Error::QueueFull { queue: "receive", depth: 4 }));
        assert_eq!(polled(half, connection), [8], "the fourth");
        drop(device);
    }

    /// Goal: a completion for a shared receive that this peer has not claimed is not reported, and fails the
    /// queue pair.
    #[test]
    fn unclaimed_shared_receive_is_not_completed() {
        let (device, qp) = unattended_qp(|pd, cq| {
            let srq = pd.create_srq(SrqInit { max_wr: 4, max_sge: 1 }).expect("a queue");
            srq.post_recv(&RecvWr::new(1, &[])).expect("room");
            QpInit { srq: Some(srq), ..QpInit::new(cq) }
        });
        complete(&qp.receiving, 0);
        assert_eq!(polled(&qp.receiving, &qp.connection), []);
        assert!(qp.connection.is_failure_requested());
        drop(device);
    }
}
