//! Two endpoints against each other: arbitrary operations in arbitrary pieces of stream, damage, cuts, and which side
//! may send when.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::mpa::{
    AcceptParams, HandshakeError, HandshakeOutcome, Initiator, InitiatorConfig, Responder, ResponderConfig,
    Revision, RtrSet,
};
use crate::rdmap::{AtomicOp, ReadRequest};
use crate::testing::{Endpoint, EndpointEvent, Pair, Rights, Splitter, run_handshake};
use crate::tx::OpKind;

/// Buffers of both endpoints: one to write, one to read, one with words for atomics.
const WRITE: u32 = 0x10;
const READ: u32 = 0x20;
const ATOMIC: u32 = 0x30;
const BASE: u64 = 1 << 40;
const SIZE: usize = 3000;

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|i| (i * 31 + i / 256) as u8).collect()
}

fn register_buffers(end: &mut Endpoint) {
    end.register(WRITE, BASE, &[0; SIZE], Rights::WRITE);
    end.register(READ, BASE, &pattern(), Rights::READ);
    end.register(ATOMIC, BASE, &[0; 32], Rights::ATOMIC);
}

/// An operation to try.
#[derive(Clone, Debug)]
enum TestOp {
    Write { at: usize, len: usize },
    Send { len: usize, solicited: bool, invalidate: bool },
    Immediate { data: [u8; 8], solicited: bool },
    Read { at: usize, len: usize },
    Add { word: u8, add: u64 },
}

fn test_op() -> impl Strategy<Value = (TestOp, bool)> {
    let range = || (0..SIZE, 0..SIZE).prop_map(|(at, len)| (at, len.min(SIZE - at)));
    let kind = prop_oneof![
        range().prop_map(|(at, len)| TestOp::Write { at, len }),
        (0..SIZE, any::<bool>(), any::<bool>()).prop_map(|(len, solicited, invalidate)| TestOp::Send {
            len,
            solicited,
            invalidate
        }),
        (any::<[u8; 8]>(), any::<bool>()).prop_map(|(data, solicited)| TestOp::Immediate { data, solicited }),
        range().prop_map(|(at, len)| TestOp::Read { at, len }),
        (0..4_u8, 0..1000_u64).prop_map(|(word, add)| TestOp::Add { word, add }),
    ];
    (kind, any::<bool>())
}

/// The expected results of one endpoint's operations.
#[derive(Default)]
struct ExpectedResults {
    /// Messages delivered at the peer, in order.
    delivered: Vec<EndpointEvent>,
    /// Identifiers of reads and atomics that complete at this endpoint, in order.
    answered: VecDeque<u64>,
    reads: Vec<(u64, Vec<u8>)>,
    /// Final content of the peer's memory.
    written: Vec<u8>,
    sums: [u64; 4],
}

/// Posts operations at `from`; gives `to` receive buffers and tags that may be invalidated.
fn post(tries: &[(TestOp, bool)], from: &mut Endpoint, to: &mut Endpoint) -> ExpectedResults {
    let mut expect = ExpectedResults { written: vec![0; SIZE], ..ExpectedResults::default() };
    for (index, (kind, fence)) in tries.iter().enumerate() {
        let content = |len: usize| -> Vec<u8> { (0..len).map(|i| (i * 7 + index) as u8).collect() };
        let result = match *kind {
            TestOp::Write { at, len } => {
                let data = content(len);
                expect.written[at..at + len].copy_from_slice(&data);
                let kind = OpKind::Write { stag: WRITE, to: BASE + at as u64, len: 0 };
                from.post(kind, &data, *fence)
            }
            TestOp::Send { len, solicited, invalidate } => {
                let stag = 0x1000 + index as u32;
                to.register(stag, 0, b"x", Rights::INVALIDATE);
                to.post_receive(len + index % 3);
                let (data, invalidate) = (content(len), invalidate.then_some(stag));
                expect.delivered.push(EndpointEvent::Received {
                    data: data.clone(),
                    solicited,
                    invalidated: invalidate,
                });
                from.post(OpKind::Send { len: 0, solicited, invalidate }, &data, *fence)
            }
            TestOp::Immediate { data, solicited } => {
                to.post_receive(0);
                expect.delivered.push(EndpointEvent::Immediate { data, solicited });
                from.post(OpKind::Immediate { data, solicited }, &[], *fence)
            }
            TestOp::Read { at, len } => {
                let request = ReadRequest {
                    sink_stag: 0x999,
                    sink_to: u64::MAX - SIZE as u64,
                    len: len as u32,
                    source_stag: READ,
                    source_to: BASE + at as u64,
                };
                let id = from.post(OpKind::Read(request), &[], *fence);
                expect.reads.extend(id.map(|id| (id, pattern()[at..at + len].to_vec())));
                id
            }
            TestOp::Add { word, add } => {
                expect.sums[usize::from(word)] += add;
                let op = AtomicOp::FetchAdd { add, mask: 0 };
                let to = BASE + u64::from(word) * 8;
                from.post(OpKind::Atomic { stag: ATOMIC, to, op }, &[], *fence)
            }
        };
        let id = result.expect("there is room");
        if matches!(kind, TestOp::Read { .. } | TestOp::Add { .. }) {
            expect.answered.push_back(id);
        }
    }
    expect
}

/// Checks that everything posted at `from` has happened.
fn check(expect: &ExpectedResults, from: &Endpoint, to: &mut Endpoint) {
    let delivered: Vec<&EndpointEvent> = to
        .log()
        .iter()
        .filter(|log| matches!(log, EndpointEvent::Received { .. } | EndpointEvent::Immediate { .. }))
        .collect();
    assert_eq!(delivered, expect.delivered.iter().collect::<Vec<_>>());
    let answered: Vec<u64> = from
        .log()
        .iter()
        .filter_map(|log| match log {
            EndpointEvent::ReadDone(id) | EndpointEvent::AtomicDone(id, _) => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(answered, expect.answered.iter().copied().collect::<Vec<_>>());
    for (id, data) in &expect.reads {
        assert_eq!(from.read_result(*id, data.len()), Some(data.as_slice()));
    }
    let memory = to.memory();
    let written = memory.check_access(WRITE, BASE, SIZE as u32, Rights::WRITE).expect("registered");
    assert_eq!(memory.read(written), expect.written);
    let words = memory.check_access(ATOMIC, BASE, 32, Rights::ATOMIC).expect("registered");
    let sums: Vec<u64> = memory
        .read(words)
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
        .collect();
    assert_eq!(sums, expect.sums);
}

fn assert_memory_intact(pair: &mut Pair) {
    assert_eq!((pair.a.memory().damage(), pair.b.memory().damage()), (None, None));
}

fn pair(crc: bool, offer: RtrSet, depth: u16, mulpdu: u16, splitter: Splitter) -> Pair {
    let a =
        InitiatorConfig { crc, peer_to_peer: offer, ird: depth, ord: depth, ..InitiatorConfig::default() };
    let b = ResponderConfig { crc, ..ResponderConfig::default() };
    let accept = AcceptParams { ird: depth, ord: depth, private_data: Vec::new() };
    let negotiated = run_handshake(a, b, &accept, splitter).expect("the handshake succeeds");
    let mut pair = Pair::new(&negotiated, &Limits { mulpdu, ..Limits::default() }, splitter);
    register_buffers(&mut pair.a);
    register_buffers(&mut pair.b);
    pair
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: whatever both sides post, and however the stream is cut into pieces, the same messages arrive in order.
    #[test]
    fn operations_arrive_in_order_however_the_stream_is_cut(
        of_a in prop::collection::vec(test_op(), 1..16),
        of_b in prop::collection::vec(test_op(), 0..16),
        crc: bool,
        offer in 0..8_u8,
        depth in 1..4_u16,
        mulpdu in prop_oneof![Just(0), Just(1442), Just(u16::MAX), any::<u16>()],
        seed: u64,
        piece in prop_oneof![Just(1_usize), Just(7), Just(100), Just(100_000)],
    ) {
        let offer = RtrSet::from_bits_truncate(offer);
        let mut pair = pair(crc, offer, depth, mulpdu, Splitter::new(seed, piece));
        let at_b = post(&of_a, &mut pair.a, &mut pair.b);
        let at_a = post(&of_b, &mut pair.b, &mut pair.a);
        pair.run();
        check(&at_b, &pair.a, &mut pair.b);
        check(&at_a, &pair.b, &mut pair.a);
        assert_memory_intact(&mut pair);
        let ends = [&mut pair.a, &mut pair.b];
        for end in ends {
            prop_assert!(end.connection.is_idle() && end.connection.outstanding() == 0);
            prop_assert_eq!(end.receive_eof(), Ok(()));
        }
    }

    /// Goal: one damaged byte is detected, and nothing after it is delivered. Method: changes one byte in the stream
    /// of some operations.
    #[test]
    fn damaged_byte_ends_the_stream_without_harm(
        tries in prop::collection::vec(test_op(), 1..8),
        crc: bool,
        place: prop::sample::Index,
        flip in 1..=255_u8,
        seed: u64,
    ) {
        let mut pair = pair(crc, RtrSet::empty(), 4, 1442, Splitter::whole());
        let expect = post(&tries, &mut pair.a, &mut pair.b);
        pair.a.transmit(&mut pair.to_b);
        let at = place.index(pair.to_b.len());
        pair.to_b[at] ^= flip;
        let mut splitter = Splitter::new(seed, 50);
        let stream = std::mem::take(&mut pair.to_b);
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(splitter.next(rest.len()));
            pair.b.receive_bytes(now);
            rest = later;
        }
        assert_memory_intact(&mut pair);
        if !crc {
            return Ok(());
        }
        let failed = pair.b.log().iter().any(|log| matches!(log, EndpointEvent::Failed(_)));
        prop_assert!(pair.b.receive_eof().is_err() || failed);
        let delivered: Vec<&EndpointEvent> = pair
            .b
            .log()
            .iter()
            .filter(|log| matches!(log, EndpointEvent::Received { .. } | EndpointEvent::Immediate { .. }))
            .collect();
        prop_assert!(delivered.iter().zip(&expect.delivered).all(|(got, wanted)| *got == wanted));
        prop_assert!(delivered.len() <= expect.delivered.len());
        // The side that failed sent a Terminate, and the other side understood it.
        if failed {
            pair.run();
            prop_assert!(matches!(pair.a.log().last(), Some(EndpointEvent::Terminated(_))));
            prop_assert!(pair.a.connection.is_closed() && pair.b.connection.is_closed());
        }
    }

    /// Goal: a cut stream is distinguished from a finished one. Method: cuts it at any byte.
    #[test]
    fn cut_stream_is_distinguished_from_finished_one(len in 0..3000_usize, place: prop::sample::Index) {
        let mut pair = pair(true, RtrSet::empty(), 4, 1442, Splitter::whole());
        post(&[(TestOp::Send { len, solicited: false, invalidate: false }, false)], &mut pair.a, &mut pair.b);
        pair.a.transmit(&mut pair.to_b);
        let at = place.index(pair.to_b.len() + 1);
        pair.b.receive_bytes(&pair.to_b[..at]);
        let whole = at == 0 || at == pair.to_b.len();
        prop_assert_eq!(pair.b.receive_eof(), if whole { Ok(()) } else { Err(UnexpectedEof) });
    }
}

fn send() -> OpKind {
    OpKind::Send { len: 0, solicited: false, invalidate: None }
}

/// Goal: in peer-to-peer connections the responder may send first, whichever first message was agreed on, and no
/// program sees that message.
#[test]
fn peer_to_peer_responder_may_send_first() {
    for offer in [RtrSet::WRITE, RtrSet::READ, RtrSet::SEND] {
        let mut pair = pair(true, offer, 1, u16::MAX, Splitter::new(1, 5));
        pair.a.post_receive(16);
        pair.b.post(send(), b"good morning", false).expect("room");
        pair.run();
        let data = b"good morning".to_vec();
        let message = EndpointEvent::Received { data, solicited: false, invalidated: None };
        assert_eq!(pair.a.log(), [EndpointEvent::Ready, message]);
        assert_eq!(pair.b.log(), [EndpointEvent::Ready]);
        assert_eq!((pair.a.connection.outstanding(), pair.b.connection.deadline()), (0, None));
        // Then the initiator sends, into the first buffer.
        pair.b.post_receive(1);
        pair.a.post(send(), b"!", false).expect("room");
        pair.run();
        assert_eq!(pair.b.log().len(), 2);
        assert_memory_intact(&mut pair);
    }
}

/// RFC 5044 section 7.1.2: in client-server connections the responder waits until the initiator has sent.
#[test]
fn responder_waits_for_first_fpdu_in_client_server_mode() {
    let mut pair = pair(true, RtrSet::empty(), 1, u16::MAX, Splitter::whole());
    pair.a.post_receive(16);
    pair.b.post(send(), b"welcome", false).expect("room");
    pair.run();
    assert_eq!((pair.a.log(), pair.b.connection.deadline()), (&[][..], None));
    let write = OpKind::Write { stag: 0, to: 0, len: 0 };
    pair.a.post(write, b"", false).expect("room");
    pair.run();
    assert_eq!((pair.a.log().len(), pair.b.log()), (2, &[EndpointEvent::Ready][..]));
}

/// A damaged first FPDU does not let the responder send.
#[test]
fn damaged_first_fpdu_does_not_release_responder() {
    let mut pair = pair(true, RtrSet::WRITE, 1, u16::MAX, Splitter::whole());
    pair.b.post(send(), b"good morning", false).expect("room");
    pair.a.transmit(&mut pair.to_b);
    pair.to_b[18] ^= 1;
    pair.run();
    assert_eq!(pair.b.log(), [EndpointEvent::Failed(TerminateCode::LLP_CRC)]);
    assert_eq!(pair.a.log(), [EndpointEvent::Ready, EndpointEvent::Terminated(TerminateCode::LLP_CRC)]);
}

#[test]
fn missing_first_message_times_out() {
    let mut pair = pair(true, RtrSet::WRITE, 1, u16::MAX, Splitter::whole());
    let deadline = Duration::from_secs(10);
    assert_eq!((pair.a.connection.deadline(), pair.b.connection.deadline()), (None, Some(deadline)));
    assert_eq!(pair.b.connection.handle_timeout(deadline - Duration::from_nanos(1)), Ok(()));
    let failure = pair.b.connection.handle_timeout(deadline).expect_err("it is time");
    assert_eq!(failure.terminate.code, TerminateCode::LLP_RTR);
    assert_eq!(pair.b.connection.deadline(), None);
    pair.run();
    assert_eq!(pair.a.log(), [EndpointEvent::Ready, EndpointEvent::Terminated(TerminateCode::LLP_RTR)]);
}

/// Goal: both sides read at the limit of what the other serves, and neither waits for ever. Method: depth 1, many
/// reads in each direction.
#[test]
fn reads_in_both_directions_complete() {
    for piece in [1, 3, 1000] {
        let mut pair = pair(true, RtrSet::all(), 1, 128, Splitter::new(5, piece));
        let tries = vec![(TestOp::Read { at: 5, len: 1000 }, false); 10];
        let at_b = post(&tries, &mut pair.a, &mut pair.b);
        let at_a = post(&tries, &mut pair.b, &mut pair.a);
        pair.run();
        check(&at_b, &pair.a, &mut pair.b);
        check(&at_a, &pair.b, &mut pair.a);
    }
}

/// A buffer is deregistered while it is being read.
#[test]
fn deregistered_read_source_ends_stream() {
    let mut pair = pair(true, RtrSet::empty(), 4, u16::MAX, Splitter::whole());
    post(&[(TestOp::Read { at: 0, len: 10 }, false)], &mut pair.a, &mut pair.b);
    pair.a.transmit(&mut pair.to_b);
    pair.b.receive_bytes(&std::mem::take(&mut pair.to_b));
    pair.b.memory().invalidate(READ);
    pair.run();
    assert_eq!(pair.a.log(), [EndpointEvent::Ready, EndpointEvent::Terminated(TerminateCode::STAG_INVALID)]);
}

/// RFC 5040 section 5.3: after a Send with Invalidate, the tag is no longer valid.
#[test]
fn an_invalidated_tag_is_refused() {
    let mut pair = Pair::with_defaults(Splitter::whole());
    pair.b.register(5, 0, &[0; 8], Rights::WRITE | Rights::INVALIDATE);
    pair.b.post_receive(0);
    let write = OpKind::Write { stag: 5, to: 0, len: 0 };
    pair.a.post(write, b"12345678", false).expect("room");
    pair.a.post(OpKind::Send { len: 0, solicited: false, invalidate: Some(5) }, b"", false).expect("room");
    pair.a.post(write, b"abcdefgh", false).expect("room");
    pair.run();
    assert_eq!(pair.b.log().last(), Some(&EndpointEvent::Failed(TerminateCode::TAGGED_STAG_INVALID)));
    assert_eq!(pair.b.log().len(), 3);
    assert_eq!(pair.a.log().last(), Some(&EndpointEvent::Terminated(TerminateCode::TAGGED_STAG_INVALID)));
    assert_memory_intact(&mut pair);
}

/// Goal: bytes that arrive in one piece with the reply are not lost. Method: a responder's reply and first message,
/// joined. No responder may send so early, but an initiator may be lenient.
#[test]
fn bytes_behind_a_reply_are_received_as_fpdus() {
    let mut a = Initiator::new(InitiatorConfig::default(), Duration::ZERO).expect("right");
    let mut b = Responder::new(ResponderConfig::default(), Duration::ZERO);
    b.handle_bytes(a.transmit()).expect("valid").1.expect("a whole frame");
    let of_b = b.accept(&AcceptParams::default()).expect("a request");
    let mut stream = b.transmit().to_vec();
    let mut b = Endpoint::new(Connection::new(&of_b, &Limits::default(), Duration::ZERO));
    b.connection.abort(TerminateCode::GLOBAL_CATASTROPHIC);
    b.transmit(&mut stream);
    let (taken, outcome) = a.handle_bytes(&stream).expect("valid");
    let Some(HandshakeOutcome::Established(of_a)) = outcome else { panic!("{outcome:?}") };
    let mut a = Endpoint::new(Connection::new(&of_a, &Limits::default(), Duration::ZERO));
    a.receive_bytes(&stream[taken..]);
    assert_eq!(
        a.log(),
        [EndpointEvent::Ready, EndpointEvent::Terminated(TerminateCode::GLOBAL_CATASTROPHIC)]
    );
}

/// A whole connection in revision 1.
#[test]
fn connection_of_revision_1_carries_messages() -> Result<(), HandshakeError> {
    let config = InitiatorConfig { revision: Revision::V1, crc: false, ..InitiatorConfig::default() };
    let responder = ResponderConfig { crc: false, ..ResponderConfig::default() };
    let splitter = Splitter::new(3, 11);
    let negotiated = run_handshake(config, responder, &AcceptParams::default(), splitter)?;
    let mut pair = Pair::new(&negotiated, &Limits::default(), splitter);
    register_buffers(&mut pair.a);
    register_buffers(&mut pair.b);
    assert!(!pair.a.connection.checks_crc());
    let tries = [
        (TestOp::Write { at: 0, len: 100 }, false),
        (TestOp::Send { len: 10, solicited: true, invalidate: false }, true),
        (TestOp::Read { at: 1, len: 1 }, false),
    ];
    let expect = post(&tries, &mut pair.a, &mut pair.b);
    pair.run();
    check(&expect, &pair.a, &mut pair.b);
    Ok(())
}
