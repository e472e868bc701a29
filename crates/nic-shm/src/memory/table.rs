//! Data path: placement checks. Protection tables, of a peer or of this process, and the access checks on
//! their entries.
//!
//! A peer's table is in the peer's segment and may contain anything. Its entries for NIC memory are checked
//! against the mapping. Its entries for private memory never become pointers here, as the kernel or the owner
//! accesses that memory. Entries of a device of this process do become pointers; peers can write that table
//! as well, so it is checked against a private record of the registrations. The only change that peers may
//! make there is to invalidate a key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use verbs::{Access, MwBind};

use crate::memory::layout::{MR_MAX, MrEntry, region_kind};
use crate::memory::segment::{FileId, MappedSegment};
use nic_util::refusal::{Refused, RegionEntry};
use nic_util::sync::unpoisoned;
use nic_util::windows::{ANY_QP, allows_window};

/// The location of checked memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Location {
    /// In the segment, at this offset.
    Nic(u64),
    /// In the owner's private memory, at this address.
    Private(u64),
    /// At this address in a region that covers all memory: only the kernel knows whether anything is mapped
    /// there.
    Anywhere(u64),
}

impl Location {
    /// The address, for private memory.
    #[inline]
    pub(crate) fn private_address(self) -> Option<u64> {
        match self {
            Self::Nic(_) => None,
            Self::Private(at) | Self::Anywhere(at) => Some(at),
        }
    }
}

/// Entries of the private record that are allocated together.
const CHUNK: usize = 256;

/// The registrations: the same entries as in the segment, where no peer can write them.
type LocalEntries = [OnceLock<Box<[MrEntry; CHUNK]>>; MR_MAX / CHUNK];

/// A protection table.
pub(crate) struct ProtectionTable {
    pub(crate) map: Arc<MappedSegment>,
    /// Only for a device of this process.
    record: Option<Box<LocalEntries>>,
}

/// The tables of this process's devices, by their segments.
static OWN: Mutex<BTreeMap<FileId, Weak<ProtectionTable>>> = Mutex::new(BTreeMap::new());

/// The table of the device of this process with this segment, if there is one.
pub(crate) fn own_table(segment: FileId) -> Option<Arc<ProtectionTable>> {
    unpoisoned(&OWN).get(&segment).and_then(Weak::upgrade)
}

impl ProtectionTable {
    /// The table of a device of this process, with nothing registered yet.
    pub(crate) fn create_own(map: &Arc<MappedSegment>, segment: FileId) -> Arc<Self> {
        let record = Box::new([const { OnceLock::new() }; MR_MAX / CHUNK]);
        let table = Arc::new(Self { map: map.clone(), record: Some(record) });
        let mut own = unpoisoned(&OWN);
        own.retain(|_, table| table.strong_count() > 0);
        own.insert(segment, Arc::downgrade(&table));
        table
    }

    /// The table in a peer's segment.
    pub(crate) fn of_peer(map: Arc<MappedSegment>) -> Arc<Self> {
        Arc::new(Self { map, record: None })
    }

    /// Whether the table belongs to a device of this process, so that its private memory can be accessed
    /// directly.
    pub(crate) fn is_own(&self) -> bool {
        self.record.is_some()
    }

    /// Adds a region: to the record first, then to the entry that peers see; the key last.
    pub(crate) fn insert(&self, key: u32, region: &Region) {
        let index = (key >> 16) as u16;
        let chunk = self.record.as_ref().map(|r| &r[usize::from(index) / CHUNK]);
        let recorded = chunk.map(|c| &c.get_or_init(new_chunk)[usize::from(index) % CHUNK]);
        // Partner: the fence of `snapshot`. Nobody sees the new values with the stamp of the last region.
        fence(Ordering::Release);
        for entry in recorded.into_iter().chain([self.map.region(index)]) {
            entry.access.store(region.access.bits().into(), Ordering::Relaxed);
            entry.pd.store(region.pd, Ordering::Relaxed);
            entry.kind.store(region.kind, Ordering::Relaxed);
            entry.addr.store(region.addr, Ordering::Relaxed);
            entry.len.store(region.len, Ordering::Relaxed);
            entry.place.store(region.place, Ordering::Relaxed);
            entry.window_owner.store(region.window_owner, Ordering::Relaxed);
            entry.stamp.store(region.stamp, Ordering::Release);
            entry.key.store(key, Ordering::Release);
        }
    }

    /// Removes a region's key, for peers and for this process.
    pub(crate) fn remove(&self, key: u32) {
        let index = (key >> 16) as u16;
        for entry in [self.map.region(index)].into_iter().chain(self.recorded(index)) {
            entry.key.store(0, Ordering::Release);
            entry.stamp.store(0, Ordering::Release);
        }
    }

    /// Returns the location of a range; `None` if key, domain, rights or bounds do not allow the access.
    #[inline]
    pub(crate) fn check(&self, key: u32, pd: u32, need: Access, addr: u64, len: u64) -> Option<Location> {
        let (_, entry) = self.entries(key)?;
        if entry.pd.load(Ordering::Relaxed) != pd {
            return None;
        }
        let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
        let offset = addr.wrapping_sub(entry.addr.load(Ordering::Relaxed));
        let size = entry.len.load(Ordering::Relaxed);
        if !access.contains(need) || offset > size || len > size - offset {
            return None;
        }
        let at = entry.place.load(Ordering::Relaxed).wrapping_add(offset);
        location(entry.kind.load(Ordering::Relaxed), at)
    }

    /// As [`Self::check`], for a peer's request that the owner's queue pair `qp` is to answer: it may use the
    /// key of a memory window, too.
    #[inline]
    pub(crate) fn check_remote(
        &self,
        key: u32,
        (pd, qp): (u32, u64),
        need: Access,
        addr: u64,
        len: u64,
    ) -> Option<Location> {
        self.check(key, pd, need, addr, len).or_else(|| self.check_window(key, (pd, qp), need, addr, len))
    }

    /// The location of a range of a memory window. Windows change while peers use the table, so the values
    /// count only if the window has not changed meanwhile.
    #[cold]
    fn check_window(
        &self,
        key: u32,
        (pd, qp): (u32, u64),
        need: Access,
        addr: u64,
        len: u64,
    ) -> Option<Location> {
        let (shown, entry) = self.entries(key)?;
        let stamp = shown.stamp.load(Ordering::Acquire);
        let kind = entry.kind.load(Ordering::Relaxed);
        let owner = entry.window_owner.load(Ordering::Relaxed);
        let is_own = entry.pd.load(Ordering::Relaxed) == pd && (owner == ANY_QP || owner == qp);
        let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
        let offset = addr.wrapping_sub(entry.addr.load(Ordering::Relaxed));
        let size = entry.len.load(Ordering::Relaxed);
        let place = entry.place.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let stamps = [&shown.stamp, &entry.stamp];
        let stood = stamp != 0
            && stamps.iter().all(|s| s.load(Ordering::Acquire) == stamp)
            && shown.key.load(Ordering::Acquire) == key;
        let is_allowed = Access::REMOTE.contains(need) && !need.is_empty() && access.contains(need);
        let is_inside = offset <= size && len <= size - offset;
        let is_window = kind & region_kind::WINDOW != 0;
        if !(stood && is_window && is_own && is_allowed && is_inside) {
            return None;
        }
        location(kind & !region_kind::WINDOW, place.wrapping_add(offset))
    }

    /// Whether this key is valid.
    pub(crate) fn is_valid(&self, key: u32) -> bool {
        self.entries(key).is_some()
    }

    /// The part of a region of this process that a memory window is to give access to: its kind, and the place
    /// of its first byte. `None` if key, domain, rights or range do not allow a window.
    pub(crate) fn part(&self, pd: u32, bind: &MwBind) -> Option<(u32, u64)> {
        let (_, entry) = self.entries(bind.lkey)?;
        let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
        let kind = entry.kind.load(Ordering::Relaxed);
        let is_kind = matches!(kind, region_kind::HOST | region_kind::NIC);
        let location = self.check(bind.lkey, pd, Access::BIND, bind.addr, bind.len)?;
        let place = match location {
            Location::Nic(at) | Location::Private(at) | Location::Anywhere(at) => at,
        };
        (is_kind && allows_window(access, bind.access)).then_some((kind, place))
    }

    /// Says why [`Self::check`] does not allow an access.
    #[cold]
    pub(crate) fn explain(&self, asked: &Refused) -> String {
        let entry = self.map.region((asked.key >> 16) as u16);
        // Values of a peer, which are only shown.
        asked.explain(Some(RegionEntry {
            key: entry.key.load(Ordering::Acquire),
            pd: entry.pd.load(Ordering::Relaxed),
            access: Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8),
            addr: entry.addr.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
        }))
    }

    /// Returns the address of a range of registered memory of this process, for the device that owns the
    /// table.
    #[inline]
    pub(crate) fn own_memory(&self, key: u32, pd: u32, need: Access, addr: u64, len: u64) -> Option<*mut u8> {
        match self.check(key, pd, need, addr, len)? {
            Location::Nic(offset) => self.map.bytes(offset, len),
            Location::Private(at) | Location::Anywhere(at) => Some(at as *mut u8),
        }
    }

    /// The two entries of a key: the shared one, which peers may invalidate, and the authoritative one, which
    /// may be the same.
    #[inline]
    fn entries(&self, key: u32) -> Option<(&MrEntry, &MrEntry)> {
        // Key 0 marks a free entry.
        let index = (key >> 16) as u16;
        let shown = self.map.region(index);
        if key == 0 || shown.key.load(Ordering::Acquire) != key {
            return None;
        }
        match &self.record {
            None => Some((shown, shown)),
            Some(_) => {
                let entry = self.recorded(index)?;
                (entry.key.load(Ordering::Acquire) == key).then_some((shown, entry))
            }
        }
    }

    #[inline]
    fn recorded(&self, index: u16) -> Option<&MrEntry> {
        let chunk = self.record.as_ref()?[usize::from(index) / CHUNK].get()?;
        Some(&chunk[usize::from(index) % CHUNK])
    }

    /// Invalidates a key, as a send with invalidate to queue pair `qp` does; false if it was not valid in that
    /// domain, or is of a memory window that the queue pair may not invalidate.
    pub(crate) fn invalidate(&self, key: u32, (pd, qp): (u32, u64)) -> bool {
        self.entries(key).is_some_and(|(shown, entry)| {
            let is_window = entry.kind.load(Ordering::Relaxed) & region_kind::WINDOW != 0;
            entry.pd.load(Ordering::Relaxed) == pd
                && (!is_window || entry.window_owner.load(Ordering::Relaxed) == qp)
                && shown.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                && shown.stamp.swap(0, Ordering::AcqRel) != 0
        })
    }

    /// The whole region of a key, if this process can access all of it by a pointer.
    pub(crate) fn snapshot(&self, key: u32) -> Option<RegionSnapshot<'_>> {
        let (shown, entry) = self.entries(key)?;
        let stamp = shown.stamp.load(Ordering::Acquire);
        let (addr, len) = (entry.addr.load(Ordering::Relaxed), entry.len.load(Ordering::Relaxed));
        let access = Access::from_bits_truncate(entry.access.load(Ordering::Relaxed) as u8);
        let place = entry.place.load(Ordering::Relaxed);
        let base = match entry.kind.load(Ordering::Relaxed) {
            region_kind::NIC => self.map.bytes(place, len)?,
            region_kind::HOST if self.is_own() => place as *mut u8,
            _ => return None,
        };
        // The values must not be read after the stamps that are to prove them.
        fence(Ordering::Acquire);
        // The stamps did not change meanwhile; otherwise the values may belong to two registrations.
        let stamps = [&shown.stamp, &entry.stamp];
        let stood = stamp != 0 && stamps.iter().all(|s| s.load(Ordering::Acquire) == stamp);
        let still = stood && shown.key.load(Ordering::Acquire) == key;
        still.then_some(RegionSnapshot { stamps, stamp, access, addr, len, base })
    }
}

/// A region to register.
pub(crate) struct Region {
    pub(crate) access: Access,
    pub(crate) pd: u32,
    /// A number of [`region_kind`].
    pub(crate) kind: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) place: u64,
    pub(crate) stamp: u64,
    /// For a memory window; otherwise 0.
    pub(crate) window_owner: u64,
}

/// The location of a byte of a region of this kind.
#[inline]
fn location(kind: u32, at: u64) -> Option<Location> {
    match kind {
        region_kind::HOST => Some(Location::Private(at)),
        region_kind::NIC => Some(Location::Nic(at)),
        region_kind::ALL => Some(Location::Anywhere(at)),
        _ => None,
    }
}

/// The number of a queue pair as the owner of a memory window: of a device, no two queue pairs have the same.
pub(crate) fn window_owner(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | (index as u64 + 1)
}

/// A snapshot of a region: `len` bytes at `base`, valid as long as both stamps are unchanged.
pub(crate) struct RegionSnapshot<'t> {
    pub(crate) stamps: [&'t AtomicU64; 2],
    pub(crate) stamp: u64,
    pub(crate) access: Access,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) base: *mut u8,
}

fn new_chunk() -> Box<[MrEntry; CHUNK]> {
    Box::new(std::array::from_fn(|_| MrEntry::default()))
}
