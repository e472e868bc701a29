//! Memory regions: registering and deregistering.

use std::sync::Arc;

use host::Span;
use verbs::provider::MrOps;
use verbs::{Access, Buf, Error, MemoryKind, Result};

use super::device::Inner;
use super::layout::{MR_MAX, kind};
use super::table::Region;
use crate::tide::REGION;

/// How long deregistering waits for a peer that is inside; see [`verbs::Mr::dereg`].
pub(super) const DEREG_PATIENCE: Span = Span::from_secs(1);

/// A registered region.
pub(super) struct ShmMr {
    device: Arc<Inner>,
    index: usize,
    key: u32,
    addr: u64,
    buf: Buf,
    live: bool,
}

impl ShmMr {
    /// Registers all of `buf` in protection domain `pd`.
    pub(super) fn register(device: &Arc<Inner>, pd: u32, buf: &Buf, access: Access) -> Result<Self> {
        let is_nic = buf.kind() == MemoryKind::Nic;
        if is_nic && !device.owns_nic_memory(buf) {
            return Err(Error::Foreign { what: "the NIC memory" });
        }
        let index = device.indices.lock().mr.take("memory regions", MR_MAX)?;
        let key = device.fresh_key(index);
        let (kind, addr, place) =
            if is_nic { (kind::NIC, 0, buf.nic_offset()) } else { (kind::HOST, buf.addr(), buf.addr()) };
        let (len, stamp) = (buf.len() as u64, device.fresh_stamp());
        device.tide.rise(REGION);
        device.table.enter(key, &Region { access, pd, kind, addr, len, place, stamp });
        Ok(Self { device: device.clone(), index, key, addr, buf: buf.clone(), live: true })
    }

    /// Takes the key away and waits until nobody uses it any more.
    fn retire(&mut self) -> Result<()> {
        self.device.birth.check()?;
        if !std::mem::take(&mut self.live) {
            return Ok(());
        }
        self.device.table.strike(self.key);
        match self.device.quiesce("Mr::dereg", DEREG_PATIENCE) {
            Ok(()) => {
                self.device.indices.lock().mr.give(self.index);
                Ok(())
            }
            Err(qp_num) => {
                // The peer may wake up and go on copying: the memory must stay what it is.
                std::mem::forget(self.buf.owner());
                Err(busy(qp_num))
            }
        }
    }
}

/// Why a region cannot go: the number of the queue pair whose peer is inside.
pub(super) fn busy(qp_num: u32) -> Error {
    let why = format!("the peer of queue pair {qp_num} is stopped in the middle of an access");
    Error::Busy { what: "the memory region", why }
}

impl MrOps for ShmMr {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
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
        // Its error is for those who ask by `dereg`; the memory is safe either way.
        let _ = self.retire();
        self.device.fall(REGION);
    }
}
