//! [`Device`]: an opened NIC. Each kind of object has its own file, with the call that creates it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Host, Source, Time, Wakes};

use crate::async_event::AsyncEvent;
use crate::attr::DeviceAttr;
use crate::error::{Error, Result};
use crate::memory::Buf;
use crate::provider::DeviceOps;

/// An opened NIC (`ibv_context`); cheap to clone, closed with its last object.
#[derive(Clone)]
pub struct Device {
    ops: Arc<dyn DeviceOps>,
    name: Arc<str>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl Device {
    /// The device that `ops` implements; called by `fabric`.
    pub fn new(ops: Arc<dyn DeviceOps>) -> Self {
        let name = ops.name().into();
        Self { ops, name }
    }

    /// Sets the name by which this device was opened, with its options; called by `fabric`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The name that opens this device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host that the device belongs to.
    pub fn host(&self) -> &Host {
        self.ops.host()
    }

    /// Its capabilities and limits.
    pub fn attr(&self) -> &DeviceAttr {
        self.ops.attr()
    }

    /// Allocates `len` bytes of NIC memory, zeroed (`ibv_alloc_dm`), freed with the last handle or region.
    ///
    /// # Errors
    /// [`Error::Limit`] if not enough is left, [`Error::Unsupported`] without NIC memory.
    pub fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.ops.alloc_dm(len)
    }

    /// Refuses `what` if it belongs to another device.
    pub(crate) fn check_own(&self, other: &Self, what: &'static str) -> Result<()> {
        if Arc::ptr_eq(&self.ops, &other.ops) { Ok(()) } else { Err(Error::Foreign { what }) }
    }

    /// The next asynchronous event, if any (`ibv_get_async_event`, non-blocking).
    pub fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.ops.poll_async_event()
    }

    /// Waits for an asynchronous event (`ibv_get_async_event`). Some devices detect certain errors, such as an overrun,
    /// only when a thread polls or queries the object; this call does not do that, so another thread must.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `deadline` passes first; [`Error::Forked`].
    pub fn get_async_event(&self, deadline: Option<Time>) -> Result<AsyncEvent> {
        self.ops.check()?;
        self.host()
            .wait("Device::get_async_event", self, deadline, || self.ops.poll_async_event())
            .ok_or(Error::TimedOut { call: "Device::get_async_event" })
    }

    /// A descriptor that is readable while an asynchronous event is pending; `None` in virtual time, and if the device
    /// has none.
    pub fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ops.async_fd()
    }

    /// The implementation, for the NIC's crate.
    pub fn ops(&self) -> &Arc<dyn DeviceOps> {
        &self.ops
    }

    /// The error of a device that does not support `what`.
    pub fn unsupported<T>(&self, what: &'static str) -> Result<T> {
        Err(Error::Unsupported { device: self.name().into(), what })
    }
}

/// Waits for asynchronous events.
impl Source for Device {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.ops.prepare_wait().into_iter().for_each(|wake| wakes.push(wake));
    }
}
