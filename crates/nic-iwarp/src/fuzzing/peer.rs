//! The hostile peer: a socket that sends valid frames and damaged ones.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use iwarp::crc::Crc;
use iwarp::ddp::{Header, QUEUE_ATOMIC, QUEUE_REQUEST, QUEUES, Tagged, UNTAGGED_LEN, Untagged};
use iwarp::mpa::{CRC_LEN, LENGTH_LEN};
use iwarp::rdmap::{ATOMIC_REQUEST_LEN, AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use iwarp::wire::InlineBytes;

use super::Input;
use super::memory::KnownRegion;

/// Maximum payload of a segment in bytes.
const SEGMENT_MAX: usize = 700;
/// Maximum number of received bytes to store.
const RECEIVED_MAX: usize = 4 << 20;

/// A request of the victim that waits for a response.
enum VictimRequest {
    Read(ReadRequest),
    Atomic(u32),
}

/// The hostile peer, which sends what the input selects.
pub(super) struct Peer {
    socket: TcpStream,
    pub(super) known: Vec<KnownRegion>,
    /// Numbers of the next messages, by queue.
    msn: [u32; QUEUES],
    /// Frames not sent yet.
    out: Vec<u8>,
    /// All bytes received after the handshake.
    pub(super) received: Vec<u8>,
    /// Number of parsed bytes in `received`.
    parsed: usize,
    requests: VecDeque<VictimRequest>,
    closed: bool,
}

impl Peer {
    pub(super) fn new(socket: TcpStream, known: Vec<KnownRegion>) -> Self {
        socket.set_nonblocking(true).expect("a socket");
        // Nothing should be delayed; without this option it is only slower.
        let _ = socket.set_nodelay(true);
        Self {
            socket,
            known,
            msn: [1; QUEUES],
            out: Vec::new(),
            received: Vec::new(),
            parsed: 0,
            requests: VecDeque::new(),
            closed: false,
        }
    }

    /// Appends raw bytes.
    pub(super) fn queue_bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Sends up to `len` of the queued bytes, as far as the socket accepts them.
    pub(super) fn send(&mut self, len: usize) {
        let len = len.min(self.out.len());
        match self.socket.write(&self.out[..len]) {
            Ok(n) => drop(self.out.drain(..n)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The victim has closed the connection.
            Err(_) => self.out.clear(),
        }
    }

    /// Whether everything has been sent.
    pub(super) fn is_done(&self) -> bool {
        self.out.is_empty()
    }

    /// Reads what has arrived; returns whether the victim has closed the connection.
    pub(super) fn receive(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        while !self.closed && self.received.len() < RECEIVED_MAX {
            match self.socket.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(n) => self.received.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
        }
        self.closed || self.received.len() >= RECEIVED_MAX
    }

    /// Closes the sending direction.
    pub(super) fn finish(&mut self) {
        // The victim may have closed the connection already.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Parses the received bytes for requests of the victim.
    pub(super) fn parse_requests(&mut self) {
        while let Some(rest) = self.received.get(self.parsed..)
            && let Some(&[high, low]) = rest.first_chunk()
        {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let whole = (LENGTH_LEN + len).next_multiple_of(4) + CRC_LEN;
            let Some(segment) = rest.get(LENGTH_LEN..LENGTH_LEN + len).filter(|_| rest.len() >= whole) else {
                return;
            };
            self.parsed += whole;
            let Some(Header::Untagged(header)) = Header::parse(segment) else { continue };
            let body = &segment[UNTAGGED_LEN..];
            match Opcode::parse(header.ulp) {
                Some(Opcode::ReadRequest) => {
                    self.requests.extend(ReadRequest::parse(body).map(VictimRequest::Read))
                }
                Some(Opcode::AtomicRequest) => {
                    self.requests.extend(
                        AtomicRequest::parse(body).ok().map(|request| VictimRequest::Atomic(request.id)),
                    );
                }
                _ => {}
            }
        }
    }

    /// Frames a segment. One byte of the input selects the damage; an even value selects none.
    fn queue_framed(&mut self, input: &mut Input<'_>, mut segment: Vec<u8>) {
        let wrong = input.byte();
        let (mut len, mut crc_flip, mut pad) = (segment.len() as u16, 0, 0);
        if wrong & 1 == 1 {
            match wrong >> 1 & 7 {
                0 => len = len.wrapping_add(u16::from(input.byte())),
                1 => crc_flip = 1,
                2 => segment.truncate(usize::from(input.byte())),
                3 => pad = 0xff,
                _ => {
                    let at = usize::from(input.byte()) % segment.len().max(1);
                    if let Some(byte) = segment.get_mut(at) {
                        *byte ^= input.byte();
                    }
                }
            }
            if wrong >> 1 & 7 != 0 {
                len = segment.len() as u16;
            }
        }
        let begin = self.out.len();
        self.out.extend(len.to_be_bytes());
        self.out.extend(segment);
        let end = begin + (self.out.len() - begin).next_multiple_of(4);
        self.out.resize(end, pad);
        let mut crc = Crc::compute(&self.out[begin..]).to_wire();
        crc[0] ^= crc_flip;
        self.out.extend(crc);
    }

    fn segment(header: &Header, body: &[u8]) -> Vec<u8> {
        let mut out = InlineBytes::<UNTAGGED_LEN>::new();
        header.emit(&mut out);
        [out.as_slice(), body].concat()
    }

    fn queue_control(&mut self, input: &mut Input<'_>, opcode: Opcode, body: &[u8]) {
        let queue = opcode.queue().unwrap_or_default();
        let msn = self.msn[queue as usize];
        self.msn[queue as usize] = msn.wrapping_add(1);
        let header =
            Header::Untagged(Untagged { last: true, ulp: opcode.control(), ulp_word: 0, queue, msn, mo: 0 });
        self.queue_framed(input, Self::segment(&header, body));
    }

    /// Chooses a region, mostly a known one.
    fn region(&self, input: &mut Input<'_>) -> KnownRegion {
        let choice = usize::from(input.byte());
        match self.known.get(choice) {
            Some(&known) => known,
            None if choice < 240 => self.known[choice % self.known.len()],
            None => KnownRegion {
                stag: u32::from_be_bytes(input.take()),
                base: u64::from_be_bytes(input.take()),
                len: 512,
            },
        }
    }

    /// Chooses an offset in a region, at its ends or next to them, and a length.
    fn span(input: &mut Input<'_>, region: KnownRegion) -> (u64, u32) {
        let (place, size) = (input.byte(), input.byte());
        let len = match size {
            0 => 8,
            1 => region.len as u32,
            2 => region.len as u32 + 1,
            3 => u32::MAX,
            4 => 0,
            n => u32::from(n) * 3,
        };
        let end = region.base.wrapping_add(region.len);
        let to = match place {
            0 => region.base,
            1 => end.wrapping_sub(len.into()),
            2 => end.wrapping_sub(len.into()).wrapping_add(1),
            3 => region.base.wrapping_sub(1),
            4 => end,
            5 => u64::MAX - 7,
            6 => region.base.wrapping_sub(len.into()).wrapping_add(1),
            n => region.base.wrapping_add(u64::from(n) * 8),
        };
        (to, len)
    }

    /// Appends the tagged segments of one message.
    fn queue_tagged(&mut self, input: &mut Input<'_>, opcode: Opcode, stag: u32, to: u64, len: u32) {
        let len = (len as usize).min(2 * SEGMENT_MAX);
        let cut = if input.bit(0) { len } else { len / 2 + 1 };
        input.byte();
        let mut offset = 0;
        loop {
            let now = cut.min(len - offset).min(SEGMENT_MAX);
            let last = offset + now == len;
            let to = to.wrapping_add(offset as u64);
            let header = Header::Tagged(Tagged { last, ulp: opcode.control(), stag, to });
            self.queue_framed(input, Self::segment(&header, &vec![0xee; now]));
            offset += now;
            if last {
                return;
            }
        }
    }

    /// Appends a Send of any form, in one or several segments.
    pub(super) fn send_message(&mut self, input: &mut Input<'_>) {
        let form = input.byte();
        let opcode = Opcode::send(form & 1 == 1, form & 2 == 2);
        let ulp_word = if opcode.invalidates() { self.region(input).stag } else { 0 };
        let len = usize::from(input.byte()) * 2;
        let cut = if form & 4 == 4 { len / 2 + 1 } else { len };
        let msn = self.msn[0];
        self.msn[0] = msn.wrapping_add(1);
        let mut offset = 0;
        loop {
            let now = cut.min(len - offset);
            let last = offset + now == len;
            let ulp = opcode.control();
            let header = Untagged { last, ulp, ulp_word, queue: 0, msn, mo: offset as u32 };
            self.queue_framed(input, Self::segment(&Header::Untagged(header), &vec![0xdd; now]));
            offset += now;
            if last {
                return;
            }
        }
    }

    pub(super) fn write(&mut self, input: &mut Input<'_>) {
        let region = self.region(input);
        let (to, len) = Self::span(input, region);
        self.queue_tagged(input, Opcode::Write, region.stag, to, len);
    }

    pub(super) fn read_request(&mut self, input: &mut Input<'_>) {
        let (source, sink) = (self.region(input), self.region(input));
        let (source_to, len) = Self::span(input, source);
        let (source_stag, sink_stag, sink_to) = (source.stag, sink.stag, sink.base);
        let request = ReadRequest { sink_stag, sink_to, len, source_stag, source_to };
        let mut body = InlineBytes::<28>::new();
        request.emit(&mut body);
        self.queue_control(input, Opcode::ReadRequest, body.as_slice());
    }

    pub(super) fn atomic_request(&mut self, input: &mut Input<'_>) {
        let region = self.region(input);
        let (to, _) = Self::span(input, region);
        let longs: [u64; 4] = std::array::from_fn(|_| match input.byte() {
            0 => 0,
            1 => u64::MAX,
            n => n.into(),
        });
        let op = match input.byte() {
            n if n & 1 == 0 => iwarp::rdmap::AtomicOp::FetchAdd { add: longs[0], mask: longs[1] },
            _ => iwarp::rdmap::AtomicOp::CompareSwap {
                compare: longs[0],
                compare_mask: longs[1],
                swap: longs[2],
                swap_mask: longs[3],
            },
        };
        let mut body = InlineBytes::<ATOMIC_REQUEST_LEN>::new();
        AtomicRequest { id: self.msn[QUEUE_REQUEST as usize], stag: region.stag, to, op }.emit(&mut body);
        self.queue_control(input, Opcode::AtomicRequest, body.as_slice());
    }

    /// Responds to the victim's earliest request, or sends a response without a request.
    pub(super) fn respond(&mut self, input: &mut Input<'_>) {
        match self.requests.pop_front() {
            Some(VictimRequest::Read(request)) => {
                let len = match input.byte() {
                    0 => request.len.saturating_sub(1),
                    1 => request.len + 1,
                    _ => request.len,
                };
                self.queue_tagged(input, Opcode::ReadResponse, request.sink_stag, request.sink_to, len);
            }
            Some(VictimRequest::Atomic(id)) => self.atomic_response(input, id),
            None if input.bit(0) => self.atomic_response(input, 0),
            None => {
                let region = self.region(input);
                let (to, len) = Self::span(input, region);
                self.queue_tagged(input, Opcode::ReadResponse, region.stag, to, len);
            }
        }
    }

    fn atomic_response(&mut self, input: &mut Input<'_>, id: u32) {
        let mut body = InlineBytes::<12>::new();
        AtomicResponse { id, original: 0x77 }.emit(&mut body);
        debug_assert_eq!(Opcode::AtomicResponse.queue(), Some(QUEUE_ATOMIC));
        self.queue_control(input, Opcode::AtomicResponse, body.as_slice());
    }

    pub(super) fn immediate(&mut self, input: &mut Input<'_>) {
        let opcode = if input.bit(0) { Opcode::Immediate } else { Opcode::ImmediateSolicited };
        let body: [u8; 8] = [1, 2, 3, 4, 0, 0, 0, input.byte() & 1];
        self.queue_control(input, opcode, &body);
    }

    pub(super) fn terminate(&mut self, input: &mut Input<'_>) {
        let len = usize::from(input.byte()) % 64;
        let body = input.bytes(len).to_vec();
        self.queue_control(input, Opcode::Terminate, &body);
    }

    /// Appends arbitrary bytes, in a valid frame or raw.
    pub(super) fn queue_arbitrary(&mut self, input: &mut Input<'_>, framed: bool) {
        let len = usize::from(input.byte());
        let bytes = input.bytes(len).to_vec();
        if framed {
            self.queue_framed(input, bytes);
        } else {
            self.queue_bytes(&bytes);
        }
    }

    /// Changes a byte that has not been sent yet.
    pub(super) fn corrupt_queued(&mut self, input: &mut Input<'_>) {
        let at = usize::from(u16::from_be_bytes(input.take()));
        let flip = input.byte();
        if let Some(byte) = self.out.get_mut(at) {
            *byte ^= flip;
        }
    }
}
