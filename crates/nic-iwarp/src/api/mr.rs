//! Memory regions of the API: registration and deregistration.

use std::sync::Arc;

use verbs::provider::{MrOps, MwOps, PdOps, downcast};
use verbs::{Access, Buf, Error, MemoryKind, MwKind, Result};

use crate::device_inner::DeviceInner;
use nic_util::heap_trim::REGION_SIZE;
use nic_util::windows::bound_error;

/// A protection domain, which is only a number.
pub(crate) struct IwarpPd {
    pub(crate) device: Arc<DeviceInner>,
    pub(crate) id: u32,
}

/// The address of the first byte of a buffer for requests, unless one is given: regions of NIC memory are zero-based.
fn base_of(device: &DeviceInner, buf: &Buf, addr: Option<u64>) -> Result<u64> {
    let is_nic = buf.kind() == MemoryKind::Nic;
    if is_nic && !device.dm.owns(buf) {
        return Err(Error::Foreign { what: "the NIC memory" });
    }
    Ok(addr.unwrap_or(if is_nic { 0 } else { buf.addr() }))
}

/// A registered region.
pub(crate) struct IwarpMr {
    device: Arc<DeviceInner>,
    key: u32,
    base: u64,
    /// Its memory, which this keeps allocated; `None` for a registration of all memory.
    buf: Option<Buf>,
    live: bool,
}

impl IwarpMr {
    /// Registers all of `buf`, which requests address at `addr`, or at its own address.
    pub(crate) fn register(pd: &IwarpPd, buf: &Buf, addr: Option<u64>, access: Access) -> Result<Self> {
        let device = &pd.device;
        let base = base_of(device, buf, addr)?;
        let regions = &device.shared.regions;
        let key = regions.insert(pd.id, (buf.addr(), buf.len() as u64), base, access)?;
        device.shared.heap_trim.count_allocated(REGION_SIZE);
        Ok(Self { device: device.clone(), key, base, buf: Some(buf.clone()), live: true })
    }

    /// Registers all memory of the process. No peer may have rights to it: a remote host is less trusted than a
    /// process of the same user.
    pub(crate) fn register_all(pd: &IwarpPd, access: Access) -> Result<Self> {
        let device = &pd.device;
        let regions = &device.shared.regions;
        let key = regions.insert(pd.id, (0, u64::MAX), 0, access)?;
        device.shared.heap_trim.count_allocated(REGION_SIZE);
        Ok(Self { device: device.clone(), key, base: 0, buf: None, live: true })
    }

    /// Invalidates the tag, and waits until no thread is using it.
    fn retire(&mut self) {
        if !std::mem::take(&mut self.live) {
            return;
        }
        self.clear();
        self.device.shared.regions.free_entry(self.key);
    }

    /// Invalidates the tag, and those of windows that are bound to the region, and waits until no thread is using them.
    fn clear(&self) {
        let regions = &self.device.shared.regions;
        regions.clear_tag(self.key);
        regions.windows.unbind_all_of(self.key, regions);
        self.device.wait_for_lock_holders();
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

    fn rereg(&mut self, pd: &Arc<dyn PdOps>, buf: Option<&Buf>, access: Access) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        let pd: Arc<IwarpPd> = downcast(pd.clone(), "the protection domain")?;
        if !Arc::ptr_eq(&pd.device, &self.device) {
            return Err(Error::Foreign { what: "the protection domain" });
        }
        let base = match buf {
            Some(buf) => base_of(&self.device, buf, None)?,
            None => self.base,
        };
        let Some(own) = buf.or(self.buf.as_ref()).cloned() else {
            return Err(Error::Invalid(
                "a region of all memory does not change; register another one".into(),
            ));
        };
        if self.has_windows() {
            return Err(bound_error());
        }
        self.clear();
        self.device.shared.regions.refill(self.key, pd.id, (own.addr(), own.len() as u64), base, access);
        (self.base, self.buf) = (base, Some(own));
        Ok(())
    }

    fn has_windows(&self) -> bool {
        let regions = &self.device.shared.regions;
        regions.windows.are_bound_to(self.key, regions)
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

/// A memory window: an entry of the table, valid while it is bound.
pub(crate) struct IwarpMw {
    device: Arc<DeviceInner>,
    key: u32,
}

impl IwarpMw {
    pub(crate) fn create(pd: &IwarpPd, kind: MwKind) -> Result<Self> {
        let key = pd.device.shared.regions.add_window(pd.id, kind)?;
        Ok(Self { device: pd.device.clone(), key })
    }
}

impl MwOps for IwarpMw {
    fn rkey(&self) -> u32 {
        self.key
    }
}

impl Drop for IwarpMw {
    fn drop(&mut self) {
        if !self.device.shared.fork_guard.is_forked() {
            let regions = &self.device.shared.regions;
            regions.windows.remove(self.key, regions);
            self.device.wait_for_lock_holders();
            regions.free_entry(self.key);
        }
    }
}
