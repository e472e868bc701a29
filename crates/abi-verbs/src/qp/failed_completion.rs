//! Reports completions with errors, connections that fail and asynchronous errors to the log of failed calls (`ffi::log`): which
//! request, queue pair and peer, and the device's reason.

use std::sync::atomic::Ordering;

use ffi::{lock, log};
use verbs::{AsyncEvent, CmFailure, Wc, WcOpcode, WcStatus};

use crate::address::AhDestination;
use crate::objects::{Cq, LocalEnd, Objects, Qp};
use crate::slab::Held;

/// Reports completions that are delivered to the program. Of a queue pair that has failed, requests that were flushed afterwards are
/// not reported, and neither are requests that the end of a connection flushes.
#[cold]
#[inline(never)]
pub(crate) fn report(cq: Held<Cq>, wcs: &[Wc]) {
    if !log::reports_errors() {
        return;
    }
    let Ok(context) = cq.context.lookup() else { return };
    for wc in wcs.iter().filter(|wc| !wc.is_ok()) {
        let objects = lock(&context.engine.objects);
        let Some(qp) = objects.qps.get(&wc.qp_num).and_then(|qp| qp.lookup().ok()) else { continue };
        let device_qp = qp.device_qp();
        let why = device_qp.qp.failure();
        let is_first = !device_qp.is_explained.load(Ordering::Relaxed);
        if wc.status == WcStatus::WrFlushErr && !(is_first && why.is_some()) {
            continue;
        }
        device_qp.is_explained.store(true, Ordering::Relaxed);
        let peer = peer(&objects, qp);
        drop(objects);
        let why = why.unwrap_or_else(|| meaning(wc.status).to_owned());
        let (wr_id, operation, number) = (wc.wr_id, operation(wc.opcode), wc.qp_num);
        let text = format!(
            "wr_id {wr_id} ({operation}) on qp {number:#x}{peer} ended with {}: {why}",
            name(wc.status)
        );
        log::failure("ibv_poll_cq", &text);
    }
}

/// Reports that a queue pair whose peer the program has named could not be connected.
#[cold]
pub(crate) fn report_unconnected(objects: &Objects, qp: Held<Qp>, why: &CmFailure) {
    if log::reports_errors() {
        let number = qp.verbs().reported_qp_num();
        let text = format!(
            "qp {number:#x}{} cannot be connected: {why}; check that the peer still runs, and that each side passes the other's \
             GID and qp_num",
            peer(objects, qp)
        );
        qp.device_qp().is_explained.store(true, Ordering::Relaxed);
        log::failure("ibv_modify_qp", &text);
    }
}

/// Reports an asynchronous error, unless a completion has explained it.
#[cold]
pub(crate) fn report_event(objects: &Objects, event: &AsyncEvent) {
    if !log::reports_errors() {
        return;
    }
    let (name, number, why) = match event {
        AsyncEvent::CqError { .. } => {
            let text = "a completion queue overran and failed with its queue pairs; make it larger (cqe), or poll it more often";
            return log::failure("IBV_EVENT_CQ_ERR", text);
        }
        AsyncEvent::QpAccessError { qp_num } => ("IBV_EVENT_QP_ACCESS_ERR", qp_num, None),
        AsyncEvent::QpFatal { qp_num, why } => ("IBV_EVENT_QP_FATAL", qp_num, Some(*why)),
        _ => return,
    };
    let Some(qp) = objects.of_event(*number) else { return };
    if qp.device_qp().is_explained.load(Ordering::Relaxed) {
        return;
    }
    let why = qp.verbs().failure().or(why.map(str::to_owned)).unwrap_or_else(|| "no reason is known".into());
    let text = format!("qp {:#x}{} has failed: {why}", qp.verbs().reported_qp_num(), peer(objects, qp));
    log::failure(name, &text);
}

/// The peer of a queue pair, as the continuation of a sentence.
fn peer(objects: &Objects, qp: Held<Qp>) -> String {
    if let Some(id) = objects.ids.get(&qp.verbs().num()).and_then(|id| id.lookup().ok()) {
        let state = lock(&id.state);
        if let (LocalEnd::Qp(_), Some(peer)) = (&state.end, state.peer) {
            return format!(" to {peer}");
        }
    }
    let settings = lock(&qp.settings).0;
    match AhDestination::decode(&settings.ah_attr) {
        Ok(host) if settings.dest_qp_num != 0 => format!(" to qp {:#x} of {host}", settings.dest_qp_num),
        _ => String::new(),
    }
}

fn operation(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send => "send",
        WcOpcode::Write => "RDMA write",
        WcOpcode::Read => "RDMA read",
        WcOpcode::CompareSwap => "compare and swap",
        WcOpcode::FetchAdd => "fetch and add",
        WcOpcode::BindMw => "binding of a memory window",
        WcOpcode::LocalInv => "invalidation of a memory window",
        WcOpcode::Recv => "receive",
        WcOpcode::RecvWriteImm => "receive of a write with immediate data",
        _ => "request",
    }
}

/// The name of a status in C.
fn name(status: WcStatus) -> &'static str {
    match status {
        WcStatus::LocLenErr => "IBV_WC_LOC_LEN_ERR",
        WcStatus::LocQpOpErr => "IBV_WC_LOC_QP_OP_ERR",
        WcStatus::LocProtErr => "IBV_WC_LOC_PROT_ERR",
        WcStatus::WrFlushErr => "IBV_WC_WR_FLUSH_ERR",
        WcStatus::MwBindErr => "IBV_WC_MW_BIND_ERR",
        WcStatus::RemInvReqErr => "IBV_WC_REM_INV_REQ_ERR",
        WcStatus::RemAccessErr => "IBV_WC_REM_ACCESS_ERR",
        WcStatus::RemOpErr => "IBV_WC_REM_OP_ERR",
        WcStatus::RetryExcErr => "IBV_WC_RETRY_EXC_ERR",
        WcStatus::RnrRetryExcErr => "IBV_WC_RNR_RETRY_EXC_ERR",
        _ => "IBV_WC_GENERAL_ERR",
    }
}

/// The meaning of a status whose reason the device does not know.
fn meaning(status: WcStatus) -> &'static str {
    match status {
        WcStatus::LocLenErr => "a message is longer than its receive; post larger receives",
        WcStatus::LocProtErr => {
            "the local memory of the request is not accessible; check lkey, rights and bounds, and that it is still registered"
        }
        WcStatus::WrFlushErr => "the queue pair had failed or was disconnected before this request began",
        WcStatus::RemInvReqErr => {
            "the peer cannot take the request: too long for its receive, or an unaligned atomic"
        }
        WcStatus::RemAccessErr => {
            "the peer's region does not allow the access; check rkey, address, length and rights"
        }
        WcStatus::RemOpErr => {
            "the peer cannot complete the request because of an error of its own; see its log"
        }
        WcStatus::RetryExcErr => {
            "the peer does not answer: its queue pair is gone, was never connected, or its process has ended"
        }
        WcStatus::RnrRetryExcErr => "the peer had no receive posted; post receives before the peer sends",
        _ => "the device gives no reason",
    }
}
