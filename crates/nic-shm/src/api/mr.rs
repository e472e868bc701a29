//! Memory regions: registration and deregistration of buffers and of all memory.
//!
//! What a region of all memory covers is not known when it is registered, and changes. So accesses of peers
//! to it always go through the kernel, even within a process and in the owner's NIC thread: an unmapped
//! address makes a request fail instead of raising a fault.

use std::sync::Arc;

use host::Span;
use verbs::provider::{MrOps, MwOps, PdOps, downcast};
use verbs::{Access, Buf, Error, MemoryKind, MwKind, Result};

use crate::device_inner::DeviceInner;
use crate::memory::layout::{MR_MAX, region_kind};
use crate::memory::table::Region;
use nic_util::heap_trim::REGION_SIZE;
use nic_util::windows::bound_error;

/// How long deregistration waits for a peer that is inside; see [`verbs::Mr::dereg`].
const DEREG_PATIENCE: Span = Span::from_secs(1);

/// A protection domain: a number.
pub(crate) struct ShmPd {
    pub(crate) device: Arc<DeviceInner>,
    pub(crate) id: u32,
}

/// An entry of the protection table.
struct Entry {
    device: Arc<DeviceInner>,
    index: usize,
    key: u32,
    live: bool,
}

impl Entry {
    /// Adds a region with a new key.
    fn new(pd: &ShmPd, access: Access, place: &Place) -> Result<Self> {
        let shared = &pd.device.shared;
        let index = shared.indices.lock().mr.alloc("memory regions", MR_MAX)?;
        let entry = Self { device: pd.device.clone(), index, key: shared.new_key(index), live: true };
        entry.fill(pd.id, access, place);
        Ok(entry)
    }

    /// Writes the region to the table, with a new stamp.
    fn fill(&self, pd: u32, access: Access, place: &Place) {
        let stamp = self.device.shared.new_stamp();
        let &Place { kind, addr, len, place } = place;
        self.device
            .shared
            .table
            .insert(self.key, &Region { access, pd, kind, addr, len, place, stamp, window_owner: 0 });
    }

    /// Removes the key and waits until no peer uses it any more; the error is the number of the queue pair
    /// whose peer still does. The entry then needs to be filled, or freed.
    fn clear(&self, call: &'static str) -> Result<(), u32> {
        let shared = &self.device.shared;
        shared.table.remove(self.key);
        shared.windows.unbind_all_of(self.key, &**shared);
        self.device.quiesce(call, DEREG_PATIENCE)
    }

    /// As [`Self::clear`], and frees the entry.
    fn retire(&mut self, call: &'static str) -> Result<(), u32> {
        if std::mem::take(&mut self.live) {
            self.clear(call)?;
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

/// Where a region is.
struct Place {
    /// A number of [`region_kind`].
    kind: u32,
    /// The address of the first byte, as work requests use it.
    addr: u64,
    len: u64,
    /// The address of the first byte in this process; for NIC memory, the offset in the segment.
    place: u64,
}

impl Place {
    /// The place of a buffer that requests address at `addr`, or at its own address.
    fn of(device: &DeviceInner, buf: &Buf, addr: Option<u64>) -> Result<Self> {
        let is_nic = buf.kind() == MemoryKind::Nic;
        if is_nic && !device.shared.memory.owns(buf) {
            return Err(Error::Foreign { what: "the NIC memory" });
        }
        let (kind, own, place) = if is_nic {
            (region_kind::NIC, 0, buf.nic_offset())
        } else {
            (region_kind::HOST, buf.addr(), buf.addr())
        };
        Ok(Self { kind, addr: addr.unwrap_or(own), len: buf.len() as u64, place })
    }
}

/// A registered buffer.
pub(crate) struct ShmMr {
    entry: Entry,
    addr: u64,
    buf: Buf,
}

impl ShmMr {
    /// Registers all of `buf`, which requests address at `addr`, or at its own address.
    pub(crate) fn register(pd: &ShmPd, buf: &Buf, addr: Option<u64>, access: Access) -> Result<Self> {
        let place = Place::of(&pd.device, buf, addr)?;
        let entry = Entry::new(pd, access, &place)?;
        pd.device.shared.heap_trim.count_allocated(REGION_SIZE);
        Ok(Self { entry, addr: place.addr, buf: buf.clone() })
    }

    fn retire(&mut self) -> Result<()> {
        self.entry.device.shared.fork_guard.check()?;
        self.entry.retire("Mr::dereg").map_err(|qp_num| self.keep_memory(qp_num))
    }

    /// The stopped peer may continue its copy later: the memory must stay allocated.
    fn keep_memory(&self, qp_num: u32) -> Error {
        std::mem::forget(self.buf.owner());
        busy(qp_num)
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

    fn rereg(&mut self, pd: &Arc<dyn PdOps>, buf: Option<&Buf>, access: Access) -> Result<()> {
        let device = &self.entry.device;
        device.shared.fork_guard.check()?;
        if self.has_windows() {
            return Err(bound_error());
        }
        let pd: Arc<ShmPd> = downcast(pd.clone(), "the protection domain")?;
        if !Arc::ptr_eq(&pd.device, device) {
            return Err(Error::Foreign { what: "the protection domain" });
        }
        let place = match buf {
            Some(buf) => Place::of(device, buf, None)?,
            None => Place::of(device, &self.buf, Some(self.addr))?,
        };
        if let Err(qp_num) = self.entry.clear("Mr::rereg") {
            // The entry is not used again either.
            self.entry.live = false;
            return Err(self.keep_memory(qp_num));
        }
        self.entry.fill(pd.id, access, &place);
        self.addr = place.addr;
        buf.into_iter().for_each(|buf| self.buf = buf.clone());
        Ok(())
    }

    fn has_windows(&self) -> bool {
        let shared = &self.entry.device.shared;
        shared.windows.are_bound_to(self.entry.key, &**shared)
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
    pub(crate) fn register(pd: &ShmPd, access: Access) -> Result<Self> {
        let all = Place { kind: region_kind::ALL, addr: 0, len: u64::MAX, place: 0 };
        Ok(Self(Entry::new(pd, access, &all)?))
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

/// A memory window: an entry of the table, valid while it is bound.
pub(crate) struct ShmMw {
    device: Arc<DeviceInner>,
    index: usize,
    key: u32,
}

impl ShmMw {
    pub(crate) fn create(pd: &ShmPd, kind: MwKind) -> Result<Self> {
        let shared = &pd.device.shared;
        let index = shared.indices.lock().mr.alloc("memory regions and windows", MR_MAX)?;
        // The lower eight bits are the program's, and no key is 0.
        let key = loop {
            let key = shared.new_key(index);
            if key & 0xff00 != 0 {
                break key;
            }
        };
        shared.windows.add(key, pd.id, kind);
        Ok(Self { device: pd.device.clone(), index, key })
    }
}

impl MwOps for ShmMw {
    fn rkey(&self) -> u32 {
        self.key
    }
}

impl Drop for ShmMw {
    fn drop(&mut self) {
        let shared = &self.device.shared;
        if shared.fork_guard.check().is_err() {
            return;
        }
        shared.windows.remove(self.key, &**shared);
        // The entry of a window whose peer is stopped inside is not used again.
        if self.device.quiesce("Mw::drop", DEREG_PATIENCE).is_ok() {
            shared.indices.lock().mr.free(self.index);
        }
    }
}
