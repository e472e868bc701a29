//! Data path: completion at the receiver. Decodes a completion that a peer published in a queue pair's ring,
//! and copies inline data from it to the memory of its receive, during a poll.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, Wc, WcOpcode, WcStatus};

use crate::connection::Connection;
use crate::copy::place;
use crate::memory::layout::{comp, recv};

/// Decodes the completion of `receive` in a slot whose mark holds `low`. Reads the peer's words once and
/// checks them against the receive; if they do not match, the queue pair is marked to be failed.
#[inline]
pub(crate) fn complete(
    connection: &Connection,
    slot: &[AtomicU64],
    low: u32,
    receive: &[AtomicU64],
    wc: &mut Wc,
) {
    if low & 0x00ff_ffff & !(comp::SOLICITED << 16) == comp::INLINE << 16
        && let Some(dst) = inline_destination(connection, slot, low >> 24, receive)
        // SAFETY: as in `copy_inline`; the slot has INLINE_MAX bytes.
        && unsafe { place::copy_last_byte_last(dst, inline_data(slot), (low >> 24) as usize) }.is_ok()
    {
        let wr_id = receive[recv::WR_ID].load(Ordering::Relaxed);
        *wc = Wc {
            wr_id,
            opcode: WcOpcode::Recv,
            byte_len: low >> 24,
            qp_num: connection.reported_qp_num,
            ..Wc::default()
        };
    } else {
        *wc = completion(connection, slot, low, receive);
    }
}

/// The inline data of a completion.
#[inline]
fn inline_data(slot: &[AtomicU64]) -> *const u8 {
    slot[comp::BYTES].as_ptr().cast()
}

/// The destination of a plain inline message: the first SGE of its receive, if that holds all bytes.
#[inline]
fn inline_destination(
    connection: &Connection,
    slot: &[AtomicU64],
    len: u32,
    receive: &[AtomicU64],
) -> Option<*mut u8> {
    let [_, _, addr, length_key, ..] = receive else { return None };
    let length_key = length_key.load(Ordering::Relaxed);
    let announced = (slot[comp::LEN_IMM].load(Ordering::Relaxed) >> 32) as u32;
    let fits =
        announced == len && len > 0 && len as usize <= comp::INLINE_MAX && u64::from(len) <= length_key >> 32;
    if !fits || recv::sges(receive) == 0 {
        return None;
    }
    let addr = addr.load(Ordering::Relaxed);
    connection.own_memory(length_key as u32, Access::LOCAL_WRITE, addr, len.into())
}

/// Decodes any completion, see [`complete`].
#[inline(never)]
fn completion(connection: &Connection, slot: &[AtomicU64], low: u32, receive: &[AtomicU64]) -> Wc {
    let len_imm = slot[comp::LEN_IMM].load(Ordering::Relaxed);
    let (flags, imm, byte_len) = (low >> 16, len_imm as u32, (len_imm >> 32) as u32);
    let is_write = low & 0xff == 1;
    let inline_len = (flags & comp::INLINE != 0).then_some(low >> 24);
    let mut wc = Wc {
        wr_id: receive[recv::WR_ID].load(Ordering::Relaxed),
        status: comp::status_from_number(low >> 8 & 0xff),
        opcode: if is_write { WcOpcode::RecvWriteImm } else { WcOpcode::Recv },
        byte_len,
        qp_num: connection.reported_qp_num,
        imm: (flags & comp::IMM != 0).then_some(imm),
        invalidated: (flags & comp::INVALIDATE != 0).then_some(imm),
    };
    let arrived = match inline_len {
        Some(len) => len == byte_len && copy_inline(connection, slot, receive, len.into()),
        // A program reads as many bytes of its receive as its completion reports.
        None => {
            is_write || wc.status != WcStatus::Success || u64::from(byte_len) <= receive_capacity(receive)
        }
    };
    if !arrived {
        (wc.status, wc.byte_len) = (WcStatus::LocProtErr, 0);
        connection.request_failure();
    }
    wc
}

/// Copies inline data of a completion to the memory of its receive; false if that memory is not accessible.
#[inline]
fn copy_inline(connection: &Connection, slot: &[AtomicU64], receive: &[AtomicU64], len: u64) -> bool {
    let mut left = len.min(comp::INLINE_MAX as u64);
    let mut src = inline_data(slot);
    for words in receive[recv::SGES..].chunks_exact(2).take(recv::sges(receive)) {
        if left == 0 {
            break;
        }
        let length_key = words[1].load(Ordering::Relaxed);
        let n = (length_key >> 32).min(left);
        if n == 0 {
            continue;
        }
        let addr = words[0].load(Ordering::Relaxed);
        let Some(dst) = connection.own_memory(length_key as u32, Access::LOCAL_WRITE, addr, n) else {
            return false;
        };
        // SAFETY: checked memory, kept by the poll lock that deregistration waits for; the slot has `left`
        // bytes. Test: `traffic` of the conformance suite.
        if unsafe { place::copy_last_byte_last(dst, src, n as usize) }.is_err() {
            return false;
        }
        src = src.wrapping_add(n as usize);
        left -= n;
    }
    left == 0
}

/// The capacity of a receive in bytes.
fn receive_capacity(receive: &[AtomicU64]) -> u64 {
    let sges = receive[recv::SGES..].chunks_exact(2).take(recv::sges(receive));
    sges.map(|words| words[1].load(Ordering::Relaxed) >> 32).sum()
}
