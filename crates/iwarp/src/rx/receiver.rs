//! Data path: the state machine of the receiver. With CRCs it first checks the whole FPDU; then it reads control
//! bytes, header, body or payload, and trailer.

use std::collections::VecDeque;

use super::count::MessageCount;
use super::{Destination, Event, ExpectedResponse, Lookup, Piece, ProtocolViolation, ReceiverStep};
use crate::crc::Crc;
use crate::ddp::{Control, Header, QUEUES, UNTAGGED_LEN};
use crate::mpa::{CRC_LEN, LENGTH_LEN, Rtr, fpdu_len, pad};
use crate::rdmap::Opcode;
use crate::terminate::{Offender, Terminate, TerminateCode};
use crate::wire::InlineBytes;

/// Bytes of the longest body that is collected here. The longest defined body has 52; a Terminate that is a little
/// longer than it should be is still understood.
pub(super) const BODY_MAX: usize = 64;
const BUFFER_LEN: usize = LENGTH_LEN + UNTAGGED_LEN + BODY_MAX;
/// The length field and the first two bytes of the segment: enough to know which header follows.
const CONTROL_LEN: usize = LENGTH_LEN + 2;
const TAIL_LEN: usize = 3 + CRC_LEN;

/// The parameters of its connection that a receiver needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverConfig {
    /// CRCs are checked.
    pub crc: bool,
    /// Maximum number of the peer's requests that may wait for their responses.
    pub ird: u16,
    /// Maximum number of this side's requests that may wait for their responses.
    pub ord: u16,
    /// The expected ready-to-receive message, if it does not belong to the program; responders only.
    pub rtr: Option<Rtr>,
}

/// The next part of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ParseState {
    /// With CRCs: the FPDU must be shown as a whole before anything of it is used.
    Check,
    /// The FPDU has been shown, and its CRC is wrong.
    Damaged,
    Control,
    Header,
    Body,
    Payload,
    Trailer,
    Closed,
}

/// The segment being received, after its header was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CurrentSegment {
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
    /// A message whose body the receiver collects.
    Control {
        opcode: Opcode,
        msn: u32,
    },
}

/// The Send that is being received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CurrentSend {
    pub(super) opcode: Opcode,
    pub(super) invalidate: u32,
    pub(super) capacity: u32,
    /// Bytes of its completed FPDUs.
    pub(super) received: u32,
}

/// The state between FPDUs, and how many bytes it needs.
const fn state_between_fpdus(config: ReceiverConfig) -> (ParseState, usize) {
    if config.crc { (ParseState::Check, LENGTH_LEN) } else { (ParseState::Control, CONTROL_LEN) }
}

/// The receiving side of one stream. See [`super`].
#[derive(Debug)]
pub struct Receiver {
    pub(super) config: ReceiverConfig,
    pub(super) parse_state: ParseState,
    /// Length, header and body of the current FPDU.
    buffer: [u8; BUFFER_LEN],
    /// Pad and CRC.
    tail: [u8; TAIL_LEN],
    /// Number of bytes in `buffer` or `tail`, or that have been shown, depending on the state.
    have: usize,
    /// Number of bytes that the state needs there, or needs to be shown.
    need: usize,
    /// Bytes of the current segment, including the header.
    ulpdu_len: usize,
    pub(super) current: CurrentSegment,
    /// Payload length of the current segment, and how much of it has been placed.
    pub(super) payload_len: u32,
    placed: u32,
    /// No FPDU has been received yet.
    pub(super) first: bool,
    /// Number of the next or current message, by queue.
    pub(super) msn: [u32; QUEUES],
    pub(super) message: Option<CurrentSend>,
    /// Number of the peer's requests that wait for their responses.
    pub(super) serving: u16,
    pub(super) expected: VecDeque<ExpectedResponse>,
    /// Bytes of completed FPDUs of the read at the front of `expected`.
    pub(super) read: u32,
    ready: bool,
    event: Option<Event>,
    pub(super) count: MessageCount,
    /// How many of this side's messages the peer has received, if its last message was a receipt.
    pub(super) receipt: Option<u32>,
    /// The peer's RNR retry limit, if it has announced one.
    pub(super) rnr_limit: Option<u8>,
}

impl Receiver {
    /// A receiver at the first byte after the handshake.
    pub fn new(config: ReceiverConfig) -> Self {
        let (parse_state, need) = state_between_fpdus(config);
        Self {
            config,
            parse_state,
            buffer: [0; BUFFER_LEN],
            tail: [0; TAIL_LEN],
            have: 0,
            need,
            ulpdu_len: 0,
            current: CurrentSegment::Rtr,
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
            count: MessageCount::default(),
            receipt: None,
            rnr_limit: None,
        }
    }

    /// Returns the next step. After an error, only send the Terminate and close the stream.
    pub fn poll<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Result<ReceiverStep, ProtocolViolation> {
        self.count.count_delivered();
        loop {
            if std::mem::take(&mut self.ready) {
                return Ok(ReceiverStep::Event(Event::Ready));
            }
            if let Some(event) = self.event.take() {
                return Ok(ReceiverStep::Event(event));
            }
            match self.parse_state {
                ParseState::Closed => return Ok(ReceiverStep::Closed),
                ParseState::Payload => {
                    if let Some(piece) = self.piece() {
                        return Ok(ReceiverStep::Place(piece));
                    }
                    self.begin_trailer();
                }
                ParseState::Check => return Ok(ReceiverStep::Check(self.need)),
                ParseState::Damaged => return Err(self.fail(TerminateCode::LLP_CRC)),
                _ if self.have < self.need => return Ok(ReceiverStep::Bytes(self.need - self.have)),
                ParseState::Control => self.end_control()?,
                ParseState::Header => self.end_header(lookup)?,
                ParseState::Body => self.begin_trailer(),
                ParseState::Trailer => self.end_trailer(lookup)?,
            }
        }
    }

    /// Copies the bytes that the receiver needs from `bytes`; returns their number. Returns 0 if [`Self::poll`] asks
    /// for something else.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let space = self.space();
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        self.filled(n);
        n
    }

    /// The buffer for the bytes that the receiver needs, to read into directly; confirm them with [`Self::filled`].
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        match self.parse_state {
            ParseState::Closed | ParseState::Payload | ParseState::Check | ParseState::Damaged => &mut [],
            ParseState::Trailer => &mut self.tail[self.have..self.need],
            _ => &mut self.buffer[self.have..self.need],
        }
    }

    /// Reports that the first `n` bytes of [`Self::space`] have been filled; an excess is ignored.
    #[inline]
    pub fn filled(&mut self, n: usize) {
        if !matches!(self.parse_state, ParseState::Check | ParseState::Damaged) {
            self.have = self.need.min(self.have + n);
        }
    }

    /// Shows the next FPDU: all available bytes of the stream from the FPDU's first byte on, possibly with more after
    /// it. Nothing is consumed; [`Self::poll`] then asks for more bytes or continues. The same bytes must be passed
    /// afterwards.
    pub fn check(&mut self, bytes: &[u8]) {
        if self.parse_state != ParseState::Check {
            return;
        }
        self.have = bytes.len().min(self.need);
        let Some(&[high, low]) = bytes.first_chunk() else { return };
        let ulpdu_len = usize::from(u16::from_be_bytes([high, low]));
        self.need = fpdu_len(ulpdu_len);
        let Some(fpdu) = bytes.get(..self.need) else { return };
        // RFC 5044 section 4.4: the CRC covers length, segment and pad.
        let (covered, crc) = fpdu.split_at(self.need - CRC_LEN);
        if Crc::compute(covered).to_wire() == *crc {
            (self.parse_state, self.have, self.need) = (ParseState::Control, 0, CONTROL_LEN);
        } else {
            self.parse_state = ParseState::Damaged;
        }
    }

    /// Reports that `len` bytes of payload have been placed, at most the length of the piece.
    #[inline]
    pub fn placed(&mut self, len: usize) {
        let left = if self.parse_state == ParseState::Payload { self.payload_len - self.placed } else { 0 };
        self.placed += len.min(left as usize) as u32;
    }

    /// Whether FPDUs have CRCs that are checked, so that FPDUs must be shown before they are passed.
    #[inline]
    pub fn checks_crc(&self) -> bool {
        self.config.crc
    }

    /// Reports that this side sends a request: its response is expected after those of earlier requests. The sender
    /// must keep the number of requests within [`ReceiverConfig::ord`].
    pub fn expect(&mut self, expected: ExpectedResponse) {
        self.expected.push_back(expected);
    }

    /// Reports that the response to the peer's earliest request has been sent.
    pub fn served(&mut self) {
        self.serving = self.serving.saturating_sub(1);
    }

    /// How many of the peer's messages have been received, as [`crate::open_requests`] counts; `None` before the first
    /// FPDU.
    pub fn received(&self) -> Option<u32> {
        (!self.first).then(|| self.count.received())
    }

    /// Like [`Receiver::received`], but including the last delivered message, which the driver has finished handling.
    pub fn delivered(&mut self) -> Option<u32> {
        self.count.count_delivered();
        self.received()
    }

    /// How many of this side's messages the peer has received, if its last message, or its last before a Terminate,
    /// was a receipt.
    pub fn receipt(&self) -> Option<u32> {
        self.receipt
    }

    /// The peer's RNR retry limit, 7 meaning no limit; `None` until the peer has announced one
    /// ([`crate::rnr_limit`]).
    pub fn rnr_limit(&self) -> Option<u8> {
        self.rnr_limit
    }

    /// Whether the stream may end here: between FPDUs and outside any message (RFC 5044 section 7.2).
    pub fn is_at_boundary(&self) -> bool {
        match self.parse_state {
            ParseState::Closed => true,
            state => {
                state == state_between_fpdus(self.config).0
                    && self.have == 0
                    && self.message.is_none()
                    && self.read == 0
            }
        }
    }

    /// Whether the next byte to pass is the first of an FPDU, and every event has been returned.
    #[inline]
    pub fn begins_fpdu(&self) -> bool {
        let between = matches!(self.parse_state, ParseState::Check | ParseState::Control) && self.have == 0;
        between && !self.ready && self.event.is_none()
    }

    /// Ends receiving because the payload of the current segment cannot be placed. Returns the Terminate to send.
    pub fn refuse(&mut self, code: TerminateCode) -> ProtocolViolation {
        if self.parse_state == ParseState::Payload {
            return self.fail(code);
        }
        self.close();
        ProtocolViolation { terminate: Terminate::new(code) }
    }

    /// Ends receiving: the bytes that follow are ignored.
    pub fn close(&mut self) {
        self.parse_state = ParseState::Closed;
        (self.ready, self.event) = (false, None);
    }

    /// The payload that has not been placed yet.
    fn piece(&self) -> Option<Piece> {
        let done = self.placed;
        let at = |to: u64| to.wrapping_add(done.into());
        let destination = match self.current {
            CurrentSegment::Write { stag, to, .. } => Destination::Write { stag, to: at(to) },
            CurrentSegment::ReadResponse { id, stag, to, .. } => {
                Destination::ReadSink { id, offset: self.read + done, stag, to: at(to) }
            }
            CurrentSegment::Send { .. } => {
                let received = self.message.map_or(0, |message| message.received);
                Destination::Receive { msn: self.msn[0], offset: received + done }
            }
            CurrentSegment::Rtr | CurrentSegment::Control { .. } => return None,
        };
        let len = (self.payload_len - done) as usize;
        (len > 0).then_some(Piece { destination, len })
    }

    fn end_control(&mut self) -> Result<(), ProtocolViolation> {
        self.ulpdu_len = usize::from(u16::from_be_bytes([self.buffer[0], self.buffer[1]]));
        let header_len = Control::parse(self.buffer[LENGTH_LEN]).header_len();
        // DDP has no code for a segment that is shorter than its header.
        if self.ulpdu_len < header_len {
            return Err(self.fail(TerminateCode::DDP_CATASTROPHIC));
        }
        self.need = LENGTH_LEN + header_len;
        self.parse_state = ParseState::Header;
        Ok(())
    }

    fn end_header<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Result<(), ProtocolViolation> {
        let Some(header) = Header::parse(&self.buffer[LENGTH_LEN..self.have]) else {
            return Err(self.fail(TerminateCode::DDP_CATASTROPHIC));
        };
        // A length field has 16 bits.
        self.payload_len = (self.ulpdu_len - header.len()) as u32;
        self.placed = 0;
        let version = Control::parse(self.buffer[LENGTH_LEN]).version;
        self.current = match self.check_header(version, &header, lookup) {
            Ok(current) => current,
            Err(code) => return Err(self.fail(code)),
        };
        if let CurrentSegment::Control { .. } = self.current {
            self.need += self.payload_len as usize;
            self.parse_state = ParseState::Body;
        } else {
            self.parse_state = ParseState::Payload;
        }
        Ok(())
    }

    fn begin_trailer(&mut self) {
        self.parse_state = ParseState::Trailer;
        self.have = 0;
        self.need = pad(self.ulpdu_len) + CRC_LEN;
    }

    fn end_trailer<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Result<(), ProtocolViolation> {
        (self.parse_state, self.need) = state_between_fpdus(self.config);
        self.have = 0;
        self.event = match self.finish(lookup) {
            Ok(event) => event,
            Err(code) => return Err(self.fail(code)),
        };
        // Set here because only a valid FPDU counts, and only the first one.
        self.ready = std::mem::take(&mut self.first);
        if let Some(Event::Terminated(_)) = self.event {
            self.parse_state = ParseState::Closed;
        }
        Ok(())
    }

    /// Header and body of the current FPDU.
    fn segment(&self) -> &[u8] {
        let body = match self.current {
            CurrentSegment::Control { .. } => self.payload_len as usize,
            _ => 0,
        };
        let header_len = Control::parse(self.buffer[LENGTH_LEN]).header_len();
        &self.buffer[LENGTH_LEN..LENGTH_LEN + header_len + body]
    }

    /// The body of the current FPDU, if the receiver collects it.
    pub(super) fn body(&self) -> &[u8] {
        &self.segment()[Control::parse(self.buffer[LENGTH_LEN]).header_len()..]
    }

    /// Ends the stream. RFC 5040 section 4.8: the Terminate repeats the header of the offending segment, and its Read
    /// Request. For an error below DDP it repeats nothing, because the bytes cannot be trusted.
    fn fail(&mut self, code: TerminateCode) -> ProtocolViolation {
        let catastrophic = code == TerminateCode::DDP_CATASTROPHIC;
        let offender = (code.layer != TerminateCode::LLP_CRC.layer && !catastrophic).then(|| {
            let header_len = Control::parse(self.buffer[LENGTH_LEN]).header_len();
            let mut header = InlineBytes::new();
            header.put(&self.buffer[LENGTH_LEN..LENGTH_LEN + header_len]);
            Offender { segment_len: self.ulpdu_len as u16, header, read_request: self.read_request_body() }
        });
        self.close();
        ProtocolViolation { terminate: Terminate { code, offender } }
    }

    /// The body of the Read Request being executed. It is not available while its header is checked.
    fn read_request_body(&self) -> Option<[u8; crate::rdmap::READ_REQUEST_LEN]> {
        match self.current {
            CurrentSegment::Control { opcode: Opcode::ReadRequest, .. }
                if self.parse_state == state_between_fpdus(self.config).0 =>
            {
                self.body().try_into().ok()
            }
            _ => None,
        }
    }
}
