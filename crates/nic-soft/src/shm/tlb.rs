//! Data path: translation cache. The last region that a queue pair used, so that the next message to it needs one
//! look at the protection table instead of seven.
//!
//! An entry of the table does not change while its stamp stands, and a stamp never comes back. A peer's table may lie: only
//! regions are remembered all of which is mapped, so that no later word of the peer's makes them larger.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::Access;

use super::table::Table;

/// One remembered region, of memory that this process can reach by a pointer.
pub(super) struct Tlb {
    key: u32,
    access: Access,
    stamp: u64,
    addr: u64,
    len: u64,
    base: NonNull<u8>,
    /// Where the stamp must stand: in the table that peers see, and in the record that they do not.
    stamps: [NonNull<AtomicU64>; 2],
    /// Keeps the stamps, and NIC memory, mapped.
    _table: Option<Arc<Table>>,
}

// SAFETY: pointers into a table that `_table` keeps (or into private memory that the stamp vouches for), used under
// the send lock of one queue pair at a time. Test: the conformance suite, group `threads`.
unsafe impl Send for Tlb {}

impl Default for Tlb {
    fn default() -> Self {
        Self {
            key: 0,
            access: Access::empty(),
            stamp: 0,
            addr: 0,
            len: 0,
            base: NonNull::dangling(),
            stamps: [NonNull::dangling(); 2],
            _table: None,
        }
    }
}

impl Tlb {
    /// Where `len` bytes at `addr` lie, if they are in the remembered region, it still stands, and `need` is allowed.
    #[inline]
    pub(super) fn find(&self, key: u32, need: Access, addr: u64, len: u64) -> Option<*mut u8> {
        // Key 0 is nobody's, so that an empty cache is never asked further.
        if key != self.key || key == 0 {
            return None;
        }
        // SAFETY: set together with `_table`, which keeps both; atomics only.
        let [shown, recorded] = self.stamps.map(|at| unsafe { at.as_ref() }.load(Ordering::Acquire));
        let offset = addr.wrapping_sub(self.addr);
        let allowed = shown == self.stamp && recorded == self.stamp && self.access.contains(need);
        let inside = offset <= self.len && len <= self.len - offset;
        // SAFETY: offset <= len of the region, which is mapped as long as its stamp stands and we are inside.
        // Test: a_region_that_claims_everything_reaches_nothing_outside.
        (allowed && inside).then(|| unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// Remembers the region of `key`, if all of it is mapped. Call while inside, after the table allowed an access.
    pub(super) fn learn(&mut self, table: &Arc<Table>, key: u32) {
        let whole = table.whole(key);
        *self = match whole.and_then(|w| Some((NonNull::new(w.base)?, w))) {
            Some((base, w)) => Self {
                key,
                access: w.access,
                stamp: w.stamp,
                addr: w.addr,
                len: w.len,
                base,
                stamps: w.stamps.map(NonNull::from),
                _table: Some(table.clone()),
            },
            None => Self::default(),
        };
    }
}
