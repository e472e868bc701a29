//! Receives: each is posted to the lane that receives messages, until it is filled or the lane fails; then to the next
//! one.

use std::sync::Arc;

use verbs::{Error, Qp, QpCap, RecvWr, Result, Sge, Wc, WcOpcode, WcStatus};

use crate::RAILS_MAX;
use crate::completion::completions::Completions;
use crate::receive::srq::SrqInner;
use crate::shared::DeviceShared;

/// Receives by their numbers: from `done` on, `flushed` receives came back from a failed lane; those up to `posted` are
/// posted to the lane; those up to `next` wait for one.
pub(crate) struct ReceiveQueue {
    lanes: Vec<Arc<Qp>>,
    depth: u32,
    /// Ring by number, with a power of two of entries; empty if receives are shared.
    wr_ids: Vec<u64>,
    pieces: Vec<Sge>,
    counts: Vec<u8>,
    pieces_each: usize,
    done: u64,
    flushed: u64,
    posted: u64,
    next: u64,
    /// Receives that may still be posted before completions are polled.
    pub(crate) free: u32,
    /// A caller has found the queue full.
    pub(crate) refused: bool,
    /// The lane on which this side receives messages.
    pub(crate) lane: usize,
    /// Messages received on each lane since it was connected.
    received: [u32; RAILS_MAX],
    /// No lane takes receives at the moment.
    is_paused: bool,
    /// The completion queue has been informed that receives are posted to the lane.
    expects: bool,
    /// Shared receives that a lane has flushed, by the rail's numbers.
    broken: Vec<u64>,
}

impl ReceiveQueue {
    /// `cap`: none for queue pairs whose receives are shared.
    pub(crate) fn new(cap: Option<&QpCap>, lane: usize) -> Self {
        let (depth, pieces_each) = cap.map_or((0, 0), |cap| (cap.max_recv_wr, cap.max_recv_sge as usize));
        let slots = cap.map_or(0, |_| depth.next_power_of_two() as usize);
        Self {
            lanes: Vec::new(),
            depth,
            wr_ids: vec![0; slots],
            pieces: vec![Sge::default(); slots * pieces_each],
            counts: vec![0; slots],
            pieces_each,
            done: 0,
            flushed: 0,
            posted: 0,
            next: 0,
            free: depth,
            refused: false,
            lane,
            received: [0; RAILS_MAX],
            is_paused: false,
            expects: false,
            broken: Vec::new(),
        }
    }

    /// Sets its lanes.
    pub(crate) fn set_lanes(&mut self, lanes: &[Arc<Qp>]) {
        self.lanes = lanes.to_vec();
    }

    fn slot_index(&self, number: u64) -> usize {
        number as usize & (self.wr_ids.len() - 1)
    }

    pub(crate) fn post(
        &mut self,
        shared: &DeviceShared,
        completions: &Completions,
        wr: &RecvWr<'_>,
    ) -> Result<()> {
        if self.free == 0 {
            self.refused = true;
            return Err(Error::QueueFull { queue: "receive", depth: self.depth });
        }
        let slot = self.slot_index(self.next);
        if !self.is_paused && self.posted == self.next {
            self.add_outstanding_if_new(completions);
            self.post_to_rail(shared, self.next, wr.sges)?;
            self.posted += 1;
        }
        self.wr_ids[slot] = wr.wr_id;
        self.counts[slot] = wr.sges.len() as u8;
        let from = slot * self.pieces_each;
        self.pieces[from..from + wr.sges.len()].copy_from_slice(wr.sges);
        self.next += 1;
        self.free -= 1;
        Ok(())
    }

    /// A lane has filled a receive; returns the program's number of it.
    #[inline]
    pub(crate) fn on_filled(&mut self, lane: usize, number: u64) -> u64 {
        self.received[lane] = self.received[lane].wrapping_add(1);
        self.done += 1;
        self.wr_ids[self.slot_index(number)]
    }

    /// A receive has come back from a lane. `deliver` delivers a completion to the program, and returns whether the
    /// poller got it directly. Receives that a failed lane flushes are kept for the next lane, unless the connection
    /// has ended.
    pub(crate) fn on_ended(
        &mut self,
        lane: usize,
        mut wc: Wc,
        has_ended: bool,
        mut deliver: impl FnMut(Wc) -> bool,
    ) {
        if wc.is_ok() {
            self.received[lane] = self.received[lane].wrapping_add(1);
        }
        if !has_ended && wc.status == WcStatus::WrFlushErr {
            self.flushed += 1;
            return;
        }
        if has_ended {
            // The connection may have ended after the lane gave back the first receives.
            self.flush(&mut deliver);
        }
        wc.wr_id = self.wr_ids[self.slot_index(wc.wr_id)];
        self.done += 1;
        self.free += u32::from(deliver(wc));
    }

    /// As [`ReceiveQueue::on_ended`], for a shared receive. Receives that a failed lane flushes keep their place, from
    /// which they are posted to the next lane. A completion after the lane's messages have been counted is dropped: the
    /// message is sent again.
    pub(crate) fn on_shared_ended(
        &mut self,
        srq: &SrqInner,
        lane: usize,
        wc: Wc,
        has_ended: bool,
        deliver: impl FnOnce(Wc) -> bool,
    ) {
        if !has_ended && wc.status == WcStatus::WrFlushErr {
            self.broken.push(wc.wr_id);
        } else if let Some(wr_id) = srq.take_wr_id(wc.wr_id) {
            self.received[lane] = self.received[lane].wrapping_add(u32::from(wc.is_ok()));
            deliver(Wc { wr_id, ..wc });
        }
    }

    /// The connection has ended: reports the shared receives flushed with its lane.
    pub(crate) fn flush_shared(&mut self, srq: &SrqInner, mut deliver: impl FnMut(Wc) -> bool) {
        for wr_id in self.broken.drain(..).filter_map(|number| srq.take_wr_id(number)) {
            deliver(Wc { wr_id, status: WcStatus::WrFlushErr, opcode: WcOpcode::Recv, ..Wc::default() });
        }
    }

    /// Shared receives are posted to this lane from now on.
    pub(crate) fn move_shared_to(&mut self, completions: &Completions, lane: usize) {
        completions.add_outstanding_lane(lane);
        completions.remove_outstanding_lane(self.lane);
        self.lane = lane;
        self.broken.clear();
    }

    /// Informs the completion queue before a receive is posted to the lane.
    pub(crate) fn add_outstanding_if_new(&mut self, completions: &Completions) {
        if !self.expects {
            self.expects = true;
            completions.add_outstanding_lane(self.lane);
        }
    }

    /// Informs the completion queue if no receive is posted to the lane any more.
    pub(crate) fn remove_outstanding_if_idle(&mut self, completions: &Completions) {
        if self.expects && !self.wr_ids.is_empty() && self.is_drained() {
            self.expects = false;
            completions.remove_outstanding_lane(self.lane);
        }
    }

    /// The lane with outstanding receives, as the completion queue knows it.
    pub(crate) fn outstanding_lane(&self) -> impl Iterator<Item = usize> + use<> {
        self.expects.then_some(self.lane).into_iter()
    }

    /// No lane takes receives until they are moved to one.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Whether no receive is posted to the lane any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.outstanding() == 0
    }

    /// How many receives are posted to the lane.
    fn outstanding(&self) -> u64 {
        self.posted.saturating_sub(self.done + self.flushed)
    }

    pub(crate) fn received(&self, lane: usize) -> u32 {
        self.received[lane]
    }

    /// A lane has been connected again, as this queue pair; restarts its count.
    pub(crate) fn on_lane_connected(&mut self, lane: usize, by: &Arc<Qp>) {
        self.lanes[lane] = by.clone();
        self.received[lane] = 0;
    }

    /// Posts the waiting receives to the lane that receives messages from now on.
    pub(crate) fn move_to(&mut self, shared: &DeviceShared, completions: &Completions, lane: usize) {
        self.remove_outstanding_if_idle(completions);
        (self.lane, self.is_paused, self.flushed, self.posted) = (lane, false, 0, self.done);
        if self.posted < self.next {
            self.add_outstanding_if_new(completions);
        }
        while self.posted < self.next {
            let slot = self.slot_index(self.posted);
            let from = slot * self.pieces_each;
            let sges = &self.pieces[from..from + usize::from(self.counts[slot])];
            // A failed lane takes and flushes them. A refused receive is kept, and posted to the next lane.
            if self.post_to_rail(shared, self.posted, sges).is_err() {
                self.is_paused = true;
                return;
            }
            self.posted += 1;
        }
    }

    /// The connection has ended: flushes the receives that are posted to no lane, in order.
    pub(crate) fn flush(&mut self, mut deliver: impl FnMut(Wc) -> bool) {
        let mut delivered = 0;
        let mut flush = |wr_id| {
            let status = WcStatus::WrFlushErr;
            delivered += u32::from(deliver(Wc { wr_id, status, opcode: WcOpcode::Recv, ..Wc::default() }));
        };
        while self.flushed > 0 {
            flush(self.wr_ids[self.slot_index(self.done)]);
            (self.done, self.flushed) = (self.done + 1, self.flushed - 1);
        }
        while self.posted == self.done && self.done < self.next {
            flush(self.wr_ids[self.slot_index(self.done)]);
            (self.done, self.posted) = (self.done + 1, self.posted + 1);
        }
        self.free += delivered;
        self.is_paused = self.posted < self.next;
    }

    /// Posts a receive to the lane.
    fn post_to_rail(&self, shared: &DeviceShared, number: u64, sges: &[Sge]) -> Result<()> {
        shared
            .local_pieces(self.lane, sges, |sges| self.lanes[self.lane].post_recv(&RecvWr::new(number, sges)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushed(number: u64) -> Wc {
        Wc { wr_id: number, status: WcStatus::WrFlushErr, opcode: WcOpcode::Recv, ..Wc::default() }
    }

    /// Three receives posted to lane 0, and a fourth without a lane.
    fn four() -> ReceiveQueue {
        let cap = QpCap { max_recv_wr: 4, max_recv_sge: 1, ..QpCap::default() };
        let mut receives = ReceiveQueue::new(Some(&cap), 0);
        receives.wr_ids = vec![20, 21, 22, 23];
        (receives.posted, receives.next, receives.free, receives.is_paused) = (3, 4, 0, true);
        receives
    }

    fn keep(delivered: &mut Vec<u64>, wc: Wc) -> bool {
        delivered.push(wc.wr_id);
        false
    }

    #[test]
    fn receives_are_flushed_in_order_whenever_the_connection_ends() {
        for ends_before in 0..=3 {
            let (mut receives, mut delivered) = (four(), Vec::new());
            for number in 0..3 {
                receives.on_ended(0, flushed(number), number >= ends_before, |wc| keep(&mut delivered, wc));
            }
            receives.flush(|wc| keep(&mut delivered, wc));
            assert_eq!(delivered, [20, 21, 22, 23], "the end came before receive {ends_before}");
        }
    }
}
