//! Why a queue pair failed, in words: for [`verbs::Qp::failure`]. Off the data path.

use iwarp::terminate::TerminateCode;
use nic_util::refusal;
use verbs::{Access, RemoteAddr, SendOp, WcStatus};

use crate::connection::end_reason::EndReason;
use crate::queues::qp_queues::QpQueues;

/// Says why this end fails a queue pair, and its request `failed`; `None` if a program has ended the connection in order.
#[cold]
#[inline(never)]
pub(crate) fn explain(queues: &QpQueues, end: &EndReason, failed: Option<(u64, WcStatus)>) -> Option<String> {
    Some(match end {
        EndReason::Disconnected | EndReason::Closed => return None,
        EndReason::Broken(errno) => {
            format!("the connection broke ({errno}); check that the peer's process and host are alive")
        }
        EndReason::Terminated(terminate) => {
            let request = failed.map(|(number, _)| {
                let queue = queues.sends.lock();
                let request = queue.get(number);
                (request.op, request.len)
            });
            refused_by_peer(terminate.code, request)
        }
        EndReason::Violation(violation) if violation.terminate.code.is_protection() => refusal::BY_PEER.into(),
        EndReason::Violation(violation) if violation.terminate.code == TerminateCode::UNTAGGED_TOO_LONG => {
            "a message of the peer is longer than the receive posted for it here; post larger receives".into()
        }
        EndReason::Violation(violation) if violation.terminate.code == TerminateCode::UNTAGGED_NO_BUFFER => {
            "a message of the peer found no receive posted here; post receives before the peer sends".into()
        }
        EndReason::Violation(violation) => format!("the peer violated the protocol: {}", violation.terminate.code),
        EndReason::BadReceive => {
            "the memory of the receive for the peer's message is not accessible here; check its lkey, its rights and its bounds".into()
        }
        EndReason::BadSink(number) => local(queues, *number),
        EndReason::Local(number, WcStatus::LocProtErr) => local(queues, *number),
        EndReason::Local(_, WcStatus::LocLenErr) => "an atomic operation needs 8 bytes of local memory".into(),
        EndReason::Local(_, WcStatus::RemInvReqErr) => refusal::UNALIGNED_ATOMIC.into(),
        EndReason::Local(_, WcStatus::RemAccessErr) => {
            "the remote address and the length wrap around the end of memory; check both".into()
        }
        EndReason::Local(_, WcStatus::MwBindErr) => refusal::WINDOW.into(),
        EndReason::Local(_, status) => format!("the request cannot be carried out: {status:?}"),
        EndReason::FirstMessageTimeout => "the peer connected but did not send its first message in time".into(),
        EndReason::Overrun => {
            "its completion queue overran: more completed than it holds; make it larger or poll it more often".into()
        }
    })
}

/// Why the peer refused a request, from the code that it sent.
fn refused_by_peer(code: TerminateCode, request: Option<(SendOp, u32)>) -> String {
    let Some((op, len)) = request else {
        return format!("the peer ended the connection because of an error: {code}");
    };
    let (remote, need) = match op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => (Some(remote), "IBV_ACCESS_REMOTE_WRITE"),
        SendOp::Read(remote) => (Some(remote), "IBV_ACCESS_REMOTE_READ"),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            (Some(remote), "IBV_ACCESS_REMOTE_ATOMIC")
        }
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) | SendOp::BindMw(_) | SendOp::LocalInv(_) => {
            (None, "")
        }
    };
    let advice = match code {
        TerminateCode::STAG_INVALID | TerminateCode::TAGGED_STAG_INVALID => {
            "the peer has no region with this rkey: it was deregistered or never existed; deregister after the last request that uses it"
                .to_owned()
        }
        TerminateCode::BOUNDS | TerminateCode::TAGGED_BOUNDS => {
            "not all of them are in the peer's region; check address and length".into()
        }
        TerminateCode::ACCESS => format!("the peer's region does not allow this; register it with {need}"),
        TerminateCode::NOT_ASSOCIATED | TerminateCode::TAGGED_NOT_ASSOCIATED => {
            "the peer's region belongs to another protection domain than its queue pair; register it in that of the queue pair".into()
        }
        TerminateCode::UNTAGGED_NO_BUFFER => refusal::NO_RECEIVE.into(),
        TerminateCode::UNTAGGED_TOO_LONG => refusal::SHORT_RECEIVE.into(),
        TerminateCode::STREAM_CATASTROPHIC if op.is_atomic() => refusal::UNALIGNED_ATOMIC.into(),
        TerminateCode::STREAM_CATASTROPHIC => refusal::BAD_RECEIVE.into(),
        // A tagged access without the right is reported as a protection error without details.
        code if code.is_protection() => {
            format!("the peer's region does not allow this; check its bounds, and register it with {need}")
        }
        code => format!("the peer reports {code}"),
    };
    match remote {
        Some(RemoteAddr { addr, rkey }) => {
            let len = if op.is_atomic() { 8 } else { len };
            format!("{len} bytes at {addr:#x} with rkey {rkey:#x}: {advice} ({})", code.name())
        }
        None => format!("a message of {len} bytes: {advice} ({})", code.name()),
    }
}

/// Why the local memory of a request is not accessible.
fn local(queues: &QpQueues, number: u64) -> String {
    let queue = queues.sends.lock();
    let need = if queue.get(number).op.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
    queue.explain_local(number, queues.domain(), need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_memory_and_the_remedy() {
        let remote = RemoteAddr { addr: 0x1000, rkey: 0xabc };
        for (code, op, words) in [
            (TerminateCode::TAGGED_STAG_INVALID, SendOp::Write(remote), "no region with this rkey"),
            (TerminateCode::BOUNDS, SendOp::Read(remote), "check address and length"),
            (TerminateCode::ACCESS, SendOp::Read(remote), "IBV_ACCESS_REMOTE_READ"),
            (TerminateCode::PROTECTION_UNSPECIFIED, SendOp::Write(remote), "IBV_ACCESS_REMOTE_WRITE"),
            (TerminateCode::STREAM_CATASTROPHIC, SendOp::FetchAdd { remote, add: 1 }, "multiple of 8"),
        ] {
            let text = refused_by_peer(code, Some((op, 64)));
            assert!(text.contains(words) && text.contains("0x1000 with rkey 0xabc"), "{words}: {text}");
        }
        for (code, words) in [
            (TerminateCode::UNTAGGED_NO_BUFFER, "post receives"),
            (TerminateCode::UNTAGGED_TOO_LONG, "post larger receives"),
            (TerminateCode::STREAM_CATASTROPHIC, "its lkey"),
        ] {
            let text = refused_by_peer(code, Some((SendOp::Send, 64)));
            assert!(text.contains(words) && text.contains("64 bytes"), "{words}: {text}");
        }
        assert!(refused_by_peer(TerminateCode::LLP_CRC, None).contains("MPA: CRC"));
    }
}
