//! Memory regions of the API: registration and deregistration.

use std::sync::Arc;

use verbs::provider::MrOps;
use verbs::{Access, Buf, Error, MemoryKind, Result};

use crate::device_inner::DeviceInner;
use nic_util::heap_trim::REGION_SIZE;

/// A registered region.
pub(crate) struct IwarpMr {
    device: Arc<DeviceInner>,
    key: u32,
    base: u64,
    /// Keeps the memory allocated; `None` for a registration of all memory.
    _buf: Option<Buf>,
    live: bool,
}

impl IwarpMr {
    pub(crate) fn register(device: &Arc<DeviceInner>, pd: u32, buf: &Buf, access: Access) -> Result<Self> {
        let is_nic = buf.kind() == MemoryKind::Nic;
        if is_nic && !device.dm.owns(buf) {
            return Err(Error::Foreign { what: "the NIC memory" });
        }
        // Regions of NIC memory are zero-based.
        let base = if is_nic { 0 } else { buf.addr() };
        let regions = &device.shared.regions;
        let key = regions.insert(pd, (buf.addr(), buf.len() as u64), base, access)?;
        device.shared.heap_trim.count_allocated(REGION_SIZE);
        Ok(Self { device: device.clone(), key, base, _buf: Some(buf.clone()), live: true })
    }

    /// Registers all memory of the process. No peer may have rights to it: a remote host is less trusted than a
    /// process of the same user.
    pub(crate) fn register_all(device: &Arc<DeviceInner>, pd: u32, access: Access) -> Result<Self> {
        let regions = &device.shared.regions;
        let key = regions.insert(pd, (0, u64::MAX), 0, access)?;
        device.shared.heap_trim.count_allocated(REGION_SIZE);
        Ok(Self { device: device.clone(), key, base: 0, _buf: None, live: true })
    }

    /// Invalidates the tag, and waits until no thread is using it.
    fn retire(&mut self) {
        if !std::mem::take(&mut self.live) {
            return;
        }
        let regions = &self.device.shared.regions;
        regions.clear_tag(self.key);
        self.device.wait_for_lock_holders();
        regions.free_entry(self.key);
    }
}

impl MrOps for IwarpMr {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }

    fn addr(&self) -> u64 {
        self.base
    }

    fn dereg(mut self: Box<Self>) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.retire();
        Ok(())
    }
}

impl Drop for IwarpMr {
    fn drop(&mut self) {
        if !self.device.shared.fork_guard.is_forked() {
            self.retire();
            self.device.shared.count_freed(REGION_SIZE);
        }
    }
}
