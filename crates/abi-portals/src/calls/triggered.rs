//! Triggered operations: puts, gets, atomics and counter changes that start when a counter reaches a
//! threshold (Portals 4.3, section 3.16).

use ffi::Bytes;
use portals::{Action, CtHandle, Ni, Transfer};

use super::transfer::{TransferTarget, get_transfer, parse_ack, parse_atomic, put_transfer, swap_action};
use super::{resolve, to_answer};
use crate::answer::Answer;
use crate::export::exports;
use crate::handle;
use crate::types::{Handle, PtlCtEvent, PtlProcess, Size};

fn add_triggered((ni, transfer): (Ni, Transfer), ct: Handle, threshold: Size) -> Answer<()> {
    let ct = resolve_counter(&ni, ct)?;
    to_answer(ni.with_engine(|engine| engine.trigger(ct, threshold, &transfer)))
}

/// A counter of the same interface.
fn resolve_counter(ni: &Ni, ct: Handle) -> Answer<CtHandle> {
    let handle = ct;
    let (number, ct) = handle::decode(handle)?;
    if number == ni.kind().number() { Ok(ct) } else { Err(super::other_interface(handle)) }
}

exports! {
    fn PtlTriggeredPut(
        md: Handle, offset: Size, length: Size, request: u8, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, hdr_data: u64, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        add_triggered(put_transfer(Action::Put, (md, offset), length, parse_ack(request)?, target)?, ct, threshold)
    }

    fn PtlTriggeredGet(
        md: Handle, offset: Size, length: Size, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data: 0 };
        add_triggered(get_transfer(Action::Get, (md, offset), None, length, target)?, ct, threshold)
    }

    fn PtlTriggeredAtomic(
        md: Handle, offset: Size, length: Size, request: u8, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, hdr_data: u64, operation: u8, datatype: u8, ct: Handle,
        threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (op, datatype) = parse_atomic(operation, datatype)?;
        let action = Action::Atomic(op, datatype);
        add_triggered(put_transfer(action, (md, offset), length, parse_ack(request)?, target)?, ct, threshold)
    }

    fn PtlTriggeredFetchAtomic(
        get_md: Handle, get_offset: Size, put_md: Handle, put_offset: Size, length: Size, id: PtlProcess,
        pt_index: u32, match_bits: u64, remote_offset: Size, user_ptr: usize, hdr_data: u64, operation: u8,
        datatype: u8, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (op, datatype) = parse_atomic(operation, datatype)?;
        let (action, put) = (Action::FetchAtomic(op, datatype), Some((put_md, put_offset)));
        add_triggered(get_transfer(action, (get_md, get_offset), put, length, target)?, ct, threshold)
    }

    fn PtlTriggeredSwap(
        get_md: Handle, get_offset: Size, put_md: Handle, put_offset: Size, length: Size, id: PtlProcess,
        pt_index: u32, match_bits: u64, remote_offset: Size, user_ptr: usize, hdr_data: u64, operand: Bytes,
        operation: u8, datatype: u8, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (action, put) = (swap_action(operation, datatype, operand)?, Some((put_md, put_offset)));
        add_triggered(get_transfer(action, (get_md, get_offset), put, length, target)?, ct, threshold)
    }

    fn PtlTriggeredCTInc(ct: Handle, by: PtlCtEvent, trigger: Handle, threshold: Size) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        let trigger = resolve_counter(&ni, trigger)?;
        to_answer(ni.with_engine(|engine| engine.trigger_ct_inc(trigger, threshold, ct, by.count())))
    }

    fn PtlTriggeredCTSet(ct: Handle, to: PtlCtEvent, trigger: Handle, threshold: Size) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        let trigger = resolve_counter(&ni, trigger)?;
        to_answer(ni.with_engine(|engine| engine.trigger_ct_set(trigger, threshold, ct, to.count())))
    }
}
