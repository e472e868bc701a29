//! Initiator and responder against each other in every combination, and each against peers that behave differently.

use std::time::Duration;

use super::*;
use crate::rx::{AccessError, Lookup, Receiver, ReceiverConfig, ReceiverStep};
use crate::terminate::TerminateCode;
use crate::testing::{Splitter, run_handshake};

const NOW: Duration = Duration::from_secs(100);

fn initiator(config: InitiatorConfig) -> Initiator {
    Initiator::new(config, NOW).expect("the configuration is valid")
}

fn responder(config: ResponderConfig) -> Responder {
    Responder::new(config, NOW)
}

/// Passes the initiator's request to the responder.
fn deliver(a: &mut Initiator, b: &mut Responder) -> Result<Option<MpaRequest>, HandshakeError> {
    let request = a.transmit().to_vec();
    a.transmitted(request.len());
    let (taken, request_read) = b.handle_bytes(&request)?;
    assert_eq!(taken, request.len());
    Ok(request_read)
}

fn negotiated(outcome: Option<HandshakeOutcome>) -> Negotiated {
    match outcome {
        Some(HandshakeOutcome::Established(negotiated)) => negotiated,
        other => panic!("{other:?}"),
    }
}

/// Goal: every combination of revision, CRC on either side, peer-to-peer offer and acceptance gives the same
/// connection on both sides. Method: all combinations, with the stream cut into pieces.
#[test]
fn accepted_handshake_agrees_in_every_configuration() {
    let offers = (0..8).map(RtrSet::from_bits_truncate);
    for ((v2, offer), flags) in [false, true]
        .into_iter()
        .flat_map(|v2| offers.clone().map(move |offer| (v2, offer)))
        .flat_map(|case| (0..4).map(move |flags| (case, flags)))
    {
        for taken in (0..8).map(RtrSet::from_bits_truncate) {
            let revision = if v2 { Revision::V2 } else { Revision::V1 };
            let (crc_a, crc_b) = (flags & 1 == 1, flags & 2 == 2);
            let a = InitiatorConfig {
                revision,
                crc: crc_a,
                peer_to_peer: offer,
                private_data: b"question".to_vec(),
                ..InitiatorConfig::default()
            };
            let b = ResponderConfig { crc: crc_b, peer_to_peer: taken, ..ResponderConfig::default() };
            let accept = AcceptParams { private_data: b"answer".to_vec(), ..AcceptParams::default() };
            let result = run_handshake(a, b, &accept, Splitter::new(7, 9));
            if v2 && !offer.is_empty() && !offer.intersects(taken) {
                assert_eq!(result, Err(HandshakeError::NoCommonRtr));
                continue;
            }
            let (of_a, of_b) = result.expect("the handshake succeeds");
            let common = offer & taken;
            let rtr = Rtr::PREFERENCE.into_iter().find(|rtr| v2 && common.contains(rtr.as_set()));
            let expected = Negotiated {
                role: Role::Initiator,
                revision,
                crc: crc_a || crc_b,
                ird: 16,
                ord: 16,
                rtr,
                private_data: b"answer".to_vec(),
            };
            assert_eq!(of_a, expected);
            let private_data = b"question".to_vec();
            assert_eq!(of_b, Negotiated { role: Role::Responder, private_data, ..expected });
        }
    }
}

/// Goal: a program's rejection arrives with its private data, in both revisions.
#[test]
fn rejection_delivers_private_data_in_both_revisions() {
    for revision in [Revision::V1, Revision::V2] {
        let mut a = initiator(InitiatorConfig { revision, ..InitiatorConfig::default() });
        let mut b = responder(ResponderConfig::default());
        deliver(&mut a, &mut b).expect("valid").expect("a whole frame");
        b.reject(b"no").expect("there is a request");
        let (taken, outcome) = a.handle_bytes(b.transmit()).expect("a valid reply");
        assert_eq!(taken, b.transmit().len());
        assert_eq!(outcome, Some(HandshakeOutcome::Rejected { private_data: b"no".to_vec() }));
        assert!(!a.may_retry_as_v1() && a.transmit().is_empty());
        assert_eq!(b.reject(b"again"), Err(HandshakeError::NoRequest));
        assert_eq!(b.accept(&AcceptParams::default()), Err(HandshakeError::NoRequest));
    }
}

/// Goal: a peer that demands markers is refused politely. Method: M in a request is answered by R with M clear; M in
/// a reply by a Terminate.
#[test]
fn markers_are_refused() {
    for (request, reply) in [
        (&b"MPA ID Req Frame\xc0\x01\x00\x00"[..], &b"MPA ID Rep Frame\x60\x01\x00\x00"[..]),
        (
            &b"MPA ID Req Frame\x90\x02\x00\x04\x00\x01\x00\x01"[..],
            &b"MPA ID Rep Frame\x30\x02\x00\x04\x00\x00\x00\x00"[..],
        ),
    ] {
        let mut b = responder(ResponderConfig::default());
        assert_eq!(b.handle_bytes(request), Err(HandshakeError::MarkersDemanded));
        assert_eq!(b.transmit(), reply);
        b.transmitted(reply.len());
        assert_eq!((b.transmit(), b.deadline()), (&[][..], None));
    }
    let mut a = initiator(InitiatorConfig { revision: Revision::V1, ..InitiatorConfig::default() });
    let reply = b"MPA ID Rep Frame\x80\x01\x00\x00";
    assert_eq!(a.handle_bytes(reply), Err(HandshakeError::MarkersDemanded));
    assert_eq!(terminate_code(a.transmit()), TerminateCode::LLP_FRAME);
}

struct Nothing;

impl Lookup for Nothing {
    fn check_write(&mut self, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Err(AccessError::Invalid)
    }

    fn check_read_sink(&mut self, _: u64, _: u32, _: u32) -> Result<(), AccessError> {
        Err(AccessError::Invalid)
    }

    fn check_read_source(&mut self, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Err(AccessError::Invalid)
    }

    fn check_atomic(&mut self, _: u32, _: u64) -> Result<(), AccessError> {
        Err(AccessError::Invalid)
    }

    fn check_invalidate(&mut self, _: u32) -> Result<(), AccessError> {
        Err(AccessError::Invalid)
    }

    fn take_receive(&mut self, _: u32) -> Option<u32> {
        None
    }
}

/// The code of a Terminate that was sent in a handshake, as a receiver of FPDUs reads it.
fn terminate_code(mut fpdu: &[u8]) -> TerminateCode {
    let mut receiver = Receiver::new(ReceiverConfig { crc: true, ird: 0, ord: 0, rtr: None });
    loop {
        match receiver.poll(&mut Nothing).expect("a valid FPDU") {
            ReceiverStep::Check(_) => receiver.check(fpdu),
            ReceiverStep::Bytes(_) => {
                let taken = receiver.feed(fpdu);
                assert!(taken > 0, "the FPDU is whole");
                fpdu = &fpdu[taken..];
            }
            ReceiverStep::Event(crate::rx::Event::Terminated(terminate)) => return terminate.code,
            ReceiverStep::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// RFC 6581 section 10: an initiator of revision 2 meets a responder of revision 1 that answers in different ways.
#[test]
fn initiator_retries_with_revision_1_after_reply_in_revision_1() {
    // Our responder rejects.
    let mut a = initiator(InitiatorConfig::default());
    let v1 = ResponderConfig { revision_max: Revision::V1, ..ResponderConfig::default() };
    let mut b = responder(v1.clone());
    assert_eq!(deliver(&mut a, &mut b), Err(HandshakeError::Revision(2)));
    assert_eq!(b.transmit(), b"MPA ID Rep Frame\x20\x01\x00\x00");
    let outcome = a.handle_bytes(b.transmit()).expect("a valid reply").1;
    assert_eq!(outcome, Some(HandshakeOutcome::Rejected { private_data: Vec::new() }));
    assert!(a.may_retry_as_v1());

    // Others answer as if the request were of revision 1. A reply of revision 2 without the enhanced words is
    // different.
    for (reply, error) in [
        (b"MPA ID Rep Frame\x40\x01\x00\x00", HandshakeError::Downgraded),
        (b"MPA ID Rep Frame\x40\x02\x00\x00", HandshakeError::EnhancedMissing),
    ] {
        let mut a = initiator(InitiatorConfig::default());
        assert_eq!(a.handle_bytes(reply), Err(error.clone()));
        assert_eq!(a.may_retry_as_v1(), error == HandshakeError::Downgraded);
        assert_eq!(terminate_code(a.transmit()), TerminateCode::LLP_FRAME);
    }

    // The second attempt works.
    let config = InitiatorConfig { revision: Revision::V1, ..InitiatorConfig::default() };
    let (of_a, _) = run_handshake(config, v1, &AcceptParams::default(), Splitter::whole())
        .expect("the handshake succeeds");
    assert_eq!((of_a.revision, of_a.rtr), (Revision::V1, None));

    // A connection that ended, before or within a reply, or an attempt in revision 1, is no reason to retry.
    for heard in [&b""[..], b"MPA"] {
        let mut a = initiator(InitiatorConfig::default());
        a.handle_bytes(heard).expect("an incomplete frame is no error");
        assert_eq!(a.handle_eof(), HandshakeError::Closed);
        assert!(!a.may_retry_as_v1());
    }
    let mut a = initiator(InitiatorConfig { revision: Revision::V1, ..InitiatorConfig::default() });
    a.handle_eof();
    assert!(!a.may_retry_as_v1());
}

#[test]
fn unsupported_revisions_are_refused() {
    for revision in [0, 3, 255] {
        let mut b = responder(ResponderConfig::default());
        let mut request = b"MPA ID Req Frame\x40\x00\x00\x00".to_vec();
        request[17] = revision;
        assert_eq!(b.handle_bytes(&request), Err(HandshakeError::Revision(revision)));
        assert!(b.transmit().is_empty());
        let mut a = initiator(InitiatorConfig::default());
        let mut reply = b"MPA ID Rep Frame\x40\x00\x00\x00".to_vec();
        reply[17] = revision;
        assert_eq!(a.handle_bytes(&reply), Err(HandshakeError::Revision(revision)));
        assert_eq!(terminate_code(a.transmit()), TerminateCode::LLP_FRAME);
    }
    // The reply has a higher revision than the request.
    let mut a = initiator(InitiatorConfig { revision: Revision::V1, ..InitiatorConfig::default() });
    let reply = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x00\x00\x00";
    assert_eq!(a.handle_bytes(reply), Err(HandshakeError::Revision(2)));
}

/// RFC 6581 section 6: S decides, not the revision alone. The reply to such a request has no enhanced words either.
#[test]
fn revision_2_request_without_enhanced_words_is_accepted() {
    let mut b = responder(ResponderConfig::default());
    let request =
        b.handle_bytes(b"MPA ID Req Frame\x00\x02\x00\x02ab").expect("valid").1.expect("a whole frame");
    assert_eq!((request.enhanced, request.private_data.as_slice()), (None, &b"ab"[..]));
    let negotiated = b.accept(&AcceptParams::default()).expect("a request");
    assert_eq!((negotiated.ord, negotiated.rtr), (16, None));
    assert_eq!(b.transmit(), b"MPA ID Rep Frame\x40\x02\x00\x00");
}

/// Depths are negotiated (RFC 6581 section 9.1).
#[test]
fn negotiated_depths_are_the_smaller_ones() {
    let run = |ird_a: u16, ord_a: u16, ird_b: u16, ord_b: u16| {
        let a = InitiatorConfig { ird: ird_a, ord: ord_a, ..InitiatorConfig::default() };
        let accept = AcceptParams { ird: ird_b, ord: ord_b, private_data: Vec::new() };
        let (a, b) = run_handshake(a, ResponderConfig::default(), &accept, Splitter::whole())
            .expect("the handshake succeeds");
        (a.ird, a.ord, b.ird, b.ord)
    };
    assert_eq!(run(8, 4, 16, 16), (8, 4, 16, 8));
    assert_eq!(run(0, 16, 2, 16), (0, 2, 2, 0));
    assert_eq!(run(DEPTH_MAX, DEPTH_MAX, DEPTH_MAX, DEPTH_MAX), (DEPTH_MAX, DEPTH_MAX, DEPTH_MAX, DEPTH_MAX));

    // The responder serves fewer reads than the initiator needs.
    let mut a = initiator(InitiatorConfig { ord_min: 3, ..InitiatorConfig::default() });
    let reply = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x02\x00\x00";
    let error = HandshakeError::InsufficientIrd { wanted: 3, granted: 2 };
    assert_eq!(a.handle_bytes(reply), Err(error));
    assert_eq!(terminate_code(a.transmit()), TerminateCode::LLP_IRD);

    // A responder that did not lower its own depth.
    let mut a = initiator(InitiatorConfig::default());
    let reply = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x00\x11";
    let error = HandshakeError::InsufficientIrd { wanted: 17, granted: 16 };
    assert_eq!(a.handle_bytes(reply), Err(error));
    assert_eq!(terminate_code(a.transmit()), TerminateCode::LLP_IRD);

    // Depths left open by either side.
    let mut a = initiator(InitiatorConfig::default());
    let reply = b"MPA ID Rep Frame\x50\x02\x00\x04\x3f\xff\x3f\xff";
    assert_eq!(negotiated(a.handle_bytes(reply).expect("valid").1).ord, 16);
    let mut b = responder(ResponderConfig::default());
    b.handle_bytes(b"MPA ID Req Frame\x50\x02\x00\x04\x3f\xff\x3f\xff").expect("valid");
    assert_eq!(b.accept(&AcceptParams::default()).expect("a request").ord, 16);
}

/// RFC 6581 section 9.2: the reply must choose one of the offered first messages.
#[test]
fn reply_without_chosen_first_message_is_refused() {
    let offer = RtrSet::WRITE | RtrSet::READ;
    let reply = |words: [u8; 4]| [&b"MPA ID Rep Frame\x50\x02\x00\x04"[..], &words].concat();
    for words in [
        // Chooses none, both, a message that was not offered, and no peer-to-peer mode.
        [0x80, 1, 0, 1],
        [0x80, 1, 0xc0, 1],
        [0xc0, 1, 0, 1],
        [0, 1, 0x80, 1],
    ] {
        let mut a = initiator(InitiatorConfig { peer_to_peer: offer, ..InitiatorConfig::default() });
        assert_eq!(a.handle_bytes(&reply(words)), Err(HandshakeError::NoCommonRtr));
        assert_eq!(terminate_code(a.transmit()), TerminateCode::LLP_RTR);
    }
    let mut a = initiator(InitiatorConfig { peer_to_peer: offer, ..InitiatorConfig::default() });
    let outcome = a.handle_bytes(&reply([0x80, 1, 0x40, 1])).expect("valid").1;
    assert_eq!(negotiated(outcome).rtr, Some(Rtr::Read));
    // A read that the peer does not serve.
    let mut a = initiator(InitiatorConfig { peer_to_peer: offer, ..InitiatorConfig::default() });
    let error = HandshakeError::InsufficientIrd { wanted: 1, granted: 0 };
    assert_eq!(a.handle_bytes(&reply([0x80, 0, 0x40, 1])), Err(error));

    // Our responder does not choose a read that it cannot serve.
    let a = InitiatorConfig { peer_to_peer: RtrSet::READ | RtrSet::SEND, ..InitiatorConfig::default() };
    let accept = AcceptParams { ird: 0, ..AcceptParams::default() };
    let (of_a, of_b) = run_handshake(a.clone(), ResponderConfig::default(), &accept, Splitter::whole())
        .expect("the handshake succeeds");
    assert_eq!((of_a.rtr, of_b.rtr), (Some(Rtr::Send), Some(Rtr::Send)));
    let a = InitiatorConfig { peer_to_peer: RtrSet::READ, ..a };
    let result = run_handshake(a, ResponderConfig::default(), &accept, Splitter::whole());
    assert_eq!(result, Err(HandshakeError::NoCommonRtr));
}

/// A Send as the first message shows that neither side is Linux siw, which must not be sent zero-length reads.
#[test]
fn responder_chooses_send_if_offered() {
    let ours = InitiatorConfig { peer_to_peer: RtrSet::all(), ..InitiatorConfig::default() };
    let siw = InitiatorConfig { peer_to_peer: RtrSet::WRITE | RtrSet::READ, ..InitiatorConfig::default() };
    for (a, rtr) in [(ours, Rtr::Send), (siw, Rtr::Write)] {
        let (of_a, of_b) =
            run_handshake(a, ResponderConfig::default(), &AcceptParams::default(), Splitter::whole())
                .expect("agree");
        assert_eq!((of_a.rtr, of_b.rtr), (Some(rtr), Some(rtr)));
    }
}

/// The request of Linux siw in peer-to-peer mode, and our reply, byte by byte.
#[test]
fn siw_request_and_its_reply_have_known_bytes() {
    let mut a = initiator(InitiatorConfig {
        peer_to_peer: RtrSet::WRITE | RtrSet::READ,
        ird: 0x12,
        ord: 0x34,
        private_data: b"hi".to_vec(),
        ..InitiatorConfig::default()
    });
    let request = b"MPA ID Req Frame\x50\x02\x00\x06\x80\x12\xc0\x34hi";
    assert_eq!(a.transmit(), request);
    a.transmitted(20);
    assert_eq!(a.transmit(), b"\x80\x12\xc0\x34hi");
    let mut b = responder(ResponderConfig::default());
    b.handle_bytes(request).expect("valid").1.expect("a whole frame");
    b.accept(&AcceptParams { ird: 1, ord: 0x20, private_data: b"ho".to_vec() }).expect("a request");
    assert_eq!(b.transmit(), b"MPA ID Rep Frame\x50\x02\x00\x06\x80\x01\x80\x12ho");
}

#[test]
fn incomplete_handshake_times_out() {
    let mut a = initiator(InitiatorConfig { timeout: Duration::from_secs(3), ..InitiatorConfig::default() });
    let deadline = NOW + Duration::from_secs(3);
    assert_eq!(a.deadline(), Some(deadline));
    assert_eq!(a.handle_timeout(deadline - Duration::from_nanos(1)), Ok(()));
    assert_eq!(a.handle_timeout(deadline), Err(HandshakeError::Timeout));
    assert_eq!((a.deadline(), a.handle_bytes(b"MPA")), (None, Ok((0, None))));

    let mut b = responder(ResponderConfig { timeout: Duration::from_secs(2), ..ResponderConfig::default() });
    b.handle_bytes(b"MPA ID R").expect("an incomplete frame is no error");
    let deadline = NOW + Duration::from_secs(2);
    assert_eq!(b.deadline(), Some(deadline));
    assert_eq!(b.handle_timeout(NOW), Ok(()));
    assert_eq!(b.handle_timeout(deadline), Err(HandshakeError::Timeout));
    assert_eq!(b.deadline(), None);

    // The program may take as long as it likes to decide.
    let mut b = responder(ResponderConfig::default());
    b.handle_bytes(b"MPA ID Req Frame\x40\x01\x00\x00").expect("valid");
    assert_eq!((b.deadline(), b.handle_timeout(NOW * 2)), (None, Ok(())));
    assert_eq!(b.handle_eof(), HandshakeError::Closed);
    assert_eq!(b.accept(&AcceptParams::default()), Err(HandshakeError::NoRequest));
}

/// RFC 5044 section 7.1.2: nothing may follow a request before its reply; the bytes after a reply are FPDUs.
#[test]
fn bytes_behind_a_request_are_refused_and_behind_a_reply_kept() {
    let request = b"MPA ID Req Frame\x40\x01\x00\x00";
    let mut b = responder(ResponderConfig::default());
    assert_eq!(b.handle_bytes(&[&request[..], b"x"].concat()), Err(HandshakeError::EarlyBytes));
    let mut b = responder(ResponderConfig::default());
    b.handle_bytes(request).expect("valid");
    assert_eq!(b.handle_bytes(b""), Ok((0, None)));
    assert_eq!(b.handle_bytes(b"x"), Err(HandshakeError::EarlyBytes));
    assert_eq!(b.accept(&AcceptParams::default()), Err(HandshakeError::NoRequest));
    // After the reply they are left to the connection.
    let mut b = responder(ResponderConfig::default());
    b.handle_bytes(request).expect("valid");
    b.accept(&AcceptParams::default()).expect("a request");
    assert_eq!(b.handle_bytes(b"x"), Ok((0, None)));
    let mut a = initiator(InitiatorConfig { revision: Revision::V1, ..InitiatorConfig::default() });
    let (taken, outcome) = a.handle_bytes(b"MPA ID Rep Frame\x40\x01\x00\x01dFPDU").expect("valid");
    assert_eq!((taken, negotiated(outcome).private_data), (21, b"d".to_vec()));
    assert_eq!(a.handle_bytes(b"FPDU"), Ok((0, None)));
}

/// Limits on the program's own parameters.
#[test]
fn own_invalid_parameters_are_reported() {
    for (revision, max) in [(Revision::V1, 512), (Revision::V2, 508)] {
        for len in [max, max + 1] {
            let private_data = vec![1; len];
            let config = InitiatorConfig { revision, private_data, ..InitiatorConfig::default() };
            let result = Initiator::new(config, NOW).map(drop);
            let expected = if len > max { Err(HandshakeError::OwnPrivateData { len, max }) } else { Ok(()) };
            assert_eq!(result, expected);

            let mut a = initiator(InitiatorConfig { revision, ..InitiatorConfig::default() });
            let mut b = responder(ResponderConfig::default());
            deliver(&mut a, &mut b).expect("valid");
            let too_long = HandshakeError::OwnPrivateData { len: max + 1, max };
            assert_eq!(b.reject(&vec![1; max + 1]), Err(too_long));
            assert_eq!(b.reject(&vec![1; max]), Ok(()));
        }
    }
    let deep = InitiatorConfig { ord: DEPTH_UNKNOWN, ..InitiatorConfig::default() };
    assert_eq!(
        Initiator::new(deep, NOW).err(),
        Some(HandshakeError::OwnDepth { depth: DEPTH_UNKNOWN, max: DEPTH_MAX })
    );
    let (mut a, mut b) = (initiator(InitiatorConfig::default()), responder(ResponderConfig::default()));
    deliver(&mut a, &mut b).expect("valid");
    let deep = AcceptParams { ird: u16::MAX, ..AcceptParams::default() };
    assert_eq!(b.accept(&deep), Err(HandshakeError::OwnDepth { depth: u16::MAX, max: DEPTH_MAX }));
    assert!(b.accept(&AcceptParams::default()).is_ok(), "the request is still there");
}

/// RFC 6581 section 9.1. Method: requests that leave one or both depths open; checks the reply's words and what is
/// negotiated.
#[test]
fn unknown_depths_are_not_negotiated() {
    for (ird, ord) in [(3, 4), (DEPTH_UNKNOWN, 4), (3, DEPTH_UNKNOWN), (DEPTH_UNKNOWN, DEPTH_UNKNOWN)] {
        let words = Enhanced { peer_to_peer: false, rtr: RtrSet::empty(), ird, ord };
        let (kind, private_data) = (FrameKind::Request, Vec::new());
        let enhanced = Some(words);
        let request =
            Frame { kind, markers: false, crc: false, reject: false, revision: 2, enhanced, private_data };
        let mut b = responder(ResponderConfig::default());
        b.handle_bytes(&request.emit()).expect("valid");
        let negotiated =
            b.accept(&AcceptParams { ird: 5, ord: 7, ..AcceptParams::default() }).expect("a request");
        let own = if ird == DEPTH_UNKNOWN { 7 } else { 3 };
        assert_eq!((negotiated.ird, negotiated.ord), (5, own));
        let word = |at: usize| u16::from_be_bytes([b.transmit()[at], b.transmit()[at + 1]]) & DEPTH_UNKNOWN;
        let told = |asked, depth| if asked == DEPTH_UNKNOWN { DEPTH_UNKNOWN } else { depth };
        assert_eq!((word(20), word(22)), (told(ord, 5), told(ird, own)));
    }
}

#[test]
fn two_initiators_do_not_connect() {
    let mut a = initiator(InitiatorConfig::default());
    let request = a.transmit().to_vec();
    assert_eq!(a.handle_bytes(&request), Err(HandshakeError::Key));
    assert_eq!(terminate_code(a.transmit()), TerminateCode::LLP_FRAME);
}

/// MULPDU for TCP segment sizes (RFC 5044 sections 3 and 4.5).
#[test]
fn mulpdu_follows_tcp_segment_size() {
    assert_eq!(mulpdu_for(1460), 1454);
    assert_eq!(mulpdu_for(1448), 1442);
    assert_eq!(mulpdu_for(1449), 1442);
    assert_eq!(mulpdu_for(0), MULPDU_MIN);
    assert_eq!(mulpdu_for(u32::MAX), MULPDU_MAX);
    for emss in 200..1600 {
        let len = usize::from(mulpdu_for(emss));
        assert!(LENGTH_LEN + len + pad(len) + CRC_LEN <= emss as usize, "{emss}");
    }
}
