//! The bytes that the sender puts on the wire, and their order.

use super::*;
use crate::crc::Crc;
use crate::ddp::TAGGED_LEN;
use crate::mpa::{MULPDU_MAX, MULPDU_MIN, Rtr};
use crate::rdmap::{AtomicOp, AtomicRequest, ReadRequest};
use crate::rx::ExpectedResponse;
use crate::terminate::{Terminate, TerminateCode};

fn config() -> SenderConfig {
    SenderConfig { crc: true, ird: 2, ord: 2, queue: 8, mulpdu: MULPDU_MAX, held: false, rtr: None }
}

fn op(id: u64, kind: OpKind) -> Op {
    Op { id, kind, fence: false }
}

const fn write(len: u32) -> OpKind {
    OpKind::Write { stag: 0x0102_0304, to: 0x1000, len }
}

const fn send(len: u32) -> OpKind {
    OpKind::Send { len, solicited: false, invalidate: None }
}

const READ: ReadRequest = ReadRequest { sink_stag: 1, sink_to: 2, len: 3, source_stag: 4, source_to: 5 };

fn next(sender: &mut Sender) -> Fpdu {
    match sender.poll() {
        Some(Transmit::Fpdu(fpdu)) => fpdu,
        other => panic!("{other:?}"),
    }
}

/// The whole FPDU with a payload of zeros.
fn bytes(fpdu: &Fpdu) -> Vec<u8> {
    bytes_with(fpdu, &vec![0; fpdu.payload.len()])
}

fn framed(before_crc: &[u8]) -> Vec<u8> {
    [before_crc, &Crc::compute(before_crc).to_wire()].concat()
}

#[test]
fn write_fpdu_has_known_bytes() {
    let mut sender = Sender::new(config());
    sender.post(op(9, write(5))).expect("room");
    let fpdu = next(&mut sender);
    assert_eq!((fpdu.origin, fpdu.last, fpdu.expects), (Origin::Op(9), true, None));
    assert_eq!(fpdu.payload, Payload::Op { id: 9, offset: 0, len: 5 });
    let expected = [0, 19, 0xc1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes(&fpdu), framed(&expected));
    assert_eq!(fpdu.len(), 28);
    assert_eq!(sender.poll(), None);
    assert!(sender.is_idle());
}

fn append(bytes: &[u8], to: &mut Vec<u8>) -> Result<(), ()> {
    to.extend_from_slice(bytes);
    Ok(())
}

/// The FPDU with its trailer from a builder, as a gathering driver sends it.
fn bytes_with(fpdu: &Fpdu, payload: &[u8]) -> Vec<u8> {
    let mut trailer = fpdu.trailer_builder();
    trailer.update(payload);
    [fpdu.header(), payload, &trailer.finish().expect("the whole payload was passed")].concat()
}

/// The FPDU that the fast path makes, without payload; `None` if the operation cannot take the fast path.
fn fast_path_fpdu(sender: &mut Sender, kind: &OpKind) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    sender.write_single(kind, &mut out, |to| append(&[], to)).map(|_| out)
}

/// Goal: the fast path gives the same bytes as the normal path. Method: both in turn, with all lengths around a pad.
#[test]
fn fast_path_sends_same_bytes() {
    for crc in [false, true] {
        let config = || SenderConfig { crc, ..config() };
        let (mut short, mut long) = (Sender::new(config()), Sender::new(config()));
        for turn in 0..40_u32 {
            let kind = if turn % 2 == 0 { write(turn) } else { send(turn / 3) };
            long.post(op(turn.into(), kind)).expect("room");
            let fpdu = next(&mut long);
            // The FPDU follows other bytes, as in a driver's buffer.
            let mut out = vec![9; turn as usize % 5];
            let payload = vec![0xa5; fpdu.payload.len()];
            assert_eq!(short.write_single(&kind, &mut out, |to| append(&payload, to)), Some(Ok(())));
            assert_eq!(out.split_off(turn as usize % 5), bytes_with(&fpdu, &payload), "{kind:?}");
            let (mut whole, len) = (Vec::new(), fpdu.len());
            fpdu.write(&mut whole, |to| append(&payload, to)).expect("appended");
            assert_eq!((whole.len(), whole), (len, bytes_with(&fpdu, &payload)), "{kind:?}");
            assert!(short.is_idle());
        }
    }
}

/// Goal: the fast path is taken only if nothing is queued before the operation and the operation fits one segment.
#[test]
fn fast_path_needs_empty_queue_and_one_segment() {
    let mut sender = Sender::new(SenderConfig { mulpdu: MULPDU_MIN, ..config() });
    let room = u32::from(MULPDU_MIN) - TAGGED_LEN as u32;
    assert!(fast_path_fpdu(&mut sender, &write(room)).is_some());
    assert_eq!(fast_path_fpdu(&mut sender, &write(room + 1)), None, "two segments");
    assert_eq!(fast_path_fpdu(&mut sender, &OpKind::Write { stag: 1, to: u64::MAX, len: 2 }), None, "wraps");
    assert_eq!(fast_path_fpdu(&mut sender, &OpKind::Read(READ)), None);
    sender.post(op(1, write(1))).expect("room");
    assert_eq!(fast_path_fpdu(&mut sender, &write(1)), None, "an operation is queued before it");
    next(&mut sender);
    sender.answer_read(READ);
    assert_eq!(fast_path_fpdu(&mut sender, &write(1)), None, "a response is queued before it");
    next(&mut sender);
    assert!(fast_path_fpdu(&mut sender, &write(1)).is_some());
    sender.terminate(Terminate::new(TerminateCode::LLP_CRC));
    assert_eq!(fast_path_fpdu(&mut sender, &write(1)), None, "the stream is ending");
    let mut held = Sender::new(SenderConfig { held: true, ..config() });
    assert_eq!(fast_path_fpdu(&mut held, &write(1)), None, "the peer speaks first");
    held.close();
    held.release();
    let nothing = held.write_single(&write(1), &mut Vec::new(), |_| Err(()));
    assert_eq!(nothing, None, "and the payload is not asked for");
    assert_eq!(fast_path_fpdu(&mut held, &write(1)), None, "closed");
}

#[test]
fn all_forms_of_send_have_known_bytes() {
    let mut sender = Sender::new(config());
    for (solicited, invalidate) in [(false, None), (false, Some(0xaa)), (true, None), (true, Some(0xbb))] {
        sender.post(op(1, OpKind::Send { len: 2, solicited, invalidate })).expect("room");
    }
    for (opcode, tag, msn) in [(0x43, 0, 1), (0x44, 0xaa, 2), (0x45, 0, 3), (0x46, 0xbb, 4)] {
        let expected = [0, 20, 0x41, opcode, 0, 0, 0, tag, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes(&next(&mut sender)), framed(&expected));
    }
}

#[test]
fn control_messages_have_known_bytes() {
    let mut sender = Sender::new(config());
    sender.post(op(1, OpKind::Immediate { data: *b"12345678", solicited: true })).expect("room");
    sender.post(op(2, OpKind::Read(READ))).expect("room");
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    sender.post(op(3, OpKind::Atomic { stag: 7, to: 8, op: add })).expect("room");
    let fpdu = next(&mut sender);
    let header = [0, 26, 0x41, 0x49, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(bytes(&fpdu), framed(&[&header, &b"12345678"[..]].concat()));

    let fpdu = next(&mut sender);
    let header = [0, 46, 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let body = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5];
    assert_eq!(bytes(&fpdu), framed(&[&header[..], &body].concat()));
    assert_eq!(fpdu.expects, Some(ExpectedResponse::Read { id: Some(2), stag: 1, to: 2, len: 3 }));

    let fpdu = next(&mut sender);
    let wire = bytes(&fpdu);
    assert_eq!(wire[..24], [0, 70, 0x41, 0x4a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire.len(), 76);
    assert_eq!(fpdu.expects, Some(ExpectedResponse::Atomic { id: 3, request: 0 }));
    assert_eq!(sender.outstanding(), 2);
}

#[test]
fn terminate_has_known_bytes_and_is_last() {
    let mut sender = Sender::new(config());
    sender.post(op(1, write(5))).expect("room");
    sender.terminate(Terminate::new(TerminateCode::LLP_CRC));
    sender.terminate(Terminate::new(TerminateCode::LLP_LENGTH));
    assert!(!sender.is_idle());
    let fpdu = next(&mut sender);
    assert_eq!(bytes(&fpdu), Terminate::new(TerminateCode::LLP_CRC).to_fpdu());
    assert_eq!((fpdu.origin, sender.poll()), (Origin::Protocol, None));
    assert!(sender.is_idle() && sender.is_closed());
    assert_eq!(sender.post(op(2, write(1))), Err(PostError::Closed));
}

/// Goal: segments cover a message without gaps, in order, within MULPDU. Method: sizes at the limits and next to
/// them.
#[test]
fn segments_cover_their_message() {
    for mulpdu in [0, MULPDU_MIN, 129, 1442, 1454, MULPDU_MAX, u16::MAX] {
        let limit = mulpdu.clamp(MULPDU_MIN, MULPDU_MAX);
        for len in
            [0, 1, 96, 104, 105, 113, 114, 115, 1427, 1428, 1429, 64_750, 64_754, 64_755, 65_521, 200_000]
        {
            for kind in [write(len), send(len)] {
                let mut sender = Sender::new(SenderConfig { mulpdu, ..config() });
                sender.post(op(1, kind)).expect("room");
                let (mut covered, mut segments) = (0, 0);
                loop {
                    segments += 1;
                    let fpdu = next(&mut sender);
                    assert!(fpdu.len() <= usize::from(limit) + 2 + 3 + 4);
                    let wire_len = u16::from_be_bytes([fpdu.header()[0], fpdu.header()[1]]);
                    assert!(wire_len <= limit);
                    if let Payload::Op { id: 1, offset, .. } = fpdu.payload {
                        assert_eq!(offset as usize, covered);
                    }
                    covered += fpdu.payload.len();
                    if fpdu.last {
                        break;
                    }
                    // No word is split, and no segment in the middle needs a pad.
                    assert!(fpdu.payload.len().is_multiple_of(8) && !fpdu.payload.is_empty());
                }
                assert_eq!((covered, sender.poll()), (len as usize, None));
                // A message that fits one segment has only one.
                let header_len = if kind == send(len) { 18 } else { 14 };
                assert_eq!(segments == 1, len + header_len <= limit.into());
            }
        }
    }
}

#[test]
fn set_mulpdu_applies_within_a_message() {
    let mut sender = Sender::new(SenderConfig { mulpdu: 128, ..config() });
    sender.post(op(1, write(1000))).expect("room");
    assert_eq!(next(&mut sender).payload.len(), 112);
    sender.set_mulpdu(MULPDU_MAX);
    let fpdu = next(&mut sender);
    assert_eq!((fpdu.payload, fpdu.last), (Payload::Op { id: 1, offset: 112, len: 888 }, true));
    // The tagged offset advances with the segments.
    assert_eq!(fpdu.header()[8..16], (0x1000_u64 + 112).to_be_bytes());
}

#[test]
fn post_fails_when_the_queue_is_full() {
    let mut sender = Sender::new(SenderConfig { queue: 2, ..config() });
    sender.post(op(1, write(1))).expect("room");
    sender.post(op(2, write(1))).expect("room");
    assert_eq!(sender.post(op(3, write(1))), Err(PostError::Full));
    next(&mut sender);
    assert_eq!(sender.post(op(3, write(1))), Ok(()));
    let mut sender = Sender::new(SenderConfig { ord: 0, ..config() });
    assert_eq!(sender.post(op(1, OpKind::Read(READ))), Err(PostError::NoReads));
    let wrapping = OpKind::Write { stag: 1, to: u64::MAX, len: 2 };
    assert_eq!(sender.post(op(1, wrapping)), Err(PostError::Wraps));
    let mut sender = Sender::new(config());
    for wrapping in
        [ReadRequest { sink_to: u64::MAX - 1, ..READ }, ReadRequest { source_to: u64::MAX - 1, ..READ }]
    {
        assert_eq!(sender.post(op(1, OpKind::Read(wrapping))), Err(PostError::Wraps));
    }
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    let unaligned = OpKind::Atomic { stag: 7, to: 4, op: add };
    assert_eq!(sender.post(op(1, unaligned)), Err(PostError::Unaligned));
}

/// ORD holds reads back, a fence holds any operation back, and operations behind them wait too: the order is kept.
#[test]
fn reads_beyond_ord_and_fenced_operations_wait() {
    let mut sender = Sender::new(config());
    for id in 1..=3 {
        sender.post(op(id, OpKind::Read(READ))).expect("room");
    }
    sender.post(op(4, write(1))).expect("room");
    sender.post(Op { fence: true, ..op(5, send(0)) }).expect("room");
    assert_eq!((next(&mut sender).origin, next(&mut sender).origin), (Origin::Op(1), Origin::Op(2)));
    assert_eq!((sender.poll(), sender.outstanding()), (None, 2));
    sender.request_answered();
    assert_eq!((next(&mut sender).origin, next(&mut sender).origin), (Origin::Op(3), Origin::Op(4)));
    assert_eq!(sender.poll(), None);
    sender.request_answered();
    assert_eq!(sender.poll(), None);
    sender.request_answered();
    assert_eq!(next(&mut sender).origin, Origin::Op(5));
}

/// Goal: two sides that wait for each other's responses do not block each other. Method: the queue of operations
/// waits, and responses are sent nevertheless; otherwise the two alternate.
#[test]
fn responses_are_sent_while_operations_wait() {
    let mut sender = Sender::new(SenderConfig { ord: 1, ..config() });
    for id in 1..=2 {
        sender.post(op(id, OpKind::Read(READ))).expect("room");
    }
    next(&mut sender);
    assert_eq!(sender.poll(), None);
    sender.answer_read(READ);
    let fpdu = next(&mut sender);
    assert_eq!((fpdu.origin, fpdu.last), (Origin::Response, true));
    assert_eq!(fpdu.payload, Payload::Source { stag: 4, to: 5, len: 3 });
    assert_eq!(fpdu.header(), [0, 17, 0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);

    let mut sender = Sender::new(config());
    for id in 1..=3 {
        sender.post(op(id, write(1))).expect("room");
    }
    sender.answer_read(READ);
    sender.answer_read(READ);
    let order: Vec<Origin> = (0..5).map(|_| next(&mut sender).origin).collect();
    let answer = Origin::Response;
    assert_eq!(order, [Origin::Op(1), answer, Origin::Op(2), answer, Origin::Op(3)]);
}

#[test]
fn atomics_are_executed_in_order_of_responses() {
    let mut sender = Sender::new(config());
    let request = AtomicRequest { id: 77, stag: 7, to: 8, op: AtomicOp::FetchAdd { add: 1, mask: 0 } };
    sender.answer_read(READ);
    sender.answer_atomic(request);
    sender.post(op(1, write(1))).expect("room");
    assert_eq!(next(&mut sender).origin, Origin::Op(1));
    assert_eq!(sender.atomic_done(0), None, "it has not been asked for yet");
    assert_eq!(next(&mut sender).origin, Origin::Response);
    assert_eq!(sender.poll(), Some(Transmit::Atomic(request)));
    assert_eq!(sender.poll(), None);
    let fpdu = sender.atomic_done(5).expect("it was asked for");
    let expected = [
        0, 30, 0x41, 0x4b, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0,
        5,
    ];
    assert_eq!(bytes(&fpdu), framed(&expected));
    // An atomic that is rejected meanwhile does not delay the Terminate.
    sender.answer_atomic(request);
    assert_eq!(sender.poll(), Some(Transmit::Atomic(request)));
    sender.terminate(Terminate::new(TerminateCode::STAG_INVALID));
    assert_eq!(next(&mut sender).origin, Origin::Protocol);
    assert_eq!((sender.atomic_done(5), sender.poll()), (None, None));
}

/// A responder sends nothing before it is released (RFC 5044 section 7.1.2).
#[test]
fn responder_sends_nothing_until_released() {
    let mut sender = Sender::new(SenderConfig { held: true, ..config() });
    sender.post(op(1, write(1))).expect("room");
    assert_eq!(sender.poll(), None);
    assert!(!sender.is_idle());
    sender.release();
    assert_eq!(next(&mut sender).origin, Origin::Op(1));
    // But it may send the reason why it ends.
    let mut sender = Sender::new(SenderConfig { held: true, ..config() });
    sender.terminate(Terminate::new(TerminateCode::LLP_CRC));
    assert_eq!(next(&mut sender).origin, Origin::Protocol);
}

/// The ready-to-receive messages (RFC 6581 section 9.2).
#[test]
fn first_messages_have_known_bytes() {
    let run = |rtr| {
        let mut sender = Sender::new(SenderConfig { rtr: Some(rtr), ..config() });
        sender.post(op(1, send(0))).expect("room");
        let fpdu = next(&mut sender);
        assert_eq!((fpdu.origin, fpdu.last), (Origin::Protocol, true));
        assert_eq!(next(&mut sender).origin, Origin::Op(1));
        (bytes(&fpdu), fpdu.expects)
    };
    let (wire, expects) = run(Rtr::Write);
    assert_eq!(wire, framed(&[0, 14, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(expects, None);
    let (wire, expects) = run(Rtr::Send);
    assert_eq!(wire, framed(&[0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]));
    assert_eq!(expects, None);
    let (wire, expects) = run(Rtr::Read);
    assert_eq!(wire[..4], [0, 46, 0x41, 0x41]);
    assert_eq!(expects, Some(ExpectedResponse::Read { id: None, stag: 1, to: 0, len: 0 }));
}

#[test]
fn trailer_builder_rejects_wrong_payload_length() {
    let mut sender = Sender::new(config());
    sender.post(op(1, write(6))).expect("room");
    let fpdu = next(&mut sender);
    let mut trailer = fpdu.trailer_builder();
    assert!(trailer.wants_payload());
    trailer.update(b"hello");
    let mismatch = PayloadMismatch { given: 5, wanted: 6 };
    assert_eq!(trailer.finish(), Err(mismatch));
    trailer.append(Crc::compute(b"!"), 1);
    let trailer = trailer.finish().expect("the whole payload was passed");
    let whole = [fpdu.header(), b"hello!\0\0"].concat();
    assert_eq!(trailer[..2], [0, 0]);
    assert_eq!(trailer[2..], Crc::compute(&whole).to_wire());
    let mut builder = fpdu.trailer_builder();
    builder.update_with(6, |mut crc| {
        crc.update(b"hello!");
        crc
    });
    assert_eq!(builder.finish(), Ok(trailer), "the caller continues the CRC itself");

    // Without CRCs the payload need not be read (RFC 5044 section 4.1).
    let mut sender = Sender::new(SenderConfig { crc: false, ..config() });
    sender.post(op(1, write(6))).expect("room");
    let trailer = next(&mut sender).trailer_builder();
    assert!(!trailer.wants_payload());
    assert_eq!(trailer.finish().expect("no CRC").as_slice(), [0; 6]);
}

/// Goal: an FPDU reports whether it completes a message that the peer delivers. Method: both segments of each
/// two-segment message, and single-segment messages.
#[test]
fn completes_message_is_false_for_write_segments() {
    let mut sender = Sender::new(SenderConfig { mulpdu: MULPDU_MIN, ..config() });
    let long = u32::from(MULPDU_MIN);
    sender.post(op(1, write(long))).expect("room");
    sender.post(op(2, send(long))).expect("room");
    sender.post(op(3, OpKind::Immediate { data: [0; 8], solicited: false })).expect("room");
    sender.answer_read(ReadRequest { len: long, ..READ });
    let mut fpdus = Vec::new();
    while let Some(Transmit::Fpdu(fpdu)) = sender.poll() {
        fpdus.push((fpdu.origin, fpdu.last, fpdu.completes_message()));
    }
    for (origin, completes) in
        [(Origin::Op(1), false), (Origin::Op(2), true), (Origin::Op(3), true), (Origin::Response, true)]
    {
        let of_message: Vec<_> = fpdus.iter().filter(|fpdu| fpdu.0 == origin).collect();
        let (last, before) = of_message.split_last().expect("segments");
        assert_eq!((last.1, last.2), (true, completes), "{origin:?}");
        assert!(before.iter().all(|fpdu| !fpdu.1 && !fpdu.2), "{origin:?}");
    }
}
