//! Queue of requests for a rail whose thread posts them (`threads`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use host::{EventCount, Host};
use verbs::{Data, Error, Qp, Result, SendFlags, SendOp, SendWr, Sge};

use crate::lock::unpoisoned;
use crate::send::request::PIECES_MAX;

/// Bytes of inline data that fit into a job.
pub(crate) const INLINE_MAX: usize = 1024;

/// A queued request.
struct Job {
    /// The number of its queue pair.
    qp: u32,
    lane: Arc<Qp>,
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    pieces: [Sge; PIECES_MAX],
    inline: [u8; INLINE_MAX],
    /// The number of scatter/gather elements, or of inline bytes.
    count: usize,
    is_inline: bool,
}

/// The work queue of a rail's thread.
pub(crate) struct Worker {
    jobs: Mutex<VecDeque<Job>>,
    /// Number of requests queued and not yet posted.
    left: AtomicU32,
    pub(crate) wakeup: EventCount,
    is_stopped: AtomicBool,
}

impl Worker {
    pub(crate) fn new() -> Self {
        let jobs = Mutex::new(VecDeque::with_capacity(256));
        Self { jobs, left: AtomicU32::new(0), wakeup: EventCount::new(), is_stopped: AtomicBool::new(false) }
    }

    /// Whether all queued requests have been posted.
    pub(crate) fn is_idle(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Whether the device is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self, host: &Host) {
        self.is_stopped.store(true, Ordering::Release);
        host.notify(&self.wakeup);
    }

    /// Queues a request.
    pub(crate) fn post(&self, host: &Host, qp: u32, lane: Arc<Qp>, wr: &SendWr<'_>) -> Result<()> {
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
        let (wr_id, op, flags) = (wr.wr_id, wr.op, wr.flags);
        let job = Job { qp, lane, wr_id, op, flags, pieces, inline, count, is_inline };
        self.left.fetch_add(1, Ordering::Relaxed);
        unpoisoned(&self.jobs).push_back(job);
        host.notify(&self.wakeup);
        Ok(())
    }

    /// Posts the queued requests; returns whether there were any. For a request that its lane refuses, calls `refused`
    /// with the queue pair and the request's number there.
    pub(crate) fn post_queued(&self, mut refused: impl FnMut(u32, u64)) -> bool {
        let mut any = false;
        loop {
            // Not in the loop's head, where the guard would live on.
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
            if posted.is_err() {
                refused(job.qp, wr_id);
            }
        }
    }
}
