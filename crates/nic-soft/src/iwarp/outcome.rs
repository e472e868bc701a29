//! What a Terminate means for this side's requests: which of them it is about, and what its completion says.

use iwarp::ddp::{Header, QUEUE_REQUEST, QUEUE_SEND, Tagged, Untagged};
use iwarp::terminate::{Terminate, TerminateCode};
use verbs::{SendOp, WcOpcode, WcStatus};

/// What a completion says of an operation.
pub(super) fn opcode(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => WcOpcode::Send,
        SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::Write,
        SendOp::Read(_) => WcOpcode::Read,
        SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
    }
}

/// Whether an operation brings data back.
pub(super) fn fetches(op: &SendOp) -> bool {
    matches!(op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
}

fn is_atomic(op: &SendOp) -> bool {
    matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
}

/// Whether a code says that the peer's memory was protected from an access.
pub(super) fn is_protection(code: TerminateCode) -> bool {
    (code.layer, code.etype) == (0, 1) || (code.layer, code.etype) == (1, 1)
}

/// The status of the request that a Terminate with this code is about.
pub(super) fn status(code: TerminateCode, op: &SendOp) -> WcStatus {
    match (code.layer, code.etype, code.code) {
        // RFC 7306 section 8.2: how a peer refuses an atomic that is not aligned.
        _ if code == TerminateCode::STREAM_CATASTROPHIC && is_atomic(op) => WcStatus::RemInvReqErr,
        _ if is_protection(code) => WcStatus::RemAccessErr,
        _ if code == TerminateCode::OPERATION_CANNOT_INVALIDATE => WcStatus::RemAccessErr,
        _ if code == TerminateCode::UNTAGGED_NO_BUFFER && !fetches(op) => WcStatus::RnrRetryExcErr,
        (0, 0, _) | (0, 2, 7 | 8) | (1, 0, _) => WcStatus::RemOpErr,
        (0 | 1, ..) => WcStatus::RemInvReqErr,
        _ => WcStatus::GeneralErr,
    }
}

/// A request of this side that the peer has not answered for, with what it looks like on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Its number in the send queue.
    pub(super) number: u64,
    pub(super) op: SendOp,
    pub(super) len: u32,
    /// Its first message on the queue of sends, if it has one, and how many it has.
    pub(super) send: (u32, u32),
    /// Its message on the queue of requests, if it has one.
    pub(super) request: Option<u32>,
}

/// Messages on the queue of sends that an operation takes.
pub(super) fn sends(op: &SendOp) -> u32 {
    match op {
        SendOp::Send | SendOp::SendInv(_) | SendOp::WriteImm(..) => 1,
        // The immediate data, then the message.
        SendOp::SendImm(_) => 2,
        _ => 0,
    }
}

/// The request that a Terminate is about: by the number of its message or by the range that it writes, else the first that
/// could have caused such an error, else the first. And whether that is certain.
pub(super) fn blamed<'a>(terminate: &Terminate, open: &'a [Open]) -> Option<(&'a Open, bool)> {
    let header = terminate.offender.as_ref().and_then(|offender| Header::parse(&offender.header));
    let exact = open.iter().find(|o| match (header, o.op) {
        (
            Some(Header::Tagged(Tagged { stag, to, .. })),
            SendOp::Write(remote) | SendOp::WriteImm(remote, _),
        ) => {
            // Any of its segments. The first such request, if there are several: what came before it has been placed.
            remote.rkey == stag && to.wrapping_sub(remote.addr) <= o.len.into()
        }
        (Some(Header::Untagged(Untagged { queue: QUEUE_SEND, msn, .. })), _) => {
            msn.wrapping_sub(o.send.0) < o.send.1
        }
        (Some(Header::Untagged(Untagged { queue: QUEUE_REQUEST, msn, .. })), _) => o.request == Some(msn),
        _ => false,
    });
    let protection = is_protection(terminate.code);
    let likely = || {
        open.iter().find(|o| match o.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => !protection,
            SendOp::WriteImm(..) => true,
            _ => protection,
        })
    };
    let guess = || likely().or_else(|| open.first()).map(|guess| (guess, false));
    exact.map(|exact| (exact, true)).or_else(guess)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iwarp::rx::{Event, Lookup, Receive, Receiver, ReceiverConfig, Refusal};
    use verbs::RemoteAddr;

    /// Refuses everything.
    struct Nothing;

    impl Lookup for Nothing {
        fn write(&mut self, _: u32, _: u64, _: u32) -> Result<(), Refusal> {
            Err(Refusal::Invalid)
        }
        fn read_sink(&mut self, _: u64, _: u32, _: u32) -> Result<(), Refusal> {
            Err(Refusal::Invalid)
        }
        fn read_source(&mut self, _: u32, _: u64, _: u32) -> Result<(), Refusal> {
            Err(Refusal::Bounds)
        }
        fn atomic(&mut self, _: u32, _: u64) -> Result<(), Refusal> {
            Err(Refusal::Access)
        }
        fn invalidate(&mut self, _: u32) -> Result<(), Refusal> {
            Err(Refusal::CannotInvalidate)
        }
        fn receive(&mut self, _: u32) -> Option<u32> {
            None
        }
    }

    /// What a peer says about an FPDU that it refuses.
    fn refused(fpdu: &[u8]) -> Terminate {
        let mut receiver = Receiver::new(ReceiverConfig { crc: false, ird: 4, ord: 4, rtr: None });
        let mut bytes = fpdu;
        loop {
            match receiver.poll(&mut Nothing) {
                Err(failure) => return failure.terminate,
                Ok(Receive::Bytes(_)) => bytes = &bytes[receiver.feed(bytes)..],
                Ok(Receive::Event(Event::Ready)) => {}
                Ok(other) => panic!("{other:?}"),
            }
            assert!(!bytes.is_empty(), "it was not refused");
        }
    }

    fn write(number: u64, addr: u64, len: u32) -> Open {
        let op = SendOp::Write(RemoteAddr { addr, rkey: 9 });
        Open { number, op, len, send: (1, 0), request: None }
    }

    fn tagged(stag: u32, to: u64) -> Vec<u8> {
        let mut fpdu = vec![0, 22, 0xc1, 0x40];
        fpdu.extend(stag.to_be_bytes());
        fpdu.extend(to.to_be_bytes());
        fpdu.resize(40, 0);
        fpdu
    }

    fn untagged(opcode: u8, queue: u32, msn: u32, body: usize) -> Vec<u8> {
        let mut fpdu = (18 + body as u16).to_be_bytes().to_vec();
        fpdu.extend([0x41, 0x40 | opcode, 0, 0, 0, 0]);
        for word in [queue, msn, 0] {
            fpdu.extend(word.to_be_bytes());
        }
        fpdu.resize(80, 0);
        fpdu
    }

    #[test]
    fn a_write_is_found_by_its_range() {
        let open = [write(1, 100, 50), write(2, 200, 50), write(3, 200, 50)];
        for (to, number) in [(100, 1), (149, 1), (200, 2), (240, 2)] {
            let terminate = refused(&tagged(9, to));
            assert_eq!(
                blamed(&terminate, &open).map(|(o, sure)| (o.number, sure)),
                Some((number, true)),
                "at {to}"
            );
            assert_eq!(status(terminate.code, &open[0].op), WcStatus::RemAccessErr);
        }
    }

    #[test]
    fn a_send_is_found_by_its_number() {
        let send =
            |number, first, count| Open { op: SendOp::Send, send: (first, count), ..write(number, 0, 8) };
        let open = [write(1, 100, 50), send(2, u32::MAX, 2), send(3, 1, 1), write(4, 0, 1)];
        let terminate = refused(&untagged(3, 0, 1, 8));
        assert_eq!(blamed(&terminate, &open[2..]).map(|(o, sure)| (o.number, sure)), Some((3, true)));
        assert_eq!(status(terminate.code, &SendOp::Send), WcStatus::RnrRetryExcErr);
        let again = blamed(&terminate, &open[1..2]).map(|(o, _)| o.number);
        assert_eq!(again, Some(2), "the only send there is");
    }

    #[test]
    fn a_read_is_found_by_its_number() {
        let read = |number, msn| Open {
            op: SendOp::Read(RemoteAddr::default()),
            request: Some(msn),
            ..write(number, 0, 8)
        };
        let open = [read(1, 0), read(2, 1), read(3, 2)];
        let mut fpdu = untagged(1, 1, 1, 28);
        fpdu[32 + 3] = 8;
        let terminate = refused(&fpdu);
        assert_eq!(terminate.code, TerminateCode::BOUNDS);
        assert_eq!(blamed(&terminate, &open).map(|(o, sure)| (o.number, sure)), Some((2, true)));
    }

    #[test]
    fn without_a_header_the_likely_one_is_blamed() {
        let send = Open { op: SendOp::Send, send: (1, 1), ..write(2, 0, 8) };
        let open = [write(1, 0, 8), send, write(3, 0, 8)];
        let blame =
            |code| blamed(&Terminate::new(code), &open).filter(|(_, sure)| !sure).map(|(o, _)| o.number);
        assert_eq!(blame(TerminateCode::TAGGED_STAG_INVALID), Some(1));
        assert_eq!(blame(TerminateCode::STREAM_CATASTROPHIC), Some(2));
        assert_eq!(blamed(&Terminate::new(TerminateCode::LLP_CRC), &[]).map(|(o, _)| o.number), None);
        assert_eq!(status(TerminateCode::LLP_CRC, &SendOp::Send), WcStatus::GeneralErr);
        let atomic = SendOp::FetchAdd { remote: RemoteAddr::default(), add: 1 };
        assert_eq!(status(TerminateCode::STREAM_CATASTROPHIC, &atomic), WcStatus::RemInvReqErr);
        assert_eq!(status(TerminateCode::UNTAGGED_TOO_LONG, &SendOp::Send), WcStatus::RemInvReqErr);
        assert_eq!(status(TerminateCode::STREAM_CATASTROPHIC, &SendOp::Send), WcStatus::RemOpErr);
    }
}
