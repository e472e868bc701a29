//! Progress of completion queues: a poller takes completions from the rails, and then does what queue pairs request.

use std::sync::Arc;

use crate::completion::completions::Sink;
use crate::completion::polling::Polling;
use crate::inner::Inner;
use crate::lanes::mend::{self, Settling};
use crate::qp::QpInner;
use crate::state;
use crate::wants::Wants;

/// Takes completions from the rails into the ring. A rail from which another thread takes is skipped: that thread
/// checks reports afterwards. Returns whether no rail was skipped; otherwise another thread may hold completions that
/// are not in the ring yet.
pub(crate) fn progress(device: &Inner, polling: &Polling) -> bool {
    progress_into(device, polling, &mut Sink::ring(&polling.completions))
}

/// As [`progress`], into a sink.
#[inline]
pub(crate) fn progress_into(device: &Inner, polling: &Polling, sink: &mut Sink<'_>) -> bool {
    let alone = take_all(device, polling, sink);
    handle_reports(device, polling);
    alone
}

/// As [`progress`], but does not skip rails: it waits until it has taken from each that expects something, or others have since
/// this call. A thread that is suspended while it takes may have polled before the completion came that this call is for, and
/// nothing would report that again. In virtual time no thread is suspended there.
fn progress_all(device: &Inner, polling: &Polling) {
    if !progress(device, polling) && device.shared.host.node().is_none() {
        wait_for_others(device, polling, || false);
    }
}

/// Takes completions until this thread has skipped no rail, or other threads have polled each rail that expects something since this
/// call, or `is_done`. It has no deadline: others hold a rail for no more than a batch of completions, and wait for no poller.
#[cold]
pub(crate) fn wait_for_others(device: &Inner, polling: &Polling, is_done: impl Fn() -> bool) {
    let has_turned = polling.next_turns();
    let poll = || (progress(device, polling) || has_turned() || is_done()).then_some(());
    // `None` when simulated time ends.
    let _ = device.shared.host.poll("completions that another thread takes", None, poll);
}

/// Reports to the program if the rails' reports satisfy its request.
#[inline]
pub(crate) fn handle_reports(device: &Inner, polling: &Polling) {
    polling.handle_reports(|| {
        take_all(device, polling, &mut Sink::ring(&polling.completions));
    });
}

/// Returns whether no other thread was taking from one of the rails.
fn take_all(device: &Inner, polling: &Polling, sink: &mut Sink<'_>) -> bool {
    let mut alone = true;
    for rail in polling.due_rails() {
        alone &= take(device, polling, rail, sink).is_some();
        if sink.is_full() {
            polling.has_stopped_at(rail);
            break;
        }
    }
    alone
}

/// Takes completions from a rail; returns whether there were any. `None` if another thread takes from it.
pub(crate) fn take(device: &Inner, polling: &Polling, rail: usize, sink: &mut Sink<'_>) -> Option<bool> {
    let mut any = false;
    for _ in 0..2 {
        let mut asked = Vec::new();
        any |= polling.take(rail, sink, |known, num| device.find(known, rail, num), &mut asked)?;
        if !asked.is_empty() {
            asked.into_iter().for_each(|(qp, wants)| grant(device, polling, &qp, rail, wants));
        }
        if any || !polling.must_poll_again() {
            break;
        }
    }
    polling.has_taken(any);
    Some(any)
}

/// Does what completions of a lane have requested.
pub(crate) fn grant(device: &Inner, polling: &Polling, qp: &Arc<QpInner>, lane: usize, wants: Wants) {
    if wants.failure {
        qp.fail();
    } else if wants.needs_arming {
        watch_for_requests(device, polling);
    }
    if wants.lane_failure && qp.now() != state::ERROR {
        handle_lane_failure(device, qp, lane);
    } else if wants.settling {
        continue_settling(device, qp);
    }
}

/// Has the service poll the rails' queues when they report, for a thread that is about to sleep.
pub(crate) fn watch(device: &Inner, polling: &Polling) {
    if polling.completions.watch() {
        progress_all(device, polling);
    }
}

/// As [`watch`], for requests that wait for completions while nobody may poll.
pub(crate) fn watch_for_requests(device: &Inner, polling: &Polling) {
    if polling.completions.watch_for_requests() {
        progress_all(device, polling);
    }
}

/// Handles the failure of a lane, or the end of the whole connection.
pub(crate) fn handle_lane_failure(device: &Inner, qp: &Arc<QpInner>, lane: usize) {
    if mend::lane_is_down(device, qp, lane) {
        mend(device, qp);
    }
}

/// Continues settling failed lanes. Returns whether that is still unfinished.
pub(crate) fn mend(device: &Inner, qp: &Arc<QpInner>) -> bool {
    for completions in [&qp.sending.completions, &qp.receiving.completions] {
        if let Some(polling) = device.polling(completions) {
            progress(device, &polling);
        }
    }
    continue_settling(device, qp)
}

/// As [`mend()`], using the completions taken from the rails so far.
fn continue_settling(device: &Inner, qp: &Arc<QpInner>) -> bool {
    match mend::settle_failures(device, qp) {
        Settling::Done => false,
        Settling::Waits => true,
        Settling::Settled { waits } => {
            if let Some(polling) = device.polling(&qp.sending.completions).filter(|_| waits) {
                watch_for_requests(device, &polling);
            }
            qp.sending.completions.announce();
            false
        }
    }
}

/// Handles reports of the rails' queues.
pub(crate) fn progress_channels(device: &Inner) {
    for (rail, channel) in device.shared.channels.iter().enumerate() {
        let Some(channel) = channel else { continue };
        while let Some(id) = channel.poll_event() {
            let Some(polling) = device.cq_of_rail(rail, id) else { continue };
            polling.on_report();
            progress_all(device, &polling);
            if polling.completions.take_watch_request() || polling.completions.wakeup.has_waiters() {
                // The report may have been about other completions than those that are waited for.
                watch(device, &polling);
            }
        }
    }
}
