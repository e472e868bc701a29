//! Data path: placement checks. Memory regions: the table of steering tags and their access rights.
//!
//! A steering tag consists of the index of a table entry, chosen at random, and a random part, 16 bits each from the
//! kernel's generator. So one tag reveals nothing about another, and a wrong guess ends the guesser's connection. The
//! next tag of an entry always differs from its previous one.
//!
//! Tags are looked up, and the memory behind them is used, only in one go while holding the lock of a queue pair.
//! Deregistering invalidates the tag and then passes through the locks that were held since the last deregistration:
//! afterwards no thread that saw the tag still uses it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use iwarp::rx::AccessError;
use verbs::{Access, Error, Sge};

use nic_util::refusal::{Refused, RegionEntry};
use nic_util::sg_list::SgList;
use nic_util::sync::unpoisoned;

/// Maximum number of memory regions of a device.
pub(crate) const MR_MAX: usize = 1 << 16;
/// Number of entries allocated together: few, because used entries are scattered.
const CHUNK: usize = 32;

/// One region; an entry with key 0 is unused.
#[derive(Default)]
struct Entry {
    key: AtomicU32,
    /// Its previous key.
    last: AtomicU32,
    pd: AtomicU32,
    access: AtomicU32,
    /// The address of the first byte in the peers' view.
    base: AtomicU64,
    len: AtomicU64,
    /// The address of the first byte in this process.
    at: AtomicU64,
}

impl Entry {
    /// Writes everything but the key, which must not be valid.
    fn describe(&self, pd: u32, (at, len): (u64, u64), base: u64, access: Access) {
        self.pd.store(pd, Ordering::Relaxed);
        self.access.store(access.bits().into(), Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }
}

/// 16 random bits from the kernel.
pub(crate) fn random() -> Result<u16, Error> {
    let bytes = host::random().map_err(|why| Error::system("cannot make a steering tag", why))?;
    Ok(u16::from_ne_bytes(bytes))
}

/// A bitmap of the used entries.
struct UsedEntries {
    words: Box<[u64]>,
    count: usize,
}

impl UsedEntries {
    fn new() -> Self {
        Self { words: vec![0; MR_MAX / 64].into_boxed_slice(), count: 0 }
    }

    /// Takes the first free entry at or after `start`, cyclically.
    fn take(&mut self, start: u16) -> Option<usize> {
        if self.count == MR_MAX {
            return None;
        }
        let start = usize::from(start);
        let (first, before) = (start / 64, (1 << (start % 64)) - 1);
        // The word of `start` comes first without the bits before `start`, and again last as a whole.
        (0..=self.words.len()).find_map(|step| {
            let at = (first + step) % self.words.len();
            let skipped = if step == 0 { before } else { 0 };
            let free = !(self.words[at] | skipped);
            (free != 0).then(|| {
                let bit = free.trailing_zeros();
                self.words[at] |= 1 << bit;
                self.count += 1;
                at * 64 + bit as usize
            })
        })
    }

    fn free(&mut self, index: usize) {
        self.words[index / 64] &= !(1 << (index % 64));
        self.count -= 1;
    }
}

/// The regions of a device.
pub(crate) struct RegionTable {
    chunks: Vec<OnceLock<Box<[Entry]>>>,
    numbers: Mutex<UsedEntries>,
}

impl RegionTable {
    pub(crate) fn new() -> Self {
        let chunks = (0..MR_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        Self { chunks, numbers: Mutex::new(UsedEntries::new()) }
    }

    #[inline]
    fn entry(&self, key: u32) -> Option<&Entry> {
        let index = (key >> 16) as usize;
        Some(&self.chunks[index / CHUNK].get()?[index % CHUNK])
    }

    /// The address of `[addr, addr + len)` of a region, if domain, rights and bounds allow the access.
    #[inline]
    pub(crate) fn find(
        &self,
        key: u32,
        pd: u32,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<*mut u8, AccessError> {
        let entry = self.entry(key).filter(|_| key != 0).ok_or(AccessError::Invalid)?;
        if entry.key.load(Ordering::Acquire) != key {
            return Err(AccessError::Invalid);
        }
        if entry.pd.load(Ordering::Relaxed) != pd {
            return Err(AccessError::NotAssociated);
        }
        let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
        if !access.contains(need) {
            return Err(AccessError::Access);
        }
        let offset = addr.wrapping_sub(entry.base.load(Ordering::Relaxed));
        let size = entry.len.load(Ordering::Relaxed);
        if offset > size || len > size - offset {
            return Err(AccessError::Bounds);
        }
        Ok((entry.at.load(Ordering::Relaxed) + offset) as *mut u8)
    }

    /// Whether a peer may invalidate this tag.
    pub(crate) fn may_invalidate(&self, key: u32, pd: u32) -> Result<(), AccessError> {
        match self.find(key, pd, Access::empty(), 0, 0) {
            Ok(_) | Err(AccessError::Bounds) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Makes a tag invalid, as a send with invalidate does; false if it was not valid in that domain.
    ///
    /// Other connections that saw the tag as valid finish their current piece. That is allowed here, unlike in
    /// deregistering, after which the memory may be freed.
    pub(crate) fn invalidate(&self, key: u32, pd: u32) -> bool {
        self.entry(key).is_some_and(|entry| {
            key != 0
                && entry.pd.load(Ordering::Relaxed) == pd
                && entry.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Takes a free entry near a random position.
    fn take(&self) -> Result<usize, Error> {
        let limit = MR_MAX as u64;
        let full = Error::Limit { what: "memory regions", given: limit + 1, limit };
        let start = random()?;
        unpoisoned(&self.numbers).take(start).ok_or(full)
    }

    /// Invalidates a tag, which may be invalid already; its entry stays in use.
    pub(crate) fn clear_tag(&self, key: u32) {
        if let Some(entry) = self.entry(key) {
            entry.key.store(0, Ordering::Release);
        }
    }

    /// Writes another region to the entry of a tag that was cleared and that no thread can be using any more; the tag is
    /// valid again.
    pub(crate) fn refill(&self, key: u32, pd: u32, place: (u64, u64), base: u64, access: Access) {
        if let Some(entry) = self.entry(key) {
            entry.describe(pd, place, base, access);
            entry.key.store(key, Ordering::Release);
        }
    }

    /// Frees the entry of a tag that no thread can be using any more.
    pub(crate) fn free_entry(&self, key: u32) {
        unpoisoned(&self.numbers).free((key >> 16) as usize);
    }

    /// Creates a region: `len` bytes at `at`; `base` is the address of the first byte in the view of work requests
    /// and peers. Returns its tag.
    ///
    /// # Errors
    /// If there are too many regions, or the system has no random numbers.
    pub(crate) fn insert(&self, pd: u32, place: (u64, u64), base: u64, access: Access) -> Result<u32, Error> {
        let index = self.take()?;
        self.fill_entry(index, pd, place, base, access).inspect_err(|_| unpoisoned(&self.numbers).free(index))
    }

    /// Creates a region, as [`Self::insert`] does, in the entry `index`, which the caller has taken. Returns its tag.
    fn fill_entry(
        &self,
        index: usize,
        pd: u32,
        (at, len): (u64, u64),
        base: u64,
        access: Access,
    ) -> Result<u32, Error> {
        let chunk = self.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Entry::default()).collect());
        let entry = &chunk[index % CHUNK];
        entry.describe(pd, (at, len), base, access);
        let key = loop {
            let low = u32::from(random()?);
            // Neither 0, the value of a cleared tag, nor all ones, nor the entry's previous tag.
            let key = (index as u32) << 16 | low;
            if low != 0 && key != u32::MAX && key != entry.last.load(Ordering::Relaxed) {
                break key;
            }
        };
        entry.last.store(key, Ordering::Relaxed);
        entry.key.store(key, Ordering::Release);
        Ok(key)
    }
}

/// The regions in the view of one protection domain.
#[derive(Clone, Copy)]
pub(crate) struct Domain<'a> {
    pub(crate) regions: &'a RegionTable,
    pub(crate) pd: u32,
}

impl Domain<'_> {
    /// Says why this domain does not allow an access to local memory.
    #[cold]
    pub(crate) fn explain(&self, sge: &Sge, need: Access) -> String {
        let asked = Refused {
            key_name: "lkey",
            key: sge.lkey,
            pd: self.pd,
            need,
            addr: sge.addr,
            len: sge.length.into(),
        };
        asked.explain(self.regions.entry(sge.lkey).map(|entry| RegionEntry {
            key: entry.key.load(Ordering::Acquire),
            pd: entry.pd.load(Ordering::Relaxed),
            access: Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8),
            addr: entry.base.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
        }))
    }

    /// The address of `[addr, addr + len)` of a region, if domain, rights and bounds allow the access.
    #[inline]
    pub(crate) fn find(&self, key: u32, need: Access, addr: u64, len: u64) -> Result<*mut u8, AccessError> {
        self.regions.find(key, self.pd, need, addr, len)
    }

    /// A range that the peer names, as a list, if key, rights and bounds allow the access.
    pub(crate) fn remote(&self, stag: u32, need: Access, to: u64, len: u64) -> Result<SgList, AccessError> {
        let mut list = SgList::new();
        list.push(self.find(stag, need, to, len)?, len);
        Ok(list)
    }

    /// The addresses of the part `[from, from + len)` of local memory; `None` if a key, a range or a right does not
    /// allow it.
    pub(crate) fn local(&self, sges: &[Sge], need: Access, from: u64, len: u64) -> Option<SgList> {
        let (mut list, mut from, mut len) = (SgList::new(), from, len);
        for sge in sges {
            let size = u64::from(sge.length);
            let take = size.saturating_sub(from).min(len);
            if take > 0 {
                list.push(self.find(sge.lkey, need, sge.addr.checked_add(from)?, take).ok()?, take);
                len -= take;
            }
            from = from.saturating_sub(size);
        }
        (len == 0).then_some(list)
    }

    /// Whether all entries may be used.
    #[inline]
    pub(crate) fn allows(&self, sges: &[Sge], need: Access) -> bool {
        sges.iter()
            .all(|sge| sge.length == 0 || self.find(sge.lkey, need, sge.addr, sge.length.into()).is_ok())
    }

    /// Whether a peer may invalidate this tag.
    pub(crate) fn may_invalidate(&self, key: u32) -> Result<(), AccessError> {
        self.regions.may_invalidate(key, self.pd)
    }

    /// See [`RegionTable::invalidate`].
    pub(crate) fn invalidate(&self, key: u32) -> bool {
        self.regions.invalidate(key, self.pd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::Buf;

    fn insert_region(table: &RegionTable, access: Access) -> (Buf, u32) {
        let buf = Buf::alloc(100).expect("memory");
        let key = table.insert(7, (buf.addr(), 100), 1000, access).expect("room");
        (buf, key)
    }

    #[test]
    fn access_error_names_its_reason() {
        let table = RegionTable::new();
        let (buf, key) = insert_region(&table, Access::REMOTE_READ);
        let find = |key, pd, need, addr, len| table.find(key, pd, need, addr, len);
        assert_eq!(find(key, 7, Access::REMOTE_READ, 1000, 100), Ok(buf.as_ptr()));
        assert_eq!(find(key, 7, Access::REMOTE_READ, 1100, 0), Ok(buf.as_ptr().wrapping_add(100)));
        assert_eq!(find(key, 8, Access::REMOTE_READ, 1000, 1), Err(AccessError::NotAssociated));
        assert_eq!(find(key, 7, Access::REMOTE_WRITE, 1000, 1), Err(AccessError::Access));
        for (addr, len) in [(999, 1), (1000, 101), (1101, 0), (u64::MAX, 1), (1001, u64::MAX)] {
            assert_eq!(
                find(key, 7, Access::REMOTE_READ, addr, len),
                Err(AccessError::Bounds),
                "{addr}+{len}"
            );
        }
        for wrong in [0, !0, key ^ 1, key ^ 0x1_0000, key ^ 0x8000_0000] {
            assert_eq!(find(wrong, 7, Access::REMOTE_READ, 1000, 1), Err(AccessError::Invalid), "{wrong:#x}");
        }
    }

    #[test]
    fn invalidated_tag_is_rejected() {
        let table = RegionTable::new();
        let (_buf, key) = insert_region(&table, Access::ALL);
        assert_eq!(table.may_invalidate(key, 7), Ok(()));
        assert_eq!(table.may_invalidate(key, 8), Err(AccessError::NotAssociated));
        assert!(!table.invalidate(key, 8), "another domain's");
        assert!(table.invalidate(key, 7) && !table.invalidate(key, 7), "once");
        assert_eq!(table.find(key, 7, Access::empty(), 1000, 1), Err(AccessError::Invalid));
    }

    /// Goal: one tag reveals nothing about the next. Method: successive tags differ in every bit about half of the
    /// time.
    #[test]
    fn tags_are_random() {
        let table = RegionTable::new();
        let keys: Vec<u32> = (0..2000).map(|_| insert_region(&table, Access::ALL).1).collect();
        for bit in 0..32 {
            let flips = keys.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1).count();
            assert!((700..1300).contains(&flips), "bit {bit} flips {flips} times in 2000");
        }
    }

    /// Goal: an entry does not reuse its previous tag. Method: fills one entry again and again.
    #[test]
    fn an_entry_never_repeats_its_tag() {
        let table = RegionTable::new();
        let (buf, first) = insert_region(&table, Access::ALL);
        let index = (first >> 16) as usize;
        let again = |last: u32| {
            let key = table.fill_entry(index, 7, (buf.addr(), 100), 1000, Access::ALL).expect("random bits");
            assert_ne!(key, last);
            key
        };
        // Often enough that chance alone would repeat one.
        (0..200_000).fold(first, |last, _| again(last));
    }

    /// Goal: every entry can be taken, and none twice. Method: takes all entries, and returns some.
    #[test]
    fn numbers_are_allocated_once() {
        let mut numbers = UsedEntries::new();
        let starts = (0..=u16::MAX).map(|start| start.wrapping_mul(40_503));
        let mut all: Vec<usize> = starts.filter_map(|start| numbers.take(start)).collect();
        assert_eq!(numbers.take(7), None);
        for index in [0, 63, 64, 7777, MR_MAX - 1] {
            numbers.free(index);
            assert_eq!((numbers.take(7), numbers.take(8)), (Some(index), None));
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..MR_MAX));
    }
}
