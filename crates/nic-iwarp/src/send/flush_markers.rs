//! Data path: sending. How far requests are known to have come, and what is asked of the peer to know more.
//!
//! A write or a send is complete when the peer has taken it in, and RDMAP has no acknowledgement. It has reads of no bytes:
//! the peer answers one in order, when everything before it has been placed or delivered. So behind a batch of requests goes
//! such a *question*; its answer completes all that stood before it. One question is open at a time, or two in long batches, or
//! some more where much is under way: a sender that waits for room in its queue is not to wait until all has arrived.

use std::collections::VecDeque;

use iwarp::outcome::Open;
use iwarp::rdmap::ReadRequest;
use iwarp::rnr_limit;
use iwarp::tx::{Op, OpKind};
use verbs::SendOp;

use crate::queues::messages::request_of;
use crate::queues::outcome::{deed, sends};
use crate::queues::request_ring::{Request, SendQueue};

/// Requests, or bytes, after which a question is asked although there is more to send.
const ASK_REQUESTS: u64 = 16;
const ASK_BYTES: u64 = 256 << 10;

/// Questions that are open, at most: the third and fourth each behind twice as many bytes as the one before.
const OPEN_MAX: u32 = 4;

/// Names a question: this bit, and the number of requests that its answer tells of.
const QUESTION: u64 = 1 << 63;
/// Names a message that belongs to no request and is no question: the first one of an initiator of revision 1, which only lets the peer
/// speak, or the announcement of a limit of retries.
const GREETING: u64 = 1 << 62;

/// The request that an operation of the machine belongs to; `None` for questions and greetings.
pub(crate) fn request_behind(id: u64) -> Option<u64> {
    (id & (QUESTION | GREETING) == 0).then(|| request_of(id))
}

/// A write of no bytes, which changes nothing.
pub(crate) fn greeting() -> Op {
    Op { id: GREETING, kind: OpKind::Write { stag: 1, to: 0, len: 0 }, fence: false }
}

/// The write of no bytes that announces a limit of retries.
pub(crate) fn announcement(retries: u8) -> Op {
    Op { id: GREETING, kind: rnr_limit::announcement(retries), fence: false }
}

/// What has begun, what is open, and what was asked.
pub(crate) struct Questions {
    /// Whether questions are asked at all.
    asks: bool,
    /// The next request to be made into messages.
    next: u64,
    /// Requests that an open question or read will tell of.
    covered: u64,
    /// Bytes since the last question.
    bytes: u64,
    /// A request since the last question is to be told of.
    expected: bool,
    /// Requests that are not over, and are when TCP has them.
    locals: u32,
    /// Questions that are open.
    asked: u32,
    /// Reads, atomics and questions that are open, in order, and the number of the first one's message.
    open: VecDeque<u64>,
    first_open_request: u32,
    /// The number of the first message on the queue of sends that belongs to a request which is not over.
    first_open_send: u32,
    /// Messages of requests that are over, as receipts count them.
    over: u32,
}

impl Questions {
    /// `ord` reads may be open; `first_send` is the number of the first message on the queue of sends.
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

    /// Whether the peer is asked; otherwise requests are over when TCP has them.
    #[inline]
    pub(crate) fn are_asked(&self) -> bool {
        self.asks
    }

    /// Whether requests are under way that are over when TCP has them.
    #[inline]
    pub(crate) fn has_locals(&self) -> bool {
        self.locals > 0
    }

    /// The next request to be made into messages.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a question is open.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.asked > 0
    }

    /// The next request is with the machine, or written out; whether it is to be told of.
    #[inline]
    pub(crate) fn begun(&mut self, request: &Request, signals: bool) {
        self.next += 1;
        if request.is_local() {
            // Nobody asks for it; a question that is asked for others covers it, too.
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

    /// Whether a question must be asked before this comes: what may wait for a receive must not keep the peer from telling of
    /// what stands before it.
    #[inline]
    pub(crate) fn must_precede(&self, op: &SendOp) -> bool {
        self.asks && self.expected && sends(op) > 0
    }

    /// Whether a question is due; `more` requests wait to be sent. Without a hurry, one that nobody waits for is left to
    /// those who come later.
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

    /// The question about everything that has begun; say [`Self::ask`] when the machine has taken it.
    pub(crate) fn question(&self) -> Op {
        let nothing = ReadRequest { sink_stag: 1, sink_to: 0, len: 0, source_stag: 1, source_to: 0 };
        Op { id: QUESTION | self.next, kind: OpKind::Read(nothing), fence: false }
    }

    /// The question is with the machine.
    pub(crate) fn ask(&mut self) {
        self.cover();
        self.asked += 1;
    }

    /// The message of a read, atomic or question has left the machine.
    pub(crate) fn left(&mut self, id: u64) {
        self.open.push_back(if id & QUESTION == 0 { request_of(id) } else { id });
    }

    /// The message with which the connection begins has left the machine, a read.
    pub(crate) fn first_left(&mut self) {
        self.open.push_back(QUESTION);
    }

    /// That one has been answered.
    pub(crate) fn first_answered(&mut self) {
        self.open.pop_front();
        self.first_open_request = self.first_open_request.wrapping_add(1);
    }

    /// The first open read, atomic or question has been answered: its name. How many requests have arrived by that.
    pub(crate) fn answered(&mut self, id: u64) -> u64 {
        self.first_answered();
        if id & QUESTION == 0 {
            return request_of(id) + 1;
        }
        self.asked -= 1;
        id & !QUESTION
    }

    /// The first open request is over.
    #[inline]
    pub(crate) fn finished(&mut self, request: &Request) {
        self.locals -= u32::from(request.is_local());
        let sends = sends(&request.op);
        self.first_open_send = self.first_open_send.wrapping_add(sends);
        let is_send = matches!(request.op, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_));
        self.over = self.over.wrapping_add(sends + u32::from(!is_send && request.len > 0));
    }

    /// Requests that have begun and are not over, as the peer knows them.
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

    /// How many of these open requests have arrived, by what the peer said before it ended the stream.
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

    /// Goal: a question is asked when somebody waits for its answer and nothing else is to be sent; or behind much.
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
        // A second one is asked only behind much.
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

    /// Nobody asks about what is over when it has left; what stands behind it is asked about.
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

    /// An answer to a read tells of all before it, and nothing is asked where nobody is to be.
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
