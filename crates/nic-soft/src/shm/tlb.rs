//! Data path: translation cache. The last region that a queue pair used, so that the next message to it needs one
//! look at the protection table instead of seven.
//!
//! An entry of the table does not change while its stamp stands, and a stamp never comes back.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs::Access;

use super::layout::MrEntry;
use super::segment::Map;

/// One remembered region, of memory that this process can reach by a pointer.
pub(super) struct Tlb {
    key: u32,
    access: Access,
    stamp: u64,
    addr: u64,
    len: u64,
    base: NonNull<u8>,
    entry: NonNull<MrEntry>,
    /// Keeps the entry, and NIC memory, mapped.
    _map: Option<Arc<Map>>,
}

// SAFETY: pointers into mappings that `_map` keeps (or into private memory that the stamp vouches for), used under
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
            entry: NonNull::dangling(),
            _map: None,
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
        // SAFETY: set together with `_map`, which keeps the table mapped; atomics only.
        let stamp = unsafe { self.entry.as_ref() }.stamp.load(Ordering::Acquire);
        let offset = addr.wrapping_sub(self.addr);
        let allowed = stamp == self.stamp && self.access.contains(need);
        let inside = offset <= self.len && len <= self.len - offset;
        // SAFETY: offset <= len of the region, which is mapped as long as its stamp stands and we are inside.
        (allowed && inside).then(|| unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// Remembers the region of `key`, whose memory this process reaches at `at` for the address `addr` (both of
    /// some byte in it). Call while inside, after the table allowed an access.
    pub(super) fn learn(&mut self, map: &Arc<Map>, key: u32, addr: u64, at: *mut u8) {
        let entry = map.region((key >> 16) as u16);
        let stamp = entry.stamp.load(Ordering::Acquire);
        let (first, len) = (entry.addr.load(Ordering::Relaxed), entry.len.load(Ordering::Relaxed));
        let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
        let base = NonNull::new(at.wrapping_sub(addr.wrapping_sub(first) as usize));
        // The stamp stood throughout, or what was read belongs to two registrations.
        let stood = stamp != 0 && entry.stamp.load(Ordering::Acquire) == stamp;
        let whole = len <= isize::MAX as u64 && entry.key.load(Ordering::Acquire) == key;
        *self = match base {
            Some(base) if stood && whole => Self {
                key,
                access,
                stamp,
                addr: first,
                len,
                base,
                entry: NonNull::from(entry),
                _map: Some(map.clone()),
            },
            _ => Self::default(),
        };
    }
}
