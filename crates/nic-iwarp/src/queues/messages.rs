//! Data path: sending. The messages of a send request, and the check of its local memory.

use iwarp::rdmap::{AtomicOp, IMMEDIATE_LEN, ReadRequest};
use iwarp::tx::{Op, OpKind};
use verbs::{Access, RemoteAddr, SendFlags, SendOp, WcStatus};

use crate::memory::regions::Domain;
use crate::queues::request_ring::{SendQueue, SendRequest};

/// The request of an operation. An operation's identifier is twice the number of its request, plus one for the last
/// operation of the request.
pub(crate) const fn request_of(id: u64) -> u64 {
    id >> 1
}

/// Whether this is the last operation of its request.
pub(crate) const fn is_last(id: u64) -> bool {
    id & 1 == 1
}

/// Encodes immediate data. `joined` immediate data belongs to the Send that follows; otherwise it stands alone or
/// belongs to the preceding Write.
fn immediate(imm: u32, joined: bool) -> [u8; IMMEDIATE_LEN] {
    let mut data = [0; IMMEDIATE_LEN];
    data[..4].copy_from_slice(&imm.to_be_bytes());
    data[7] = joined.into();
    data
}

/// Decodes the peer's immediate data; returns whether it belongs to the Send that follows.
pub(crate) fn read_immediate(data: [u8; IMMEDIATE_LEN]) -> (u32, bool) {
    let [a, b, c, d, form @ ..] = data;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(form) == 1)
}

/// Checks all of a request's local memory before its first byte is sent.
#[inline]
pub(crate) fn check_local(
    queue: &SendQueue,
    domain: Domain<'_>,
    number: u64,
    request: &SendRequest,
) -> Result<(), WcStatus> {
    let need = if request.op.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
    if matches!(request.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) && request.len != 8 {
        return Err(WcStatus::LocLenErr);
    }
    if queue.may_use(number, domain, need) { Ok(()) } else { Err(WcStatus::LocProtErr) }
}

/// Splits a request into its messages, in the order in which they are sent: one, or two if it has immediate data.
pub(crate) fn split_into_messages(number: u64, request: &SendRequest) -> [Option<Op>; 2] {
    let len = request.len;
    let solicited = request.flags.contains(SendFlags::SOLICITED);
    let fence = request.flags.contains(SendFlags::FENCE);
    let first = |kind| Some(Op { id: number << 1, kind, fence });
    let last = |kind| Some(Op { id: number << 1 | 1, kind, fence });
    let write = |to: RemoteAddr| OpKind::Write { stag: to.rkey, to: to.addr, len };
    let immediate = |imm, joined, solicited| OpKind::Immediate { data: immediate(imm, joined), solicited };
    let atomic = |to: RemoteAddr, atomic| OpKind::Atomic { stag: to.rkey, to: to.addr, op: atomic };
    match request.op {
        SendOp::Write(to) => [last(write(to)), None],
        SendOp::WriteImm(to, imm) => [first(write(to)), last(immediate(imm, false, solicited))],
        SendOp::Send => [last(OpKind::Send { len, solicited, invalidate: None }), None],
        SendOp::SendInv(key) => [last(OpKind::Send { len, solicited, invalidate: Some(key) }), None],
        SendOp::SendImm(imm) => {
            [first(immediate(imm, true, false)), last(OpKind::Send { len, solicited, invalidate: None })]
        }
        SendOp::Read(from) => {
            // This tag names no region: only the response to this request may use it, and only for these bytes.
            let read = ReadRequest {
                sink_stag: number as u32 | 1,
                sink_to: 0,
                len,
                source_stag: from.rkey,
                source_to: from.addr,
            };
            [last(OpKind::Read(read)), None]
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
            let swap = AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask };
            [last(atomic(remote, swap)), None]
        }
        SendOp::FetchAdd { remote, add } => [last(atomic(remote, AtomicOp::FetchAdd { add, mask: 0 })), None],
        // It has been carried out; a zero-length write, which changes nothing, completes it in order.
        SendOp::BindMw(_) | SendOp::LocalInv(_) => [last(OpKind::Write { stag: 1, to: 0, len: 0 }), None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_is_read_as_it_was_written() {
        for (imm, joined) in [(0, false), (1, true), (0xdead_beef, false), (u32::MAX, true)] {
            assert_eq!(read_immediate(immediate(imm, joined)), (imm, joined));
        }
        assert_eq!(read_immediate([0, 0, 0, 5, 0, 0, 0, 2]), (5, false), "an unknown form");
    }

    #[test]
    fn operation_ids_map_to_requests() {
        let remote = RemoteAddr::default();
        for op in [SendOp::Send, SendOp::SendImm(7), SendOp::WriteImm(remote, 7), SendOp::Read(remote)] {
            let request = SendRequest::new(1, op, SendFlags::empty(), 8);
            let ops: Vec<Op> = split_into_messages(41, &request).into_iter().flatten().collect();
            assert!(ops.iter().all(|op| request_of(op.id) == 41));
            let lasts: Vec<bool> = ops.iter().map(|op| is_last(op.id)).collect();
            assert!(lasts.iter().rposition(|&last| last) == Some(lasts.len() - 1), "{op:?}");
            assert_eq!(lasts.iter().filter(|&&last| last).count(), 1, "{op:?}");
        }
    }
}
