//! Requests in C's layout.
//!
//! Data path: lists of elements are passed on without a copy.

use std::ffi::c_int;
use std::ptr::null_mut;

use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{Data, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

/// The element for inline data; unused for a request without.
#[inline]
pub(super) fn inline_piece(wr: &SendWr<'_>) -> ibv_sge {
    match wr.data {
        Data::Inline(bytes) => {
            ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length: bytes.len() as u32, lkey: 0 }
        }
        Data::Sges(_) => ibv_sge { addr: 0, length: 0, lkey: 0 },
    }
}

/// A list of elements as C has it: the layouts are the same.
#[inline]
fn list(sges: &[Sge]) -> *mut ibv_sge {
    sges.as_ptr().cast::<ibv_sge>().cast_mut()
}

/// The operands of a request that binds no memory window.
const NO_BINDING: ibv_wr_bind_mw = ibv_wr_bind_mw {
    mw: null_mut(),
    rkey: 0,
    bind_info: ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 },
};

/// A request in C's layout; `piece` is its inline data.
#[inline]
pub(super) fn request(wr: &SendWr<'_>, piece: *mut ibv_sge) -> ibv_send_wr {
    let (sg_list, num_sge, inline) = match wr.data {
        Data::Sges(sges) => (list(sges), sges.len(), 0),
        Data::Inline(bytes) => (piece, usize::from(!bytes.is_empty()), n::IBV_SEND_INLINE),
    };
    let (opcode, imm_data, operands) = operation(wr.op);
    ibv_send_wr {
        wr_id: wr.wr_id,
        next: null_mut(),
        sg_list,
        num_sge: num_sge as c_int,
        opcode: opcode.cast_signed(),
        send_flags: flags(wr.flags) | inline,
        imm_data,
        wr: operands,
        qp_type: 0,
        bind_mw: NO_BINDING,
    }
}

/// The opcode, immediate data (or key to invalidate) and operands of an operation.
#[inline]
fn operation(op: SendOp) -> (u32, u32, ibv_wr) {
    let rdma =
        |remote: RemoteAddr| ibv_wr { rdma: ibv_wr_rdma { remote_addr: remote.addr, rkey: remote.rkey } };
    let atomic = |remote: RemoteAddr, compare_add, swap| ibv_wr {
        atomic: ibv_wr_atomic { remote_addr: remote.addr, compare_add, swap, rkey: remote.rkey },
    };
    let none = RemoteAddr::default();
    match op {
        SendOp::Send => (n::IBV_WR_SEND, 0, rdma(none)),
        SendOp::SendImm(imm) => (n::IBV_WR_SEND_WITH_IMM, imm.to_be(), rdma(none)),
        SendOp::SendInv(key) => (n::IBV_WR_SEND_WITH_INV, key, rdma(none)),
        SendOp::Write(remote) => (n::IBV_WR_RDMA_WRITE, 0, rdma(remote)),
        SendOp::WriteImm(remote, imm) => (n::IBV_WR_RDMA_WRITE_WITH_IMM, imm.to_be(), rdma(remote)),
        SendOp::Read(remote) => (n::IBV_WR_RDMA_READ, 0, rdma(remote)),
        SendOp::CompareSwap { remote, compare, swap } => {
            (n::IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(remote, compare, swap))
        }
        SendOp::FetchAdd { remote, add } => (n::IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(remote, add, 0)),
        // Refused before.
        SendOp::BindMw(_) | SendOp::LocalInv(_) => (n::IBV_WR_SEND, 0, rdma(none)),
    }
}

#[inline]
fn flags(flags: SendFlags) -> u32 {
    let of = |ours, theirs| if flags.contains(ours) { theirs } else { 0 };
    of(SendFlags::SIGNALED, n::IBV_SEND_SIGNALED)
        | of(SendFlags::SOLICITED, n::IBV_SEND_SOLICITED)
        | of(SendFlags::FENCE, n::IBV_SEND_FENCE)
}

/// A receive in C's layout.
#[inline]
pub(super) fn receive(wr: &RecvWr<'_>) -> ibv_recv_wr {
    ibv_recv_wr { wr_id: wr.wr_id, next: null_mut(), sg_list: list(wr.sges), num_sge: wr.sges.len() as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_becomes_its_fields_in_c() {
        let sges = [Sge { addr: 16, length: 4, lkey: 5 }, Sge::default()];
        let remote = RemoteAddr { addr: 0x1000, rkey: 7 };
        let mut piece = ibv_sge { addr: 0, length: 0, lkey: 0 };
        let wr = SendWr::new(3, SendOp::WriteImm(remote, 0x0102_0304), &sges).with(SendFlags::FENCE);
        let c = request(&wr, &raw mut piece);
        assert_eq!((c.wr_id, c.num_sge, c.opcode), (3, 2, n::IBV_WR_RDMA_WRITE_WITH_IMM.cast_signed()));
        assert_eq!(c.send_flags, n::IBV_SEND_SIGNALED | n::IBV_SEND_FENCE);
        assert_eq!(c.imm_data.to_ne_bytes(), [1, 2, 3, 4], "in network byte order");
        assert_eq!(c.sg_list.addr(), sges.as_ptr().addr());
        let wr = SendWr::inline(4, SendOp::Send, b"abc").unsignaled();
        piece = inline_piece(&wr);
        let c = request(&wr, &raw mut piece);
        assert_eq!((c.send_flags, c.num_sge, piece.length), (n::IBV_SEND_INLINE, 1, 3));
        let empty = SendWr::inline(5, SendOp::SendInv(9), b"");
        let c = request(&empty, &raw mut piece);
        assert_eq!((c.num_sge, c.imm_data), (0, 9), "the key as it is");
    }
}
