//! Data path: placement checks. Memory regions: the protection table in the segment, and who may use an entry.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::Span;
use verbs::provider::MrOps;
use verbs::{Access, Buf, Error, MemoryKind, Result};

use super::device::Inner;
use super::layout::{MR_MAX, MrEntry, mr_at};
use super::segment::Map;
use crate::sync::fence;

/// How long deregistering waits for a peer that is inside; see [`verbs::Mr::dereg`].
const DEREG_PATIENCE: Span = Span::from_secs(1);

/// Where checked memory lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In the segment, at this offset.
    Nic(u64),
    /// In the owner's private memory, at this address.
    Private(u64),
}

/// Looks a range up in a protection table; `None` if key, domain, rights or bounds do not allow it.
#[inline]
pub(super) fn check(map: &Map, key: u32, pd: u32, need: Access, addr: u64, len: u64) -> Option<Place> {
    let entry = entry(map, key)?;
    if entry.key.load(Ordering::Acquire) != key || entry.pd.load(Ordering::Relaxed) != pd {
        return None;
    }
    let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
    let offset = addr.wrapping_sub(entry.addr.load(Ordering::Relaxed));
    let size = entry.len.load(Ordering::Relaxed);
    if !access.contains(need) || offset > size || len > size - offset {
        return None;
    }
    let at = entry.place.load(Ordering::Relaxed).wrapping_add(offset);
    Some(if entry.is_nic.load(Ordering::Relaxed) != 0 { Place::Nic(at) } else { Place::Private(at) })
}

/// Makes a key unusable, as a send with invalidate does; false if it was not valid in that domain.
pub(super) fn invalidate(map: &Map, key: u32, pd: u32) -> bool {
    entry(map, key).is_some_and(|e| {
        key != 0
            && e.pd.load(Ordering::Relaxed) == pd
            && e.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && e.stamp.swap(0, Ordering::AcqRel) != 0
    })
}

#[inline]
fn entry(map: &Map, key: u32) -> Option<&MrEntry> {
    // Key 0 marks a free entry.
    if key == 0 { None } else { Some(map.region((key >> 16) as u16)) }
}

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
        let (addr, place) = if is_nic { (0, buf.nic_offset()) } else { (buf.addr(), buf.addr()) };
        let map = &device.segment.map;
        let entry: &MrEntry = map.get(mr_at(index)).ok_or(Error::Foreign { what: "the region" })?;
        entry.access.store(access.bits().into(), Ordering::Relaxed);
        entry.pd.store(pd, Ordering::Relaxed);
        entry.is_nic.store(is_nic.into(), Ordering::Relaxed);
        entry.addr.store(addr, Ordering::Relaxed);
        entry.len.store(buf.len() as u64, Ordering::Relaxed);
        entry.place.store(place, Ordering::Relaxed);
        entry.stamp.store(device.fresh_stamp(), Ordering::Release);
        entry.key.store(key, Ordering::Release);
        Ok(Self { device: device.clone(), index, key, addr, buf: buf.clone(), live: true })
    }

    /// Takes the key away and waits until nobody uses it any more.
    fn retire(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.live) {
            return Ok(());
        }
        if let Some(entry) = self.device.segment.map.get::<MrEntry>(mr_at(self.index)) {
            entry.key.store(0, Ordering::Release);
            entry.stamp.store(0, Ordering::Release);
        }
        match self.device.quiesce("Mr::dereg", DEREG_PATIENCE) {
            Ok(()) => {
                self.device.indices.lock().mr.give(self.index);
                Ok(())
            }
            Err(qp_num) => {
                // The peer may wake up and go on copying: the memory must stay what it is.
                std::mem::forget(self.buf.owner());
                Err(Error::Busy {
                    what: "the memory region",
                    why: format!("the peer of queue pair {qp_num} is stopped in the middle of an access"),
                })
            }
        }
    }
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
    }
}

impl Inner {
    /// Waits until no thread and no peer is in the middle of an operation that began before the call; the
    /// number of the queue pair that would not end otherwise.
    pub(super) fn quiesce(&self, call: &'static str, patience: Span) -> Result<(), u32> {
        fence::heavy();
        let deadline = self.host.after(patience);
        for qp in self.live_qps() {
            // Our own threads work under these locks.
            drop(qp.send.lock());
            let out = || (!qp.peer_is_inside()).then_some(());
            self.host.poll(call, deadline, out).ok_or(qp.num)?;
        }
        for cq in self.live_cqs() {
            drop(cq.poll.lock());
        }
        Ok(())
    }
}
