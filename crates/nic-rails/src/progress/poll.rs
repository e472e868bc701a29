//! Progress of completion queues: a poller takes completions from the rails, and then does what queue pairs request.

use std::sync::Arc;

use crate::completion::completions::CompletionSink;
use crate::completion::polled_cq::PolledCq;
use crate::device_inner::DeviceInner;
use crate::lanes::failover::{self, FailoverProgress};
use crate::qp::QpInner;
use crate::qp_actions::QpActions;
use crate::state;

/// Takes completions from the rails into the ring. A rail from which another thread takes is skipped: that thread
/// checks reports afterwards. Returns whether no rail was skipped; otherwise another thread may hold completions that
/// are not in the ring yet.
pub(crate) fn progress(device: &DeviceInner, polling: &PolledCq) -> bool {
    progress_into(device, polling, &mut CompletionSink::ring(&polling.completions))
}

/// As [`progress`], into a sink.
#[inline]
pub(crate) fn progress_into(device: &DeviceInner, polling: &PolledCq, sink: &mut CompletionSink<'_>) -> bool {
    let alone = poll_rails(device, polling, sink);
    handle_reports(device, polling);
    alone
}

/// As [`progress`], but does not skip rails: it waits until it has taken from each that expects something, or others have since
/// this call. A thread that is suspended while it takes may have polled before the completion came that this call is for, and
/// nothing would report that again. In virtual time no thread is suspended there.
fn progress_all(device: &DeviceInner, polling: &PolledCq) {
    if !progress(device, polling) && device.shared.host.node().is_none() {
        wait_for_others(device, polling, || false);
    }
}

/// Takes completions until this thread has skipped no rail, or other threads have polled each rail that expects something since this
/// call, or `is_done`. It has no deadline: others hold a rail for no more than a batch of completions, and wait for no poller.
#[cold]
pub(crate) fn wait_for_others(device: &DeviceInner, polling: &PolledCq, is_done: impl Fn() -> bool) {
    let were_polled = polling.polled_since_now();
    let poll = || (progress(device, polling) || were_polled() || is_done()).then_some(());
    // `None` when simulated time ends.
    let _ = device.shared.host.poll("completions that another thread takes", None, poll);
}

/// Reports to the program if the rails' reports satisfy its request.
#[inline]
pub(crate) fn handle_reports(device: &DeviceInner, polling: &PolledCq) {
    polling.handle_reports(|| {
        poll_rails(device, polling, &mut CompletionSink::ring(&polling.completions));
    });
}

/// Returns whether no other thread was taking from one of the rails.
fn poll_rails(device: &DeviceInner, polling: &PolledCq, sink: &mut CompletionSink<'_>) -> bool {
    let mut alone = true;
    for rail in polling.due_rails() {
        alone &= poll_rail(device, polling, rail, sink).is_some();
        if sink.is_full() {
            polling.start_after(rail);
            break;
        }
    }
    alone
}

/// Takes completions from a rail; returns whether there were any. `None` if another thread takes from it.
pub(crate) fn poll_rail(
    device: &DeviceInner,
    polling: &PolledCq,
    rail: usize,
    sink: &mut CompletionSink<'_>,
) -> Option<bool> {
    let mut any = false;
    for _ in 0..2 {
        let mut actions = Vec::new();
        any |= polling.poll_rail(rail, sink, |known, num| device.find(known, rail, num), &mut actions)?;
        if !actions.is_empty() {
            actions.into_iter().for_each(|(qp, wants)| run_actions(device, polling, &qp, rail, wants));
        }
        if any || !polling.must_poll_again() {
            break;
        }
    }
    polling.on_polled(any);
    Some(any)
}

/// Does what completions of a lane have requested.
pub(crate) fn run_actions(
    device: &DeviceInner,
    polling: &PolledCq,
    qp: &Arc<QpInner>,
    lane: usize,
    wants: QpActions,
) {
    if wants.failure {
        qp.fail();
    } else if wants.needs_arming {
        arm_for_requests(device, polling);
    }
    if wants.lane_failure && qp.state_number() != state::ERROR {
        handle_lane_failure(device, qp, lane);
    } else if wants.failover {
        advance_failover(device, qp);
    }
}

/// Has the service poll the rails' queues when they report, for a thread that is about to sleep.
pub(crate) fn arm_for_service(device: &DeviceInner, polling: &PolledCq) {
    if polling.completions.arm_for_service() {
        progress_all(device, polling);
    }
}

/// As [`arm_for_service`], for requests that wait for completions while nobody may poll.
pub(crate) fn arm_for_requests(device: &DeviceInner, polling: &PolledCq) {
    if polling.completions.arm_for_requests() {
        progress_all(device, polling);
    }
}

/// Handles the failure of a lane, or the end of the whole connection.
pub(crate) fn handle_lane_failure(device: &DeviceInner, qp: &Arc<QpInner>, lane: usize) {
    if failover::on_lane_down(device, qp, lane) {
        poll_and_fail_over(device, qp);
    }
}

/// Polls, and continues a failover. Returns whether that is still unfinished.
pub(crate) fn poll_and_fail_over(device: &DeviceInner, qp: &Arc<QpInner>) -> bool {
    for completions in [&qp.sending.completions, &qp.receiving.completions] {
        if let Some(polling) = device.polling(completions) {
            progress(device, &polling);
        }
    }
    advance_failover(device, qp)
}

/// As [`poll_and_fail_over()`], using the completions taken from the rails so far.
fn advance_failover(device: &DeviceInner, qp: &Arc<QpInner>) -> bool {
    match failover::advance(device, qp) {
        FailoverProgress::Done => false,
        FailoverProgress::Waiting => true,
        FailoverProgress::Finished { waits } => {
            if let Some(polling) = device.polling(&qp.sending.completions).filter(|_| waits) {
                arm_for_requests(device, &polling);
            }
            qp.sending.completions.notify_without_report();
            false
        }
    }
}

/// Handles reports of the rails' queues.
pub(crate) fn progress_channels(device: &DeviceInner) {
    for (rail, channel) in device.shared.channels.iter().enumerate() {
        let Some(channel) = channel else { continue };
        while let Some(id) = channel.poll_event() {
            let Some(polling) = device.cq_of_rail(rail, id) else { continue };
            polling.on_report();
            progress_all(device, &polling);
            if polling.completions.take_arm_request() || polling.completions.wakeup.has_waiters() {
                // The report may have been about other completions than those that are waited for.
                arm_for_service(device, &polling);
            }
        }
    }
}
