//! The threaded engine: a thread for each rail, pinned to a core, which posts stripes to its rail and polls it as long
//! as there is work. Pollers of the program help, and short requests are posted by the caller, so that no thread has to
//! wake up for them. In virtual time it is a rank, which the machine's signals wake, and only ranks of the engine poll.

use std::sync::{Arc, Weak};

use host::{ClockKind, Host, real};
use verbs::{Error, Result, Wc, WcOpcode, WcStatus};

use crate::completion::completions::CompletionSink;
use crate::completion::polled_cq::PolledCq;
use crate::device_inner::DeviceInner;
use crate::progress::poll::{handle_reports, poll_rail, run_actions};
use crate::progress::worker::Worker;

/// Starts a thread for each rail; they end with the device.
pub(crate) fn start(device: &Arc<DeviceInner>) -> Result<()> {
    let (host, workers) = (&device.shared.host, &device.shared.workers);
    let cores = if host.clock() == ClockKind::Virtual { Vec::new() } else { real::allowed_cores() };
    for rail in 0..workers.len() {
        let (weak, own) = (Arc::downgrade(device), host.clone());
        let worker = workers[rail].clone();
        let core = (!cores.is_empty()).then(|| cores[rail % cores.len()]);
        host.spawn("rail", core, move || run(&own, rail, &worker, &weak))
            .map_err(|e| Error::system("cannot start the thread of a rail", e))?;
    }
    Ok(())
}

fn run(host: &Host, rail: usize, worker: &Worker, device: &Weak<DeviceInner>) {
    let mut cqs: Vec<Arc<PolledCq>> = Vec::new();
    while !worker.is_stopped() {
        // Each time that there was something, the wait starts anew, so that the thread sleeps only after a period
        // without work.
        let look = || {
            let device = device.upgrade().filter(|_| !worker.is_stopped());
            let Some(device) = device else { return Some(()) };
            let mut any = post_queued(&device, rail, worker);
            device.cqs_into(&mut cqs);
            for cq in cqs.drain(..) {
                any |= poll_rail(&device, &cq, rail, &mut CompletionSink::ring(&cq.completions))
                    .unwrap_or(false);
                handle_reports(&device, &cq);
            }
            any.then_some(())
        };
        if host.wait("a rail's thread", &worker.wakeup, None, look).is_none() {
            // The world ends.
            return;
        }
    }
}

/// Posts the requests queued for the rail.
fn post_queued(device: &DeviceInner, rail: usize, worker: &Worker) -> bool {
    worker.post_queued(|num, wr_id| {
        let Some(qp) = device.qp(num) else { return };
        // The lane has room for all requests of the queue, and accepts them in every state that it can be in here.
        let status = WcStatus::LocQpOpErr;
        let wc = Wc { wr_id, status, opcode: WcOpcode::Send, ..Wc::default() };
        let actions = qp.on_sent(rail, &wc, &mut CompletionSink::ring(&qp.sending.completions));
        if let Some(polling) = device.polling(&qp.sending.completions) {
            run_actions(device, &polling, &qp, rail, actions);
        }
    })
}
