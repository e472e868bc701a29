//! Completion channels of the API, on which programs wait for completion events.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};

use host::Wake;
use verbs::Result;
use verbs::provider::CompChannelOps;

use crate::api::cq::CqInner;
use crate::queues::cq_events::CqEvents;
use nic_util::sync::unpoisoned;

/// A completion channel.
pub(crate) struct ChannelInner {
    cq_events: Arc<CqEvents>,
    /// The completion queues attached to this channel.
    queues: Mutex<Vec<Weak<CqInner>>>,
}

impl ChannelInner {
    pub(crate) fn create() -> Result<Self> {
        Ok(Self { cq_events: Arc::new(CqEvents::new()?), queues: Mutex::default() })
    }

    /// The queue of events that completion queues add to.
    pub(crate) fn cq_events(&self) -> &Arc<CqEvents> {
        &self.cq_events
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
        Some(self.cq_events.fd())
    }

    fn poll_event(&self) -> Option<u32> {
        let event = self.cq_events.take();
        if event.is_some() {
            return event;
        }
        let queues: Vec<_> = unpoisoned(&self.queues).iter().filter_map(Weak::upgrade).collect();
        let sleepy = self.cq_events.wakeup().has_waiters();
        queues.iter().for_each(|queue| queue.poll_connections(sleepy));
        self.cq_events.take()
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(self.cq_events.wakeup())
    }
}
