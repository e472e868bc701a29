//! Opens a device of faults; its API handle; and the handle by which programs in Rust change its rules.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{ClockKind, Host, Wake};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps, ProgramOps, downcast};
use verbs::{AsyncEvent, Buf, Device, DeviceAttr, Firmware, Result};

use crate::api::cm::FaultCm;
use crate::api::cq::FaultCq;
use crate::api::pd::FaultPd;
use crate::control;
use crate::engine::Fired;
use crate::operation::Operation;
use crate::rule::Rule;
use crate::shared::Shared;

/// The faults of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultsConfig {
    /// The rules, each with its place for messages: a file with its line, for example.
    pub rules: Vec<(Rule, String)>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether the process takes further rules over a socket, and reports at its end what each rule did.
    pub has_control: bool,
}

/// A device in front of `below`, whose faults happen by rules.
///
/// # Errors
/// [`verbs::Error::Invalid`] for a rule that is impossible in this kind of time, and the system's.
pub fn open(below: &Device, config: FaultsConfig) -> Result<Device> {
    let note = match config.rules.len() {
        0 => "faults are injected by rules that come in at run time".to_owned(),
        count => format!("faults are injected by {count} rules, with seed {}", config.seed),
    };
    let shared = Arc::new(Shared::new(below.ops().clone(), config.seed, note)?);
    for (rule, place) in config.rules {
        shared.add(rule, place)?;
    }
    if config.has_control && shared.host().clock() != ClockKind::Virtual {
        control::serve(&shared)?;
    }
    Ok(Device::new(Arc::new(FaultDevice(shared))))
}

/// The rules of an opened device: they can be changed and read while it is used.
#[derive(Clone)]
pub struct FaultHandle(Arc<Shared>);

impl FaultHandle {
    /// The rules of this device; `None` for a device without.
    #[must_use]
    pub fn of(device: &Device) -> Option<Self> {
        let ops: Arc<dyn std::any::Any + Send + Sync> = device.ops().clone();
        let device: Arc<FaultDevice> = ops.downcast().ok()?;
        Some(Self(device.0.clone()))
    }

    /// Adds a rule; returns its number, from 1.
    ///
    /// # Errors
    /// As [`open`].
    pub fn add(&self, rule: Rule) -> Result<usize> {
        self.0.add(rule, "run time".into())
    }

    /// Ends all rules.
    pub fn clear(&self) {
        self.0.engine.clear();
    }

    /// The faults that happened, in their order; the latest 4,096.
    #[must_use]
    pub fn trace(&self) -> Vec<Fired> {
        self.0.engine.trace()
    }

    /// What each rule did, a line each.
    #[must_use]
    pub fn report(&self) -> Vec<String> {
        self.0.engine.report()
    }

    /// The lines of [`FaultHandle::report`] about rules that never fired.
    #[must_use]
    pub fn report_unused(&self) -> Vec<String> {
        self.0.engine.report_unused()
    }
}

/// The opened device.
struct FaultDevice(Arc<Shared>);

impl DeviceOps for FaultDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn host(&self) -> &Host {
        self.0.host()
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn check(&self) -> Result<()> {
        self.0.below.check()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        self.0.creates(Operation::AllocPd)?;
        Ok(Arc::new(FaultPd { shared: self.0.clone(), below: self.0.below.alloc_pd()? }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        self.0.creates(Operation::CreateCq)?;
        Ok(Arc::new(FaultCq { shared: self.0.clone(), below: self.0.below.create_cq(cqe, channel)? }))
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        Ok(FaultCm::create(&self.0)?)
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        self.0.creates(Operation::CreateChannel)?;
        self.0.below.create_comp_channel()
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.0.creates(Operation::AllocDm)?;
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
        let pd: Arc<FaultPd> = downcast(pd.clone(), "the protection domain")?;
        self.0.below.load(&pd.below, addr, firmware)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.below.check().ok()?;
        self.0.events.pop(self.0.host().now()).or_else(|| self.0.below.poll_async_event())
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        self.0.below.prepare_wait().map(|below| self.0.events.joined_wake(below))
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.events.fd()
    }
}
