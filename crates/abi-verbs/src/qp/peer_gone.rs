//! Emulates InfiniBand when the peer of a pair has gone. There, a queue pair connected out of band does not notice: its receives stay
//! posted, and its next request fails because it is not acknowledged. Our devices end both sides immediately, and flush. So flushed
//! receives are withheld until the program learns that its queue pair has failed, or moves it to the error state. The first flushed
//! request of the send queue completes with a retry error.

use ffi::lock;
use verbs::{Wc, WcStatus};

use crate::objects::{AsyncQpEvent, Cq, Qp};
use crate::qp::failed_completion;
use crate::resources::event;
use crate::slab::Held;

/// The program learns that the queue pair has failed: delivers the completions and the event that were withheld.
pub(crate) fn deliver_withheld(qp: Held<Qp>) {
    if qp.device_qp().disconnect_hold.end(&qp.recv_cq.delayed) {
        event::queue_qp_event(qp.handle(), AsyncQpEvent::LastWqeReached);
    }
}

/// The queue pair has failed, and its receives from a shared queue have completed. Reports that, unless the event is withheld.
pub(crate) fn report_drained(qp: Held<Qp>) {
    if qp.device_qp().disconnect_hold.may_report_drained() {
        event::queue_qp_event(qp.handle(), AsyncQpEvent::LastWqeReached);
    }
}

/// Moves the completions that are not withheld to the front, and reports those with errors; returns their number.
#[cold]
#[inline(never)]
pub(crate) fn remove_withheld(cq: Held<Cq>, wcs: &mut [Wc]) -> usize {
    let mut kept = 0;
    for at in 0..wcs.len() {
        let wc = wcs[at];
        if let Some(wc) = if wc.is_ok() { Some(wc) } else { withhold_or_translate(cq, wc) } {
            wcs[kept] = wc;
            kept += 1;
        }
    }
    failed_completion::report(cq, &wcs[..kept]);
    kept
}

/// Decides what the program sees of a failed completion: `None` if it is withheld. A flushed send becomes a retry error if it is the
/// first failure that the program sees of this queue pair: the device flushed it because the peer has gone, but over InfiniBand the
/// request would fail for want of an acknowledgement.
#[cold]
fn withhold_or_translate(cq: Held<Cq>, wc: Wc) -> Option<Wc> {
    let Ok(context) = cq.context.lookup() else { return Some(wc) };
    let objects = lock(&context.engine.objects);
    let Some(qp) = objects.qps.get(&wc.qp_num).and_then(|qp| qp.lookup().ok()) else { return Some(wc) };
    let disconnect_hold = &qp.device_qp().disconnect_hold;
    if !disconnect_hold.hides_failure() {
        return Some(wc);
    }
    let is_flushed = wc.status == WcStatus::WrFlushErr;
    if is_flushed && wc.opcode.is_recv() {
        return disconnect_hold.withhold(wc);
    }
    let status = if is_flushed { WcStatus::RetryExcErr } else { wc.status };
    deliver_withheld(qp);
    Some(Wc { status, ..wc })
}
