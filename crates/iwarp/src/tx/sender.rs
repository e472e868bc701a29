//! Data path: the state machine of the sender, which picks the next message and cuts it into segments.

use std::collections::VecDeque;

use super::fpdu::{Fpdu, Origin, Payload, end_fpdu};
use super::op::{Op, OpKind, PostError};
use crate::ddp::{
    Header, QUEUE_ATOMIC, QUEUE_REQUEST, QUEUE_SEND, QUEUE_TERMINATE, QUEUES, TAGGED_LEN, Tagged,
    UNTAGGED_LEN, Untagged,
};
use crate::mpa::{MULPDU_MAX, MULPDU_MIN, Rtr};
use crate::open_requests::{RECEIPT_STAG, encode_receipt};
use crate::rdmap::{
    ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, AtomicRequest, AtomicResponse, Opcode, READ_REQUEST_LEN,
    ReadRequest,
};
use crate::rx::ExpectedResponse;
use crate::terminate::{TERMINATE_LEN_MAX, Terminate};
use crate::wire::{InlineBytes, wraps};

/// The payload of every segment but the last of a message is a multiple of this, in bytes. So an aligned word of 8
/// bytes is never split between segments, and a peer that polls on it never sees half of it because of us.
const SEGMENT_UNIT: u32 = 8;

/// The step that [`Sender::poll`] yields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// Send this FPDU.
    Fpdu(Fpdu),
    /// Execute this atomic on this side's memory now, checking the peer's right at this moment, and report the word's
    /// previous value with [`Sender::atomic_done`]. Nothing more is yielded until then.
    Atomic(AtomicRequest),
}

/// The parameters of its connection that a sender needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderConfig {
    /// FPDUs get CRCs.
    pub crc: bool,
    /// Maximum number of the peer's requests that may wait for their responses.
    pub ird: u16,
    /// Maximum number of this side's requests that may wait for their responses.
    pub ord: u16,
    /// Operations that may be queued for sending.
    pub queue: usize,
    /// Maximum size of a segment in bytes, including the header; between [`MULPDU_MIN`] and [`MULPDU_MAX`].
    pub mulpdu: u16,
    /// Send nothing until [`Sender::release`]; for responders.
    pub held: bool,
    /// The ready-to-receive message to begin with; for initiators of peer-to-peer connections.
    pub rtr: Option<Rtr>,
}

/// A request of the peer that must be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PendingResponse {
    Read(ReadRequest),
    Atomic(AtomicRequest),
}

/// A message that may have several segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LongMessage {
    Write { id: u64, stag: u32, to: u64, len: u32 },
    Send { id: u64, opcode: Opcode, invalidate: u32, len: u32 },
    ReadResponse(ReadRequest),
}

/// The sending side of one stream. See [`super`].
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    ops: VecDeque<Op>,
    answers: VecDeque<PendingResponse>,
    /// The current message, and how many bytes of it have been yielded.
    current: Option<(LongMessage, u32)>,
    /// Responses have the next turn, because the operations had the last one.
    answers_turn: bool,
    /// The atomic that the driver is executing, by the peer's identifier.
    executing: Option<u32>,
    /// Number of the next message, by queue.
    msn: [u32; QUEUES],
    /// Number of this side's requests that wait for their responses.
    outstanding: u16,
    /// Identifier of the next atomic.
    request: u32,
    rtr: Option<Rtr>,
    held: bool,
    /// The receipt to send right before the end of the stream.
    receipt: Option<u32>,
    terminate: Option<Terminate>,
    /// The stream ends after the receipt, without a Terminate.
    finishing: bool,
    closed: bool,
}

impl Sender {
    /// A sender at the first byte after the handshake.
    pub fn new(config: SenderConfig) -> Self {
        Self {
            config: SenderConfig { mulpdu: config.mulpdu.clamp(MULPDU_MIN, MULPDU_MAX), ..config },
            ops: VecDeque::with_capacity(config.queue),
            answers: VecDeque::with_capacity(config.ird.into()),
            current: None,
            answers_turn: false,
            executing: None,
            // RFC 5041 section 4.3: the first message of a queue has number 1.
            msn: [1; QUEUES],
            outstanding: 0,
            request: 0,
            rtr: config.rtr,
            held: config.held,
            receipt: None,
            terminate: None,
            finishing: false,
            closed: false,
        }
    }

    /// Queues an operation.
    #[inline]
    pub fn post(&mut self, op: Op) -> Result<(), PostError> {
        if self.closed || self.finishing || self.terminate.is_some() {
            return Err(PostError::Closed);
        }
        let (to, len, reads) = match op.kind {
            OpKind::Write { to, len, .. } => (to, len, false),
            OpKind::Read(ReadRequest { source_to, sink_to, len, .. }) => {
                (if wraps(sink_to, len) { sink_to } else { source_to }, len, true)
            }
            OpKind::Atomic { to, .. } => (to, 8, true),
            OpKind::Send { .. } | OpKind::Immediate { .. } => (0, 0, false),
        };
        if reads && self.config.ord == 0 {
            return Err(PostError::NoReads);
        }
        if wraps(to, len) {
            return Err(PostError::Wraps);
        }
        if matches!(op.kind, OpKind::Atomic { to, .. } if !to.is_multiple_of(8)) {
            return Err(PostError::Unaligned);
        }
        if self.ops.len() >= self.config.queue {
            return Err(PostError::Full);
        }
        self.ops.push_back(op);
        Ok(())
    }

    /// Queues the response to a read of the peer, in the order of the requests (RFC 5040 section 5.5). The receiver
    /// lets through no more than [`SenderConfig::ird`] unanswered requests.
    pub fn answer_read(&mut self, request: ReadRequest) {
        self.answers.push_back(PendingResponse::Read(request));
    }

    /// Queues an atomic of the peer, to be executed when the responses before it have been yielded.
    pub fn answer_atomic(&mut self, request: AtomicRequest) {
        self.answers.push_back(PendingResponse::Atomic(request));
    }

    /// Reports that the yielded atomic has been executed; `original` is the word's previous value. Returns the
    /// response, which must be sent next; `None` if no atomic was yielded, or if the stream has ended since.
    pub fn atomic_done(&mut self, original: u64) -> Option<Fpdu> {
        let id = self.executing.take()?;
        let mut body = InlineBytes::<ATOMIC_RESPONSE_LEN>::new();
        AtomicResponse { id, original }.emit(&mut body);
        Some(self.untagged(Origin::Response, Opcode::AtomicResponse, QUEUE_ATOMIC, &body))
    }

    /// Reports that this side's earliest request has been answered.
    pub fn request_answered(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Reports that the peer's first FPDU has arrived: this side may send (RFC 5044 section 7.1.2).
    pub fn release(&mut self) {
        self.held = false;
    }

    /// Changes the size of segments from now on, between [`MULPDU_MIN`] and [`MULPDU_MAX`].
    pub fn set_mulpdu(&mut self, mulpdu: u16) {
        self.config.mulpdu = mulpdu.clamp(MULPDU_MIN, MULPDU_MAX);
    }

    /// Ends the stream: the Terminate is the next and last message, whatever is queued (RFC 5040 section 5.4). Later
    /// calls have no effect.
    pub fn terminate(&mut self, terminate: Terminate) {
        if !self.closed && self.terminate.is_none() {
            self.terminate = Some(terminate);
        }
    }

    /// Sends the number of received messages before the Terminate: see [`crate::open_requests`].
    pub fn set_receipt(&mut self, messages: u32) {
        self.receipt = Some(messages);
    }

    /// Ends the stream without a Terminate. Queued operations and responses are dropped; the last message is a
    /// receipt with this count, if there is one. In the middle of a message nothing more is sent. Has no effect after
    /// a queued Terminate.
    pub fn finish(&mut self, received: Option<u32>) {
        if self.closed || self.terminate.is_some() {
            return;
        }
        if self.current.is_some() {
            return self.close();
        }
        (self.finishing, self.receipt) = (true, received);
    }

    /// Sends nothing more.
    pub fn close(&mut self) {
        self.closed = true;
        self.executing = None;
    }

    /// Whether everything that was queued has been yielded, so that the stream may be closed in order.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let waiting = !self.ops.is_empty()
            || !self.answers.is_empty()
            || self.current.is_some()
            || self.executing.is_some()
            || self.rtr.is_some()
            || self.terminate.is_some();
        self.closed || !waiting
    }

    /// Whether nothing more will be sent.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Number of this side's requests that wait for their responses.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Returns the next thing to send or to do; `None` until something changes.
    pub fn poll(&mut self) -> Option<Transmit> {
        if self.closed {
            return None;
        }
        if (self.terminate.is_some() || self.finishing)
            && let Some(messages) = self.receipt.take()
        {
            let (stag, to) = (RECEIPT_STAG, encode_receipt(messages));
            return Some(Transmit::Fpdu(self.empty_write(stag, to)));
        }
        if self.finishing {
            self.close();
            return None;
        }
        if let Some(terminate) = self.terminate.take() {
            self.close();
            let mut body = InlineBytes::<TERMINATE_LEN_MAX>::new();
            terminate.emit(&mut body);
            let fpdu = self.untagged(Origin::Protocol, Opcode::Terminate, QUEUE_TERMINATE, &body);
            return Some(Transmit::Fpdu(fpdu));
        }
        if self.held || self.executing.is_some() {
            return None;
        }
        if let Some(rtr) = self.rtr.take() {
            return Some(Transmit::Fpdu(self.first_message(rtr)));
        }
        if self.current.is_none() {
            // A message that may have several segments is now in `current`.
            let next = if self.answers_turn {
                self.begin_answer().or_else(|| self.begin_op())
            } else {
                self.begin_op().or_else(|| self.begin_answer())
            }?;
            if let NextMessage::Complete(transmit) = next {
                return Some(transmit);
            }
        }
        self.segment().map(Transmit::Fpdu)
    }

    /// The fast path of an operation with a single segment: the same as [`Self::post`] and [`Self::poll`], if nothing
    /// is queued before it. Appends the whole FPDU to `out`, calling `payload` to append the bytes to send; the FPDU
    /// must be sent next. Returns `None` and changes nothing if the operation cannot take the fast path. If `payload`
    /// fails, the stream can only end. The operation must not need a fence.
    #[inline]
    pub fn write_single<E>(
        &mut self,
        kind: &OpKind,
        out: &mut Vec<u8>,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        if self.closed || self.held || !self.is_idle() {
            return None;
        }
        let room = |header_len: usize, len: u32| len as usize + header_len <= self.config.mulpdu.into();
        let at = out.len();
        match *kind {
            OpKind::Write { stag, to, len } if room(TAGGED_LEN, len) && !wraps(to, len) => {
                let ulp = Opcode::Write.control();
                let header = Tagged { last: true, ulp, stag, to };
                out.extend_from_slice(&((TAGGED_LEN + len as usize) as u16).to_be_bytes());
                out.extend_from_slice(&header.to_wire());
            }
            OpKind::Send { len, solicited, invalidate: None } if room(UNTAGGED_LEN, len) => {
                let ulp = Opcode::send(solicited, false).control();
                let msn = self.next_msn(QUEUE_SEND);
                let header = Untagged { last: true, ulp, ulp_word: 0, queue: QUEUE_SEND, msn, mo: 0 };
                out.extend_from_slice(&((UNTAGGED_LEN + len as usize) as u16).to_be_bytes());
                out.extend_from_slice(&header.to_wire());
            }
            _ => return None,
        }
        self.answers_turn = true;
        let written = payload(out);
        if written.is_ok() {
            end_fpdu(out, at, self.config.crc);
        }
        Some(written)
    }

    /// Makes the ready-to-receive message (RFC 6581 section 9.2). Tag and offset of a zero-length message are not
    /// checked.
    fn first_message(&mut self, rtr: Rtr) -> Fpdu {
        match rtr {
            Rtr::Write => self.empty_write(1, 0),
            Rtr::Read => {
                let request = ReadRequest { sink_stag: 1, sink_to: 0, len: 0, source_stag: 1, source_to: 0 };
                self.read(Origin::Protocol, None, request)
            }
            Rtr::Send => self.untagged(Origin::Protocol, Opcode::Send, QUEUE_SEND, &[]),
        }
    }

    /// A zero-length Write, which changes nothing and needs no right (RFC 5040 section 5.1).
    fn empty_write(&self, stag: u32, to: u64) -> Fpdu {
        let header = Tagged { last: true, ulp: Opcode::Write.control(), stag, to };
        Fpdu::new(Origin::Protocol, &Header::Tagged(header), &[], Payload::None, self.config.crc)
    }

    fn begin_answer(&mut self) -> Option<NextMessage> {
        let answer = self.answers.pop_front()?;
        self.answers_turn = false;
        Some(match answer {
            PendingResponse::Read(request) => {
                self.current = Some((LongMessage::ReadResponse(request), 0));
                NextMessage::Segmented
            }
            PendingResponse::Atomic(request) => {
                self.executing = Some(request.id);
                NextMessage::Complete(Transmit::Atomic(request))
            }
        })
    }

    fn begin_op(&mut self) -> Option<NextMessage> {
        let &Op { id, kind, fence } = self.ops.front()?;
        let reads = matches!(kind, OpKind::Read(_) | OpKind::Atomic { .. });
        if fence && self.outstanding > 0 || reads && self.outstanding >= self.config.ord {
            return None;
        }
        self.ops.pop_front();
        self.answers_turn = true;
        let origin = Origin::Op(id);
        let fpdu = match kind {
            OpKind::Write { stag, to, len } => {
                self.current = Some((LongMessage::Write { id, stag, to, len }, 0));
                return Some(NextMessage::Segmented);
            }
            OpKind::Send { len, solicited, invalidate } => {
                let opcode = Opcode::send(solicited, invalidate.is_some());
                let invalidate = invalidate.unwrap_or_default();
                self.current = Some((LongMessage::Send { id, opcode, invalidate, len }, 0));
                return Some(NextMessage::Segmented);
            }
            OpKind::Immediate { data, solicited } => {
                let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                self.untagged(origin, opcode, QUEUE_SEND, &data)
            }
            OpKind::Read(request) => self.read(origin, Some(id), request),
            OpKind::Atomic { stag, to, op } => self.atomic(id, stag, to, op),
        };
        Some(NextMessage::Complete(Transmit::Fpdu(fpdu)))
    }

    fn read(&mut self, origin: Origin, id: Option<u64>, request: ReadRequest) -> Fpdu {
        let mut body = InlineBytes::<READ_REQUEST_LEN>::new();
        request.emit(&mut body);
        self.outstanding += 1;
        let ReadRequest { sink_stag: stag, sink_to: to, len, .. } = request;
        let fpdu = self.untagged(origin, Opcode::ReadRequest, QUEUE_REQUEST, &body);
        fpdu.expecting(ExpectedResponse::Read { id, stag, to, len })
    }

    fn atomic(&mut self, id: u64, stag: u32, to: u64, op: crate::rdmap::AtomicOp) -> Fpdu {
        let request = AtomicRequest { id: self.request, stag, to, op };
        self.request = self.request.wrapping_add(1);
        let mut body = InlineBytes::<ATOMIC_REQUEST_LEN>::new();
        request.emit(&mut body);
        self.outstanding += 1;
        let fpdu = self.untagged(Origin::Op(id), Opcode::AtomicRequest, QUEUE_REQUEST, &body);
        fpdu.expecting(ExpectedResponse::Atomic { id, request: request.id })
    }

    /// An untagged message of one segment whose body is in the header bytes.
    fn untagged(&mut self, origin: Origin, opcode: Opcode, queue: u32, body: &[u8]) -> Fpdu {
        let header = Header::Untagged(Untagged {
            last: true,
            ulp: opcode.control(),
            ulp_word: 0,
            queue,
            msn: self.next_msn(queue),
            mo: 0,
        });
        Fpdu::new(origin, &header, body, Payload::None, self.config.crc)
    }

    /// Takes the number of a queue's next message. Numbers wrap (RFC 5041 section 4.3).
    fn next_msn(&mut self, queue: u32) -> u32 {
        let msn = &mut self.msn[queue as usize];
        let number = *msn;
        *msn = msn.wrapping_add(1);
        number
    }

    /// Makes the next segment of the current message (RFC 5041 section 5.2).
    fn segment(&mut self) -> Option<Fpdu> {
        let (long, offset) = self.current?;
        let (header_len, len) = match long {
            LongMessage::Write { len, .. } | LongMessage::ReadResponse(ReadRequest { len, .. }) => {
                (TAGGED_LEN, len)
            }
            LongMessage::Send { len, .. } => (UNTAGGED_LEN, len),
        };
        let room = u32::from(self.config.mulpdu) - header_len as u32;
        let left = len - offset;
        let last = left <= room;
        let part = if last { left } else { room - room % SEGMENT_UNIT };
        let at = |to: u64| to.wrapping_add(offset.into());
        let tagged = |opcode: Opcode, stag, to| {
            Header::Tagged(Tagged { last, ulp: opcode.control(), stag, to: at(to) })
        };
        let of_op = |id| match part {
            0 => Payload::None,
            len => Payload::Op { id, offset, len },
        };
        let (origin, header, payload) = match long {
            LongMessage::Write { id, stag, to, .. } => {
                (Origin::Op(id), tagged(Opcode::Write, stag, to), of_op(id))
            }
            LongMessage::Send { id, opcode, invalidate, .. } => {
                let msn = self.msn[QUEUE_SEND as usize];
                let (ulp, queue, mo) = (opcode.control(), QUEUE_SEND, offset);
                let header = Untagged { last, ulp, ulp_word: invalidate, queue, msn, mo };
                (Origin::Op(id), Header::Untagged(header), of_op(id))
            }
            LongMessage::ReadResponse(request) => {
                let header = tagged(Opcode::ReadResponse, request.sink_stag, request.sink_to);
                let (stag, to) = (request.source_stag, at(request.source_to));
                let payload = if part == 0 { Payload::None } else { Payload::Source { stag, to, len: part } };
                (Origin::Response, header, payload)
            }
        };
        if last && matches!(long, LongMessage::Send { .. }) {
            self.next_msn(QUEUE_SEND);
        }
        self.current = (!last).then_some((long, offset + part));
        Some(Fpdu::new(origin, &header, &[], payload, self.config.crc))
    }
}

/// The beginning of the next message.
enum NextMessage {
    /// The whole message, or an atomic to execute.
    Complete(Transmit),
    /// A message whose segments are made one by one.
    Segmented,
}
