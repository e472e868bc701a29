//! Data path: sending. What messages a request is made of, and whether its local memory may be used.

use iwarp::rdmap::{AtomicOp, ReadRequest};
use iwarp::tx::{Op, OpKind};
use verbs::{Access, RemoteAddr, SendFlags, SendOp, WcStatus};

use super::outcome::fetches;
use super::qp::QpInner;
use super::queue::Request;
use super::transmit::JOINED;

/// All of a request's local memory is checked before the first byte of it is sent.
pub(super) fn check_local(qp: &QpInner, number: u64, request: &Request) -> Result<(), WcStatus> {
    let need = if fetches(&request.op) { Access::LOCAL_WRITE } else { Access::empty() };
    if matches!(request.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) && request.len != 8 {
        return Err(WcStatus::LocLenErr);
    }
    if qp.may_use(number, need) { Ok(()) } else { Err(WcStatus::LocProtErr) }
}

/// The messages that a request is made of. An operation is named by twice the number of its request; the last one of a
/// request is odd.
pub(super) fn messages(number: u64, request: &Request) -> [Option<Op>; 2] {
    let len = request.len;
    let solicited = request.flags.contains(SendFlags::SOLICITED);
    let fence = request.flags.contains(SendFlags::FENCE);
    let op = |last: bool, kind| Some(Op { id: number << 1 | u64::from(last), kind, fence });
    let write = |to: RemoteAddr| OpKind::Write { stag: to.rkey, to: to.addr, len };
    let immediate = |imm: u32, form: u32, solicited| {
        let mut data = [0; 8];
        data[..4].copy_from_slice(&imm.to_be_bytes());
        data[4..].copy_from_slice(&form.to_be_bytes());
        OpKind::Immediate { data, solicited }
    };
    let atomic = |to: RemoteAddr, atomic| OpKind::Atomic { stag: to.rkey, to: to.addr, op: atomic };
    match request.op {
        SendOp::Write(to) => [op(true, write(to)), None],
        SendOp::WriteImm(to, imm) => [op(false, write(to)), op(true, immediate(imm, 0, solicited))],
        SendOp::Send => [op(true, OpKind::Send { len, solicited, invalidate: None }), None],
        SendOp::SendInv(key) => [op(true, OpKind::Send { len, solicited, invalidate: Some(key) }), None],
        SendOp::SendImm(imm) => [
            op(false, immediate(imm, JOINED, false)),
            op(true, OpKind::Send { len, solicited, invalidate: None }),
        ],
        SendOp::Read(from) => {
            // The tag names nothing here: only the answer to this very request may use it, for these bytes.
            let read = ReadRequest {
                sink_stag: number as u32 | 1,
                sink_to: 0,
                len,
                source_stag: from.rkey,
                source_to: from.addr,
            };
            [op(true, OpKind::Read(read)), None]
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
            let swap = AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask };
            [op(true, atomic(remote, swap)), None]
        }
        SendOp::FetchAdd { remote, add } => {
            [op(true, atomic(remote, AtomicOp::FetchAdd { add, mask: 0 })), None]
        }
    }
}
