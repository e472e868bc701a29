//! Completion channels of the API, on which programs wait for completion events.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};

use host::Wake;
use verbs::Result;
use verbs::provider::CompChannelOps;

use crate::api::cq::CqInner;
use crate::queues::reports::Reports;
use nic_util::sync::unpoisoned;

/// A completion channel.
pub(crate) struct ChannelInner {
    reports: Arc<Reports>,
    /// The completion queues attached to this channel.
    queues: Mutex<Vec<Weak<CqInner>>>,
}

impl ChannelInner {
    pub(crate) fn create() -> Result<Self> {
        Ok(Self { reports: Arc::new(Reports::new()?), queues: Mutex::default() })
    }

    /// The queue of reports that completion queues add to.
    pub(crate) fn reports(&self) -> &Arc<Reports> {
        &self.reports
    }

    /// Attaches a completion queue, which reports here from now on.
    pub(crate) fn attach(&self, cq: &Arc<CqInner>) {
        let mut queues = unpoisoned(&self.queues);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(cq));
    }
}

impl CompChannelOps for ChannelInner {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.reports.fd())
    }

    fn poll_event(&self) -> Option<u32> {
        let report = self.reports.take();
        if report.is_some() {
            return report;
        }
        let queues: Vec<_> = unpoisoned(&self.queues).iter().filter_map(Weak::upgrade).collect();
        let sleepy = self.reports.wakeup().has_waiters();
        queues.iter().for_each(|queue| queue.drive(sleepy));
        self.reports.take()
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(self.reports.wakeup())
    }
}
