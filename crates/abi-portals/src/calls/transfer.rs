//! Puts, gets and atomic operations that start immediately (Portals 4.3, section 3.15).

use ffi::Bytes;
use portals::{AckReq, Action, Datatype, MdAddr, MdHandle, Ni, Op, Operand, Transfer};

use super::{resolve, to_answer};
use crate::answer::{Answer, code, missing};
use crate::export::exports;
use crate::types::{Handle, PtlProcess, Size};

/// The target arguments that all transfers share.
pub(super) struct TransferTarget {
    pub(super) id: PtlProcess,
    pub(super) pt_index: u32,
    pub(super) match_bits: u64,
    pub(super) remote_offset: Size,
    pub(super) user_ptr: usize,
    pub(super) hdr_data: u64,
}

/// The requested acknowledgement.
pub(super) fn parse_ack(request: u8) -> Answer<AckReq> {
    let all = [AckReq::None, AckReq::Full, AckReq::Counting, AckReq::Completed];
    all.get(usize::from(request)).copied().ok_or_else(|| {
        code!(
            ArgInvalid,
            "ack_req is {request}; pass PTL_NO_ACK_REQ, PTL_ACK_REQ, PTL_CT_ACK_REQ or PTL_OC_ACK_REQ"
        )
    })
}

/// An operation and a type, by number.
pub(super) fn parse_atomic(operation: u8, datatype: u8) -> Answer<(Op, Datatype)> {
    Op::from_number(operation).zip(Datatype::from_number(datatype)).ok_or_else(|| {
        code!(
            ArgInvalid,
            "operation is {operation} and datatype {datatype}; pass values of ptl_op_t and ptl_datatype_t"
        )
    })
}

/// The action of a swap. `operand` is read only if the operation has one.
pub(super) fn swap_action(operation: u8, datatype: u8, operand: Bytes) -> Answer<Action> {
    let (op, datatype) = parse_atomic(operation, datatype)?;
    let mut bytes = Operand::default();
    if op.has_operand() {
        let given = operand.get(datatype.size() as i32).map_err(|_| missing("operand"))?;
        bytes[..given.len()].copy_from_slice(&given);
    }
    Ok(Action::Swap(op, datatype, bytes))
}

/// A transfer that sends data, and its interface.
pub(super) fn put_transfer(
    action: Action,
    (md, offset): (Handle, Size),
    length: Size,
    ack: AckReq,
    target: TransferTarget,
) -> Answer<(Ni, Transfer)> {
    let (ni, md) = resolve::<MdHandle>(md)?;
    let put = Some(MdAddr { md, offset });
    let transfer = build_transfer(&ni, action, (put, None), length, ack, target);
    Ok((ni, transfer))
}

/// A transfer that fetches data, and its interface.
pub(super) fn get_transfer(
    action: Action,
    (md, offset): (Handle, Size),
    put: Option<(Handle, Size)>,
    length: Size,
    target: TransferTarget,
) -> Answer<(Ni, Transfer)> {
    let (ni, md) = resolve::<MdHandle>(md)?;
    let get = Some(MdAddr { md, offset });
    let put = match put {
        None => None,
        Some((md, offset)) => {
            let (other, found) = resolve::<MdHandle>(md)?;
            if other.kind() != ni.kind() {
                return Err(super::other_interface(md));
            }
            Some(MdAddr { md: found, offset })
        }
    };
    let transfer = build_transfer(&ni, action, (put, get), length, AckReq::None, target);
    Ok((ni, transfer))
}

fn build_transfer(
    ni: &Ni,
    action: Action,
    (put, get): (Option<MdAddr>, Option<MdAddr>),
    length: Size,
    ack: AckReq,
    target: TransferTarget,
) -> Transfer {
    Transfer {
        action,
        put,
        get,
        length,
        ack,
        target: target.id.process(ni.kind().is_logical),
        pt_index: target.pt_index,
        match_bits: target.match_bits,
        remote_offset: target.remote_offset,
        user_ptr: target.user_ptr as u64,
        hdr_data: target.hdr_data,
    }
}

fn start_transfer((ni, transfer): (Ni, Transfer)) -> Answer<()> {
    to_answer(ni.transfer(&transfer))
}

exports! {
    fn PtlPut(
        md: Handle, offset: Size, length: Size, request: u8, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, hdr_data: u64,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        start_transfer(put_transfer(Action::Put, (md, offset), length, parse_ack(request)?, target)?)
    }

    fn PtlGet(
        md: Handle, offset: Size, length: Size, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data: 0 };
        start_transfer(get_transfer(Action::Get, (md, offset), None, length, target)?)
    }

    fn PtlAtomic(
        md: Handle, offset: Size, length: Size, request: u8, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, hdr_data: u64, operation: u8, datatype: u8,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (op, datatype) = parse_atomic(operation, datatype)?;
        start_transfer(put_transfer(Action::Atomic(op, datatype), (md, offset), length, parse_ack(request)?, target)?)
    }

    fn PtlFetchAtomic(
        get_md: Handle, get_offset: Size, put_md: Handle, put_offset: Size, length: Size, id: PtlProcess,
        pt_index: u32, match_bits: u64, remote_offset: Size, user_ptr: usize, hdr_data: u64, operation: u8,
        datatype: u8,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (op, datatype) = parse_atomic(operation, datatype)?;
        let put = Some((put_md, put_offset));
        start_transfer(get_transfer(Action::FetchAtomic(op, datatype), (get_md, get_offset), put, length, target)?)
    }

    fn PtlSwap(
        get_md: Handle, get_offset: Size, put_md: Handle, put_offset: Size, length: Size, id: PtlProcess,
        pt_index: u32, match_bits: u64, remote_offset: Size, user_ptr: usize, hdr_data: u64, operand: Bytes,
        operation: u8, datatype: u8,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let action = swap_action(operation, datatype, operand)?;
        let put = Some((put_md, put_offset));
        start_transfer(get_transfer(action, (get_md, get_offset), put, length, target)?)
    }
}
