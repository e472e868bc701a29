//! Memory regions: registration and deregistration of buffers and of all memory.
//!
//! What a region of all memory covers is not known when it is registered, and changes. So accesses of peers
//! to it always go through the kernel, even within a process and in the owner's NIC thread: an unmapped
//! address makes a request fail instead of raising a fault.

use std::sync::Arc;

use host::Span;
use verbs::provider::MrOps;
use verbs::{Access, Buf, Error, MemoryKind, Result};

use crate::device_inner::DeviceInner;
use crate::memory::layout::{MR_MAX, region_kind};
use crate::memory::table::Region;
use nic_util::heap_trim::REGION_SIZE;

/// How long deregistration waits for a peer that is inside; see [`verbs::Mr::dereg`].
const DEREG_PATIENCE: Span = Span::from_secs(1);

/// An entry of the protection table.
struct Entry {
    device: Arc<DeviceInner>,
    index: usize,
    key: u32,
    live: bool,
}

impl Entry {
    /// Adds a region with a new key and stamp.
    fn new(
        device: &Arc<DeviceInner>,
        pd: u32,
        access: Access,
        (kind, addr, len, place): (u32, u64, u64, u64),
    ) -> Result<Self> {
        let shared = &device.shared;
        let index = shared.indices.lock().mr.alloc("memory regions", MR_MAX)?;
        let key = shared.new_key(index);
        let stamp = shared.new_stamp();
        shared.table.insert(key, &Region { access, pd, kind, addr, len, place, stamp });
        Ok(Self { device: device.clone(), index, key, live: true })
    }

    /// Removes the key and waits until no peer uses it any more; the error is the number of the queue pair
    /// whose peer still does.
    fn retire(&mut self, call: &'static str) -> Result<(), u32> {
        if std::mem::take(&mut self.live) {
            self.device.shared.table.remove(self.key);
            self.device.quiesce(call, DEREG_PATIENCE)?;
            self.device.shared.indices.lock().mr.free(self.index);
        }
        Ok(())
    }
}

/// The error for a region that is still in use: the peer of queue pair `qp_num` is inside.
fn busy(qp_num: u32) -> Error {
    let why = format!("the peer of queue pair {qp_num} is stopped in the middle of an access");
    Error::Busy { what: "the memory region", why }
}

/// A registered buffer.
pub(crate) struct ShmMr {
    entry: Entry,
    addr: u64,
    buf: Buf,
}

impl ShmMr {
    /// Registers all of `buf` in protection domain `pd`.
    pub(crate) fn register(device: &Arc<DeviceInner>, pd: u32, buf: &Buf, access: Access) -> Result<Self> {
        let is_nic = buf.kind() == MemoryKind::Nic;
        if is_nic && !device.shared.memory.owns(buf) {
            return Err(Error::Foreign { what: "the NIC memory" });
        }
        let (kind, addr, place) = if is_nic {
            (region_kind::NIC, 0, buf.nic_offset())
        } else {
            (region_kind::HOST, buf.addr(), buf.addr())
        };
        let entry = Entry::new(device, pd, access, (kind, addr, buf.len() as u64, place))?;
        device.shared.heap_trim.count_allocated(REGION_SIZE);
        Ok(Self { entry, addr, buf: buf.clone() })
    }

    fn retire(&mut self) -> Result<()> {
        self.entry.device.shared.fork_guard.check()?;
        self.entry.retire("Mr::dereg").map_err(|qp_num| {
            // The stopped peer may continue its copy later: the memory must stay allocated.
            std::mem::forget(self.buf.owner());
            busy(qp_num)
        })
    }
}

impl MrOps for ShmMr {
    fn lkey(&self) -> u32 {
        self.entry.key
    }

    fn rkey(&self) -> u32 {
        self.entry.key
    }

    fn addr(&self) -> u64 {
        self.addr
    }

    fn dereg(mut self: Box<Self>) -> Result<()> {
        self.retire()
    }
}

impl Drop for ShmMr {
    fn drop(&mut self) {
        // The error is reported by `dereg` only; the memory is safe either way.
        let _ = self.retire();
        self.entry.device.shared.count_freed(REGION_SIZE);
    }
}

/// A region of all memory.
pub(crate) struct AllMemory(Entry);

impl AllMemory {
    pub(crate) fn register(device: &Arc<DeviceInner>, pd: u32, access: Access) -> Result<Self> {
        Ok(Self(Entry::new(device, pd, access, (region_kind::ALL, 0, u64::MAX, 0))?))
    }

    fn retire(&mut self) -> Result<()> {
        self.0.device.shared.fork_guard.check()?;
        self.0.retire("ImplicitMr::dereg").map_err(busy)
    }
}

impl MrOps for AllMemory {
    fn lkey(&self) -> u32 {
        self.0.key
    }

    fn rkey(&self) -> u32 {
        self.0.key
    }

    fn addr(&self) -> u64 {
        0
    }

    fn dereg(mut self: Box<Self>) -> Result<()> {
        self.retire()
    }
}

impl Drop for AllMemory {
    fn drop(&mut self) {
        // The error is reported by `dereg` only.
        let _ = self.retire();
    }
}
