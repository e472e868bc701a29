//! Data path: placement checks. Memory regions: the table of steering tags and their access rights.
//!
//! A steering tag consists of the index of a table entry, chosen at random, and a random part, 16 bits each from the
//! kernel's generator. So one tag reveals nothing about another, and a wrong guess ends the guesser's connection. The
//! next tag of an entry always differs from its previous one.
//!
//! Tags are looked up, and the memory behind them is used, only in one go while holding the lock of a queue pair.
//! Deregistering invalidates the tag and then passes through the locks that were held since the last deregistration:
//! afterwards no thread that saw the tag still uses it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

use iwarp::rx::AccessError;
use verbs::{Access, Error, MwBind, MwKind, SendOp, Sge};

use nic_util::refusal::{Refused, RegionEntry};
use nic_util::sg_list::SgList;
use nic_util::sync::unpoisoned;
use nic_util::windows::{ANY_QP, WindowTable, Windows, allows_window};

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
    /// For a memory window: the queue pair that may use it, or [`ANY_QP`].
    owner: AtomicU64,
    /// Changes with each binding of a memory window.
    version: AtomicU64,
}

/// Marks the access rights of a memory window.
const WINDOW: u32 = 1 << 8;

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
    pub(crate) windows: Windows,
}

impl RegionTable {
    pub(crate) fn new() -> Self {
        let chunks = (0..MR_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        Self { chunks, numbers: Mutex::new(UsedEntries::new()), windows: Windows::default() }
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
        let access = entry.access.load(Ordering::Relaxed);
        if access & WINDOW != 0 || !Access::from_bits_truncate(access as u8).contains(need) {
            return Err(AccessError::Access);
        }
        let offset = addr.wrapping_sub(entry.base.load(Ordering::Relaxed));
        let size = entry.len.load(Ordering::Relaxed);
        if offset > size || len > size - offset {
            return Err(AccessError::Bounds);
        }
        Ok((entry.at.load(Ordering::Relaxed) + offset) as *mut u8)
    }

    /// As [`Self::find`], for a memory window and the queue pair `qp`. Windows change while connections use the table, so the
    /// values count only if the window has not changed meanwhile.
    #[cold]
    fn find_window(
        &self,
        key: u32,
        (pd, qp): (u32, u64),
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<*mut u8, AccessError> {
        let entry = self.entry(key).ok_or(AccessError::Invalid)?;
        let version = entry.version.load(Ordering::Acquire);
        let (access, owner) = (entry.access.load(Ordering::Relaxed), entry.owner.load(Ordering::Relaxed));
        let is_own = entry.pd.load(Ordering::Relaxed) == pd && (owner == ANY_QP || owner == qp);
        let offset = addr.wrapping_sub(entry.base.load(Ordering::Relaxed));
        let (size, at) = (entry.len.load(Ordering::Relaxed), entry.at.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let stood =
            entry.version.load(Ordering::Acquire) == version && entry.key.load(Ordering::Acquire) == key;
        if !stood {
            return Err(AccessError::Invalid);
        }
        if access & WINDOW == 0 || !Access::from_bits_truncate(access as u8).contains(need) {
            return Err(AccessError::Access);
        }
        if !is_own {
            return Err(AccessError::NotAssociated);
        }
        if offset > size || len > size - offset {
            return Err(AccessError::Bounds);
        }
        Ok((at + offset) as *mut u8)
    }

    /// Whether the peer of queue pair `qp` may invalidate this tag.
    pub(crate) fn may_invalidate(&self, key: u32, (pd, qp): (u32, u64)) -> Result<(), AccessError> {
        match self.find(key, pd, Access::empty(), 0, 0) {
            Ok(_) | Err(AccessError::Bounds) => Ok(()),
            Err(AccessError::Access) if self.is_window_of(key, qp) => Ok(()),
            Err(AccessError::Access) => Err(AccessError::NotAssociated),
            Err(why) => Err(why),
        }
    }

    /// Whether this is the tag of a memory window that only queue pair `qp` may use.
    fn is_window_of(&self, key: u32, qp: u64) -> bool {
        self.entry(key).is_some_and(|entry| {
            entry.access.load(Ordering::Relaxed) & WINDOW != 0 && entry.owner.load(Ordering::Relaxed) == qp
        })
    }

    /// Makes a tag invalid, as a send with invalidate to queue pair `qp` does; false if it was not valid in that domain, or is
    /// of a memory window that the queue pair may not invalidate.
    ///
    /// Other connections that saw the tag as valid finish their current piece. That is allowed here, unlike in
    /// deregistering, after which the memory may be freed.
    pub(crate) fn invalidate(&self, key: u32, (pd, qp): (u32, u64)) -> bool {
        self.entry(key).is_some_and(|entry| {
            key != 0
                && (entry.access.load(Ordering::Relaxed) & WINDOW == 0 || self.is_window_of(key, qp))
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

    /// Takes an entry for a memory window in this domain, which is not bound; returns its first tag.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub(crate) fn add_window(&self, pd: u32, kind: MwKind) -> Result<u32, Error> {
        let index = self.take()?;
        self.chunks[index / CHUNK].get_or_init(new_chunk);
        let key = loop {
            // The lower eight bits are the program's, and no tag is 0 or all ones.
            let low = random().inspect_err(|_| unpoisoned(&self.numbers).free(index))?;
            if !matches!(low >> 8, 0 | 0xff) {
                break (index as u32) << 16 | u32::from(low);
            }
        };
        self.windows.add(key, pd, kind);
        Ok(key)
    }

    /// Carries out a request that changes a memory window; false if it is not allowed.
    #[cold]
    pub(crate) fn change_window(&self, (pd, qp): (u32, u64), op: SendOp) -> bool {
        match op {
            SendOp::BindMw(bind) => self.windows.bind(self, pd, qp, &bind),
            SendOp::LocalInv(key) => self.windows.may_invalidate(key, pd) && self.invalidate(key, (pd, qp)),
            _ => false,
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
        let chunk = self.chunks[index / CHUNK].get_or_init(new_chunk);
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

fn new_chunk() -> Box<[Entry]> {
    (0..CHUNK).map(|_| Entry::default()).collect()
}

/// A part of a region, for a memory window: its address for requests, its length, and its address in this process.
pub(crate) struct WindowPart {
    base: u64,
    len: u64,
    at: u64,
}

impl WindowTable for RegionTable {
    type Part = WindowPart;

    fn part(&self, pd: u32, bind: &MwBind) -> Option<WindowPart> {
        let at = self.find(bind.lkey, pd, Access::BIND, bind.addr, bind.len).ok()?;
        let entry = self.entry(bind.lkey)?;
        let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
        // A region of all memory has no end that its owner would keep mapped.
        let is_buffer = entry.len.load(Ordering::Relaxed) != u64::MAX;
        let part = WindowPart { base: bind.addr, len: bind.len, at: at.addr() as u64 };
        (is_buffer && allows_window(access, bind.access)).then_some(part)
    }

    fn is_valid(&self, rkey: u32) -> bool {
        rkey != 0 && self.entry(rkey).is_some_and(|entry| entry.key.load(Ordering::Acquire) == rkey)
    }

    fn unbind(&self, rkey: u32) {
        self.clear_tag(rkey);
    }

    fn bind(&self, rkey: u32, pd: u32, owner: u64, part: WindowPart, access: Access) {
        let Some(entry) = self.entry(rkey) else { return };
        entry.version.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::Release);
        entry.describe(pd, (part.at, part.len), part.base, access);
        entry.access.fetch_or(WINDOW, Ordering::Relaxed);
        entry.owner.store(owner, Ordering::Relaxed);
        entry.key.store(rkey, Ordering::Release);
    }
}

/// The regions in the view of one queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Domain<'a> {
    pub(crate) regions: &'a RegionTable,
    pub(crate) pd: u32,
    /// The queue pair, as the owner of memory windows.
    pub(crate) qp: u64,
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
        match self.regions.find(key, self.pd, need, addr, len) {
            // Perhaps a memory window, which only peers use.
            Err(AccessError::Access) if Access::REMOTE.contains(need) && !need.is_empty() => {
                self.regions.find_window(key, (self.pd, self.qp), need, addr, len)
            }
            found => found,
        }
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
        self.regions.may_invalidate(key, (self.pd, self.qp))
    }

    /// See [`RegionTable::invalidate`].
    pub(crate) fn invalidate(&self, key: u32) -> bool {
        self.regions.invalidate(key, (self.pd, self.qp))
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
        assert_eq!(table.may_invalidate(key, (7, 1)), Ok(()));
        assert_eq!(table.may_invalidate(key, (8, 1)), Err(AccessError::NotAssociated));
        assert!(!table.invalidate(key, (8, 1)), "another domain's");
        assert!(table.invalidate(key, (7, 1)) && !table.invalidate(key, (7, 1)), "once");
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
