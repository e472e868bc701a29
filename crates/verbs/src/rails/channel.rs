//! Completion channels: the numbers of completion queues that have reported.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;

use super::announced::Announced;
use super::device::Inner;
use crate::Result;
use crate::provider::CompChannelOps;

pub(super) struct ChannelInner {
    device: Arc<Inner>,
    reports: Announced<u32>,
}

impl ChannelInner {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { device: device.clone(), reports: Announced::new(&device.host)? }))
    }

    pub(super) fn report(&self, cq: u32) {
        self.reports.push(cq);
    }
}

impl CompChannelOps for ChannelInner {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reports.fd()
    }

    fn poll_event(&self) -> Option<u32> {
        self.device.progress_channels();
        self.reports.pop()
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(self.reports.bell())
    }
}
