//! The threaded engine: a thread for each rail, pinned to a core, which posts stripes to its rail and polls it for as long as
//! there is something to do. Who polls helps, and what is short is posted by whoever posts, so that no thread need wake up
//! for it. In virtual time it is a rank, which wakes up with the machine's news, and polls alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::{Bell, ClockKind, Host, real};

use super::cq::{CqInner, Sink};
use super::device::{Inner, unpoisoned};
use super::qp::{PIECES_MAX, QpInner};
use crate::{Data, Error, Qp, Result, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};

/// Bytes of inline data that fit into a job.
pub(super) const INLINE_MAX: usize = 1024;

/// A request on its way to its rail.
struct Job {
    qp: Weak<QpInner>,
    lane: Arc<Qp>,
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    pieces: [Sge; PIECES_MAX],
    inline: [u8; INLINE_MAX],
    /// How many pieces, or how many inline bytes.
    count: usize,
    is_inline: bool,
}

/// A rail's thread, as others see it.
pub(super) struct Worker {
    jobs: Mutex<VecDeque<Job>>,
    /// Requests that it has been given and has not posted.
    left: AtomicU32,
    bell: Bell,
    stop: Arc<AtomicBool>,
}

impl Worker {
    pub(super) fn new() -> Self {
        let jobs = Mutex::new(VecDeque::with_capacity(256));
        Self { jobs, left: AtomicU32::new(0), bell: Bell::new(), stop: Arc::default() }
    }

    /// Whether all that it has been given is posted.
    pub(super) fn is_idle(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    pub(super) fn stop(&self, host: &Host) {
        self.stop.store(true, Ordering::Release);
        host.ring(&self.bell);
    }

    /// Gives it a request.
    pub(super) fn post(&self, qp: &QpInner, lane: Arc<Qp>, wr: &SendWr<'_>) -> Result<()> {
        let (mut pieces, mut inline) = ([Sge::default(); PIECES_MAX], [0; INLINE_MAX]);
        let (count, is_inline) = match wr.data {
            Data::Inline(bytes) => {
                Error::check_limit("bytes of inline data", bytes.len() as u64, INLINE_MAX as u64)?;
                inline[..bytes.len()].copy_from_slice(bytes);
                (bytes.len(), true)
            }
            Data::Sges(sges) => {
                Error::check_limit("pieces of a request", sges.len() as u64, PIECES_MAX as u64)?;
                pieces[..sges.len()].copy_from_slice(sges);
                (sges.len(), false)
            }
        };
        let (qp, device) = (qp.itself(), qp.device());
        let (wr_id, op, flags) = (wr.wr_id, wr.op, wr.flags);
        let job = Job { qp, lane, wr_id, op, flags, pieces, inline, count, is_inline };
        self.left.fetch_add(1, Ordering::Relaxed);
        unpoisoned(&self.jobs).push_back(job);
        device.host.ring(&self.bell);
        Ok(())
    }

    /// Posts what it has been given; whether that was anything.
    fn work(&self, rail: usize) -> bool {
        let mut any = false;
        loop {
            // Not in the loop's head, where it would stay locked.
            let job = unpoisoned(&self.jobs).pop_front();
            let Some(job) = job else { return any };
            any = true;
            let (wr_id, op, flags) = (job.wr_id, job.op, job.flags);
            let data = match job.is_inline {
                true => Data::Inline(&job.inline[..job.count]),
                false => Data::Sges(&job.pieces[..job.count]),
            };
            let posted = job.lane.post_send(&SendWr { wr_id, op, data, flags });
            self.left.fetch_sub(1, Ordering::Release);
            if posted.is_err()
                && let Some(qp) = job.qp.upgrade()
            {
                // The lane has room for all requests of the queue, and takes them in any state that it can be in now.
                let status = WcStatus::LocQpOpErr;
                let wc = Wc { wr_id, status, opcode: WcOpcode::Send, ..Wc::default() };
                let wants = qp.on_sent(rail, &wc, &mut Sink::ring(&qp.send_cq));
                qp.grant(rail, wants);
            }
        }
    }
}

/// Starts a thread for each rail; they end with the device.
pub(super) fn start(device: &Arc<Inner>) -> Result<()> {
    let host = &device.host;
    let cores = if host.clock() == ClockKind::Virtual { Vec::new() } else { real::allowed_cores() };
    for rail in 0..device.workers.len() {
        let (weak, own) = (Arc::downgrade(device), host.clone());
        let worker = device.workers[rail].clone();
        let core = (!cores.is_empty()).then(|| cores[rail % cores.len()]);
        host.spawn("rail", core, move || run(&own, rail, &worker, &weak))
            .map_err(|e| Error::system("cannot start the thread of a rail", e))?;
    }
    Ok(())
}

fn run(host: &Host, rail: usize, worker: &Worker, device: &Weak<Inner>) {
    let mut cqs: Vec<Arc<CqInner>> = Vec::new();
    while !worker.stop.load(Ordering::Acquire) {
        // Each time that there was something, waiting begins anew, so that it sleeps only after a while of nothing.
        let look = || {
            let device = device.upgrade().filter(|_| !worker.stop.load(Ordering::Acquire));
            let Some(device) = device else { return Some(()) };
            let mut any = worker.work(rail);
            device.cqs_into(rail, &mut cqs);
            for cq in cqs.drain(..) {
                any |= cq.take_from_rail(rail, &mut Sink::ring(&cq)).unwrap_or(false);
                cq.tell_of_reports();
            }
            any.then_some(())
        };
        if host.wait("a rail's thread", &worker.bell, None, look).is_none() {
            // The world ends.
            return;
        }
    }
}
