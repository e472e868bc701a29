//! Data path: completion at the receiver. Takes what a peer's engine published in a queue pair's ring, and moves what a
//! completion carries to where its receive wants it. From the ring, to the poll.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, Wc, WcOpcode, WcStatus};

use super::engine::{FLAG_CARRIED, FLAG_IMM, FLAG_INVALIDATE};
use super::layout::{comp, recv};
use super::place;
use super::qp::QpInner;

impl QpInner {
    /// Takes completion `next` out of its slot; under the receive queue's poll lock. `None` if it is about no receive that a peer
    /// could have used. What the peer wrote there is read once and held against the receive.
    #[inline]
    pub(super) fn take_completion(&self, slot: &[AtomicU64], low: u32, next: u64) -> Option<Wc> {
        let len_imm = slot[comp::LEN_IMM].load(Ordering::Relaxed);
        let (flags, imm, byte_len) = (low >> 16, len_imm as u32, (len_imm >> 32) as u32);
        let shared = self.srq.as_ref().map(|srq| (srq, slot[comp::RECEIVE].load(Ordering::Relaxed) as u16));
        let (receive, claimed) = match (&self.recvs, shared) {
            (Some(recvs), _) => (recvs.slot(next), None),
            (None, Some((srq, at))) => (srq.receive(at), Some(srq.claimed(at, self.index as u16 + 1)?)),
            _ => return None,
        };
        let is_write = low & 0xff == 1;
        let carried = (flags & FLAG_CARRIED != 0).then_some(low >> 24);
        let mut wc = Wc {
            wr_id: receive[recv::WR_ID].load(Ordering::Relaxed),
            status: status_of(low >> 8 & 0xff),
            opcode: if is_write { WcOpcode::RecvWriteImm } else { WcOpcode::Recv },
            byte_len,
            qp_num: self.num,
            imm: (flags & FLAG_IMM != 0).then_some(imm),
            invalidated: (flags & FLAG_INVALIDATE != 0).then_some(imm),
        };
        let arrived = match carried {
            Some(len) => len == byte_len && self.unload(slot, receive, len.into()),
            // A program reads as many bytes of its receive as it is told.
            None => is_write || wc.status != WcStatus::Success || u64::from(byte_len) <= room(receive),
        };
        if !arrived {
            (wc.status, wc.byte_len) = (WcStatus::LocProtErr, 0);
            self.device.condemn(self);
        }
        if let Some(claimed) = claimed {
            claimed.give_back();
        }
        if wc.invalidated.is_some() {
            self.device.wait_for_peers_outside();
        }
        Some(wc)
    }

    /// Moves what a completion carries to where its receive wants it; false if that memory is gone.
    #[inline]
    fn unload(&self, slot: &[AtomicU64], receive: &[AtomicU64], len: u64) -> bool {
        let mut left = len.min(comp::INLINE_MAX as u64);
        let mut src = slot[comp::BYTES].as_ptr().cast::<u8>().cast_const();
        for words in receive[recv::SGES..].chunks_exact(2).take(recv::pieces(receive)) {
            if left == 0 {
                break;
            }
            let length_key = words[1].load(Ordering::Relaxed);
            let n = (length_key >> 32).min(left);
            if n == 0 {
                continue;
            }
            let addr = words[0].load(Ordering::Relaxed);
            let Some(dst) = self.own_memory(length_key as u32, Access::LOCAL_WRITE, addr, n) else {
                return false;
            };
            // SAFETY: checked memory, kept by the poll lock that deregistering takes; the slot has `left` bytes.
            unsafe {
                place::copy_last_byte_last(dst, src, n as usize);
                src = src.add(n as usize);
            }
            left -= n;
        }
        left == 0
    }
}

/// The bytes that a receive has room for.
fn room(receive: &[AtomicU64]) -> u64 {
    let pieces = receive[recv::SGES..].chunks_exact(2).take(recv::pieces(receive));
    pieces.map(|words| words[1].load(Ordering::Relaxed) >> 32).sum()
}

fn status_of(number: u32) -> WcStatus {
    match number {
        0 => WcStatus::Success,
        1 => WcStatus::LocLenErr,
        2 => WcStatus::LocProtErr,
        _ => WcStatus::GeneralErr,
    }
}
