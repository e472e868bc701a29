//! Regions of all memory. What is mapped there is not known when they are made, and changes: so peers' accesses to them go
//! through the kernel always, also within a process and in the owner's own thread, and an address where nothing is mapped
//! makes a request fail and nobody fault.

use std::sync::Arc;

use verbs::provider::MrOps;
use verbs::{Access, Result};

use super::atomic::{Atomic, atomic_across};
use super::device::Inner;
use super::layout::{MR_MAX, ServiceWords, kind};
use super::mr::DEREG_PATIENCE;
use super::place::{self, Pieces, Way};
use super::qp::QpInner;
use super::service::{BOUNCE, READ, asked_atomic};
use super::table::Region;

/// The rights that such a region may have: peers' only where the kernel copies, be it within this process.
pub(super) fn implicit_rights() -> Option<Access> {
    let word = 0x6e69_6365_7479_u64;
    let copies = place::probe(own_pid(), (&raw const word).addr() as u64, word).is_ok();
    Some(if copies { Access::ALL } else { Access::LOCAL_WRITE })
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

/// A region of all memory.
pub(super) struct AllMemory {
    device: Arc<Inner>,
    index: usize,
    key: u32,
    live: bool,
}

impl AllMemory {
    pub(super) fn register(device: &Arc<Inner>, pd: u32, access: Access) -> Result<Self> {
        let index = device.indices.lock().mr.take("memory regions", MR_MAX)?;
        let key = device.fresh_key(index);
        let (kind, addr, len, place, stamp) = (kind::ALL, 0, u64::MAX, 0, device.fresh_stamp());
        device.table.enter(key, &Region { access, pd, kind, addr, len, place, stamp });
        Ok(Self { device: device.clone(), index, key, live: true })
    }

    /// Takes the key away and waits until nobody uses it any more.
    fn retire(&mut self) -> Result<()> {
        self.device.birth.check()?;
        if std::mem::take(&mut self.live) {
            self.device.table.strike(self.key);
            self.device.quiesce("ImplicitMr::dereg", DEREG_PATIENCE).map_err(super::mr::busy)?;
            self.device.indices.lock().mr.give(self.index);
        }
        Ok(())
    }
}

impl MrOps for AllMemory {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
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
        // Its error is for those who ask by `dereg`.
        let _ = self.retire();
    }
}

impl QpInner {
    /// What the peer asked this thread to do, at an address of a region of all memory that the table allowed.
    pub(super) fn carry_out_anywhere(
        &self,
        words: &ServiceWords,
        kind: u32,
        at: u64,
        len: u64,
    ) -> Option<()> {
        if let Some(op) = asked_atomic(words, kind) {
            return answer_atomic(words, at, op);
        }
        if len > BOUNCE {
            return None;
        }
        let bounce = self.device.table.map.bytes(*self.bounce.get()?, BOUNCE)?;
        let (mut near, mut far) = (Pieces::new(), Pieces::new());
        near.push(bounce, len);
        far.push(at as *mut u8, len);
        let way = if kind == READ { Way::In } else { Way::Out };
        place::across(own_pid(), &near, &far, way).ok()
    }
}

fn answer_atomic(words: &ServiceWords, at: u64, op: Atomic) -> Option<()> {
    if !at.is_multiple_of(8) {
        return None;
    }
    let old = atomic_across(own_pid(), at, op).ok()?;
    words.operand[0].store(old, std::sync::atomic::Ordering::Relaxed);
    Some(())
}
