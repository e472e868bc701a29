//! Triggered operations: puts, gets, atomics and counter changes that start when a counter reaches a
//! threshold (Portals 4.3, section 3.16).

use ffi::Bytes;
use portals::{Action, CtHandle, Ni, Transfer};

use super::transfer::{TransferTarget, ack, atomic, fetching, sending, swap};
use super::{done, object};
use crate::answer::{Answer, Code};
use crate::export::exports;
use crate::handle;
use crate::types::{Handle, PtlCtEvent, PtlProcess, Size};

fn trigger((ni, transfer): (Ni, Transfer), ct: Handle, threshold: Size) -> Answer<()> {
    let ct = counter(&ni, ct)?;
    done(ni.with_engine(|engine| engine.trigger(ct, threshold, &transfer)))
}

/// A counter of the same interface.
fn counter(ni: &Ni, ct: Handle) -> Answer<CtHandle> {
    let (number, ct) = handle::object(ct)?;
    if number == ni.kind().number() { Ok(ct) } else { Err(Code::ArgInvalid) }
}

exports! {
    fn PtlTriggeredPut(
        md: Handle, offset: Size, length: Size, request: u8, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, hdr_data: u64, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        trigger(sending(Action::Put, (md, offset), length, ack(request)?, target)?, ct, threshold)
    }

    fn PtlTriggeredGet(
        md: Handle, offset: Size, length: Size, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data: 0 };
        trigger(fetching(Action::Get, (md, offset), None, length, target)?, ct, threshold)
    }

    fn PtlTriggeredAtomic(
        md: Handle, offset: Size, length: Size, request: u8, id: PtlProcess, pt_index: u32, match_bits: u64,
        remote_offset: Size, user_ptr: usize, hdr_data: u64, operation: u8, datatype: u8, ct: Handle,
        threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (op, datatype) = atomic(operation, datatype)?;
        let action = Action::Atomic(op, datatype);
        trigger(sending(action, (md, offset), length, ack(request)?, target)?, ct, threshold)
    }

    fn PtlTriggeredFetchAtomic(
        get_md: Handle, get_offset: Size, put_md: Handle, put_offset: Size, length: Size, id: PtlProcess,
        pt_index: u32, match_bits: u64, remote_offset: Size, user_ptr: usize, hdr_data: u64, operation: u8,
        datatype: u8, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (op, datatype) = atomic(operation, datatype)?;
        let (action, put) = (Action::FetchAtomic(op, datatype), Some((put_md, put_offset)));
        trigger(fetching(action, (get_md, get_offset), put, length, target)?, ct, threshold)
    }

    fn PtlTriggeredSwap(
        get_md: Handle, get_offset: Size, put_md: Handle, put_offset: Size, length: Size, id: PtlProcess,
        pt_index: u32, match_bits: u64, remote_offset: Size, user_ptr: usize, hdr_data: u64, operand: Bytes,
        operation: u8, datatype: u8, ct: Handle, threshold: Size,
    ) {
        let target = TransferTarget { id, pt_index, match_bits, remote_offset, user_ptr, hdr_data };
        let (action, put) = (swap(operation, datatype, operand)?, Some((put_md, put_offset)));
        trigger(fetching(action, (get_md, get_offset), put, length, target)?, ct, threshold)
    }

    fn PtlTriggeredCTInc(ct: Handle, by: PtlCtEvent, trigger: Handle, threshold: Size) {
        let (ni, ct) = object::<CtHandle>(ct)?;
        let trigger = counter(&ni, trigger)?;
        done(ni.with_engine(|engine| engine.trigger_ct_inc(trigger, threshold, ct, by.count())))
    }

    fn PtlTriggeredCTSet(ct: Handle, to: PtlCtEvent, trigger: Handle, threshold: Size) {
        let (ni, ct) = object::<CtHandle>(ct)?;
        let trigger = counter(&ni, trigger)?;
        done(ni.with_engine(|engine| engine.trigger_ct_set(trigger, threshold, ct, to.count())))
    }
}
