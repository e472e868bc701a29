//! Opens a device that is checked, and its API handle.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use host::{Host, Wake};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps, ProgramOps, downcast};
use verbs::{AsyncEvent, Buf, CompChannel, Device, DeviceAttr, Error, Firmware, Qp, Result, SendWr};

use crate::api::cm::CheckCm;
use crate::api::cq::{CheckChannel, CheckCq};
use crate::api::pd::CheckPd;
use crate::api::qp::CheckQp;
use crate::cards::{card, cards};
use crate::queue_pairs::Opened;
use crate::shared::Shared;

/// How a device is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckConfig {
    /// Whether what may go wrong is a finding, too, though nothing has.
    pub is_strict: bool,
    /// The file that gets the findings, instead of standard error.
    pub log: Option<PathBuf>,
    /// The exit status of a process with findings.
    pub exit: Option<i32>,
    /// The name of the card whose limits apply.
    pub card: Option<String>,
}

impl CheckConfig {
    /// Checks the name of the card.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the cards that there are.
    pub fn check(&self) -> Result<()> {
        match &self.card {
            Some(name) if card(name).is_none() => {
                let known: Vec<_> = cards().map(|(name, about)| format!("{name} ({about})")).collect();
                Err(Error::Invalid(format!(
                    "the limits of the card '{name}' are not known; there are {}",
                    known.join(" and ")
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A device in front of `below`, whose use is checked.
///
/// # Errors
/// As [`CheckConfig::check`]; the system's, for the file.
pub fn open(below: &Device, config: &CheckConfig) -> Result<Device> {
    config.check()?;
    findings::begin(config.log.as_deref(), config.exit)
        .map_err(|why| Error::system("the file for the findings of --check", why))?;
    let card = config.card.as_deref().and_then(card);
    let shared = Shared::new(below.ops().clone(), config.is_strict, card);
    Ok(Device::new(Arc::new(CheckDevice(Arc::new(Opened::new(shared))))))
}

/// The attributes of a device as its program should see them: with the limits of the card, if it is checked for one.
#[must_use]
pub fn reported_attr(device: &Device) -> DeviceAttr {
    let mut attr = device.attr().clone();
    if let Some(card) = checked(device).and_then(|shared| shared.card) {
        card.reported(&mut attr);
    }
    attr
}

/// Reports private data that are too long for the card, if the device is checked for one.
pub fn check_private_data(device: &Device, message: crate::Message, bytes: usize) {
    if let Some(card) = checked(device).and_then(|shared| shared.card) {
        card.check_private_data(message, bytes);
    }
}

fn checked(device: &Device) -> Option<&Arc<Opened>> {
    let any: &dyn Any = &**device.ops();
    any.downcast_ref::<CheckDevice>().map(|device| &device.0)
}

/// Reports if the program waits for an event of this channel, and none can come.
pub fn check_wait(channel: &CompChannel) {
    let any: &dyn Any = &**channel.ops();
    if let Some(channel) = any.downcast_ref::<CheckChannel>() {
        channel.check_wait();
    }
}

/// The queue pair behind the API's, if it is checked. Requests of a queue pair that is connected with itself are posted to another
/// one, which finds them here.
fn checked_qp(qp: &Qp) -> Option<&CheckQp> {
    let any: &dyn Any = &**qp.ops();
    any.downcast_ref()
}

/// The program posts a request now that the NIC gets later, in the same order: what it is now counts.
pub fn prepare(qp: &Qp, wr: &SendWr<'_>) {
    if let Some(qp) = checked_qp(qp) {
        qp.prepare(wr);
    }
}

/// The program posts a request that the C interface has no room to keep for later.
pub fn refuse(qp: &Qp, wr: &SendWr<'_>) {
    if let Some(qp) = checked_qp(qp) {
        qp.refuse(wr);
    }
}

/// The opened device.
struct CheckDevice(Arc<Opened>);

impl DeviceOps for CheckDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn host(&self) -> &Host {
        &self.0.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn check(&self) -> Result<()> {
        self.0.below.check()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        Ok(Arc::new(CheckPd { below: self.0.below.alloc_pd()?, shared: self.0.clone() }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        let channel = channel.map(|channel| downcast(channel.clone(), "the completion channel"));
        let channel: Option<Arc<CheckChannel>> = channel.transpose()?;
        if let Some(card) = self.0.card {
            card.check_cq(cqe);
        }
        let below = self.0.below.create_cq(cqe, channel.as_ref().map(|channel| &channel.below))?;
        let cq = Arc::new(CheckCq::new(&self.0, below));
        if let Some(channel) = channel {
            channel.add(&cq);
        }
        Ok(cq)
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        Ok(Arc::new(CheckCm(self.0.below.create_cm()?)))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        Ok(Arc::new(CheckChannel::new(self.0.below.create_comp_channel()?)))
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.0.below.alloc_dm(len)
    }

    fn check_mtu(&self, mtu: u32) -> Result<()> {
        self.0.below.check_mtu(mtu)
    }

    fn load(
        &self,
        pd: &Arc<dyn PdOps>,
        addr: SocketAddr,
        firmware: Box<dyn Firmware>,
    ) -> Result<Box<dyn ProgramOps>> {
        let pd: Arc<CheckPd> = downcast(pd.clone(), "the protection domain")?;
        self.0.below.load(&pd.below, addr, firmware)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.below.poll_async_event()
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        self.0.below.prepare_wait()
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.below.async_fd()
    }
}
