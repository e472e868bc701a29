//! Data path: translation cache. Remembers the last region that a queue pair used, so that the next message
//! to it needs one check instead of seven table lookups.
//!
//! A table entry does not change while its stamp is set, and a stamp is never reused. A peer's table may
//! contain anything: the cache holds only regions that are completely mapped, so that no later change by the
//! peer makes them larger.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::Access;

use crate::memory::table::ProtectionTable;

/// A cached region of memory that this process can access by a pointer.
pub(crate) struct Tlb {
    key: u32,
    access: Access,
    stamp: u64,
    addr: u64,
    len: u64,
    base: NonNull<u8>,
    /// The stamps in the table that peers see and in the private record; both must equal `stamp`.
    stamps: [NonNull<AtomicU64>; 2],
    /// Keeps the stamps and NIC memory mapped.
    _table: Option<Arc<ProtectionTable>>,
}

// SAFETY: pointers into a table that `_table` keeps (or into private memory that is valid while the stamp is
// set), used under the send lock of one queue pair at a time. Test: the conformance suite, group `threads`.
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
    /// Returns the address of `len` bytes at `addr`, if they are in the cached region, it is still
    /// registered, and `need` is allowed.
    #[inline]
    pub(crate) fn find(&self, key: u32, need: Access, addr: u64, len: u64) -> Option<*mut u8> {
        // Key 0 is never valid, so that an empty cache stops here.
        if key != self.key || key == 0 {
            return None;
        }
        // SAFETY: set together with `_table`, which keeps both; atomics only.
        let [shown, recorded] = self.stamps.map(|at| unsafe { at.as_ref() }.load(Ordering::Acquire));
        let offset = addr.wrapping_sub(self.addr);
        let allowed = shown == self.stamp && recorded == self.stamp && self.access.contains(need);
        let inside = offset <= self.len && len <= self.len - offset;
        // SAFETY: offset <= len of the region, which is mapped as long as its stamp is set and we are inside.
        // Test: oversized_region_gives_no_access_outside.
        (allowed && inside).then(|| unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// Caches the region of `key`, if all of it is mapped. Call while marked inside, after the table allowed
    /// an access.
    pub(crate) fn insert(&mut self, table: &Arc<ProtectionTable>, key: u32) {
        let snapshot = table.snapshot(key);
        *self = match snapshot.and_then(|w| Some((NonNull::new(w.base)?, w))) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocator::PAGE;
    use crate::memory::layout::{DM_BASE, MrEntry, region_kind};
    use crate::memory::segment::Segment;
    use crate::memory::table::Region;

    const PD: u32 = 3;
    const INDICES: u64 = 4;

    /// A pseudo-random number generator.
    struct TestRng(u64);

    impl TestRng {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end
        }

        /// One of a few keys, so that each is reused soon.
        fn key(&mut self) -> u32 {
            ((self.below(INDICES) << 16) + 1 + self.below(2)) as u32
        }

        fn access(&mut self) -> Access {
            Access::from_bits_truncate(self.below(256) as u8)
        }
    }

    /// The reference model: for each index its key, rights, first address, length, and memory.
    type ReferenceMap = [Option<(u32, Access, u64, u64, *mut u8)>; INDICES as usize];

    /// The address of a range according to the reference model.
    fn reference_find(plain: &ReferenceMap, key: u32, need: Access, addr: u64, len: u64) -> Option<*mut u8> {
        let (its, access, first, size, base) = plain[(key >> 16) as usize]?;
        let offset = addr.checked_sub(first)?;
        let fits =
            its == key && access.contains(need) && offset.checked_add(len).is_some_and(|end| end <= size);
        fits.then(|| base.wrapping_add(offset as usize))
    }

    /// Goal: the cache returns only registered memory, whatever was registered, deregistered, invalidated or
    /// forged since; and a region that was just cached is found. Method: random operations on a few keys that
    /// are reused all the time, with different rights and ranges, against a reference model.
    #[test]
    fn cache_returns_only_registered_memory() {
        let segment = Segment::create(DM_BASE + 4 * PAGE).expect("a segment");
        let table = ProtectionTable::create_own(&segment.map, segment.id().expect("a file"));
        let mut memory = vec![0_u8; 4 * PAGE as usize];
        let nic = segment.map.bytes(DM_BASE, 4 * PAGE).expect("mapped");
        let (mut rng, mut plain, mut tlb) = (TestRng(0x5eed), ReferenceMap::default(), Tlb::default());
        let (mut hits, mut stale) = (0, 0);
        for stamp in 1..200_000 {
            let key = rng.key();
            let index = (key >> 16) as usize;
            match rng.below(16) {
                0 => {
                    let (access, addr, at) = (rng.access(), rng.below(100), rng.below(2 * PAGE));
                    let len = 1 + rng.below(PAGE);
                    let (kind, place, base) = match rng.below(2) {
                        0 => (region_kind::NIC, DM_BASE + at, nic.wrapping_add(at as usize)),
                        _ => {
                            let base = memory.as_mut_ptr().wrapping_add(at as usize);
                            (region_kind::HOST, base.addr() as u64, base)
                        }
                    };
                    table.insert(
                        key,
                        &Region { access, pd: PD, kind, addr, len, place, stamp, window_owner: 0 },
                    );
                    plain[index] = Some((key, access, addr, len, base));
                }
                1 => {
                    table.remove(key);
                    plain[index] = None;
                }
                2 if table.invalidate(key, (PD, 1)) => plain[index] = None,
                3 => {
                    let shown: &MrEntry = segment.map.region(index as u16);
                    let word = [&shown.addr, &shown.len, &shown.place][rng.below(3) as usize];
                    word.store(rng.below(u64::MAX), Ordering::Relaxed);
                }
                _ => {
                    let (need, addr, len) = (rng.access() & rng.access(), rng.below(PAGE), rng.below(PAGE));
                    let expected = reference_find(&plain, key, need, addr, len);
                    match tlb.find(key, need, addr, len) {
                        Some(found) => {
                            assert_eq!(Some(found), expected, "key {key:#x}, {len} bytes at {addr}");
                            hits += 1;
                        }
                        None => {
                            stale += u32::from(tlb.key == key && expected.is_some());
                            assert_eq!(table.own_memory(key, PD, need, addr, len), expected);
                            if expected.is_some() {
                                tlb.insert(&table, key);
                                assert_eq!(tlb.find(key, need, addr, len), expected, "just inserted");
                            }
                        }
                    }
                }
            }
        }
        assert!(hits > 500 && stale > 100, "{hits} hits, {stale} regions that had changed");
    }
}
