//! Data path: the receiving machine's stages: with CRCs the check of the whole FPDU; then control, header, body or payload,
//! trailer.

use std::collections::VecDeque;

use super::count::Count;
use super::{Event, Expected, Failure, Lookup, Piece, Receive, Target};
use crate::crc::Crc;
use crate::ddp::{Control, Header, QUEUES, UNTAGGED_LEN};
use crate::mpa::{CRC_LEN, LENGTH_LEN, Rtr, fpdu_len, pad};
use crate::rdmap::Opcode;
use crate::terminate::{Offender, Terminate, TerminateCode};
use crate::wire::Inline;

/// Bytes of the longest body that is collected here. The longest that is defined has 52; a Terminate may be a little longer
/// than it should be and is still understood.
pub(super) const BODY_MAX: usize = 64;
const BUFFER_LEN: usize = LENGTH_LEN + UNTAGGED_LEN + BODY_MAX;
/// Length, and the first two bytes of the segment: enough to know which header it has.
const CONTROL_LEN: usize = LENGTH_LEN + 2;
const TAIL_LEN: usize = 3 + CRC_LEN;

/// What a receiver must know of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverConfig {
    /// CRCs are checked.
    pub crc: bool,
    /// Requests of the peer that may wait for their answers at once.
    pub ird: u16,
    /// Requests of this side that may wait for their answers at once.
    pub ord: u16,
    /// The first message that is awaited, if it is not the program's; responders only.
    pub rtr: Option<Rtr>,
}

/// What comes next in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// With CRCs: nothing of the FPDU is used before it has been shown as a whole.
    Check,
    /// It was, and its CRC is wrong.
    Damaged,
    Control,
    Header,
    Body,
    Payload,
    Trailer,
    Closed,
}

/// The segment that is being received, after its header was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Current {
    Write {
        stag: u32,
        to: u64,
        last: bool,
    },
    ReadResponse {
        id: u64,
        stag: u32,
        to: u64,
        last: bool,
    },
    Send {
        last: bool,
    },
    /// The Send that only makes this side ready.
    Rtr,
    /// A message whose body is collected here.
    Control {
        opcode: Opcode,
        msn: u32,
    },
}

/// The Send that is being received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) opcode: Opcode,
    pub(super) invalidate: u32,
    pub(super) capacity: u32,
    /// Bytes of whole FPDUs so far.
    pub(super) received: u32,
}

/// What is awaited between FPDUs, and how many bytes of it.
const fn between(config: ReceiverConfig) -> (Stage, usize) {
    if config.crc { (Stage::Check, LENGTH_LEN) } else { (Stage::Control, CONTROL_LEN) }
}

/// The receiving machine of one stream. See [`super`].
#[derive(Debug)]
pub struct Receiver {
    pub(super) config: ReceiverConfig,
    pub(super) stage: Stage,
    /// Length, header and body of the FPDU under way.
    buffer: [u8; BUFFER_LEN],
    /// Pad and CRC.
    tail: [u8; TAIL_LEN],
    /// Bytes in `buffer` or `tail`, or that have been shown, by stage.
    have: usize,
    /// Bytes that the stage needs there, or must be shown.
    need: usize,
    /// Bytes of the segment under way, header included.
    ulpdu_len: usize,
    pub(super) current: Current,
    /// Payload of the segment under way, and how much of it has been placed.
    pub(super) payload_len: u32,
    placed: u32,
    /// No FPDU has been received yet.
    pub(super) first: bool,
    /// Number of the next message, or of the one under way, by queue.
    pub(super) msn: [u32; QUEUES],
    pub(super) message: Option<Message>,
    /// Requests of the peer that wait for their answers.
    pub(super) serving: u16,
    pub(super) expected: VecDeque<Expected>,
    /// Bytes of whole FPDUs of the read at the front of `expected`.
    pub(super) read: u32,
    ready: bool,
    event: Option<Event>,
    pub(super) count: Count,
    /// How many messages of this side the peer says it has received, if that is what it said last.
    pub(super) receipt: Option<u32>,
    /// The peer's limit of retries for its messages that find no buffer, if it has announced one.
    pub(super) rnr_limit: Option<u8>,
}

impl Receiver {
    /// At the first byte after the handshake.
    pub fn new(config: ReceiverConfig) -> Self {
        let (stage, need) = between(config);
        Self {
            config,
            stage,
            buffer: [0; BUFFER_LEN],
            tail: [0; TAIL_LEN],
            have: 0,
            need,
            ulpdu_len: 0,
            current: Current::Rtr,
            payload_len: 0,
            placed: 0,
            first: true,
            // RFC 5041 section 4.3: the first message of a queue has number 1.
            msn: [1; QUEUES],
            message: None,
            serving: 0,
            expected: VecDeque::with_capacity(config.ord.into()),
            read: 0,
            ready: false,
            event: None,
            count: Count::default(),
            receipt: None,
            rnr_limit: None,
        }
    }

    /// What is to be done next. After an error there is nothing more to be done here: send the Terminate, then close.
    pub fn poll<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Result<Receive, Failure> {
        self.count.settle();
        loop {
            if std::mem::take(&mut self.ready) {
                return Ok(Receive::Event(Event::Ready));
            }
            if let Some(event) = self.event.take() {
                return Ok(Receive::Event(event));
            }
            match self.stage {
                Stage::Closed => return Ok(Receive::Closed),
                Stage::Payload => {
                    if let Some(piece) = self.piece() {
                        return Ok(Receive::Place(piece));
                    }
                    self.begin_trailer();
                }
                Stage::Check => return Ok(Receive::Check(self.need)),
                Stage::Damaged => return Err(self.fail(TerminateCode::LLP_CRC)),
                _ if self.have < self.need => return Ok(Receive::Bytes(self.need - self.have)),
                Stage::Control => self.end_control()?,
                Stage::Header => self.end_header(lookup)?,
                Stage::Body => self.begin_trailer(),
                Stage::Trailer => self.end_trailer(lookup)?,
            }
        }
    }

    /// Takes what is wanted here of `bytes`; says how many that were. Nothing, if [`Self::poll`] has other wishes.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let space = self.space();
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        self.filled(n);
        n
    }

    /// Room for the bytes that are wanted here, to read into directly; say how many with [`Self::filled`].
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        match self.stage {
            Stage::Closed | Stage::Payload | Stage::Check | Stage::Damaged => &mut [],
            Stage::Trailer => &mut self.tail[self.have..self.need],
            _ => &mut self.buffer[self.have..self.need],
        }
    }

    /// So many bytes at the beginning of [`Self::space`] have been filled; more than it has room for are not counted.
    #[inline]
    pub fn filled(&mut self, n: usize) {
        if !matches!(self.stage, Stage::Check | Stage::Damaged) {
            self.have = self.need.min(self.have + n);
        }
    }

    /// Shows the FPDU that comes next: what there is of the stream from its first byte on, more behind it or not. Nothing is
    /// taken; [`Self::poll`] says whether more is to be shown, or goes on. The same bytes must then be given.
    pub fn check(&mut self, bytes: &[u8]) {
        if self.stage != Stage::Check {
            return;
        }
        self.have = bytes.len().min(self.need);
        let Some(&[high, low]) = bytes.first_chunk() else { return };
        let ulpdu_len = usize::from(u16::from_be_bytes([high, low]));
        self.need = fpdu_len(ulpdu_len);
        let Some(fpdu) = bytes.get(..self.need) else { return };
        // RFC 5044 section 4.4: the CRC covers length, segment and pad.
        let (covered, crc) = fpdu.split_at(self.need - CRC_LEN);
        if Crc::of(covered).to_wire() == *crc {
            (self.stage, self.have, self.need) = (Stage::Control, 0, CONTROL_LEN);
        } else {
            self.stage = Stage::Damaged;
        }
    }

    /// So many bytes of payload have been placed, no more than the piece has.
    #[inline]
    pub fn placed(&mut self, len: usize) {
        let left = if self.stage == Stage::Payload { self.payload_len - self.placed } else { 0 };
        self.placed += len.min(left as usize) as u32;
    }

    /// Whether FPDUs have CRCs that are checked, and so must be shown before they are given.
    #[inline]
    pub fn checks_crc(&self) -> bool {
        self.config.crc
    }

    /// This side sends a request: its answer is expected, after those of earlier requests. Requests are at most
    /// [`ReceiverConfig::ord`]; that is for the sending side to keep.
    pub fn expect(&mut self, expected: Expected) {
        self.expected.push_back(expected);
    }

    /// The answer to the earliest request of the peer has been sent.
    pub fn served(&mut self) {
        self.serving = self.serving.saturating_sub(1);
    }

    /// How many messages of the peer have been received, by the count of [`crate::outcome`]; `None` as long as nothing has.
    pub fn received(&self) -> Option<u32> {
        (!self.first).then(|| self.count.received())
    }

    /// As [`Receiver::received`], including the last delivered message, which the driver has finished.
    pub fn delivered(&mut self) -> Option<u32> {
        self.count.settle();
        self.received()
    }

    /// How many messages of this side the peer has received, if its last message, or its last before a Terminate, was a receipt.
    pub fn receipt(&self) -> Option<u32> {
        self.receipt
    }

    /// The peer's limit of retries for its messages that find no receive buffer, 7 meaning no limit; `None` until it has announced one
    /// ([`crate::rnr_limit`]).
    pub fn rnr_limit(&self) -> Option<u8> {
        self.rnr_limit
    }

    /// Whether the stream may end here: between FPDUs, in no message (RFC 5044 section 7.2).
    pub fn is_at_boundary(&self) -> bool {
        match self.stage {
            Stage::Closed => true,
            stage => {
                stage == between(self.config).0 && self.have == 0 && self.message.is_none() && self.read == 0
            }
        }
    }

    /// Whether the next byte that is given is the first of an FPDU, and nothing has happened that was not told of.
    #[inline]
    pub fn begins_fpdu(&self) -> bool {
        let between = matches!(self.stage, Stage::Check | Stage::Control) && self.have == 0;
        between && !self.ready && self.event.is_none()
    }

    /// Ends receiving, as the segment whose payload is being placed cannot be: what the peer is told of it.
    pub fn refuse(&mut self, code: TerminateCode) -> Failure {
        if self.stage == Stage::Payload {
            return self.fail(code);
        }
        self.close();
        Failure { terminate: Terminate::new(code) }
    }

    /// Receives nothing more.
    pub fn close(&mut self) {
        self.stage = Stage::Closed;
        (self.ready, self.event) = (false, None);
    }

    /// The payload that has not been placed yet.
    fn piece(&self) -> Option<Piece> {
        let done = self.placed;
        let at = |to: u64| to.wrapping_add(done.into());
        let target = match self.current {
            Current::Write { stag, to, .. } => Target::Write { stag, to: at(to) },
            Current::ReadResponse { id, stag, to, .. } => {
                Target::ReadSink { id, offset: self.read + done, stag, to: at(to) }
            }
            Current::Send { .. } => {
                let received = self.message.map_or(0, |message| message.received);
                Target::Receive { msn: self.msn[0], offset: received + done }
            }
            Current::Rtr | Current::Control { .. } => return None,
        };
        let len = (self.payload_len - done) as usize;
        (len > 0).then_some(Piece { target, len })
    }

    fn end_control(&mut self) -> Result<(), Failure> {
        self.ulpdu_len = usize::from(u16::from_be_bytes([self.buffer[0], self.buffer[1]]));
        let header_len = Control::parse(self.buffer[LENGTH_LEN]).header_len();
        // No code of DDP says that a segment is shorter than its header.
        if self.ulpdu_len < header_len {
            return Err(self.fail(TerminateCode::DDP_CATASTROPHIC));
        }
        self.need = LENGTH_LEN + header_len;
        self.stage = Stage::Header;
        Ok(())
    }

    fn end_header<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Result<(), Failure> {
        let Some(header) = Header::parse(&self.buffer[LENGTH_LEN..self.have]) else {
            return Err(self.fail(TerminateCode::DDP_CATASTROPHIC));
        };
        // A length field has 16 bits.
        self.payload_len = (self.ulpdu_len - header.len()) as u32;
        self.placed = 0;
        let version = Control::parse(self.buffer[LENGTH_LEN]).version;
        self.current = match self.examine(version, &header, lookup) {
            Ok(current) => current,
            Err(code) => return Err(self.fail(code)),
        };
        if let Current::Control { .. } = self.current {
            self.need += self.payload_len as usize;
            self.stage = Stage::Body;
        } else {
            self.stage = Stage::Payload;
        }
        Ok(())
    }

    fn begin_trailer(&mut self) {
        self.stage = Stage::Trailer;
        self.have = 0;
        self.need = pad(self.ulpdu_len) + CRC_LEN;
    }

    fn end_trailer<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Result<(), Failure> {
        (self.stage, self.need) = between(self.config);
        self.have = 0;
        self.event = match self.finish(lookup) {
            Ok(event) => event,
            Err(code) => return Err(self.fail(code)),
        };
        // Counts only what is good, and only once.
        self.ready = std::mem::take(&mut self.first);
        if let Some(Event::Terminated(_)) = self.event {
            self.stage = Stage::Closed;
        }
        Ok(())
    }

    /// Header and body of the FPDU under way.
    fn segment(&self) -> &[u8] {
        let body = match self.current {
            Current::Control { .. } => self.payload_len as usize,
            _ => 0,
        };
        let header_len = Control::parse(self.buffer[LENGTH_LEN]).header_len();
        &self.buffer[LENGTH_LEN..LENGTH_LEN + header_len + body]
    }

    /// The body of the FPDU under way, if it is collected here.
    pub(super) fn body(&self) -> &[u8] {
        &self.segment()[Control::parse(self.buffer[LENGTH_LEN]).header_len()..]
    }

    /// Ends the stream. RFC 5040 section 4.8: errors that a segment caused repeat its header, and its Read Request. An error
    /// below DDP repeats nothing, since the bytes cannot be trusted.
    fn fail(&mut self, code: TerminateCode) -> Failure {
        let catastrophic = code == TerminateCode::DDP_CATASTROPHIC;
        let offender = (code.layer != TerminateCode::LLP_CRC.layer && !catastrophic).then(|| {
            let header_len = Control::parse(self.buffer[LENGTH_LEN]).header_len();
            let mut header = Inline::new();
            header.put(&self.buffer[LENGTH_LEN..LENGTH_LEN + header_len]);
            Offender { segment_len: self.ulpdu_len as u16, header, read_request: self.read_request_body() }
        });
        self.close();
        Failure { terminate: Terminate { code, offender } }
    }

    /// The Read Request that is being finished. While a header is looked at, its body has not come yet.
    fn read_request_body(&self) -> Option<[u8; crate::rdmap::READ_REQUEST_LEN]> {
        match self.current {
            Current::Control { opcode: Opcode::ReadRequest, .. } if self.stage == between(self.config).0 => {
                self.body().try_into().ok()
            }
            _ => None,
        }
    }
}
