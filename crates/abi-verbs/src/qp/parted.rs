//! Emulates InfiniBand when the peer of a pair has gone. There, a queue pair connected out of band does not notice: its receives stay
//! posted, and its next request fails because it is not acknowledged. Our devices end both sides immediately, and flush. So flushed
//! receives are withheld until the program learns that its queue pair has failed, or moves it to the error state. The first flushed
//! request of the send queue completes with a retry error.

use ffi::lock;
use verbs::{Wc, WcOpcode, WcStatus};

use crate::objects::{AsyncQpEvent, Cq, Qp};
use crate::resources::event;
use crate::slab::Held;

/// The program learns of the failure: delivers what was withheld.
pub(crate) fn learn(held: Held<Qp>) {
    if held.device_qp().disconnect_hold.learn(&held.recv_cq.late) {
        event::queue_qp_event(held.handle(), AsyncQpEvent::LastWqeReached);
    }
}

/// The queue pair has failed, and its receives from a shared queue have completed. Reports that, unless the event is withheld.
pub(crate) fn drained(held: Held<Qp>) {
    if held.device_qp().disconnect_hold.drained() {
        event::queue_qp_event(held.handle(), AsyncQpEvent::LastWqeReached);
    }
}

/// Moves the completions that are not withheld to the front; returns their number.
#[cold]
#[inline(never)]
pub(crate) fn sift(cq: Held<Cq>, wcs: &mut [Wc]) -> usize {
    let mut told = 0;
    for at in 0..wcs.len() {
        let wc = wcs[at];
        if let Some(wc) = if wc.is_ok() { Some(wc) } else { failed(cq, wc) } {
            wcs[told] = wc;
            told += 1;
        }
    }
    told
}

#[cold]
fn failed(cq: Held<Cq>, wc: Wc) -> Option<Wc> {
    let Ok(context) = cq.context.lookup() else { return Some(wc) };
    let objects = lock(&context.engine.objects);
    let Some(qp) = objects.qps.get(&wc.qp_num).and_then(|qp| qp.lookup().ok()) else { return Some(wc) };
    let disconnect_hold = &qp.device_qp().disconnect_hold;
    if !disconnect_hold.is_unaware() {
        return Some(wc);
    }
    let is_flushed = wc.status == WcStatus::WrFlushErr;
    if is_flushed && matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm) {
        return disconnect_hold.withhold(wc);
    }
    let status = if is_flushed { WcStatus::RetryExcErr } else { wc.status };
    learn(qp);
    Some(Wc { status, ..wc })
}
