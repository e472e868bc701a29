//! Translates requests for the protocol crate, and Terminate codes into completion statuses.

use iwarp::open_requests::PeerEffect;
use iwarp::terminate::TerminateCode;
use verbs::{SendOp, WcStatus};

/// The completion status of the request that a Terminate with this code refers to.
pub(crate) fn status(code: TerminateCode, op: &SendOp) -> WcStatus {
    match (code.layer, code.etype, code.code) {
        // RFC 7306 section 8.2: how a peer rejects a misaligned atomic.
        _ if code == TerminateCode::STREAM_CATASTROPHIC && op.is_atomic() => WcStatus::RemInvReqErr,
        _ if code.is_protection() => WcStatus::RemAccessErr,
        _ if code == TerminateCode::OPERATION_CANNOT_INVALIDATE => WcStatus::RemAccessErr,
        _ if code == TerminateCode::UNTAGGED_NO_BUFFER && !op.fetches() => WcStatus::RnrRetryExcErr,
        (0, 0, _) | (0, 2, 7 | 8) | (1, 0, _) => WcStatus::RemOpErr,
        (0 | 1, ..) => WcStatus::RemInvReqErr,
        _ => WcStatus::GeneralErr,
    }
}

/// The effect of an operation at the peer.
pub(crate) fn peer_effect(op: &SendOp) -> PeerEffect {
    match op {
        SendOp::Write(remote) => PeerEffect::Write { stag: remote.rkey, to: remote.addr },
        SendOp::WriteImm(remote, _) => PeerEffect::WriteAndSend { stag: remote.rkey, to: remote.addr },
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => PeerEffect::Send,
        SendOp::BindMw(_) | SendOp::LocalInv(_) => PeerEffect::Write { stag: 1, to: 0 },
        SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => PeerEffect::Fetch,
    }
}

/// How many messages an operation uses on the queue of Sends.
pub(crate) fn send_messages(op: &SendOp) -> u32 {
    match op {
        SendOp::Send | SendOp::SendInv(_) | SendOp::WriteImm(..) => 1,
        // The immediate data, then the message.
        SendOp::SendImm(_) => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::RemoteAddr;

    #[test]
    fn terminate_codes_map_to_statuses() {
        let (write, send) = (SendOp::Write(RemoteAddr::default()), SendOp::Send);
        let atomic = SendOp::FetchAdd { remote: RemoteAddr::default(), add: 1 };
        for (code, op, wanted) in [
            (TerminateCode::TAGGED_BOUNDS, write, WcStatus::RemAccessErr),
            (TerminateCode::UNTAGGED_NO_BUFFER, send, WcStatus::RnrRetryExcErr),
            (TerminateCode::LLP_CRC, send, WcStatus::GeneralErr),
            (TerminateCode::STREAM_CATASTROPHIC, atomic, WcStatus::RemInvReqErr),
            (TerminateCode::UNTAGGED_TOO_LONG, send, WcStatus::RemInvReqErr),
            (TerminateCode::STREAM_CATASTROPHIC, send, WcStatus::RemOpErr),
        ] {
            assert_eq!(status(code, &op), wanted, "{code}");
        }
    }
}
