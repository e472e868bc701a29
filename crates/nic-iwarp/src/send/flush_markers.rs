//! Data path: sending. Flush markers: how the sender learns which requests have arrived.
//!
//! A write or a send completes when the peer has placed or delivered it, but RDMAP has no acknowledgement. It has
//! zero-length reads: the peer answers one in order, after everything before it has been placed or delivered. So the
//! sender adds such a read, a *flush marker*, after a batch of requests; its response completes all requests before
//! it. One marker is open at a time, two in long batches, and up to four with much data in flight, so that a sender
//! that waits for room in its queue need not wait until everything has arrived.

use std::collections::VecDeque;

use iwarp::open_requests::OpenRequest;
use iwarp::rdmap::ReadRequest;
use iwarp::rnr_limit;
use iwarp::tx::{Op, OpKind};
use verbs::SendOp;

use crate::queues::messages::request_of;
use crate::queues::request_ring::{SendQueue, SendRequest};
use crate::queues::status::{peer_effect, send_messages};

/// A marker is sent after this many requests or bytes even if more follows.
const MARKER_REQUESTS: u64 = 16;
const MARKER_BYTES: u64 = 256 << 10;

/// Maximum number of open markers; the third and fourth each need twice as many bytes as the one before.
const OPEN_MARKERS_MAX: u32 = 4;

/// Identifier of a marker: this bit, and the number of requests that its response covers.
const MARKER: u64 = 1 << 63;
/// Identifier of a message that belongs to no request and is no marker: the first message of an initiator of revision
/// 1, after which the peer may send, or the announcement of an RNR retry limit.
const NO_REQUEST: u64 = 1 << 62;

/// The request of an operation; `None` for markers and greetings.
pub(crate) fn program_request_of(id: u64) -> Option<u64> {
    (id & (MARKER | NO_REQUEST) == 0).then(|| request_of(id))
}

/// A zero-length write, which changes nothing.
pub(crate) fn first_message() -> Op {
    Op { id: NO_REQUEST, kind: OpKind::Write { stag: 1, to: 0, len: 0 }, fence: false }
}

/// The zero-length write that announces an RNR retry limit.
pub(crate) fn announcement(retries: u8) -> Op {
    Op { id: NO_REQUEST, kind: rnr_limit::announcement(retries), fence: false }
}

/// The requests that have begun, the open markers, and what they cover.
pub(crate) struct FlushMarkers {
    /// Whether markers are used at all.
    enabled: bool,
    /// The number of the next request to begin.
    next_request: u64,
    /// Number of requests that an open marker or read will cover.
    covered: u64,
    /// Bytes since the last marker.
    bytes: u64,
    /// A signaled request has begun since the last marker.
    signaled: bool,
    /// Number of open requests that complete when TCP has accepted them.
    open_locals: u32,
    /// Number of open markers.
    open_markers: u32,
    /// Open reads, atomics and markers in order, and the message number of the first.
    open_reads: VecDeque<u64>,
    first_open_request: u32,
    /// Number of the first message on the queue of Sends that belongs to an open request.
    first_open_send: u32,
    /// Messages of completed requests, as receipts count them.
    completed_messages: u32,
}

impl FlushMarkers {
    /// `ord` reads may be open; `first_send` is the number of the first message on the queue of Sends.
    pub(crate) fn new(enabled: bool, ord: u16, first_send: u32) -> Self {
        Self {
            enabled,
            next_request: 0,
            covered: 0,
            bytes: 0,
            signaled: false,
            open_locals: 0,
            open_markers: 0,
            open_reads: VecDeque::with_capacity(ord.into()),
            first_open_request: 1,
            first_open_send: first_send,
            completed_messages: 0,
        }
    }

    /// Whether markers are used; otherwise requests complete when TCP has accepted them.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether requests are open that complete when TCP has accepted them.
    #[inline]
    pub(crate) fn has_open_locals(&self) -> bool {
        self.open_locals > 0
    }

    /// The number of the next request to begin.
    #[inline]
    pub(crate) fn next_request(&self) -> u64 {
        self.next_request
    }

    /// Whether a marker is open.
    #[inline]
    pub(crate) fn has_open_marker(&self) -> bool {
        self.open_markers > 0
    }

    /// The next request has been passed to the state machine or written out; `signals` means that it is signaled.
    #[inline]
    pub(crate) fn on_begun(&mut self, request: &SendRequest, signals: bool) {
        self.next_request += 1;
        if request.is_local() {
            // It needs no marker, but a marker sent for other requests covers it, too.
            self.open_locals += 1;
            self.covered += u64::from(self.covered + 1 == self.next_request);
            return;
        }
        self.bytes += u64::from(request.len);
        self.signaled |= signals;
        if request.op.fetches() {
            self.restart_count();
        }
    }

    fn restart_count(&mut self) {
        (self.covered, self.bytes, self.signaled) = (self.next_request, 0, false);
    }

    /// Whether a marker must be sent before this operation: a message that may wait for a receive must not delay the
    /// responses for requests before it.
    #[inline]
    pub(crate) fn must_precede(&self, op: &SendOp) -> bool {
        self.enabled && self.signaled && send_messages(op) > 0
    }

    /// Whether a marker is due; `more` requests wait to be sent. Without `is_last_chance`, a marker for unsignaled
    /// requests only is left until later.
    #[inline]
    pub(crate) fn is_due(&self, more: bool, is_last_chance: bool) -> bool {
        if !self.enabled || self.next_request == self.covered {
            return false;
        }
        let much = self.next_request - self.covered >= MARKER_REQUESTS || self.bytes >= MARKER_BYTES;
        match self.open_markers {
            0 => much || !more && (self.signaled || is_last_chance),
            1 => much,
            open => open < OPEN_MARKERS_MAX && self.bytes >= MARKER_BYTES << open,
        }
    }

    /// The marker that covers everything begun; call [`Self::on_posted`] when the state machine has accepted it.
    pub(crate) fn marker(&self) -> Op {
        let nothing = ReadRequest { sink_stag: 1, sink_to: 0, len: 0, source_stag: 1, source_to: 0 };
        Op { id: MARKER | self.next_request, kind: OpKind::Read(nothing), fence: false }
    }

    /// The state machine has accepted the marker.
    pub(crate) fn on_posted(&mut self) {
        self.restart_count();
        self.open_markers += 1;
    }

    /// The message of a read, atomic or marker has left the state machine.
    pub(crate) fn on_sent(&mut self, id: u64) {
        self.open_reads.push_back(if id & MARKER == 0 { request_of(id) } else { id });
    }

    /// The ready-to-receive message, a read, has left the state machine.
    pub(crate) fn on_rtr_sent(&mut self) {
        self.open_reads.push_back(MARKER);
    }

    /// The ready-to-receive message has been answered.
    pub(crate) fn on_rtr_answered(&mut self) {
        self.open_reads.pop_front();
        self.first_open_request = self.first_open_request.wrapping_add(1);
    }

    /// The first open read, atomic or marker has been answered; `id` is its identifier. Returns how many requests
    /// have arrived.
    pub(crate) fn on_answered(&mut self, id: u64) -> u64 {
        self.on_rtr_answered();
        if id & MARKER == 0 {
            return request_of(id) + 1;
        }
        self.open_markers -= 1;
        id & !MARKER
    }

    /// The first open request has completed.
    #[inline]
    pub(crate) fn on_completed(&mut self, request: &SendRequest) {
        self.open_locals -= u32::from(request.is_local());
        let sends = send_messages(&request.op);
        self.first_open_send = self.first_open_send.wrapping_add(sends);
        let is_send = matches!(request.op, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_));
        self.completed_messages =
            self.completed_messages.wrapping_add(sends + u32::from(!is_send && request.len > 0));
    }

    /// The open requests that have begun, in the peer's view.
    pub(crate) fn open_requests(&self, queue: &SendQueue) -> Vec<OpenRequest> {
        let mut first = self.first_open_send;
        let open = (queue.completed()..self.next_request).map(|number| {
            let &SendRequest { op, len, .. } = queue.get(number);
            let place = self.open_reads.iter().position(|&id| id == number);
            let request = place.map(|place| self.first_open_request.wrapping_add(place as u32));
            let sends = (first, send_messages(&op));
            first = first.wrapping_add(sends.1);
            OpenRequest { number, effect: peer_effect(&op), len, sends, request }
        });
        open.collect()
    }

    /// How many of the `open` requests have arrived, by the receipt that the peer sent before it ended the stream.
    pub(crate) fn count_arrived(&self, receipt: Option<u32>, open: &[OpenRequest]) -> usize {
        iwarp::open_requests::count_arrived(receipt, self.completed_messages, open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{RemoteAddr, SendFlags};

    fn request(op: SendOp, len: u32) -> SendRequest {
        SendRequest::new(0, op, SendFlags::empty(), len)
    }

    /// Goal: a marker is sent when a signaled request waits for it and nothing else is ready to send, or after much
    /// data.
    #[test]
    fn marker_is_due_when_signaled_request_waits() {
        let mut markers = FlushMarkers::new(true, 4, 1);
        assert!(!markers.is_due(false, true), "there is no request to cover");
        markers.on_begun(&request(SendOp::Send, 8), false);
        assert!(!markers.is_due(false, false) && markers.is_due(false, true), "no signaled request waits");
        markers.on_begun(&request(SendOp::Send, 8), true);
        assert!(markers.is_due(false, false) && !markers.is_due(true, true), "more requests follow");
        assert!(markers.must_precede(&SendOp::Send));
        assert!(!markers.must_precede(&SendOp::Write(RemoteAddr::default())));
        let marker = markers.marker();
        markers.on_posted();
        markers.on_sent(marker.id);
        assert!(!markers.is_due(false, true) && markers.has_open_marker());
        // A second marker is sent only after much data.
        markers.on_begun(&request(SendOp::Send, MARKER_BYTES as u32), true);
        assert!(markers.is_due(true, false));
        markers.on_posted();
        markers.on_begun(&request(SendOp::Send, MARKER_BYTES as u32), true);
        assert!(!markers.is_due(false, true), "two markers are open");
        markers.on_begun(&request(SendOp::Send, 3 * MARKER_BYTES as u32), false);
        assert!(markers.is_due(true, false), "much more has begun");
        assert_eq!(markers.on_answered(marker.id), 2);
        assert!(markers.is_due(false, true));
    }

    /// Local requests need no marker; requests after them do.
    #[test]
    fn local_requests_need_no_marker() {
        let mut markers = FlushMarkers::new(true, 4, 1);
        let local = SendRequest::new(0, SendOp::Send, SendFlags::LOCAL | SendFlags::SIGNALED, 8);
        markers.on_begun(&local, true);
        assert!(markers.has_open_locals() && !markers.is_due(false, true));
        markers.on_begun(&request(SendOp::Send, 8), true);
        assert!(markers.is_due(false, false));
        markers.on_completed(&local);
        assert!(!markers.has_open_locals());
    }

    /// The response to a read covers all requests before it, and without markers none is due.
    #[test]
    fn read_response_covers_earlier_requests() {
        let mut markers = FlushMarkers::new(true, 4, 1);
        markers.on_begun(&request(SendOp::Write(RemoteAddr::default()), 8), true);
        markers.on_begun(&request(SendOp::Read(RemoteAddr::default()), 8), true);
        assert!(!markers.is_due(false, true));
        markers.on_sent(1 << 1 | 1);
        assert_eq!(markers.on_answered(1 << 1 | 1), 2);
        let mut disabled = FlushMarkers::new(false, 4, 1);
        disabled.on_begun(&request(SendOp::Send, 8), true);
        assert!(
            !disabled.is_due(false, true) && !disabled.must_precede(&SendOp::Send) && !disabled.is_enabled()
        );
    }
}
