//! The queue of send requests: when each may start, on which lanes, and how it completes.

use std::sync::Arc;

use verbs::{Data, Error, Qp, QpCap, RemoteAddr, Result, SendFlags, SendOp, SendWr, Sge, Wc, WcStatus};

use crate::RAILS_MAX;
use crate::completion::completions::{CompletionSink, Completions};
use crate::connect::hello::{Hello, LaneHello};
use crate::context::QpContext;
use crate::lanes::lane_reports::LaneReport;
use crate::memory::keys::{LaneKeys, PeerKeyCache, offset_of, unmask};
use crate::qp_actions::QpActions;
use crate::send::lane_rates::LaneRates;
use crate::send::request::{
    EMPTY, LINE, LaneSet, OrderingClass, PIECES_MAX, RequestSlot, StripeEnds, class, consumes_receive,
    key_of, lane_flags, lane_op, remote_of, slice_sges,
};
use crate::shared::DeviceShared;

/// The number of the device's own request that reads an entry of the peer's table.
const READ_KEY: u64 = u64::MAX;
/// The number of the device's own request that writes lane reports.
const WRITE_REPORTS: u64 = u64::MAX - 1;

/// What a lane has in flight.
#[derive(Clone, Copy, Default)]
struct InFlight {
    writes: u32,
    reads: u32,
    bytes: u64,
    /// All outstanding requests there, including the device's own.
    posted: u32,
    /// Messages posted there since it was connected, and how many are known to have arrived.
    messages: u32,
    arrived: u32,
}

/// Where lane reports to the peer are written.
#[derive(Clone, Copy, Default)]
struct PeerReportBuffer {
    addr: u64,
    keys: [u32; RAILS_MAX],
}

/// Requests between `head` and `next` have started; those between `next` and `tail` have not, or must start again.
pub(crate) struct SendQueue {
    completions: Arc<Completions>,
    signals_all: bool,
    rails: Vec<Arc<Qp>>,
    depth: u32,
    /// Ring by number, with a power of two of entries.
    slots: Vec<RequestSlot>,
    /// The stripe ends of striped requests, by ring entry.
    ends: Vec<StripeEnds>,
    pieces: Vec<Sge>,
    inline: Vec<u8>,
    pieces_each: usize,
    inline_each: usize,
    head: u64,
    next: u64,
    tail: u64,
    /// Requests that may still be posted before completions are polled.
    pub(crate) free: u32,
    /// A caller has found the queue full.
    pub(crate) refused: bool,
    /// Requests completed unsignaled since the last report.
    unreported: u32,
    lanes: usize,
    /// Bit mask of the usable lanes.
    live: u8,
    /// The share of each lane in a striped request.
    rates: LaneRates,
    /// The lane on which the peer receives messages.
    message_lane: usize,
    peer: [Option<Hello>; RAILS_MAX],
    peer_report_buffer: PeerReportBuffer,
    /// Lane reports are pending; lane reports are in flight.
    has_pending_reports: bool,
    is_writing_reports: bool,
    flight: [InFlight; RAILS_MAX],
    /// Bit mask of lanes with parts of requests in flight.
    busy: u8,
    /// Bit mask of lanes that the completion queue knows to have outstanding requests.
    expects: u8,
    peer_keys: PeerKeyCache,
    reading_key: Option<u32>,
    /// A lane has failed, and the result of its requests is not known yet: no request starts.
    is_paused: bool,
    /// The first request that failed.
    failed: Option<u64>,
    /// The first request that failed for a reason of its own, and not because its lane failed.
    cause: Option<u64>,
    is_stopped: bool,
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureReason {
    /// For a reason of its own.
    Request,
    /// Its lane failed.
    Lane,
}

impl FailureReason {
    fn of(status: WcStatus) -> Self {
        if is_loss(status) { Self::Lane } else { Self::Request }
    }
}

/// Whether a status says only that the lane failed.
pub(crate) fn is_loss(status: WcStatus) -> bool {
    matches!(status, WcStatus::WrFlushErr | WcStatus::RetryExcErr)
}

/// The status that a request reports after all its parts have completed. Requests after the first failed one are
/// flushed. The cause of the failure keeps its status even if an earlier request on another lane was flushed by it.
fn reported_status(seq: u64, own: WcStatus, failed: Option<u64>, cause: Option<u64>) -> WcStatus {
    let is_after_failed = failed.is_some_and(|failed| seq > failed);
    if is_after_failed && cause != Some(seq) { WcStatus::WrFlushErr } else { own }
}

impl SendQueue {
    pub(crate) fn new(
        shared: &DeviceShared,
        cap: &QpCap,
        signals_all: bool,
        completions: Arc<Completions>,
    ) -> Self {
        let lanes = shared.width();
        let (depth, pieces_each) = (cap.max_send_wr, cap.max_send_sge as usize);
        let (places, inline_each) = (depth.next_power_of_two() as usize, cap.max_inline as usize);
        Self {
            completions,
            signals_all,
            rails: Vec::new(),
            depth,
            slots: vec![EMPTY; places],
            ends: vec![[0; RAILS_MAX]; places],
            pieces: vec![Sge::default(); places * pieces_each],
            inline: vec![0; places * inline_each],
            pieces_each,
            inline_each,
            head: 0,
            next: 0,
            tail: 0,
            free: cap.max_send_wr,
            refused: false,
            unreported: 0,
            lanes,
            live: ((1_u32 << lanes) - 1) as u8,
            rates: LaneRates::new(lanes, &shared.config.weights),
            message_lane: 0,
            peer: [None; RAILS_MAX],
            peer_report_buffer: PeerReportBuffer::default(),
            has_pending_reports: false,
            is_writing_reports: false,
            flight: [InFlight::default(); RAILS_MAX],
            busy: 0,
            expects: 0,
            peer_keys: PeerKeyCache::new(),
            reading_key: None,
            is_paused: false,
            failed: None,
            cause: None,
            is_stopped: false,
        }
    }

    /// Stores the peer's hello when this lane is connected for the first time.
    pub(crate) fn set_peer_hello(&mut self, lane: usize, hello: Hello) {
        self.message_lane = hello.recv_lane.into();
        self.peer[lane] = Some(hello);
    }

    /// Stores the location of the peer's report buffer, as sent on a further lane.
    pub(crate) fn set_peer_report_buffer(&mut self, lane: usize, lane_hello: &LaneHello) {
        self.peer_report_buffer.addr = lane_hello.report_buffer;
        self.peer_report_buffer.keys[lane] = lane_hello.keys.0;
        self.peer_report_buffer.keys[0] = lane_hello.keys.1;
    }

    /// Sets its lanes.
    pub(crate) fn set_lanes(&mut self, lanes: &[Arc<Qp>]) {
        self.rails = lanes.to_vec();
    }

    #[inline]
    fn slot_index(&self, seq: u64) -> usize {
        seq as usize & (self.slots.len() - 1)
    }

    /// Informs the completion queue before a request is posted to a lane.
    #[inline]
    fn add_outstanding_if_new(&mut self, lane: usize) {
        if self.expects & 1 << lane == 0 {
            self.expects |= 1 << lane;
            self.completions.add_outstanding_lane(lane);
        }
    }

    /// Informs the completion queue if a lane has no outstanding request. The message lane is exempt: it will have
    /// requests again soon, and updating the count for each request costs more than a poll.
    pub(crate) fn remove_outstanding_if_idle(&mut self, lane: usize) {
        if self.flight[lane].posted == 0 && self.expects & 1 << lane != 0 && lane != self.message_lane {
            self.expects &= !(1 << lane);
            self.completions.remove_outstanding_lane(lane);
        }
    }

    /// The lanes with outstanding requests, as the completion queue knows them.
    pub(crate) fn outstanding_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let expects = self.expects;
        (0..RAILS_MAX).filter(move |lane| expects & 1 << lane != 0)
    }

    /// Posts to a lane, or queues the request for the rail's thread.
    fn post_to_lane(&self, own: &QpContext, lane: usize, wr: &SendWr<'_>, is_stripe: bool) -> Result<()> {
        match own.shared().workers.get(lane) {
            // A short request is not worth waking a thread for, unless it would overtake queued ones.
            Some(worker) if is_stripe || !worker.is_idle() => {
                worker.post(&own.shared().host, own.num, self.rails[lane].clone(), wr)
            }
            _ => self.rails[lane].post_send(wr),
        }
    }

    /// Adds a request to the queue.
    pub(crate) fn push(&mut self, wr: &SendWr<'_>, len: u64) -> Result<()> {
        if self.free == 0 {
            self.refused = true;
            return Err(Error::QueueFull { queue: "send", depth: self.depth });
        }
        let index = self.slot_index(self.tail);
        let (pieces, inline) = match wr.data {
            Data::Sges(sges) => {
                let from = index * self.pieces_each;
                self.pieces[from..from + sges.len()].copy_from_slice(sges);
                (sges.len(), None)
            }
            Data::Inline(bytes) => {
                let from = index * self.inline_each;
                self.inline[from..from + bytes.len()].copy_from_slice(bytes);
                (0, Some(bytes.len()))
            }
        };
        self.slots[index] =
            RequestSlot { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, len, pieces, inline, ..EMPTY };
        self.tail += 1;
        self.free -= 1;
        Ok(())
    }

    /// Fast path: adds a short request and posts it whole on the message lane, if nothing else is pending. False if
    /// nothing has been done.
    #[inline]
    pub(crate) fn push_plain(&mut self, own: &QpContext, wr: &SendWr<'_>, len: u64) -> bool {
        let (shared, lane) = (own.shared(), self.message_lane);
        let others = self.busy & !(1 << lane);
        if self.next != self.tail || self.free == 0 || self.is_paused || self.failed.is_some() || others != 0
        {
            return false;
        }
        let short = shared.config.stripe_min;
        if len >= short || self.flight[lane].bytes >= short || !shared.workers.is_empty() {
            return false;
        }
        let keys = match key_of(wr.op) {
            None => None,
            Some(key) => match self.peer_keys.get(key) {
                Some(keys) => Some(keys),
                None => return false,
            },
        };
        let index = self.slot_index(self.tail);
        let (sge, pieces, inline) = match wr.data {
            Data::Sges([]) => (Sge::default(), 0, None),
            Data::Sges([one]) => {
                let Some(lkey) = shared.keys.get(one.lkey, lane) else { return false };
                self.pieces[index * self.pieces_each] = *one;
                (Sge { lkey, ..*one }, 1, None)
            }
            Data::Inline(bytes) => {
                let from = index * self.inline_each;
                self.inline[from..from + bytes.len()].copy_from_slice(bytes);
                (Sge::default(), 0, Some(bytes.len()))
            }
            Data::Sges(_) => return false,
        };
        let sges = [sge];
        let data = if inline.is_some() { wr.data } else { Data::Sges(&sges[..pieces]) };
        let (op, flags) = (lane_op(wr.op, lane, keys, 0), lane_flags(wr.flags));
        self.add_outstanding_if_new(lane);
        if self.rails[lane].post_send(&SendWr { wr_id: self.tail, op, data, flags }).is_err() {
            return false;
        }
        let &SendWr { wr_id, op, flags, .. } = wr;
        self.slots[index] =
            RequestSlot { wr_id, op, flags, len, pieces, inline, lanes: LaneSet::single(lane), ..EMPTY };
        self.tail += 1;
        self.next = self.tail;
        self.free -= 1;
        self.add_in_flight(lane, index, len);
        true
    }

    /// Accounts for a part of a request, of `bytes` bytes, that was posted to a lane.
    #[inline]
    fn add_in_flight(&mut self, lane: usize, index: usize, bytes: u64) {
        let (flight, slot) = (&mut self.flight[lane], &mut self.slots[index]);
        slot.pending += 1;
        flight.posted += 1;
        flight.bytes += bytes;
        if slot.op.fetches() {
            flight.reads += 1;
        } else {
            flight.writes += 1;
        }
        self.busy |= 1 << lane;
        if consumes_receive(slot.op) {
            slot.number = flight.messages;
            flight.messages = flight.messages.wrapping_add(1);
        }
    }

    /// Accounts for a completed part of a request, of `bytes` bytes.
    #[inline]
    fn remove_in_flight(&mut self, lane: usize, fetches: bool, bytes: u64) {
        let flight = &mut self.flight[lane];
        flight.bytes = flight.bytes.saturating_sub(bytes);
        if fetches {
            flight.reads = flight.reads.saturating_sub(1);
        } else {
            flight.writes = flight.writes.saturating_sub(1);
        }
        if flight.reads + flight.writes == 0 {
            self.busy &= !(1 << lane);
        }
    }

    /// The actions that the caller must take after unlocking.
    pub(crate) fn actions(&self) -> QpActions {
        // There are requests that only a completion can start.
        let waits = (self.next < self.tail || self.is_paused) && !self.is_stopped;
        QpActions { failure: self.must_fail_lanes(), needs_arming: waits, ..QpActions::default() }
    }

    /// The number of outstanding requests of a lane.
    pub(crate) fn outstanding(&self, lane: usize) -> u32 {
        self.flight[lane].posted
    }

    /// Whether no request has a part in flight.
    pub(crate) fn has_nothing_in_flight(&self) -> bool {
        self.reading_key.is_none() && self.flight.iter().all(|flight| flight.writes + flight.reads == 0)
    }

    /// A request failed, and everything before it has completed: the rest must be flushed.
    fn must_fail_lanes(&self) -> bool {
        let Some(failed) = self.failed.filter(|_| self.cause.is_some() && !self.is_stopped) else {
            return false;
        };
        (self.head..failed.min(self.next)).all(|seq| self.slots[self.slot_index(seq)].pending == 0)
    }

    /// The lanes are in error: no request starts any more.
    pub(crate) fn stop(&mut self) {
        if self.is_stopped {
            return;
        }
        self.is_stopped = true;
        let lost = (self.head..self.next).find(|&seq| self.slots[self.slot_index(seq)].lost_completion);
        let first = lost.unwrap_or(self.next);
        self.failed = Some(self.failed.map_or(first, |failed| failed.min(first)));
    }

    /// Starts the requests that may start, and reports completed ones.
    pub(crate) fn advance(&mut self, own: &QpContext, sink: &mut CompletionSink<'_>) {
        while self.next < self.tail && self.failed.is_none() && !self.is_paused && self.start_next(own) {}
        while self.head < self.tail && self.report(own, sink) {}
    }

    /// Starts the next request if it may start, or skips it if it has already completed; returns whether the next one may be tried.
    fn start_next(&mut self, own: &QpContext) -> bool {
        let index = self.slot_index(self.next);
        let slot = &self.slots[index];
        if slot.already_completed {
            self.next += 1;
            return true;
        }
        let keys = match key_of(slot.op) {
            None => None,
            // A zero key names no entry.
            Some(0) => Some(std::array::from_fn(|lane| self.peer[lane].map_or(0, |hello| hello.invalid_key))),
            Some(key) => match self.peer_keys.get(key) {
                Some(keys) => Some(*keys),
                None => {
                    self.post_key_read(own, key);
                    return false;
                }
            },
        };
        let mut ends = [0; RAILS_MAX];
        let Some(lanes) = self.choose_lanes(own.shared(), slot, &mut ends) else { return false };
        if lanes.is_striped() {
            self.ends[index] = ends;
        }
        self.next += 1;
        (self.slots[index].lanes, self.slots[index].status) = (lanes, WcStatus::Success);
        for lane in (0..self.lanes).filter(|&lane| lanes.contains(lane)) {
            if let Err(why) = self.post(own, index, lane, keys.as_ref()) {
                // The lane has room for all requests of the queue, and accepts them in every state that it can be in
                // here.
                debug_assert!(false, "a lane refused: {why}");
                self.slots[index].status = WcStatus::LocQpOpErr;
                self.record_failure(self.next - 1, FailureReason::Request);
                return false;
            }
        }
        true
    }

    fn post(&mut self, own: &QpContext, index: usize, lane: usize, keys: Option<&LaneKeys>) -> Result<()> {
        self.add_outstanding_if_new(lane);
        let slot = &self.slots[index];
        let (from, to) = slot.lanes.range(lane, slot.len, &self.ends[index]);
        let is_stripe = slot.lanes.is_striped();
        let (wr_id, op) = (self.next - 1, lane_op(slot.op, lane, keys, from));
        let flags = lane_flags(slot.flags);
        if let Some(len) = slot.inline {
            let at = index * self.inline_each;
            let data = Data::Inline(&self.inline[at..at + len]);
            self.post_to_lane(own, lane, &SendWr { wr_id, op, data, flags }, false)?;
        } else {
            let at = index * self.pieces_each;
            let post = |sges: &[Sge]| {
                own.shared().local_pieces(lane, sges, |sges| {
                    self.post_to_lane(
                        own,
                        lane,
                        &SendWr { wr_id, op, data: Data::Sges(sges), flags },
                        is_stripe,
                    )
                })
            };
            let all = &self.pieces[at..at + slot.pieces];
            if is_stripe {
                let mut cut = [Sge::default(); PIECES_MAX];
                let count = slice_sges(all, from, to, &mut cut);
                post(&cut[..count])?;
            } else {
                post(all)?;
            }
        }
        self.add_in_flight(lane, index, to - from);
        if is_stripe {
            self.rates.start_stripe(lane, own.shared().host.now());
        }
        Ok(())
    }

    /// Reads the entry for this key from the peer's table.
    fn post_key_read(&mut self, own: &QpContext, key: u32) {
        let lane = self.message_lane;
        let Some(hello) = self.peer[lane].filter(|_| self.reading_key.is_none()) else { return };
        let remote = RemoteAddr { addr: hello.table.0, rkey: hello.table.1 }.offset(offset_of(key));
        let wr = SendWr::new(READ_KEY, SendOp::Read(remote), &[]);
        let sges = [own.pd.scratch_sge(lane, own.scratch)];
        self.add_outstanding_if_new(lane);
        match self.post_to_lane(own, lane, &SendWr { data: Data::Sges(&sges), ..wr }, false) {
            Ok(()) => {
                self.reading_key = Some(key);
                self.flight[lane].posted += 1;
            }
            Err(_) => {
                self.record_failure(self.next, FailureReason::Request);
            }
        }
    }

    /// There are lane reports for the peer.
    pub(crate) fn set_reports_pending(&mut self) {
        self.has_pending_reports = true;
    }

    /// Whether the peer has all lane reports.
    pub(crate) fn has_sent_reports(&self) -> bool {
        !self.has_pending_reports && !self.is_writing_reports
    }

    /// Writes the pending lane reports on one of these lanes, preferably not the message lane. Does nothing while
    /// earlier reports are in flight.
    pub(crate) fn write_lane_reports(&mut self, own: &QpContext, lanes: impl Iterator<Item = usize>) {
        let carrier = lanes.min_by_key(|lane| *lane == self.message_lane);
        let Some(lane) = carrier.filter(|_| self.has_pending_reports && !self.is_writing_reports) else {
            return;
        };
        let remote =
            RemoteAddr { addr: self.peer_report_buffer.addr, rkey: self.peer_report_buffer.keys[lane] };
        let sges = [own.report_buffer.outgoing_sge(lane)];
        let wr = SendWr::new(WRITE_REPORTS, SendOp::Write(remote), &sges);
        self.add_outstanding_if_new(lane);
        // A refused write is tried again.
        if self.post_to_lane(own, lane, &wr, false).is_ok() {
            (self.has_pending_reports, self.is_writing_reports) = (false, true);
            self.flight[lane].posted += 1;
        }
    }

    /// The lanes on which a request may start now.
    fn choose_lanes(
        &self,
        shared: &DeviceShared,
        slot: &RequestSlot,
        ends: &mut StripeEnds,
    ) -> Option<LaneSet> {
        let kind = class(slot.op);
        let count = self.live.count_ones();
        let striped = kind != OrderingClass::Message
            && slot.inline.is_none()
            && count > 1
            && slot.len >= shared.config.stripe_min.max(LINE * u64::from(count));
        let lanes = match kind {
            _ if striped => LaneSet::striped(slot.len, self.live, &self.rates.shares, ends),
            OrderingClass::Write => LaneSet::single(self.least_busy(shared)),
            _ => LaneSet::single(self.message_lane),
        };
        let in_order = if lanes.is_striped() { 0 } else { lanes.mask };
        if self.busy & !in_order == 0 {
            return Some(lanes);
        }
        let fenced = slot.flags.contains(SendFlags::FENCE);
        let others = || (0..self.lanes).filter(|lane| lanes.mask != 1 << lane).map(|lane| self.flight[lane]);
        if fenced && others().any(|flight| flight.reads > 0) {
            return None;
        }
        let free = match kind {
            OrderingClass::Message => others().all(|flight| flight.writes == 0),
            _ => !self.overlaps_another(slot, &lanes, ends),
        };
        free.then_some(lanes)
    }

    /// The message lane, unless it is busy and another lane has less in flight.
    fn least_busy(&self, shared: &DeviceShared) -> usize {
        let much = self.flight[self.message_lane].bytes >= shared.config.stripe_min;
        let by_bytes = |lane: &usize| (self.flight[*lane].bytes, *lane);
        let live = (0..self.lanes).filter(|lane| self.live & 1 << lane != 0);
        match much {
            true => live.min_by_key(by_bytes).unwrap_or(self.message_lane),
            false => self.message_lane,
        }
    }

    /// Whether a request would touch the same memory as another request on another lane, with at least one of them
    /// writing.
    fn overlaps_another(&self, slot: &RequestSlot, lanes: &LaneSet, ends: &StripeEnds) -> bool {
        let range = |slot: &RequestSlot, lanes: &LaneSet, ends: &StripeEnds, lane: usize| {
            let remote = remote_of(slot.op).filter(|_| lanes.contains(lane))?;
            let (from, to) = lanes.range(lane, slot.len, ends);
            Some((remote.addr.wrapping_add(from), remote.addr.wrapping_add(to)))
        };
        let reads = class(slot.op) == OrderingClass::Read;
        (self.head..self.next).map(|seq| self.slot_index(seq)).any(|index| {
            let (other, others) = (&self.slots[index], &self.ends[index]);
            let harmless = other.pending == 0 || (reads && class(other.op) == OrderingClass::Read);
            !harmless
                && (0..self.lanes).any(|here| {
                    let Some(near) = range(slot, lanes, ends, here) else { return false };
                    (0..self.lanes).filter(|there| *there != here).any(|there| {
                        let far = range(other, &other.lanes, others, there);
                        far.is_some_and(|far| near.0 < far.1 && far.0 < near.1)
                    })
                })
        })
    }

    /// A lane's part of a request has completed.
    pub(crate) fn complete(&mut self, own: &QpContext, lane: usize, wc: &Wc) {
        self.flight[lane].posted = self.flight[lane].posted.saturating_sub(1);
        match wc.wr_id {
            READ_KEY => return self.on_key_read(own, wc),
            WRITE_REPORTS => {
                self.is_writing_reports = false;
                self.has_pending_reports |= !wc.is_ok();
                return;
            }
            seq if !(self.head..self.next).contains(&seq) => return,
            _ => {}
        }
        let (seq, index) = (wc.wr_id, self.slot_index(wc.wr_id));
        let slot = &self.slots[index];
        let ((from, to), fetches) = (slot.lanes.range(lane, slot.len, &self.ends[index]), slot.op.fetches());
        self.remove_in_flight(lane, fetches, to - from);
        let (flight, slot) = (&mut self.flight[lane], &mut self.slots[index]);
        slot.pending = slot.pending.saturating_sub(1);
        slot.bytes = slot.bytes.saturating_add(wc.byte_len);
        if slot.lanes.is_striped() {
            self.rates.finish_stripe(lane, to - from, own.shared().host.now());
        }
        if wc.is_ok() {
            flight.arrived = flight.arrived.wrapping_add(u32::from(consumes_receive(slot.op)));
            return;
        }
        // An error with a reason replaces a success or a flush.
        if matches!(slot.status, WcStatus::Success | WcStatus::WrFlushErr) {
            slot.status = wc.status;
        }
        if is_loss(wc.status) && !self.is_stopped {
            slot.lost_completion = true;
            self.is_paused = true;
            return;
        }
        self.record_failure(seq, FailureReason::of(wc.status));
    }

    /// Records that a request failed.
    fn record_failure(&mut self, seq: u64, reason: FailureReason) {
        let first = |earlier: Option<u64>| Some(earlier.map_or(seq, |earlier| earlier.min(seq)));
        self.failed = first(self.failed);
        if reason == FailureReason::Request {
            self.cause = first(self.cause);
        }
    }

    /// Fast path: the oldest request, carried whole by one lane, has succeeded, and no request waits to start. Most do.
    /// False for any other; then nothing has been done.
    #[inline]
    pub(crate) fn complete_plain(
        &mut self,
        own: &QpContext,
        lane: usize,
        wc: &Wc,
        sink: &mut CompletionSink<'_>,
    ) -> bool {
        let index = self.slot_index(self.head);
        let slot = &self.slots[index];
        let is_plain = wc.wr_id == self.head && wc.is_ok() && self.head < self.next && self.next == self.tail;
        let is_whole = slot.lanes.mask == 1 << lane && slot.pending == 1 && slot.status == WcStatus::Success;
        if !is_plain || !is_whole || self.failed.is_some() || self.is_paused || slot.op.fetches() {
            return false;
        }
        let (len, counts) = (slot.len, u32::from(consumes_receive(slot.op)));
        let (wr_id, opcode) = (slot.wr_id, slot.op.opcode());
        let signalled = self.signals_all || slot.flags.contains(SendFlags::SIGNALED);
        self.slots[index].pending = 0;
        self.flight[lane].posted = self.flight[lane].posted.saturating_sub(1);
        self.flight[lane].arrived = self.flight[lane].arrived.wrapping_add(counts);
        self.remove_in_flight(lane, false, len);
        self.head += 1;
        self.unreported += 1;
        if signalled {
            let slots = std::mem::take(&mut self.unreported);
            let wc = Wc { wr_id, opcode, qp_num: own.reported_qp_num, ..Wc::default() };
            if sink.deliver(wc, own, (slots, 0)) {
                self.free += slots;
            }
        }
        // Later requests may have completed before it.
        while self.head < self.tail
            && self.slots[self.slot_index(self.head)].pending == 0
            && self.report(own, sink)
        {}
        true
    }

    /// The entry of the peer's table has been read.
    fn on_key_read(&mut self, own: &QpContext, wc: &Wc) {
        let Some(key) = self.reading_key.take() else { return };
        if let Some(entry) = own.pd.scratch_read(own.scratch).filter(|_| wc.is_ok()) {
            return self.peer_keys.insert(key, unmask(key, &entry));
        }
        let index = self.slot_index(self.next);
        if is_loss(wc.status) && !self.is_stopped {
            // It is read again on another lane. If none is left, the request ends with this status.
            self.slots[index].status = wc.status;
            self.is_paused = true;
            return;
        }
        self.slots[index].status = wc.status;
        self.record_failure(self.next, FailureReason::of(wc.status));
        if self.next < self.tail {
            // The request ends here, without a lane.
            self.next += 1;
        }
    }

    /// A lane has failed: no request starts until [`SendQueue::resolve_failed_lanes`].
    pub(crate) fn pause(&mut self, lane: usize) {
        self.is_paused = true;
        self.live &= !(1 << lane);
        self.rates.reset_lane(lane);
    }

    /// Whether the peer's lane reports decide every request whose completion was lost. Counts must be plausible: no more
    /// messages than were posted there, and no fewer than are known to have arrived. A message needs a report of its
    /// lane. An atomic cannot be decided, because the peer does not report whether it took effect.
    fn can_recover_with(&self, failed_lanes: &[Option<LaneReport>; RAILS_MAX]) -> bool {
        let are_plausible = self.flight.iter().zip(failed_lanes).all(|(flight, report)| {
            report.is_none_or(|report| {
                let missing = flight.messages.wrapping_sub(report.messages_received);
                missing <= flight.messages.wrapping_sub(flight.arrived)
            })
        });
        let slots = (self.head..self.next).map(|seq| &self.slots[self.slot_index(seq)]);
        let mut lost = slots.filter(|slot| slot.lost_completion);
        let has_report = |slot: &RequestSlot| {
            class(slot.op) != OrderingClass::Message || failed_lanes[slot.lanes.first_lane()].is_some()
        };
        are_plausible && lost.all(|slot| !slot.op.is_atomic() && has_report(slot))
    }

    /// Decides the result of everything on failed lanes, by the peer's lane reports: messages that it has received are
    /// completed, the rest starts again. False if that is impossible, and the queue pair has to fail.
    pub(crate) fn resolve_failed_lanes(&mut self, failed_lanes: &[Option<LaneReport>; RAILS_MAX]) -> bool {
        let mut message_lane = self.message_lane;
        for _ in 0..RAILS_MAX {
            if let Some(report) = failed_lanes[message_lane] {
                message_lane = usize::from(report.recv_lane).min(self.lanes - 1);
            }
        }
        if !self.can_recover_with(failed_lanes) || self.live & 1 << message_lane == 0 {
            return false;
        }
        let before = std::mem::replace(&mut self.message_lane, message_lane);
        self.remove_outstanding_if_idle(before);
        let mut again = None;
        for seq in self.head..self.next {
            let index = self.slot_index(seq);
            let slot = &mut self.slots[index];
            let arrived = |report: LaneReport| report.messages_received.wrapping_sub(slot.number) as i32 > 0;
            slot.already_completed = !slot.lost_completion
                || (consumes_receive(slot.op) && failed_lanes[slot.lanes.first_lane()].is_some_and(arrived));
            if slot.lost_completion {
                (slot.lost_completion, slot.status, slot.bytes) = (false, WcStatus::Success, 0);
            }
            if !slot.already_completed {
                slot.lanes = LaneSet::NONE;
                again.get_or_insert(seq);
            }
        }
        self.next = again.unwrap_or(self.next);
        self.is_paused = false;
        true
    }

    /// A lane has been connected again, as this queue pair.
    pub(crate) fn on_lane_connected(&mut self, lane: usize, by: &Arc<Qp>) {
        self.rails[lane] = by.clone();
        self.flight[lane] = InFlight::default();
        self.busy &= !(1 << lane);
        self.rates.reset_lane(lane);
        self.live |= 1 << lane;
    }

    /// Reports the oldest request if it has completed; returns whether it did.
    fn report(&mut self, own: &QpContext, sink: &mut CompletionSink<'_>) -> bool {
        let slot = &self.slots[self.slot_index(self.head)];
        let started = self.head < self.next;
        let open = slot.pending > 0 || (slot.lost_completion && !self.is_stopped);
        if (started && open) || (!started && !self.is_stopped) {
            return false;
        }
        let has_status = started || (self.failed == Some(self.head) && slot.status == WcStatus::RetryExcErr);
        let status = match has_status {
            true => reported_status(self.head, slot.status, self.failed, self.cause),
            false => WcStatus::WrFlushErr,
        };
        let wc = Wc {
            wr_id: slot.wr_id,
            status,
            opcode: slot.op.opcode(),
            byte_len: if slot.op.fetches() { slot.bytes } else { 0 },
            qp_num: own.reported_qp_num,
            ..Wc::default()
        };
        let is_silent = wc.is_ok() && !slot.flags.contains(SendFlags::SIGNALED) && !self.signals_all;
        self.head += 1;
        self.next = self.next.max(self.head);
        self.unreported += 1;
        if !is_silent {
            let slots = std::mem::take(&mut self.unreported);
            if sink.deliver(wc, own, (slots, 0)) {
                self.free += slots;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: WcStatus = WcStatus::RemAccessErr;

    #[test]
    fn requests_after_the_failed_one_are_flushed() {
        assert_eq!(reported_status(4, WcStatus::Success, Some(5), Some(5)), WcStatus::Success);
        assert_eq!(reported_status(5, ACCESS, Some(5), Some(5)), ACCESS);
        assert_eq!(reported_status(6, WcStatus::Success, Some(5), Some(5)), WcStatus::WrFlushErr);
        assert_eq!(reported_status(6, ACCESS, Some(5), Some(5)), WcStatus::WrFlushErr);
    }

    /// Request 5 waited on one lane, request 6 failed on another, and the end of the connection flushed 5 first.
    #[test]
    fn cause_after_a_flushed_request_keeps_its_status() {
        assert_eq!(reported_status(5, WcStatus::WrFlushErr, Some(5), Some(6)), WcStatus::WrFlushErr);
        assert_eq!(reported_status(6, ACCESS, Some(5), Some(6)), ACCESS);
        assert_eq!(reported_status(7, ACCESS, Some(5), Some(6)), WcStatus::WrFlushErr);
    }
}
