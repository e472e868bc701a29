//! Devices and the programs that they run, as a NIC implements them.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Host, Wake};

use super::connections::CmOps;
use super::queues::{CompChannelOps, CqOps, PdOps, unsupported};
use crate::async_event::AsyncEvent;
use crate::attr::DeviceAttr;
use crate::error::Result;
use crate::firmware::Firmware;
use crate::memory::Buf;

/// An opened NIC.
pub trait DeviceOps: Any + Send + Sync {
    /// The name that opens it.
    fn name(&self) -> &str;
    /// The host that it belongs to.
    fn host(&self) -> &Host;
    /// Its capabilities and limits; constant.
    fn attr(&self) -> &DeviceAttr;
    /// Whether this process may use it: [`crate::Error::Forked`] in a child that inherited it.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// See [`crate::Device::alloc_pd`].
    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>>;
    /// See [`crate::Device::create_cq`].
    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>>;
    /// See [`crate::Device::create_cm`].
    fn create_cm(&self) -> Result<Arc<dyn CmOps>>;
    /// See [`crate::Device::create_comp_channel`].
    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        Err(unsupported(self.name(), "completion channels"))
    }
    /// See [`crate::Device::alloc_dm`].
    fn alloc_dm(&self, _len: usize) -> Result<Buf> {
        Err(unsupported(self.name(), "NIC memory"))
    }
    /// Whether a connection's packets can be limited to this many bytes of data ([`crate::QpInit::mtu`]).
    fn check_mtu(&self, _mtu: u32) -> Result<()> {
        Err(unsupported(self.name(), "an MTU of a connection's own"))
    }
    /// See [`crate::Device::load`]; the domain belongs to this device, and [`DeviceAttr::firmware`] is not `None`.
    fn load(
        &self,
        _pd: &Arc<dyn PdOps>,
        _addr: SocketAddr,
        _firmware: Box<dyn Firmware>,
    ) -> Result<Box<dyn ProgramOps>> {
        Err(unsupported(self.name(), "code that the NIC runs"))
    }
    /// See [`crate::Device::poll_async_event`].
    fn poll_async_event(&self) -> Option<AsyncEvent> {
        None
    }
    /// As [`CqOps::prepare_wait`], for asynchronous events. With `None`, waiters poll again every millisecond.
    fn prepare_wait(&self) -> Option<Wake<'_>> {
        None
    }
    /// See [`crate::Device::async_fd`].
    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A program that the NIC runs. Dropping it unloads the program; when that returns, none of its calls is running.
pub trait ProgramOps: Any + Send + Sync {
    /// See [`crate::Program::addr`].
    fn addr(&self) -> SocketAddr;
    /// See [`crate::Program::command`]; the length has been checked.
    fn command(&self, command: &[u8]) -> Result<()>;
    /// As [`CqOps::prepare_wait`], for every interrupt.
    fn prepare_wait(&self) -> Wake<'_>;
}
