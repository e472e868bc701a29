//! Data path: sending. Flush markers: how the sender learns which requests have arrived.
//!
//! A write or a send completes when the peer has placed or delivered it, but RDMAP has no acknowledgement. It has
//! zero-length reads: the peer answers one in order, after everything before it has been placed or delivered. So the
//! sender adds such a read, a *flush marker*, after a batch of requests; its response completes all requests before
//! it. One marker is open at a time, two in long batches, and up to four with much data in flight, so that a sender
//! that waits for room in its queue need not wait until everything has arrived.

use std::collections::VecDeque;

use iwarp::outcome::Open;
use iwarp::rdmap::ReadRequest;
use iwarp::rnr_limit;
use iwarp::tx::{Op, OpKind};
use verbs::SendOp;

use crate::queues::messages::request_of;
use crate::queues::outcome::{deed, sends};
use crate::queues::request_ring::{Request, SendQueue};

/// A marker is sent after this many requests or bytes even if more follows.
const ASK_REQUESTS: u64 = 16;
const ASK_BYTES: u64 = 256 << 10;

/// Maximum number of open markers; the third and fourth each need twice as many bytes as the one before.
const OPEN_MAX: u32 = 4;

/// Identifier of a marker: this bit, and the number of requests that its response covers.
const QUESTION: u64 = 1 << 63;
/// Identifier of a message that belongs to no request and is no marker: the first message of an initiator of revision
/// 1, after which the peer may send, or the announcement of an RNR retry limit.
const GREETING: u64 = 1 << 62;

/// The request of an operation; `None` for markers and greetings.
pub(crate) fn request_behind(id: u64) -> Option<u64> {
    (id & (QUESTION | GREETING) == 0).then(|| request_of(id))
}

/// A zero-length write, which changes nothing.
pub(crate) fn greeting() -> Op {
    Op { id: GREETING, kind: OpKind::Write { stag: 1, to: 0, len: 0 }, fence: false }
}

/// The zero-length write that announces an RNR retry limit.
pub(crate) fn announcement(retries: u8) -> Op {
    Op { id: GREETING, kind: rnr_limit::announcement(retries), fence: false }
}

/// The requests that have begun, the open markers, and what they cover.
pub(crate) struct Questions {
    /// Whether markers are used at all.
    asks: bool,
    /// The number of the next request to begin.
    next: u64,
    /// Number of requests that an open marker or read will cover.
    covered: u64,
    /// Bytes since the last marker.
    bytes: u64,
    /// A signaled request has begun since the last marker.
    expected: bool,
    /// Number of open requests that complete when TCP has accepted them.
    locals: u32,
    /// Number of open markers.
    asked: u32,
    /// Open reads, atomics and markers in order, and the message number of the first.
    open: VecDeque<u64>,
    first_open_request: u32,
    /// Number of the first message on the queue of Sends that belongs to an open request.
    first_open_send: u32,
    /// Messages of completed requests, as receipts count them.
    over: u32,
}

impl Questions {
    /// `ord` reads may be open; `first_send` is the number of the first message on the queue of Sends.
    pub(crate) fn new(asks: bool, ord: u16, first_send: u32) -> Self {
        Self {
            asks,
            next: 0,
            covered: 0,
            bytes: 0,
            expected: false,
            locals: 0,
            asked: 0,
            open: VecDeque::with_capacity(ord.into()),
            first_open_request: 1,
            first_open_send: first_send,
            over: 0,
        }
    }

    /// Whether markers are used; otherwise requests complete when TCP has accepted them.
    #[inline]
    pub(crate) fn are_asked(&self) -> bool {
        self.asks
    }

    /// Whether requests are open that complete when TCP has accepted them.
    #[inline]
    pub(crate) fn has_locals(&self) -> bool {
        self.locals > 0
    }

    /// The number of the next request to begin.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a marker is open.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.asked > 0
    }

    /// The next request has been passed to the state machine or written out; `signals` means that it is signaled.
    #[inline]
    pub(crate) fn begun(&mut self, request: &Request, signals: bool) {
        self.next += 1;
        if request.is_local() {
            // It needs no marker, but a marker sent for other requests covers it, too.
            self.locals += 1;
            self.covered += u64::from(self.covered + 1 == self.next);
            return;
        }
        self.bytes += u64::from(request.len);
        self.expected |= signals;
        if request.op.fetches() {
            self.cover();
        }
    }

    fn cover(&mut self) {
        (self.covered, self.bytes, self.expected) = (self.next, 0, false);
    }

    /// Whether a marker must be sent before this operation: a message that may wait for a receive must not delay the
    /// responses for requests before it.
    #[inline]
    pub(crate) fn must_precede(&self, op: &SendOp) -> bool {
        self.asks && self.expected && sends(op) > 0
    }

    /// Whether a marker is due; `more` requests wait to be sent. Without `hurry`, a marker for unsignaled requests
    /// only is left until later.
    #[inline]
    pub(crate) fn are_due(&self, more: bool, hurry: bool) -> bool {
        if !self.asks || self.next == self.covered {
            return false;
        }
        let much = self.next - self.covered >= ASK_REQUESTS || self.bytes >= ASK_BYTES;
        match self.asked {
            0 => much || !more && (self.expected || hurry),
            1 => much,
            open => open < OPEN_MAX && self.bytes >= ASK_BYTES << open,
        }
    }

    /// The marker that covers everything begun; call [`Self::ask`] when the state machine has accepted it.
    pub(crate) fn question(&self) -> Op {
        let nothing = ReadRequest { sink_stag: 1, sink_to: 0, len: 0, source_stag: 1, source_to: 0 };
        Op { id: QUESTION | self.next, kind: OpKind::Read(nothing), fence: false }
    }

    /// The state machine has accepted the marker.
    pub(crate) fn ask(&mut self) {
        self.cover();
        self.asked += 1;
    }

    /// The message of a read, atomic or marker has left the state machine.
    pub(crate) fn left(&mut self, id: u64) {
        self.open.push_back(if id & QUESTION == 0 { request_of(id) } else { id });
    }

    /// The ready-to-receive message, a read, has left the state machine.
    pub(crate) fn first_left(&mut self) {
        self.open.push_back(QUESTION);
    }

    /// The ready-to-receive message has been answered.
    pub(crate) fn first_answered(&mut self) {
        self.open.pop_front();
        self.first_open_request = self.first_open_request.wrapping_add(1);
    }

    /// The first open read, atomic or marker has been answered; `id` is its identifier. Returns how many requests
    /// have arrived.
    pub(crate) fn answered(&mut self, id: u64) -> u64 {
        self.first_answered();
        if id & QUESTION == 0 {
            return request_of(id) + 1;
        }
        self.asked -= 1;
        id & !QUESTION
    }

    /// The first open request has completed.
    #[inline]
    pub(crate) fn finished(&mut self, request: &Request) {
        self.locals -= u32::from(request.is_local());
        let sends = sends(&request.op);
        self.first_open_send = self.first_open_send.wrapping_add(sends);
        let is_send = matches!(request.op, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_));
        self.over = self.over.wrapping_add(sends + u32::from(!is_send && request.len > 0));
    }

    /// The open requests that have begun, in the peer's view.
    pub(crate) fn open(&self, queue: &SendQueue) -> Vec<Open> {
        let mut first = self.first_open_send;
        let open = (queue.over()..self.next).map(|number| {
            let &Request { op, len, .. } = queue.get(number);
            let place = self.open.iter().position(|&id| id == number);
            let request = place.map(|place| self.first_open_request.wrapping_add(place as u32));
            let sends = (first, sends(&op));
            first = first.wrapping_add(sends.1);
            Open { number, deed: deed(&op), len, sends, request }
        });
        open.collect()
    }

    /// How many of the `open` requests have arrived, by the receipt that the peer sent before it ended the stream.
    pub(crate) fn arrived(&self, receipt: Option<u32>, open: &[Open]) -> usize {
        iwarp::outcome::arrived(receipt, self.over, open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{RemoteAddr, SendFlags};

    fn request(op: SendOp, len: u32) -> Request {
        Request::new(0, op, SendFlags::empty(), len)
    }

    /// Goal: a marker is sent when a signaled request waits for it and nothing else is ready to send, or after much
    /// data.
    #[test]
    fn questions_are_due_when_somebody_waits() {
        let mut questions = Questions::new(true, 4, 1);
        assert!(!questions.are_due(false, true), "there is nothing to ask about");
        questions.begun(&request(SendOp::Send, 8), false);
        assert!(!questions.are_due(false, false) && questions.are_due(false, true), "nobody waits");
        questions.begun(&request(SendOp::Send, 8), true);
        assert!(questions.are_due(false, false) && !questions.are_due(true, true), "more comes");
        assert!(questions.must_precede(&SendOp::Send));
        assert!(!questions.must_precede(&SendOp::Write(RemoteAddr::default())));
        let question = questions.question();
        questions.ask();
        questions.left(question.id);
        assert!(!questions.are_due(false, true) && questions.is_open());
        // A second marker is sent only after much data.
        questions.begun(&request(SendOp::Send, ASK_BYTES as u32), true);
        assert!(questions.are_due(true, false));
        questions.ask();
        questions.begun(&request(SendOp::Send, ASK_BYTES as u32), true);
        assert!(!questions.are_due(false, true), "two are open");
        questions.begun(&request(SendOp::Send, 3 * ASK_BYTES as u32), false);
        assert!(questions.are_due(true, false), "much more has begun");
        assert_eq!(questions.answered(question.id), 2);
        assert!(questions.are_due(false, true));
    }

    /// Local requests need no marker; requests after them do.
    #[test]
    fn local_requests_are_not_asked_about() {
        let mut questions = Questions::new(true, 4, 1);
        let local = Request::new(0, SendOp::Send, SendFlags::LOCAL | SendFlags::SIGNALED, 8);
        questions.begun(&local, true);
        assert!(questions.has_locals() && !questions.are_due(false, true));
        questions.begun(&request(SendOp::Send, 8), true);
        assert!(questions.are_due(false, false));
        questions.finished(&local);
        assert!(!questions.has_locals());
    }

    /// The response to a read covers all requests before it, and without markers none is due.
    #[test]
    fn reads_are_questions_too() {
        let mut questions = Questions::new(true, 4, 1);
        questions.begun(&request(SendOp::Write(RemoteAddr::default()), 8), true);
        questions.begun(&request(SendOp::Read(RemoteAddr::default()), 8), true);
        assert!(!questions.are_due(false, true));
        questions.left(1 << 1 | 1);
        assert_eq!(questions.answered(1 << 1 | 1), 2);
        let mut silent = Questions::new(false, 4, 1);
        silent.begun(&request(SendOp::Send, 8), true);
        assert!(!silent.are_due(false, true) && !silent.must_precede(&SendOp::Send) && !silent.are_asked());
    }
}
