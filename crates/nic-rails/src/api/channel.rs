//! API handle of a completion channel: the numbers of completion queues that have reported.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;
use verbs::Result;
use verbs::provider::CompChannelOps;

use crate::completion::event_queue::EventQueue;
use crate::device_inner::DeviceInner;
use crate::progress::poll::progress_channels;

pub(crate) struct ChannelHandle {
    device: Arc<DeviceInner>,
    pub(crate) reports: Arc<EventQueue<u32>>,
}

impl ChannelHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>) -> Result<Self> {
        let reports = Arc::new(EventQueue::new(&device.shared.host)?);
        Ok(Self { device: device.clone(), reports })
    }
}

impl CompChannelOps for ChannelHandle {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reports.fd()
    }

    fn poll_event(&self) -> Option<u32> {
        progress_channels(&self.device);
        self.reports.pop()
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(self.reports.wakeup())
    }
}
