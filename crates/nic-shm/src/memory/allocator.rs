//! Allocation of rings and NIC memory from a device's segment; each part is freed when dropped.

use std::sync::{Arc, Mutex};

use verbs::{Buf, Error, MemoryKind, Result};

use crate::memory::heap::Heap;
use crate::memory::layout::{DM_BASE, HEAP_BASE};
use crate::memory::segment::Segment;
use nic_util::fork::ForkGuard;
use nic_util::sync::unpoisoned;

pub(crate) const PAGE: u64 = 4096;

/// A device's segment and its allocators.
pub(crate) struct SegmentAllocator {
    pub(crate) segment: Segment,
    fork_guard: ForkGuard,
    rings: Mutex<Heap>,
    dm: Mutex<Heap>,
}

impl SegmentAllocator {
    /// Manages a segment with `dm_size` bytes of NIC memory.
    pub(crate) fn new(segment: Segment, fork_guard: ForkGuard, dm_size: u64) -> Self {
        Self {
            segment,
            fork_guard,
            rings: Mutex::new(Heap::new("bytes of the segment's rings", HEAP_BASE, DM_BASE)),
            dm: Mutex::new(Heap::new("bytes of NIC memory", DM_BASE, DM_BASE + dm_size)),
        }
    }

    /// Allocates a ring, committed and zeroed.
    pub(crate) fn alloc_ring(self: &Arc<Self>, len: u64) -> Result<Ring> {
        let len = len.next_multiple_of(64);
        let at = unpoisoned(&self.rings).alloc(len, 64)?;
        let ring = Ring { memory: self.clone(), at, len };
        self.segment.commit(at, len)?;
        if let Some(bytes) = self.segment.map.bytes(at, len) {
            // SAFETY: the range is ours alone until its offset is published. Test: all that creates queue
            // pairs.
            unsafe { std::ptr::write_bytes(bytes, 0, len as usize) };
        }
        Ok(ring)
    }

    /// Allocates NIC memory for the program.
    pub(crate) fn alloc_dm_buf(self: &Arc<Self>, len: usize) -> Result<Buf> {
        if len == 0 {
            return Err(Error::Invalid("NIC memory needs at least one byte".into()));
        }
        let rounded = (len as u64).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let at = {
            let mut dm = unpoisoned(&self.dm);
            Error::check_limit("bytes of NIC memory", rounded, dm.total())?;
            dm.alloc(rounded, PAGE)?
        };
        let piece = Arc::new(DmPiece { memory: self.clone(), at, len: rounded });
        self.segment.commit(at, rounded)?;
        let base = self.segment.map.bytes(at, rounded).and_then(std::ptr::NonNull::new);
        let base = base.ok_or_else(|| Error::Invalid("NIC memory outside the segment".into()))?;
        // SAFETY: the piece keeps the segment mapped, and nobody makes references into it. Test: group
        // `memory` of the conformance suite.
        Ok(unsafe { Buf::from_raw(base, len, MemoryKind::Nic, at, piece) })
    }

    /// Whether a buffer is NIC memory of this device.
    pub(crate) fn owns(&self, buf: &Buf) -> bool {
        self.segment
            .map
            .bytes(buf.nic_offset(), buf.len() as u64)
            .is_some_and(|at| at == buf.as_ptr() && buf.nic_offset() >= DM_BASE)
    }
}

/// An allocated part of the segment's heap.
pub(crate) struct Ring {
    memory: Arc<SegmentAllocator>,
    pub(crate) at: u64,
    len: u64,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.memory.fork_guard.is_forked() {
            return;
        }
        let mut rings = unpoisoned(&self.memory.rings);
        let (at, len) = rings.free(self.at, self.len);
        // Releases pages that hold nothing else; under the lock, as another thread may allocate them from
        // then on.
        let from = at.next_multiple_of(PAGE).max(self.at / PAGE * PAGE);
        let to = ((at + len) / PAGE * PAGE).min((self.at + self.len).next_multiple_of(PAGE));
        if from < to {
            self.memory.segment.release(from, to - from);
        }
    }
}

/// An allocated part of NIC memory, freed with its last handle.
struct DmPiece {
    memory: Arc<SegmentAllocator>,
    at: u64,
    len: u64,
}

impl Drop for DmPiece {
    fn drop(&mut self) {
        if self.memory.fork_guard.is_forked() {
            return;
        }
        self.memory.segment.release(self.at, self.len);
        unpoisoned(&self.memory.dm).free(self.at, self.len);
    }
}
