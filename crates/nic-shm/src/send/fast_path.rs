//! Data path: the fast path. An RDMA write of one SGE between cached regions, and a small send of one SGE
//! into a posted receive: the requests that matter most for latency and message rate. All other requests, and
//! all errors, go to the engine, which alone reports errors.

use std::sync::atomic::Ordering;

use verbs::{Access, Data, SendFlags, SendOp, SendWr};

use crate::copy::place;
use crate::memory::layout::{comp, recv};
use crate::memory::tlb::Tlb;
use crate::peer::queue_pair::PeerQp;
use crate::send::delivery::publish_plain;
use crate::send::engine::SendEngine;

/// Whether a request is a candidate for [`execute`].
#[inline]
pub(crate) fn is_candidate(wr: &SendWr<'_>) -> bool {
    matches!(wr.op, SendOp::Write(_) | SendOp::Send | SendOp::SendImm(_))
}

/// Carries out the request if the fast path can; false if nothing has happened. Called under the send lock,
/// with no request waiting.
#[inline]
pub(crate) fn execute(
    engine: &mut SendEngine,
    link: &PeerQp,
    wr: &SendWr<'_>,
    inline_max: usize,
    size_max: u64,
) -> bool {
    let Some((src, len)) = single_sge(&engine.local_tlb, wr, inline_max, size_max) else { return false };
    let _inside = link.enter();
    if !link.is_ready() {
        return false;
    }
    let SendOp::Write(remote) = wr.op else {
        return execute_send(link, wr, src, len);
    };
    let Some(dst) = engine.transfer.remote_tlb.find(remote.rkey, Access::REMOTE_WRITE, remote.addr, len)
    else {
        return false;
    };
    // SAFETY: both caches guarantee registered memory of this length, the remote TLB as long as we are inside,
    // the local TLB as long as the send lock is held. Test: `write` and `memory` of the conformance suite.
    if unsafe { place::copy_last_byte_last(dst, src, len as usize) }.is_err() {
        return false;
    }
    if wr.flags.contains(SendFlags::NOTIFY) {
        link.notify();
    }
    true
}

/// Delivers an inline message into a posted receive of the peer's own ring whose first SGE holds it; false if
/// nothing has happened.
#[inline]
fn execute_send(link: &PeerQp, wr: &SendWr<'_>, src: *const u8, len: u64) -> bool {
    let Some(receive) = link.waiting_receive() else { return false };
    let [_, _, addr, length_key, ..] = receive else { return false };
    let length_key = length_key.load(Ordering::Relaxed);
    let count = recv::sges(receive);
    if count == 0 || len > comp::INLINE_MAX as u64 || len > length_key >> 32 {
        return false;
    }
    let (key, addr) = (length_key as u32, addr.load(Ordering::Relaxed));
    if link.peer.table.check(key, link.pd, Access::LOCAL_WRITE, addr, len).is_none() {
        return false;
    }
    let imm = if let SendOp::SendImm(imm) = wr.op { Some(imm) } else { None };
    // SAFETY: the local TLB guarantees the source, or it is inline; the length was checked against
    // INLINE_MAX. Test: `traffic` of the conformance suite.
    unsafe { publish_plain(link, src, len as u32, imm, wr.flags.contains(SendFlags::SOLICITED)) }
}

/// The request's local data, if it is one non-empty piece of allowed size.
#[inline]
fn single_sge(
    local_tlb: &Tlb,
    wr: &SendWr<'_>,
    inline_max: usize,
    size_max: u64,
) -> Option<(*const u8, u64)> {
    match wr.data {
        Data::Sges([sge]) if sge.length > 0 => {
            let len = u64::from(sge.length);
            let at = local_tlb.find(sge.lkey, Access::empty(), sge.addr, len)?;
            (len <= size_max).then_some((at.cast_const(), len))
        }
        Data::Inline(bytes) if !bytes.is_empty() && bytes.len() <= inline_max => {
            Some((bytes.as_ptr(), bytes.len() as u64))
        }
        _ => None,
    }
}
