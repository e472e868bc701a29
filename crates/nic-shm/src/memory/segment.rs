//! A device's segment: an anonymous memory file, mapped by its owner and by every connected peer.
//!
//! The owner reserves addresses for all of it. A peer reserves addresses for the tables and the rings, and
//! for NIC memory only as far as it has used any: otherwise a process with many peers would run out of
//! addresses, as each peer may have half of the machine's memory. Mapped parts keep their addresses. Only
//! used parts are accessible, on both sides ([`ReservedMapping`]).
//!
//! The file has no name, so that nothing of it outlives its last process. Its mode is 0600, and it reaches
//! other processes over a connection whose two ends belong to one user. Its size is sealed, so that no peer
//! can truncate it while it is mapped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals, fcntl_get_seals, fstat,
    fstatfs, ftruncate, memfd_create,
};
use rustix::process::{Resource, getrlimit};
use verbs::{Error, Result};

use crate::memory::layout::{DM_BASE, HEAP_BASE, MrEntry, ShmObject, mr_offset};
use crate::memory::reserved_mapping::{CoreDump, ReservedMapping};
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

const SEALS: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// Maximum size of a segment: several must fit into an address space of 47 bits.
pub(crate) const SEGMENT_MAX: u64 = 1 << 43;
/// Minimum NIC memory of a device, where limits leave room for less than the default.
const DM_MIN: u64 = 1 << 20;

/// The limit on file sizes of this process.
fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// The file system type of huge pages, as statfs(2) returns it.
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// A mapped segment, of this device or of a peer.
pub(crate) struct MappedSegment {
    /// The tables, accessible from the beginning, and the rings.
    tables: ReservedMapping,
    /// NIC memory, which begins at [`DM_BASE`].
    nic_memory: NicMemory,
}

enum NicMemory {
    Own(ReservedMapping),
    OfPeer(PeerNicMemory),
}

/// Minimum size of a mapping of a peer's NIC memory.
const PEER_MAPPING_MIN: u64 = 64 << 20;

/// A peer's NIC memory, mapped as far as it has been used. When a mapping is too short, another one is added
/// that begins at the same offset and is at least twice as long; earlier mappings stay, as there are pointers
/// into them.
struct PeerNicMemory {
    file: ForkSafeFd,
    /// Bytes of NIC memory in the file, which never change.
    len: u64,
    /// The last and longest mapping.
    current: AtomicPtr<ReservedMapping>,
    #[expect(
        clippy::vec_box,
        reason = "`current` points to an element, which must not move when the list grows"
    )]
    all: Mutex<Vec<Box<ReservedMapping>>>,
}

impl PeerNicMemory {
    fn new(file: OwnedFd, len: u64) -> Self {
        Self { file: file.into(), len, current: AtomicPtr::default(), all: Mutex::default() }
    }

    /// The address of the bytes from one offset in NIC memory to another.
    #[inline]
    fn bytes(&self, from: u64, end: u64) -> Option<*mut u8> {
        // SAFETY: null, or a mapping that lives as long as this. Test:
        // peer_maps_only_the_nic_memory_that_it_uses.
        match unsafe { self.current.load(Ordering::Acquire).as_ref() }
            .and_then(|current| current.bytes(from, end))
        {
            Some(bytes) => Some(bytes),
            None => self.add(end)?.bytes(from, end),
        }
    }

    /// Maps more; `None` if the segment ends before `end`, or this process may map no more.
    #[cold]
    fn add(&self, end: u64) -> Option<&ReservedMapping> {
        if end > self.len {
            return None;
        }
        let mut all = unpoisoned(&self.all);
        if all.last().is_none_or(|longest| longest.len() < end) {
            let len = end.next_power_of_two().max(PEER_MAPPING_MIN).min(self.len);
            all.push(Box::new(ReservedMapping::new(self.file.as_fd(), DM_BASE, len, 0, CoreDump::No).ok()?));
            let longest: *const ReservedMapping = &raw const **all.last()?;
            self.current.store(longest.cast_mut(), Ordering::Release);
        }
        // SAFETY: as above.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }
}

impl MappedSegment {
    /// Maps all of a segment of this device.
    fn map_own(fd: BorrowedFd<'_>, len: u64) -> Result<Arc<Self>> {
        assert!(len > DM_BASE, "a segment holds its tables and some NIC memory");
        let tables = ReservedMapping::new(fd, 0, DM_BASE, HEAP_BASE, CoreDump::No)?;
        let nic_memory = ReservedMapping::new(fd, DM_BASE, len - DM_BASE, 0, CoreDump::Yes)?;
        Ok(Arc::new(Self { tables, nic_memory: NicMemory::Own(nic_memory) }))
    }

    /// The shared object at `offset`, if it is inside the segment and aligned.
    #[inline]
    pub(crate) fn get<T: ShmObject>(&self, offset: u64) -> Option<&T> {
        let at = self.bytes(offset, size_of::<T>() as u64)?.cast::<T>();
        // SAFETY: inside the mapping, aligned, and valid for any bytes (`ShmObject`).
        at.is_aligned().then(|| unsafe { &*at })
    }

    /// A region's entry of the protection table: there is one for every 16-bit number.
    #[inline]
    pub(crate) fn region(&self, index: u16) -> &MrEntry {
        const { assert!(mr_offset(u16::MAX as usize) + size_of::<MrEntry>() as u64 <= HEAP_BASE) };
        // SAFETY: the whole table is below HEAP_BASE, up to which every mapping is accessible (`map_own`
        // and `map_peer`), aligned; valid for any bytes (`ShmObject`).
        unsafe { &*self.tables.base().add(mr_offset(index.into()) as usize).cast() }
    }

    /// The address of `len` bytes at `offset`, if they are inside the segment.
    #[inline]
    pub(crate) fn bytes(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        match offset.checked_sub(DM_BASE) {
            None => self.tables.bytes(offset, end),
            Some(from) => match &self.nic_memory {
                NicMemory::Own(memory) => memory.bytes(from, end - DM_BASE),
                NicMemory::OfPeer(peer_memory) => peer_memory.bytes(from, end - DM_BASE),
            },
        }
    }
}

/// A shared object in a mapping, which it keeps alive.
pub(crate) struct SharedRef<T> {
    _map: Arc<MappedSegment>,
    at: NonNull<T>,
}

// SAFETY: a shared reference to atomics in a mapping that `map` keeps, for any thread.
unsafe impl<T: ShmObject> Send for SharedRef<T> {}
// SAFETY: as above.
unsafe impl<T: ShmObject> Sync for SharedRef<T> {}

impl<T: ShmObject> SharedRef<T> {
    /// The object at `offset`.
    pub(crate) fn new(map: &Arc<MappedSegment>, offset: u64) -> Result<Self> {
        let at = map.get::<T>(offset).ok_or_else(|| {
            Error::Invalid(format!("a shared object at {offset:#x} is outside its segment"))
        })?;
        Ok(Self { _map: map.clone(), at: NonNull::from(at) })
    }
}

impl<T: ShmObject> std::ops::Deref for SharedRef<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: inside the mapping (checked by `new`), which is kept.
        unsafe { self.at.as_ref() }
    }
}

/// A shared array with a power of two of slots of a fixed stride: a ring or a store.
pub(crate) struct SlotArray {
    base: NonNull<u8>,
    stride: usize,
    shift: u32,
    _map: Arc<MappedSegment>,
}

// SAFETY: as for `SharedRef`.
unsafe impl Send for SlotArray {}
// SAFETY: as for `SharedRef`.
unsafe impl Sync for SlotArray {}

impl SlotArray {
    /// `1 << shift` slots of `stride` bytes (a multiple of 8) at `offset`.
    pub(crate) fn new(map: &Arc<MappedSegment>, offset: u64, stride: u64, shift: u32) -> Result<Self> {
        let bad = || Error::Invalid(format!("a ring at {offset:#x} is outside its segment"));
        let len = stride.checked_mul(1 << shift.min(40)).ok_or_else(bad)?;
        let base = map.bytes(offset, len).and_then(NonNull::new).ok_or_else(bad)?;
        if !stride.is_multiple_of(8) || !offset.is_multiple_of(64) || shift > 20 {
            return Err(bad());
        }
        Ok(Self { base, stride: stride as usize, shift, _map: map.clone() })
    }

    /// The log2 of the number of slots.
    #[inline]
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// The words of slot `index` modulo the number of slots.
    #[inline]
    pub(crate) fn slot(&self, index: u64) -> &[AtomicU64] {
        let i = (index & ((1 << self.shift) - 1)) as usize;
        // SAFETY: slot i is inside (checked by `new`), aligned to 8, atomics only; the map lives with us.
        unsafe {
            let at = self.base.as_ptr().add(i * self.stride).cast();
            std::slice::from_raw_parts(at, self.stride / 8)
        }
    }
}

/// A segment of this device: the mapping, and the file to send to peers.
pub(crate) struct Segment {
    pub(crate) map: Arc<MappedSegment>,
    file: ForkSafeFd,
}

impl Segment {
    /// Creates a segment of `len` bytes, not committed yet.
    pub(crate) fn create(len: u64) -> Result<Self> {
        let refused = |e: rustix::io::Errno| Error::system("cannot create a device's shared memory", e);
        let file =
            memfd_create("nicety-shm", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(refused)?;
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(refused)?;
        // Growing a file beyond the limit raises a signal that ends the process.
        if let Some(limit) = file_limit().filter(|limit| *limit < len) {
            let what = format!("cannot create a device's shared memory of {len} bytes");
            let why = format!("the file size is limited to {limit} bytes; raise the limit with ulimit -f");
            return Err(Error::system(what, std::io::Error::new(std::io::ErrorKind::FileTooLarge, why)));
        }
        ftruncate(&file, len).map_err(refused)?;
        fcntl_add_seals(&file, SEALS).map_err(refused)?;
        Ok(Self { map: MappedSegment::map_own(file.as_fd(), len)?, file: file.into() })
    }

    /// The identity of the file.
    pub(crate) fn id(&self) -> Result<FileId> {
        segment_file_id(&self.file)
    }

    /// Creates a segment with `dm_size` bytes of NIC memory, or fewer if this process may not create or map
    /// such a large file.
    pub(crate) fn create_within_limits(dm_size: u64) -> Result<(Self, u64)> {
        let mut size = dm_size;
        loop {
            match Self::create(DM_BASE + size) {
                Err(Error::System { .. }) if size > DM_MIN => size = ((size / 2) & !0xfff).max(DM_MIN),
                result => return Ok((result?, size)),
            }
        }
    }

    /// Commits a range, so that accessing it cannot fail later.
    pub(crate) fn commit(&self, offset: u64, len: u64) -> Result<()> {
        fallocate(&self.file, FallocateFlags::empty(), offset, len).map_err(|e| {
            Error::system(
                format!("no memory for {len} bytes of shared memory; free some, or allocate less"),
                e,
            )
        })
    }

    /// Releases a range; it reads as zero afterwards.
    pub(crate) fn release(&self, offset: u64, len: u64) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If this fails, the range stays committed until the device is closed.
        let _ = fallocate(&self.file, punch, offset, len);
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The identity of a segment's file: unique on a host, and no process can choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(u64, u64);

/// Whether a descriptor is memory that cannot be truncated. Asks the kernel only: if a file belongs to a
/// process's own (FUSE) file system, any other query may block on that process.
pub(crate) fn is_sealed_memory(file: impl AsFd) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// The identity of a peer's segment.
pub(crate) fn segment_file_id(file: &impl AsFd) -> Result<FileId> {
    if !is_sealed_memory(file) {
        return Err(Error::Invalid("the peer's segment is not a memory file of sealed size".into()));
    }
    let stat = fstat(file).map_err(|e| Error::system("cannot inspect the peer's segment", e))?;
    Ok(FileId(stat.st_dev, stat.st_ino))
}

/// Maps a peer's segment, after checking that it is valid.
pub(crate) fn map_peer(file: OwnedFd) -> Result<Arc<MappedSegment>> {
    let bad = |why: &str| Error::Invalid(format!("the peer's segment {why}"));
    // First, before any query that could block.
    segment_file_id(&file)?;
    let stat = fstat(&file).map_err(|e| Error::system("cannot inspect the peer's segment", e))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(bad("belongs to another user"));
    }
    let fs = fstatfs(&file).map_err(|e| Error::system("cannot inspect the peer's segment", e))?;
    if fs.f_type as u64 == HUGETLBFS_MAGIC {
        // Accessing it could fail for lack of huge pages, which kills the process.
        return Err(bad("consists of huge pages"));
    }
    let len = u64::try_from(stat.st_size).map_err(|_| bad("has no size"))?;
    if len < DM_BASE {
        return Err(bad("is too small"));
    }
    if len > SEGMENT_MAX {
        return Err(bad("uses too much of the address space"));
    }
    let tables = ReservedMapping::new(file.as_fd(), 0, DM_BASE, HEAP_BASE, CoreDump::No)?;
    Ok(Arc::new(MappedSegment {
        tables,
        nic_memory: NicMemory::OfPeer(PeerNicMemory::new(file, len - DM_BASE)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout::Header;

    #[test]
    fn owner_and_peer_map_the_same_memory() {
        let segment = Segment::create(DM_BASE + 4096).expect("a segment");
        let file = segment.as_fd().try_clone_to_owned().expect("a descriptor");
        let peer = map_peer(file.try_clone().expect("a second descriptor")).expect("the same memory");
        segment.map.get::<Header>(0).expect("inside").token.store(7, Ordering::Release);
        assert_eq!(peer.get::<Header>(0).expect("inside").token.load(Ordering::Acquire), 7);
        assert!(peer.get::<Header>(DM_BASE + 4096).is_none());
        assert!(peer.get::<Header>(8).is_none(), "not aligned");
        assert!(peer.bytes(u64::MAX, 2).is_none());
        assert!(ftruncate(&file, 0).is_err(), "sealed");
    }

    #[test]
    fn map_peer_refuses_a_file_that_could_shrink() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        ftruncate(&file, DM_BASE + 1).expect("a size");
        assert!(map_peer(file).is_err());
    }

    /// Goal: a peer reserves addresses only for the NIC memory that it uses, and its mappings stay. Method:
    /// pointers to increasing offsets in a segment with hardly any used memory.
    #[test]
    fn peer_maps_only_the_nic_memory_that_it_uses() {
        let size: u64 = 64 << 30;
        let segment = Segment::create(DM_BASE + size).expect("a segment");
        let peer = map_peer(segment.as_fd().try_clone_to_owned().expect("a descriptor")).expect("mapped");
        let NicMemory::OfPeer(peer_memory) = &peer.nic_memory else { panic!("this is not memory of a peer") };
        let taken = || unpoisoned(&peer_memory.all).iter().map(|one| one.len()).sum::<u64>();
        let word = |map: &MappedSegment, at: u64| map.bytes(at, 8).map(<*mut u8>::cast::<u64>);
        assert_eq!(taken(), 0);
        let mut before = Vec::new();
        for at in [0, 8, PEER_MAPPING_MIN - 8, PEER_MAPPING_MIN, 5 * PEER_MAPPING_MIN, size / 2] {
            let (there, here) = (word(&segment.map, DM_BASE + at), word(&peer, DM_BASE + at));
            before.push((at, there.expect("inside"), here.expect("inside")));
            assert!(taken() <= 4 * at.max(PEER_MAPPING_MIN), "{} for {at}", taken());
        }
        for (at, there, here) in before {
            // SAFETY: both are mapped, as long as the maps live.
            let [there, here] = [there, here].map(|word| unsafe { AtomicU64::from_ptr(word) });
            there.store(at + 1, Ordering::Release);
            assert_eq!(here.load(Ordering::Acquire), at + 1);
        }
        assert!(peer.bytes(DM_BASE + size - 8, 8).is_some() && peer.bytes(DM_BASE + size - 8, 9).is_none());
        assert!(peer.bytes(DM_BASE - 8, 16).is_none(), "no object spans both parts");
        assert!(peer.bytes(u64::MAX - 8, 8).is_none());
    }
}
