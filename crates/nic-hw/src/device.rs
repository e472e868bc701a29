//! The API's device.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Host, Wake};
use nic_util::thread::Thread;
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps, downcast};
use verbs::{AsyncEvent, Device, DeviceAttr, Error, Result};

use crate::card::{Card, HwConfig};
use crate::cm::{CmHandle, RequestHandle};
use crate::pd::PdHandle;
use crate::queues::channel::ChannelHandle;
use crate::queues::cq::CqHandle;
use crate::raw::memory::Domain;
use crate::service;
use crate::shared::Shared;

/// Opens a card.
///
/// # Errors
/// [`Error::System`] if the libraries or the kernel's modules are missing, access is denied, or no port is active;
/// [`Error::Invalid`] for a card or port that does not exist, and for our own library as the system's.
pub fn open(host: &Host, config: &HwConfig) -> Result<Device> {
    if host.clock() == host::ClockKind::Virtual {
        return Err(Error::Unsupported { device: "hw".to_owned(), what: "simulated time" });
    }
    let shared = Shared::new(host, Card::open(config)?, config.patience)?;
    service::watch(&shared)?;
    let thread = Thread::default();
    let served = shared.clone();
    thread.start(host, "nicety-hw", move || service::run(&served, RequestHandle::offer))?;
    Ok(Device::new(Arc::new(HwDevice { shared, thread })))
}

/// An opened device.
struct HwDevice {
    shared: Arc<Shared>,
    thread: Thread,
}

impl Drop for HwDevice {
    fn drop(&mut self) {
        if !self.shared.context.is_forked() {
            self.thread.stop(&self.shared.epoll_set);
        }
    }
}

impl DeviceOps for HwDevice {
    fn name(&self) -> &str {
        self.shared.name()
    }

    fn host(&self) -> &Host {
        &self.shared.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.shared.attr
    }

    fn check(&self) -> Result<()> {
        self.shared.check()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        self.shared.check()?;
        let domain = Domain::new(&self.shared.context)?;
        Ok(Arc::new(PdHandle { shared: self.shared.clone(), domain }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        self.shared.check()?;
        let channel = channel.map(|channel| downcast(channel.clone(), "the completion channel"));
        Ok(Arc::new(CqHandle::new(&self.shared, cqe, channel.transpose()?)?))
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        self.shared.check()?;
        Ok(Arc::new(CmHandle::new(&self.shared)?))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        self.shared.check()?;
        Ok(Arc::new(ChannelHandle::new(&self.shared)?))
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.shared.check().ok()?;
        self.shared.async_events.pop(|| {})
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        Some(self.shared.async_events.prepare_wait())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.async_events.fd())
    }
}
