//! Entry points of the fuzz targets in `fuzz/`, and tests that replay their corpora.
//!
//! Each entry point treats arbitrary bytes as what a peer sends. Nothing may panic, and no byte may change that the
//! peer has no right to write.

use std::time::Duration;

use crate::connection::{Connection, Limits};
use crate::crc::Crc;
use crate::mpa::{
    AcceptParams, HandshakeOutcome, Initiator, InitiatorConfig, Negotiated, PRIVATE_DATA_MAX, Responder,
    ResponderConfig, Revision, Role, Rtr, RtrSet, pad,
};
use crate::rdmap::{AtomicOp, ReadRequest};
use crate::testing::{Endpoint, Pair, Rights, Splitter, run_handshake};
use crate::tx::OpKind;

/// Maximum number of steps of one input.
const STEPS: usize = 64;

/// The fuzzer's input, consumed piece by piece; reads return zeros after its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let n = N.min(self.0.len());
        bytes[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        bytes
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn bit(&mut self, bit: u8) -> bool {
        self.0.first().is_some_and(|byte| byte >> bit & 1 == 1)
    }

    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Returns one of a few meaningful values, or any value.
    fn word(&mut self, likely: &[u32]) -> u32 {
        match likely.get(usize::from(self.byte())) {
            Some(&value) => value,
            None => u32::from_be_bytes(self.take()),
        }
    }

    /// Returns a meaningful number or any number; used for offsets.
    fn long(&mut self, likely: &[u64]) -> u64 {
        match likely.get(usize::from(self.byte())) {
            Some(&value) => value,
            None => u64::from_be_bytes(self.take()),
        }
    }
}

/// Steering tags with different rights at an endpoint under test, and offsets at their limits and next to them.
const STAGS: [u32; 6] = [0x100, 0x200, 0x300, 0x400, 0x500, 1];
const OFFSETS: [u64; 8] = [0, 4096, 4096 + 512, 8, 4095, 4096 + 504, u64::MAX, u64::MAX - 7];

/// Registers buffers with each kind of right at an endpoint, and posts some receives.
fn register_buffers(end: &mut Endpoint) {
    let rights = [
        Rights::WRITE,
        Rights::READ,
        Rights::ATOMIC,
        Rights::WRITE | Rights::READ | Rights::ATOMIC | Rights::INVALIDATE,
        Rights::empty(),
    ];
    for (stag, rights) in STAGS.into_iter().zip(rights) {
        end.register(stag, 4096, &[0x5a; 512], rights);
    }
    for len in [64, 0, 512, 8] {
        end.post_receive(len);
    }
}

fn negotiated(input: &mut Input<'_>) -> Negotiated {
    let role = if input.bit(0) { Role::Initiator } else { Role::Responder };
    let crc = input.bit(1);
    let rtr = [None, Some(Rtr::Write), Some(Rtr::Read), Some(Rtr::Send)];
    let rtr = rtr[usize::from(input.bit(2)) + 2 * usize::from(input.bit(3))];
    let depth = if input.bit(4) { 2 } else { 16 };
    input.byte();
    let (revision, private_data) = (Revision::V2, Vec::new());
    Negotiated { role, revision, crc, ird: depth, ord: depth, rtr, private_data }
}

/// An endpoint under test that has operations of its own in flight.
fn victim(input: &mut Input<'_>) -> Endpoint {
    let negotiated = negotiated(input);
    let mut end = Endpoint::new(Connection::new(&negotiated, &Limits::default(), Duration::ZERO));
    register_buffers(&mut end);
    let read = |len| ReadRequest { sink_stag: 0x900, sink_to: 64, len, source_stag: 1, source_to: 0 };
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    for kind in [OpKind::Read(read(100)), OpKind::Atomic { stag: 1, to: 0, op: add }, OpKind::Read(read(0))] {
        end.post(kind, &[], false).expect("the queue has room, and reads are allowed");
    }
    end.transmit(&mut Vec::new());
    end
}

/// Feeds `stream` to the endpoint, then checks that its memory is intact.
fn check(end: &mut Endpoint, stream: &[u8], mut splitter: Splitter) {
    let mut rest = stream;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(splitter.next(rest.len()));
        end.receive_bytes(now);
        end.transmit(&mut Vec::new());
        rest = later;
    }
    // Success and error are both fine.
    let _ = end.receive_eof();
    assert_eq!(end.memory().damage(), None, "a byte has changed without permission");
}

fn splitter(input: &mut Input<'_>) -> Splitter {
    match input.byte() {
        0 => Splitter::whole(),
        seed => Splitter::new(seed.into(), 1 << (seed % 8)),
    }
}

/// Goal: whatever arrives instead of a request or a reply, the handshake returns a result and buffers at most one
/// frame.
pub fn mpa_handshake(data: &[u8]) {
    let mut input = Input(data);
    let revision = if input.bit(0) { Revision::V1 } else { Revision::V2 };
    let crc = input.bit(1);
    let peer_to_peer = if input.bit(2) { RtrSet::all() } else { RtrSet::WRITE };
    let as_responder = input.bit(3);
    let is_client = input.bit(4);
    input.byte();
    let mut splitter = splitter(&mut input);
    let config = InitiatorConfig {
        revision,
        crc,
        peer_to_peer: if is_client { RtrSet::empty() } else { peer_to_peer },
        ..InitiatorConfig::default()
    };
    let mut initiator = Initiator::new(config, Duration::ZERO).expect("the configuration is valid");
    let config = ResponderConfig { revision_max: revision, crc, peer_to_peer, ..ResponderConfig::default() };
    let mut responder = Responder::new(config, Duration::ZERO);
    let mut rest = input.0;
    while !rest.is_empty() {
        let now = &rest[..splitter.next(rest.len())];
        let taken = if as_responder {
            let Ok((taken, request)) = responder.handle_bytes(now) else { break };
            if let Some(request) = request {
                assert!(request.private_data.len() <= PRIVATE_DATA_MAX);
                if let Ok(negotiated) = responder.accept(&AcceptParams::default()) {
                    assert_reply_is_accepted(responder.transmit(), &negotiated);
                }
                break;
            }
            taken
        } else {
            let Ok((taken, outcome)) = initiator.handle_bytes(now) else { break };
            match outcome {
                Some(HandshakeOutcome::Established(negotiated)) => {
                    assert!(negotiated.ord <= 16 && negotiated.ird == 16);
                    break;
                }
                Some(HandshakeOutcome::Rejected { .. }) => break,
                None => taken,
            }
        };
        assert_eq!(taken, now.len(), "an incomplete frame consumes everything");
        rest = &rest[taken..];
    }
    initiator.handle_eof();
    responder.handle_eof();
    assert_eq!((initiator.deadline(), responder.deadline()), (None, None));
}

/// The initiator of a connection accepts what its responder replies.
fn assert_reply_is_accepted(reply: &[u8], negotiated: &Negotiated) {
    let Negotiated { revision, rtr, .. } = *negotiated;
    let offer = if rtr.is_some() { RtrSet::all() } else { RtrSet::empty() };
    let config = InitiatorConfig { revision, peer_to_peer: offer, ird: 16, ..InitiatorConfig::default() };
    let mut initiator = Initiator::new(config, Duration::ZERO).expect("the configuration is valid");
    match initiator.handle_bytes(reply) {
        Ok((taken, Some(HandshakeOutcome::Established(theirs)))) => {
            assert_eq!((taken, theirs.rtr), (reply.len(), rtr));
        }
        // A request of revision 2 without the enhanced words gets a reply without them, which our initiator rejects.
        other => assert!(revision == Revision::V2, "{other:?}"),
    }
}

/// Goal: arbitrary bytes in place of FPDUs do no harm.
pub fn fpdu_stream(data: &[u8]) {
    let mut input = Input(data);
    let mut end = victim(&mut input);
    let splitter = splitter(&mut input);
    check(&mut end, input.0, splitter);
}

/// Frames a segment, with a good CRC.
fn frame(segment: &[u8], stream: &mut Vec<u8>) {
    let begin = stream.len();
    stream.extend((segment.len() as u16).to_be_bytes());
    stream.extend_from_slice(segment);
    stream.resize(stream.len() + pad(segment.len()), 0);
    let crc = Crc::compute(&stream[begin..]);
    stream.extend(crc.to_wire());
}

/// Goal: arbitrary bytes in place of DDP segments, in valid frames, do no harm.
pub fn ddp_segment(data: &[u8]) {
    let mut input = Input(data);
    let mut end = victim(&mut input);
    let splitter = splitter(&mut input);
    let mut stream = Vec::new();
    for _ in 0..STEPS {
        if input.0.is_empty() {
            break;
        }
        let len = usize::from(input.byte()) * 4;
        frame(input.bytes(len), &mut stream);
    }
    check(&mut end, &stream, splitter);
}

/// Appends a message whose fields are mostly valid, at a limit or next to one.
fn message(input: &mut Input<'_>, stream: &mut Vec<u8>) {
    let opcode = input.byte();
    let flags = input.byte();
    let last = if flags & 1 == 0 { 0x40 } else { 0 };
    let control = if flags & 0x40 == 0 { 0x40 | opcode & 0x0f } else { opcode };
    let tagged = matches!(opcode & 0x0f, 0 | 2) != (flags & 0x20 != 0);
    let mut segment = vec![1 | last | if tagged { 0x80 } else { 0 }, control];
    if tagged {
        segment.extend(input.word(&[STAGS[0], STAGS[3], 0x900, STAGS[1], STAGS[4]]).to_be_bytes());
        segment.extend(input.long(&[4096, 64, 4096 + 504, 4096 + 512, u64::MAX, 128]).to_be_bytes());
    } else {
        let queue = match opcode & 0x0f {
            1 | 10 => 1,
            7 => 2,
            11 => 3,
            _ => 0,
        };
        segment.extend(input.word(&[0, STAGS[3], STAGS[0]]).to_be_bytes());
        segment.extend(input.word(&[queue, 0, 1, 2, 3, 4]).to_be_bytes());
        segment.extend(input.word(&[1, 2, 3, 4, 0]).to_be_bytes());
        segment.extend(input.word(&[0, 8, 16, 64]).to_be_bytes());
    }
    match opcode & 0x0f {
        1 => {
            segment.extend(input.word(&STAGS).to_be_bytes());
            segment.extend(input.long(&OFFSETS).to_be_bytes());
            segment.extend(input.word(&[512, 0, 1, 513, 100]).to_be_bytes());
            segment.extend(input.word(&[STAGS[1], STAGS[3], STAGS[0]]).to_be_bytes());
            segment.extend(input.long(&[4096, 4097, 4096 + 512, u64::MAX]).to_be_bytes());
        }
        10 => {
            segment.extend(input.word(&[0, 2, 1]).to_be_bytes());
            segment.extend(input.word(&[0, 1]).to_be_bytes());
            segment.extend(input.word(&[STAGS[2], STAGS[3], STAGS[0]]).to_be_bytes());
            segment.extend(input.long(&[4096, 4104, 4096 + 504, 4096 + 508, 4096 + 512]).to_be_bytes());
            for _ in 0..4 {
                segment.extend(input.long(&[0, u64::MAX, 1]).to_be_bytes());
            }
        }
        11 => {
            segment.extend(input.word(&[0, 1]).to_be_bytes());
            segment.extend(input.take::<8>());
        }
        8 | 9 => segment.extend(input.take::<8>()),
        _ => {
            let len = input.word(&[0, 8, 16, 100, 64, 36, 512]) as usize % 1024;
            segment.resize(segment.len() + len, 0xee);
        }
    }
    frame(&segment, stream);
}

/// Goal: nearly valid messages, in valid frames and in any order, do no harm.
pub fn rdmap_message(data: &[u8]) {
    let mut input = Input(data);
    let mut end = victim(&mut input);
    let splitter = splitter(&mut input);
    let mut stream = Vec::new();
    for _ in 0..STEPS {
        if input.0.is_empty() {
            break;
        }
        message(&mut input, &mut stream);
    }
    check(&mut end, &stream, splitter);
}

/// Posts an operation at one endpoint of a pair.
fn post(input: &mut Input<'_>, end: &mut Endpoint) {
    let (what, flags) = (input.byte(), input.byte());
    let data = vec![what; input.word(&[0, 8, 64, 512, 65, 4]) as usize % 3_000];
    let (solicited, fence) = (flags & 1 == 1, flags & 2 == 2);
    let stag = input.word(&[STAGS[3], STAGS[0], STAGS[1], STAGS[2], STAGS[4]]);
    let to = input.long(&[4096, 4104, 4096 + 504, 0, u64::MAX]);
    let kind = match what % 6 {
        0 => OpKind::Write { stag, to, len: 0 },
        1 => OpKind::Send { len: 0, solicited, invalidate: (flags & 4 == 4).then_some(stag) },
        2 => OpKind::Immediate { data: input.take(), solicited },
        3 => OpKind::Read(ReadRequest {
            sink_stag: 0x900,
            sink_to: input.long(&OFFSETS),
            len: data.len() as u32,
            source_stag: stag,
            source_to: to,
        }),
        4 => OpKind::Atomic { stag, to, op: AtomicOp::FetchAdd { add: input.long(&[1]), mask: 0 } },
        _ => {
            let [compare, swap] = [input.long(&[0]), input.long(&[1])];
            let all = u64::MAX;
            let op = AtomicOp::CompareSwap { compare, compare_mask: all, swap, swap_mask: all };
            OpKind::Atomic { stag, to, op }
        }
    };
    // A full queue is a valid result, too.
    let _ = end.post(kind, &data, fence);
}

/// Goal: two endpoints post arbitrary operations to each other, over a stream that may be damaged, without harm.
pub fn connection(data: &[u8]) {
    let mut input = Input(data);
    let offer = RtrSet::from_bits_truncate(input.byte());
    let options = input.byte();
    let (crc, damaged) = (options & 1 == 1, options & 2 == 2);
    let initiator = InitiatorConfig { crc, peer_to_peer: offer, ord: 3, ..InitiatorConfig::default() };
    let responder = ResponderConfig { crc, ..ResponderConfig::default() };
    let accept = AcceptParams { ird: 2, ..AcceptParams::default() };
    let splitter = splitter(&mut input);
    let Ok(negotiated) = run_handshake(initiator, responder, &accept, splitter) else { return };
    let mulpdu = u16::from_be_bytes(input.take());
    let mut pair = Pair::new(&negotiated, &Limits { queue: 4, mulpdu, ..Limits::default() }, splitter);
    register_buffers(&mut pair.a);
    register_buffers(&mut pair.b);
    for _ in 0..STEPS {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 8 {
            0..=1 => post(&mut input, &mut pair.a),
            2 => post(&mut input, &mut pair.b),
            3 if damaged => {
                let stream = if input.bit(0) { &mut pair.to_a } else { &mut pair.to_b };
                let at = usize::from(u16::from_be_bytes(input.take()));
                let flip = input.byte();
                if let Some(byte) = stream.get_mut(at) {
                    *byte ^= flip;
                }
            }
            3 => pair.run(),
            4 => pair.a.post_receive(usize::from(input.byte())),
            5 => pair.b.post_receive(usize::from(input.byte())),
            _ => {
                pair.step();
            }
        }
    }
    pair.run();
    for end in [&mut pair.a, &mut pair.b] {
        assert_eq!(end.memory().damage(), None, "a byte has changed without permission");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(corpus: &str, run: fn(&[u8])) {
        let folder = format!("{}/../../{corpus}", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).expect("the corpus") {
            run(&std::fs::read(entry.expect("an entry").path()).expect("an input"));
            count += 1;
        }
        assert!(count > 0, "{folder} is empty");
    }

    /// Goal: what the fuzzer once found does not come back. Method: these tests replay every input of the corpora.
    #[test]
    fn handshakes_of_the_corpus() {
        replay("fuzz/corpus/mpa_handshake", mpa_handshake);
    }

    #[test]
    fn streams_of_the_corpus() {
        replay("fuzz/corpus/fpdu_stream", fpdu_stream);
    }

    #[test]
    fn segments_of_the_corpus() {
        replay("fuzz/corpus/ddp_segment", ddp_segment);
    }

    #[test]
    fn messages_of_the_corpus() {
        replay("fuzz/corpus/rdmap_message", rdmap_message);
    }

    #[test]
    fn connections_of_the_corpus() {
        replay("fuzz/corpus/connection", connection);
    }
}
