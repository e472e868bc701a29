//! The receiver against streams that are written out byte by byte, most of them wrong in one field.

use super::*;
use crate::crc::Crc;
use crate::ddp::{Header, Tagged, Untagged};
use crate::mpa::{Rtr, pad};
use crate::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};
use crate::terminate::{Terminate, TerminateCode};
use crate::wire::InlineBytes;

/// A memory provider that permits reads, writes and atomics on `[1000, 1100)` of tag 7, and has receive buffers.
#[derive(Default)]
struct BufferProvider {
    buffers: Vec<u32>,
    /// The lookups made.
    asked: Vec<String>,
}

impl BufferProvider {
    fn check_access(&self, stag: u32, to: u64, len: u64) -> Result<(), AccessError> {
        match stag {
            8 => Err(AccessError::NotAssociated),
            9 => Err(AccessError::Access),
            7 if to >= 1000 && to.checked_add(len).is_some_and(|end| end <= 1100) => Ok(()),
            7 => Err(AccessError::Bounds),
            _ => Err(AccessError::Invalid),
        }
    }
}

impl Lookup for BufferProvider {
    fn check_write(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError> {
        self.asked.push(format!("write {stag} {to} {len}"));
        self.check_access(stag, to, len.into())
    }

    fn check_read_sink(&mut self, id: u64, offset: u32, len: u32) -> Result<(), AccessError> {
        self.asked.push(format!("sink {id} {offset} {len}"));
        if id == 99 { Err(AccessError::Invalid) } else { Ok(()) }
    }

    fn check_read_source(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError> {
        self.asked.push(format!("source {stag} {to} {len}"));
        self.check_access(stag, to, len.into())
    }

    fn check_atomic(&mut self, stag: u32, to: u64) -> Result<(), AccessError> {
        self.asked.push(format!("atomic {stag} {to}"));
        self.check_access(stag, to, 8)
    }

    fn check_invalidate(&mut self, stag: u32) -> Result<(), AccessError> {
        self.asked.push(format!("invalidate {stag}"));
        if stag == 7 { Ok(()) } else { Err(AccessError::CannotInvalidate) }
    }

    fn take_receive(&mut self, msn: u32) -> Option<u32> {
        self.asked.push(format!("receive {msn}"));
        self.buffers.pop()
    }
}

fn config() -> ReceiverConfig {
    ReceiverConfig { crc: true, ird: 2, ord: 2, rtr: None }
}

fn fpdu(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut segment = InlineBytes::<18>::new();
    header.emit(&mut segment);
    let mut out = ((segment.len() + payload.len()) as u16).to_be_bytes().to_vec();
    out.extend_from_slice(&segment);
    out.extend_from_slice(payload);
    out.resize(out.len() + pad(out.len() - 2), 0);
    let crc = Crc::compute(&out).to_wire();
    out.extend(crc);
    out
}

fn tagged(opcode: Opcode, last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    fpdu(&Header::Tagged(Tagged { last, ulp: opcode.control(), stag, to }), payload)
}

fn untagged(opcode: Opcode, msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    let queue = opcode.queue().expect("untagged");
    let header = Untagged { last, ulp: opcode.control(), ulp_word: 0, queue, msn, mo };
    fpdu(&Header::Untagged(header), payload)
}

/// The result of a stream: events, placed pieces, and how it ended.
type Seen = (Vec<Event>, Vec<(Destination, Vec<u8>)>, Result<(), ProtocolViolation>);

fn run(receiver: &mut Receiver, provider: &mut BufferProvider, mut stream: &[u8]) -> Seen {
    let (mut events, mut pieces) = (Vec::new(), Vec::new());
    loop {
        match receiver.poll(provider) {
            Err(failure) => return (events, pieces, Err(failure)),
            Ok(ReceiverStep::Closed) => return (events, pieces, Ok(())),
            Ok(ReceiverStep::Event(event)) => events.push(event),
            Ok(ReceiverStep::Check(wanted)) => {
                receiver.check(stream);
                if stream.len() < wanted {
                    return (events, pieces, Ok(()));
                }
            }
            Ok(_) if stream.is_empty() => return (events, pieces, Ok(())),
            Ok(ReceiverStep::Bytes(_)) => {
                let taken = receiver.feed(stream);
                stream = &stream[taken..];
            }
            Ok(ReceiverStep::Place(piece)) => {
                let (now, rest) = stream.split_at(piece.len.min(stream.len()));
                pieces.push((piece.destination, now.to_vec()));
                receiver.placed(now.len());
                stream = rest;
            }
        }
    }
}

/// The code with which one stream ends, at a receiver with a buffer of 16 bytes.
fn code(stream: &[u8]) -> TerminateCode {
    terminate(stream).code
}

fn terminate(stream: &[u8]) -> Terminate {
    let mut provider = BufferProvider { buffers: vec![16], ..BufferProvider::default() };
    // Without CRCs, a test may cut a stream or change a field without fixing the CRC.
    let mut receiver = Receiver::new(ReceiverConfig { crc: false, ..config() });
    let terminate = run(&mut receiver, &mut provider, stream).2.expect_err("refused").terminate;
    assert_eq!(receiver.poll(&mut provider), Ok(ReceiverStep::Closed));
    assert_eq!(receiver.feed(b"more"), 0);
    terminate
}

/// The event of a plain Send.
fn send(msn: u32, len: u32) -> Event {
    Event::Received(Received { msn, solicited: false, kind: ReceivedKind::Send { len, invalidate: None } })
}

/// The event of a Send that invalidates a tag.
fn send_invalidate(msn: u32, len: u32, stag: u32) -> Event {
    let kind = ReceivedKind::Send { len, invalidate: Some(stag) };
    Event::Received(Received { msn, solicited: false, kind })
}

/// The same event with the solicited-event bit.
fn solicited(event: Event) -> Event {
    match event {
        Event::Received(received) => Event::Received(Received { solicited: true, ..received }),
        other => panic!("{other:?}"),
    }
}

/// A Write of five bytes, byte by byte (RFC 5044 section 4.1, RFC 5041 section 4).
#[test]
fn write_is_placed_from_known_bytes() {
    let mut stream = vec![0, 19, 0xc1, 0x40, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x03, 0xe8];
    stream.extend(b"hello\0\0\0");
    let crc = crc32c::crc32c(&stream);
    stream.extend(crc.to_le_bytes());
    assert_eq!(stream, tagged(Opcode::Write, true, 7, 1000, b"hello"));
    let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
    let (events, pieces, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!((events, end), (vec![Event::Ready], Ok(())));
    assert_eq!(pieces, [(Destination::Write { stag: 7, to: 1000 }, b"hello".to_vec())]);
    assert_eq!(provider.asked, ["write 7 1000 5"]);
    assert!(receiver.is_at_boundary());
}

/// Goal: payload read straight into its place, in parts, gives the same result as bytes that are fed. Method: every
/// size of parts.
#[test]
fn payload_may_be_placed_in_parts() {
    let stream = tagged(Opcode::Write, true, 7, 1003, b"0123456789");
    for size in 1..=10 {
        let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
        let mut rest = &stream[..];
        let mut placed = Vec::new();
        while !rest.is_empty() {
            match receiver.poll(&mut provider).expect("valid") {
                // The first call asks for the length field, the next for the rest.
                ReceiverStep::Check(wanted) => receiver.check(&rest[..wanted]),
                ReceiverStep::Bytes(wanted) => {
                    let space = receiver.space();
                    assert_eq!(space.len(), wanted);
                    let n = size.min(wanted);
                    space[..n].copy_from_slice(&rest[..n]);
                    receiver.filled(n);
                    rest = &rest[n..];
                }
                ReceiverStep::Place(piece) => {
                    let done = placed.len();
                    let destination = Destination::Write { stag: 7, to: 1003 + done as u64 };
                    assert_eq!(piece, Piece { destination, len: 10 - done });
                    let n = size.min(piece.len);
                    placed.extend_from_slice(&rest[..n]);
                    receiver.placed(n);
                    rest = &rest[n..];
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(receiver.poll(&mut provider), Ok(ReceiverStep::Event(Event::Ready)));
        assert_eq!((placed.as_slice(), provider.asked.len()), (&b"0123456789"[..], 1));
    }
}

/// Nothing of a Write is placed before its header was checked, and a zero-length Write causes no lookup.
#[test]
fn invalid_writes_are_refused() {
    let write = |stag, to, payload: &[u8]| tagged(Opcode::Write, true, stag, to, payload);
    for (stream, expected) in [
        (write(6, 1000, b"x"), TerminateCode::TAGGED_STAG_INVALID),
        (write(7, 999, b"x"), TerminateCode::TAGGED_BOUNDS),
        (write(7, 1100, b"x"), TerminateCode::TAGGED_BOUNDS),
        (write(8, 1000, b"x"), TerminateCode::TAGGED_NOT_ASSOCIATED),
        (write(9, 1000, b"x"), TerminateCode::ACCESS),
        (write(7, u64::MAX, b"xx"), TerminateCode::TAGGED_TO_WRAP),
    ] {
        // Only the header, no byte of payload.
        let terminate = terminate(&stream[..16]);
        assert_eq!(terminate.code, expected);
        let offender = terminate.offender.expect("about a segment");
        assert_eq!(&offender.header[..], &stream[2..16]);
        assert_eq!(usize::from(offender.segment_len), stream[1].into());
        assert_eq!(offender.read_request, None);
    }
    let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
    let seen = run(&mut receiver, &mut provider, &write(6, u64::MAX, b""));
    assert_eq!((seen.0, seen.2, provider.asked.len()), (vec![Event::Ready], Ok(()), 0));
}

#[test]
fn invalid_version_opcode_or_queue_is_refused() {
    let at = |mut stream: Vec<u8>, index: usize, value: u8| {
        stream[index] = value;
        stream
    };
    let write = tagged(Opcode::Write, true, 7, 1000, b"x");
    let sent = untagged(Opcode::Send, 1, 0, true, b"x");
    for (stream, expected) in [
        (at(write.clone(), 2, 0xc0), TerminateCode::TAGGED_VERSION),
        (at(write.clone(), 2, 0xc2), TerminateCode::TAGGED_VERSION),
        (at(sent.clone(), 2, 0x43), TerminateCode::UNTAGGED_VERSION),
        (at(write.clone(), 3, 0x00), TerminateCode::RDMAP_VERSION),
        (at(sent.clone(), 3, 0x83), TerminateCode::RDMAP_VERSION),
        // A tagged Send; an untagged Write; an unassigned opcode; a Read Request on the queue of Sends.
        (at(write.clone(), 3, 0x43), TerminateCode::UNEXPECTED_OPCODE),
        (at(sent.clone(), 3, 0x40), TerminateCode::UNEXPECTED_OPCODE),
        (at(sent.clone(), 3, 0x4c), TerminateCode::UNEXPECTED_OPCODE),
        (at(sent.clone(), 3, 0x41), TerminateCode::UNEXPECTED_OPCODE),
        (at(sent.clone(), 11, 4), TerminateCode::UNTAGGED_QUEUE),
        (at(sent.clone(), 8, 1), TerminateCode::UNTAGGED_QUEUE),
        (at(sent.clone(), 15, 0), TerminateCode::UNTAGGED_MSN),
        (at(sent.clone(), 15, 2), TerminateCode::UNTAGGED_MSN),
        (at(sent.clone(), 19, 1), TerminateCode::UNTAGGED_MO),
        // A segment shorter than its header.
        (at(write.clone(), 1, 13), TerminateCode::DDP_CATASTROPHIC),
        (at(sent.clone(), 1, 17), TerminateCode::DDP_CATASTROPHIC),
        (at(write, 1, 0), TerminateCode::DDP_CATASTROPHIC),
    ] {
        assert_eq!(code(&stream), expected);
    }
}

#[test]
fn reserved_header_bits_are_ignored() {
    let mut stream = tagged(Opcode::Write, true, 7, 1000, b"xxxxxx");
    stream[2] |= 0x3c;
    stream[3] |= 0x30;
    let end = stream.len() - 4;
    let crc = Crc::compute(&stream[..end]).to_wire();
    stream[end..].copy_from_slice(&crc);
    let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
    assert_eq!(run(&mut receiver, &mut provider, &stream).2, Ok(()));
}

/// Goal: nothing of a damaged FPDU is used, whichever byte was damaged, and only the damage is reported. Method:
/// every bit of every byte of one FPDU of each kind.
#[test]
fn damaged_fpdu_is_not_used() {
    let terminate = Terminate::new(TerminateCode::BOUNDS);
    let mut body = InlineBytes::<52>::new();
    terminate.emit(&mut body);
    for stream in [
        untagged(Opcode::Send, 1, 0, true, b"content"),
        untagged(Opcode::SendInvalidate, 1, 0, true, b"content"),
        untagged(Opcode::Immediate, 1, 0, true, &[7; 8]),
        untagged(Opcode::ReadRequest, 1, 0, true, &[0; 28]),
        untagged(Opcode::AtomicRequest, 1, 0, true, &[0; 52]),
        untagged(Opcode::Terminate, 1, 0, true, &body),
        tagged(Opcode::Write, true, 7, 1000, b"content"),
        tagged(Opcode::ReadResponse, true, 7, 1000, b"content"),
    ] {
        for at in 0..8 * stream.len() {
            let mut hit = stream.clone();
            hit[at / 8] ^= 1 << (at % 8);
            // More bytes follow, for a length field that became too large.
            hit.resize(70_000, 0);
            let mut provider = BufferProvider { buffers: vec![7; 3], ..BufferProvider::default() };
            let mut receiver = Receiver::new(config());
            let (events, pieces, end) = run(&mut receiver, &mut provider, &hit);
            let used = (events.len(), pieces.len(), provider.asked.len(), provider.buffers.len());
            assert_eq!(used, (0, 0, 0, 3), "bit {at}");
            assert_eq!(end.expect_err("damaged").terminate, Terminate::new(TerminateCode::LLP_CRC));
            assert!(receiver.is_at_boundary() && receiver.feed(b"more") == 0);
        }
    }
}

/// Goal: showing neither consumes nor forgets bytes. Method: an FPDU that grows byte by byte, followed by the next
/// one.
#[test]
fn check_asks_until_the_fpdu_is_complete() {
    let mut stream = untagged(Opcode::Send, 1, 0, true, b"content");
    let len = stream.len();
    stream.extend(untagged(Opcode::Send, 2, 0, true, b"more"));
    let mut provider = BufferProvider { buffers: vec![7; 2], ..BufferProvider::default() };
    let mut receiver = Receiver::new(config());
    for n in 0..len {
        let wanted = if n < 2 { 2 } else { len };
        receiver.check(&stream[..n]);
        assert_eq!(receiver.poll(&mut provider), Ok(ReceiverStep::Check(wanted)));
        assert_eq!((receiver.feed(&stream[..n]), receiver.is_at_boundary()), (0, n == 0), "{n} bytes");
    }
    assert_eq!(provider.asked.len(), 0);
    let (events, pieces, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!(events, [Event::Ready, send(1, 7), send(2, 4)]);
    assert_eq!((pieces.len(), end), (2, Ok(())));
}

/// RFC 5044 section 4.1: without CRCs the field is present, but its value is ignored.
#[test]
fn crc_field_is_ignored_if_crcs_are_off() {
    let mut stream = tagged(Opcode::Write, true, 7, 1000, b"x");
    let end = stream.len();
    stream[end - 4..].fill(0xdd);
    let mut receiver = Receiver::new(ReceiverConfig { crc: false, ..config() });
    let mut provider = BufferProvider::default();
    let mut rest = &stream[..];
    loop {
        match receiver.poll(&mut provider).expect("valid") {
            ReceiverStep::Event(event) => break assert_eq!(event, Event::Ready),
            ReceiverStep::Place(piece) => {
                receiver.placed(piece.len);
                rest = &rest[piece.len..];
            }
            _ => rest = &rest[receiver.feed(rest)..],
        }
    }
    assert!(rest.is_empty());
}

#[test]
fn sends_in_all_forms() {
    let forms =
        [Opcode::Send, Opcode::SendInvalidate, Opcode::SendSolicited, Opcode::SendSolicitedInvalidate];
    let mut provider = BufferProvider { buffers: vec![4; 4], ..BufferProvider::default() };
    let mut receiver = Receiver::new(config());
    let mut stream = Vec::new();
    for (index, opcode) in forms.into_iter().enumerate() {
        let ulp_word = if opcode.invalidates() { 7 } else { 0 };
        let header =
            Untagged { last: true, ulp: opcode.control(), ulp_word, queue: 0, msn: index as u32 + 1, mo: 0 };
        stream.extend(fpdu(&Header::Untagged(header), b"data"));
    }
    let (events, pieces, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!(end, Ok(()));
    let expected = [
        Event::Ready,
        send(1, 4),
        send_invalidate(2, 4, 7),
        solicited(send(3, 4)),
        solicited(send_invalidate(4, 4, 7)),
    ];
    assert_eq!(events, expected);
    assert_eq!(pieces[3], (Destination::Receive { msn: 4, offset: 0 }, b"data".to_vec()));
}

#[test]
fn segmented_send_is_delivered_between_other_messages() {
    let mut provider = BufferProvider { buffers: vec![10], ..BufferProvider::default() };
    let mut receiver = Receiver::new(config());
    let stream = [
        untagged(Opcode::Send, 1, 0, false, b"abc"),
        tagged(Opcode::Write, false, 7, 1000, b"w"),
        untagged(Opcode::Send, 1, 3, false, b""),
        untagged(Opcode::Send, 1, 3, true, b"defghij"),
    ]
    .concat();
    let (events, pieces, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!((events, end), (vec![Event::Ready, send(1, 10)], Ok(())));
    assert_eq!(pieces[2], (Destination::Receive { msn: 1, offset: 3 }, b"defghij".to_vec()));
    assert_eq!(provider.asked, ["receive 1", "write 7 1000 1"]);
}

/// RFC 5040 section 4.1: the word for RDMAP is reserved in a Send without invalidation; otherwise all segments must
/// have the same value.
#[test]
fn tag_word_is_checked_only_in_invalidating_sends() {
    let segment = |opcode: Opcode, ulp_word, mo| {
        let header = Untagged { last: mo > 0, ulp: opcode.control(), ulp_word, queue: 0, msn: 1, mo };
        fpdu(&Header::Untagged(header), b"data")
    };
    for (opcode, expected) in
        [(Opcode::Send, None), (Opcode::SendInvalidate, Some(TerminateCode::UNEXPECTED_OPCODE))]
    {
        let mut provider = BufferProvider { buffers: vec![8], ..BufferProvider::default() };
        let stream = [segment(opcode, 7, 0), segment(opcode, 8, 4)].concat();
        let (_, _, end) = run(&mut Receiver::new(config()), &mut provider, &stream);
        assert_eq!(end.err().map(|failure| failure.terminate.code), expected);
    }
}

#[test]
fn invalid_sends_are_refused() {
    let first = untagged(Opcode::Send, 1, 0, false, b"0123");
    let then = |stream: Vec<u8>| [first.clone(), stream].concat();
    let other_tag = Header::Untagged(Untagged {
        last: true,
        ulp: Opcode::SendInvalidate.control(),
        ulp_word: 5,
        queue: 0,
        msn: 1,
        mo: 0,
    });
    for (stream, expected) in [
        (untagged(Opcode::Send, 1, 0, true, &[0; 17]), TerminateCode::UNTAGGED_TOO_LONG),
        (then(untagged(Opcode::Send, 1, 4, true, &[0; 13])), TerminateCode::UNTAGGED_TOO_LONG),
        (then(untagged(Opcode::Send, 1, 3, true, b"x")), TerminateCode::UNTAGGED_MO),
        (then(untagged(Opcode::Send, 1, 5, true, b"x")), TerminateCode::UNTAGGED_MO),
        (then(untagged(Opcode::Send, 2, 0, true, b"x")), TerminateCode::UNTAGGED_MSN),
        (then(untagged(Opcode::SendSolicited, 1, 4, true, b"x")), TerminateCode::UNEXPECTED_OPCODE),
        (then(untagged(Opcode::Immediate, 1, 0, true, &[0; 8])), TerminateCode::UNEXPECTED_OPCODE),
        // A request begins inside a message whose end was lost: a response would imply that the message has arrived.
        (then(read_request(1, &REQUEST)), TerminateCode::UNEXPECTED_OPCODE),
        (then(atomic_request(1000, 7).1), TerminateCode::UNEXPECTED_OPCODE),
        (fpdu(&other_tag, b"x"), TerminateCode::CANNOT_INVALIDATE),
        (
            [untagged(Opcode::Send, 1, 0, true, b""), untagged(Opcode::Send, 2, 0, true, b"")].concat(),
            TerminateCode::UNTAGGED_NO_BUFFER,
        ),
    ] {
        assert_eq!(code(&stream), expected);
    }
}

#[test]
fn immediate_data_needs_eight_bytes_and_a_receive() {
    let mut provider = BufferProvider { buffers: vec![0, 0], ..BufferProvider::default() };
    let mut receiver = Receiver::new(config());
    let stream = [
        untagged(Opcode::Immediate, 1, 0, true, b"12345678"),
        untagged(Opcode::ImmediateSolicited, 2, 0, true, b"abcdefgh"),
    ]
    .concat();
    let (events, pieces, end) = run(&mut receiver, &mut provider, &stream);
    let event = |msn, solicited, data: &[u8; 8]| {
        Event::Received(Received { msn, solicited, kind: ReceivedKind::Immediate(*data) })
    };
    assert_eq!(events, [Event::Ready, event(1, false, b"12345678"), event(2, true, b"abcdefgh")]);
    assert_eq!((pieces.len(), end), (0, Ok(())));
    for (len, expected) in [(7, TerminateCode::OPERATION_UNSPECIFIED), (9, TerminateCode::UNTAGGED_TOO_LONG)]
    {
        assert_eq!(code(&untagged(Opcode::Immediate, 1, 0, true, &[0; 9][..len])), expected);
    }
    let twice =
        [untagged(Opcode::Immediate, 1, 0, true, &[0; 8]), untagged(Opcode::Immediate, 2, 0, true, &[0; 8])];
    assert_eq!(code(&twice.concat()), TerminateCode::UNTAGGED_NO_BUFFER);
}

fn read_request(msn: u32, request: &ReadRequest) -> Vec<u8> {
    let mut body = InlineBytes::<28>::new();
    request.emit(&mut body);
    untagged(Opcode::ReadRequest, msn, 0, true, &body)
}

const REQUEST: ReadRequest =
    ReadRequest { sink_stag: 3, sink_to: 4, len: 100, source_stag: 7, source_to: 1000 };

#[test]
fn read_requests_beyond_free_slots_are_refused() {
    let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
    let empty = ReadRequest { len: 0, source_stag: 0, sink_to: u64::MAX, ..REQUEST };
    let stream = [read_request(1, &REQUEST), read_request(2, &empty)].concat();
    let (events, _, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!(end, Ok(()));
    assert_eq!(events, [Event::Ready, Event::ReadRequest(REQUEST), Event::ReadRequest(empty)]);
    assert_eq!(provider.asked, ["source 7 1000 100"]);
    // Both slots are in use (RFC 5040 section 5.2.1); one becomes free, and two more requests are one too many.
    receiver.served();
    let stream = [read_request(3, &REQUEST), read_request(4, &REQUEST)].concat();
    let (events, _, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!(events, [Event::ReadRequest(REQUEST)]);
    assert_eq!(end.expect_err("too many").terminate.code, TerminateCode::UNTAGGED_NO_BUFFER);
}

#[test]
fn invalid_read_requests_are_refused() {
    for (request, expected) in [
        (ReadRequest { source_stag: 6, ..REQUEST }, TerminateCode::STAG_INVALID),
        (ReadRequest { len: 101, ..REQUEST }, TerminateCode::BOUNDS),
        (ReadRequest { source_stag: 8, ..REQUEST }, TerminateCode::NOT_ASSOCIATED),
        (ReadRequest { source_stag: 9, ..REQUEST }, TerminateCode::ACCESS),
        (ReadRequest { source_to: u64::MAX - 98, ..REQUEST }, TerminateCode::TO_WRAP),
        (ReadRequest { sink_to: u64::MAX - 98, ..REQUEST }, TerminateCode::TO_WRAP),
    ] {
        let stream = read_request(1, &request);
        let terminate = terminate(&stream);
        assert_eq!(terminate.code, expected);
        // RFC 5040 section 4.8: the Terminate includes the headers of both layers.
        let offender = terminate.offender.expect("about a segment");
        assert_eq!(&offender.header[..], &stream[2..20]);
        assert_eq!(offender.read_request.as_ref().map(|body| &body[..]), Some(&stream[20..48]));
        assert_eq!(offender.segment_len, 46);
    }
    let body = &read_request(1, &REQUEST)[20..48];
    let long = [body, b"x"].concat();
    for (stream, expected) in [
        (untagged(Opcode::ReadRequest, 1, 0, true, &long), TerminateCode::UNTAGGED_TOO_LONG),
        (untagged(Opcode::ReadRequest, 1, 0, true, &body[1..]), TerminateCode::OPERATION_UNSPECIFIED),
        (untagged(Opcode::ReadRequest, 1, 0, false, body), TerminateCode::OPERATION_UNSPECIFIED),
        (untagged(Opcode::ReadRequest, 1, 28, true, body), TerminateCode::UNTAGGED_MO),
        (untagged(Opcode::ReadRequest, 0, 0, true, body), TerminateCode::UNTAGGED_MSN),
    ] {
        assert_eq!(code(&stream), expected);
    }
}

#[test]
fn read_response_is_placed_in_its_sink() {
    let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
    receiver.expect(ExpectedResponse::Read { id: Some(41), stag: 3, to: 4, len: 10 });
    receiver.expect(ExpectedResponse::Read { id: Some(42), stag: 3, to: 0, len: 0 });
    let stream = [
        tagged(Opcode::ReadResponse, false, 3, 4, b"01234567"),
        tagged(Opcode::ReadResponse, true, 3, 12, b"89"),
        // The tag of a zero-length response is not checked.
        tagged(Opcode::ReadResponse, true, 77, 77, b""),
    ]
    .concat();
    let (events, pieces, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!(end, Ok(()));
    assert_eq!(events, [Event::Ready, Event::ReadDone { id: 41 }, Event::ReadDone { id: 42 }]);
    assert_eq!(pieces[1], (Destination::ReadSink { id: 41, offset: 8, stag: 3, to: 12 }, b"89".to_vec()));
    assert_eq!(provider.asked, ["sink 41 0 8", "sink 41 8 2"]);
}

#[test]
fn invalid_read_responses_are_refused() {
    let run = |id: u64, stream: Vec<u8>| {
        let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
        receiver.expect(ExpectedResponse::Read { id: Some(id), stag: 7, to: 1000, len: 10 });
        let (events, pieces, end) = run(&mut receiver, &mut provider, &stream);
        assert_eq!((events.len(), pieces.len()), (0, 0));
        end.expect_err("refused").terminate.code
    };
    let answer = |last, stag, to, len: usize| tagged(Opcode::ReadResponse, last, stag, to, &[0; 11][..len]);
    assert_eq!(run(1, answer(true, 6, 1000, 10)), TerminateCode::TAGGED_STAG_INVALID);
    assert_eq!(run(1, answer(true, 7, 1001, 9)), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(run(1, answer(true, 7, 1000, 11)), TerminateCode::TAGGED_BOUNDS);
    // The last segment arrives too early, or is not marked.
    assert_eq!(run(1, answer(true, 7, 1000, 9)), TerminateCode::STREAM_CATASTROPHIC);
    assert_eq!(run(1, answer(false, 7, 1000, 10)), TerminateCode::STREAM_CATASTROPHIC);
    // The sink was deregistered.
    assert_eq!(run(99, answer(true, 7, 1000, 10)), TerminateCode::TAGGED_STAG_INVALID);
    // The response was not requested, or something else was.
    assert_eq!(code(&answer(true, 7, 1000, 1)), TerminateCode::UNEXPECTED_OPCODE);
    assert_eq!(
        run(1, untagged(Opcode::AtomicResponse, 1, 0, true, &[0; 12])),
        TerminateCode::UNEXPECTED_OPCODE
    );
}

fn atomic_request(to: u64, stag: u32) -> (AtomicRequest, Vec<u8>) {
    let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
    let request = AtomicRequest { id: 5, stag, to, op };
    let mut body = InlineBytes::<52>::new();
    request.emit(&mut body);
    (request, untagged(Opcode::AtomicRequest, 1, 0, true, &body))
}

#[test]
fn atomics_with_bad_address_right_or_id_are_refused() {
    let (request, stream) = atomic_request(1000, 7);
    let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
    let (events, _, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!((events, end), (vec![Event::Ready, Event::AtomicRequest(request)], Ok(())));
    // Misaligned, out of bounds, no access right (RFC 7306 section 8.2).
    assert_eq!(code(&atomic_request(1004, 7).1), TerminateCode::STREAM_CATASTROPHIC);
    assert_eq!(code(&atomic_request(1096, 7).1), TerminateCode::BOUNDS);
    assert_eq!(code(&atomic_request(1000, 9).1), TerminateCode::ACCESS);
    let mut body = stream[20..72].to_vec();
    body[3] = 1;
    let unknown = untagged(Opcode::AtomicRequest, 1, 0, true, &body);
    assert_eq!(code(&unknown), TerminateCode::UNEXPECTED_OPCODE);

    let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
    receiver.expect(ExpectedResponse::Atomic { id: 50, request: 5 });
    receiver.expect(ExpectedResponse::Atomic { id: 51, request: 6 });
    let answer =
        |msn, id: u8| untagged(Opcode::AtomicResponse, msn, 0, true, &[0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, 9]);
    let (events, _, end) = run(&mut receiver, &mut provider, &[answer(1, 5), answer(2, 7)].concat());
    assert_eq!(events, [Event::Ready, Event::AtomicDone { id: 50, original: 9 }]);
    assert_eq!(end.expect_err("another's").terminate.code, TerminateCode::STREAM_CATASTROPHIC);
}

#[test]
fn nothing_is_received_after_terminate() {
    for (len, expected) in [(3, TerminateCode::OPERATION_UNSPECIFIED), (65, TerminateCode::UNTAGGED_TOO_LONG)]
    {
        assert_eq!(code(&untagged(Opcode::Terminate, 1, 0, true, &[0; 65][..len])), expected);
    }
    for len in [4, 52, 64] {
        let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
        let mut body = vec![0; len];
        body[..2].copy_from_slice(&[0x12, 2]);
        let stream = [untagged(Opcode::Terminate, 1, 0, true, &body), vec![0xff; 100]].concat();
        let (events, _, end) = run(&mut receiver, &mut provider, &stream);
        let terminate = Terminate::new(TerminateCode::UNTAGGED_NO_BUFFER);
        assert_eq!((events, end), (vec![Event::Ready, Event::Terminated(terminate)], Ok(())));
        assert_eq!(receiver.poll(&mut provider), Ok(ReceiverStep::Closed));
    }
}

/// RFC 6581 section 9.2: the ready-to-receive message does not belong to the program.
#[test]
fn ready_to_receive_send_takes_no_buffer() {
    let stream = [untagged(Opcode::Send, 1, 0, true, b""), untagged(Opcode::Send, 2, 0, true, b"x")].concat();
    let mut provider = BufferProvider { buffers: vec![1], ..BufferProvider::default() };
    let mut receiver = Receiver::new(ReceiverConfig { rtr: Some(Rtr::Send), ..config() });
    let (events, _, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!((events, end), (vec![Event::Ready, send(2, 1)], Ok(())));
    assert_eq!(provider.asked, ["receive 2"]);
    // Without that agreement it is an ordinary message.
    let mut provider = BufferProvider { buffers: vec![1, 1], ..BufferProvider::default() };
    let (events, _, _) = run(&mut Receiver::new(config()), &mut provider, &stream);
    assert_eq!(events[1], send(1, 0));
}

#[test]
fn msn_wraps_to_zero() {
    let mut receiver = Receiver::new(config());
    receiver.msn[0] = u32::MAX;
    let mut provider = BufferProvider { buffers: vec![0, 0], ..BufferProvider::default() };
    let stream =
        [untagged(Opcode::Send, u32::MAX, 0, true, b""), untagged(Opcode::Send, 0, 0, true, b"")].concat();
    let (events, _, end) = run(&mut receiver, &mut provider, &stream);
    assert_eq!((events.len(), end), (3, Ok(())));
}

/// The stream may end between messages only.
#[test]
fn stream_may_end_between_messages_only() {
    let stream =
        [untagged(Opcode::Send, 1, 0, false, b"abc"), untagged(Opcode::Send, 1, 3, true, b"d")].concat();
    let mut provider = BufferProvider { buffers: vec![4], ..BufferProvider::default() };
    let mut receiver = Receiver::new(ReceiverConfig { crc: false, ..config() });
    for (at, byte) in stream.iter().enumerate() {
        assert_eq!(receiver.is_at_boundary(), at == 0, "{at}");
        assert_eq!(run(&mut receiver, &mut provider, &[*byte]).2, Ok(()));
    }
    assert!(receiver.is_at_boundary());
}

/// The longest FPDU that the length field allows.
#[test]
fn fpdu_of_maximum_length_is_received() {
    let payload = vec![0x5a; 65_535 - 18];
    let stream = untagged(Opcode::Send, 1, 0, true, &payload);
    let mut provider = BufferProvider { buffers: vec![65_535], ..BufferProvider::default() };
    let (events, pieces, end) = run(&mut Receiver::new(config()), &mut provider, &stream);
    assert_eq!((events.len(), end), (2, Ok(())));
    assert_eq!(pieces[0].1, payload);
}

/// Offers each FPDU to the fast path first. Returns the result, and how many FPDUs took the fast path.
fn run_short(receiver: &mut Receiver, provider: &mut BufferProvider, fpdus: &[Vec<u8>]) -> (Seen, usize) {
    let (mut seen, mut short): (Seen, usize) = ((Vec::new(), Vec::new(), Ok(())), 0);
    for fpdu in fpdus {
        let mut behind = fpdu.clone();
        behind.extend_from_slice(b"the bytes after it");
        let before = format!("{receiver:?}");
        let mut at = |destination, payload: &[u8]| seen.1.push((destination, payload.to_vec()));
        let written = receiver.take_write(&behind, |stag, to, payload| {
            let allowed = provider.check_access(stag, to, payload.len() as u64).is_ok();
            if allowed {
                at(Destination::Write { stag, to }, payload);
            }
            allowed
        });
        let msn = receiver.msn[0];
        let sent = receiver.take_send(&behind, |payload| {
            let fits = provider.buffers.last().is_some_and(|room| payload.len() <= *room as usize);
            if fits {
                provider.buffers.pop();
                at(Destination::Receive { msn, offset: 0 }, payload);
            }
            fits
        });
        if let Some((taken, front)) = written {
            assert_eq!((taken, FpduKind::peek(fpdu), sent), (fpdu.len(), Some(front), None));
            short += 1;
        } else if let Some((taken, received)) = sent {
            assert_eq!(taken, fpdu.len());
            seen.0.push(Event::Received(received));
            short += 1;
        } else {
            assert_eq!(format!("{receiver:?}"), before, "nothing has happened");
            let (events, pieces, end) = run(receiver, provider, fpdu);
            seen.0.extend(events);
            seen.1.extend(pieces);
            seen.2 = end;
        }
    }
    (seen, short)
}

/// Goal: the fast path has the same effect as the normal path. Method: a stream of FPDUs that may and may not take
/// the fast path, both ways, with and without CRCs.
#[test]
fn fast_path_equals_normal_path() {
    let provider = || BufferProvider { buffers: vec![0, 16, 16, 16], ..BufferProvider::default() };
    let fpdus = [
        tagged(Opcode::Write, true, 7, 1000, b"the first takes the normal path"),
        tagged(Opcode::Write, false, 7, 1000, b"eight by"),
        tagged(Opcode::Write, true, 7, 1008, b"tes"),
        untagged(Opcode::Send, 1, 0, true, b"one"),
        untagged(Opcode::SendSolicited, 2, 0, true, b"two and more"),
        tagged(Opcode::Write, true, 99, 0, b""),
        untagged(Opcode::Send, 3, 0, false, b"in segm"),
        tagged(Opcode::Write, true, 7, 1050, b"between"),
        untagged(Opcode::Send, 3, 7, true, b"ents"),
        untagged(Opcode::Immediate, 4, 0, true, b"8 bytes."),
    ];
    for crc in [false, true] {
        let config = ReceiverConfig { crc, ..config() };
        let (mut long, mut short) = (Receiver::new(config), Receiver::new(config));
        let wanted = run(&mut long, &mut provider(), &fpdus.concat());
        let (seen, count) = run_short(&mut short, &mut provider(), &fpdus);
        assert_eq!((&seen, count), (&wanted, 5), "crc {crc}");
        assert_eq!((short.received(), short.receipt()), (long.received(), long.receipt()));
        assert_eq!(short.is_at_boundary(), long.is_at_boundary());
    }
}

/// Goal: a receipt covers no message that has not arrived. Without CRCs a flipped bit hid the end of a Send; the
/// Write after it was counted, and the peer took the Send for received.
#[test]
fn message_inside_unfinished_one_is_not_counted() {
    let stream = [
        untagged(Opcode::Send, 1, 0, true, b"whole"),
        untagged(Opcode::Send, 2, 0, false, b"its end is hidden"),
        tagged(Opcode::Write, true, 7, 1000, b"whole"),
        untagged(Opcode::Send, 3, 0, true, b"not the next"),
    ];
    let mut receiver = Receiver::new(ReceiverConfig { crc: false, ..config() });
    let mut provider = BufferProvider { buffers: vec![32, 32], ..BufferProvider::default() };
    assert!(run(&mut receiver, &mut provider, &stream.concat()).2.is_err());
    assert_eq!(receiver.received(), Some(1));
}

/// Goal: no invalid FPDU takes the fast path. Method: one wrong field of a good message at a time.
#[test]
fn fast_path_rejects_invalid_fpdus() {
    let first = tagged(Opcode::Write, true, 7, 1000, b"first");
    let wrong = [
        tagged(Opcode::Write, true, 8, 1000, b"tag"),
        tagged(Opcode::Write, true, 7, u64::MAX, b"wraps"),
        tagged(Opcode::ReadResponse, true, 7, 1000, b"opcode"),
        untagged(Opcode::Send, 2, 0, true, b"number"),
        untagged(Opcode::Send, 1, 4, true, b"offset"),
        untagged(Opcode::Send, 1, 0, true, b"longer than its buffer"),
        untagged(Opcode::SendInvalidate, 1, 0, true, b"tag"),
        untagged(Opcode::ReadRequest, 1, 0, true, &[0; 28]),
    ];
    for fpdu in wrong {
        let (mut receiver, mut provider) =
            (Receiver::new(config()), BufferProvider { buffers: vec![16], ..BufferProvider::default() });
        let (_, short) = run_short(&mut receiver, &mut provider, &[first.clone(), fpdu]);
        assert_eq!(short, 0);
    }
    for bit in 0..8 * first.len() {
        let mut damaged = first.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (mut receiver, mut provider) = (Receiver::new(config()), BufferProvider::default());
        assert_eq!(run(&mut receiver, &mut provider, &first).2, Ok(()));
        let place = |_: u32, _: u64, _: &[u8]| panic!("bit {bit} was flipped");
        assert_eq!(receiver.take_write(&damaged, place), None, "bit {bit}");
        assert_eq!(receiver.take_write(&first[..first.len() - 1], place), None, "not all of it");
    }
}

/// Goal: payload that cannot be placed ends the stream with its header, from which the peer finds its request;
/// nothing more is received.
#[test]
fn payload_that_cannot_be_placed_is_refused_with_its_header() {
    let (mut receiver, mut provider) =
        (Receiver::new(ReceiverConfig { crc: false, ..config() }), BufferProvider::default());
    let stream = tagged(Opcode::Write, true, 7, 1010, &[1; 20]);
    let mut rest = &stream[..];
    while let Ok(ReceiverStep::Bytes(_)) = receiver.poll(&mut provider) {
        rest = &rest[receiver.feed(rest)..];
    }
    assert!(matches!(receiver.poll(&mut provider), Ok(ReceiverStep::Place(Piece { len: 20, .. }))));
    let Terminate { code, offender } = receiver.refuse(TerminateCode::PROTECTION_UNSPECIFIED).terminate;
    let offender = offender.expect("the header");
    assert_eq!((code, offender.segment_len), (TerminateCode::PROTECTION_UNSPECIFIED, 34));
    assert_eq!(&*offender.header, &stream[2..16]);
    assert_eq!(receiver.poll(&mut provider), Ok(ReceiverStep::Closed));
    let between = Receiver::new(config()).refuse(TerminateCode::STAG_INVALID).terminate;
    assert_eq!(between, Terminate::new(TerminateCode::STAG_INVALID), "about no particular segment");
}
