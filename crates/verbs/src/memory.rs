//! [`Buf`]: memory that a NIC may read and write at any time, in the host or on the NIC.
//!
//! No reference to its bytes leaves this file: a peer may write them at any moment, so they are accessed by copies and
//! atomics only. Handles are cheap to clone and keep the memory mapped, except memory that a program manages itself
//! ([`Buf::from_program`]): that may be unmapped at any time, and copies then fail.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::access::Access;
use crate::attr::DmAccess;
use crate::error::{Error, Result};

/// The location of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Private memory of the process.
    Host,
    /// Memory of the NIC (`ibv_alloc_dm(3)`).
    Nic,
}

/// NIC memory that the processor cannot load from and store to ([`crate::DmAccess::Copy`]). [`Buf::copy_only`] makes a
/// buffer of it, which checks the ranges.
pub trait DmOps: Send + Sync {
    /// Copies bytes to the NIC's own address `at` (`ibv_memcpy_to_dm(3)`).
    fn write(&self, at: u64, bytes: &[u8]);
    /// Copies bytes from the NIC's own address `at` (`ibv_memcpy_from_dm(3)`).
    fn read(&self, at: u64, bytes: &mut [u8]);
}

/// Keeps the bytes mapped; dropped with the last handle.
type Owner = Arc<dyn Send + Sync>;

/// A range of memory that may be registered; all handles cloned or sliced from one share the bytes.
#[derive(Clone)]
pub struct Buf {
    base: NonNull<u8>,
    len: usize,
    kind: MemoryKind,
    /// The NIC's own address of byte 0, for NIC memory.
    nic_offset: u64,
    owner: Owner,
    access_path: AccessPath,
}

/// How the bytes of a buffer are accessed.
#[derive(Clone)]
enum AccessPath {
    /// By load and store: the bytes are mapped as long as the owner lives.
    Mapped,
    /// By load and store that may fault.
    Program,
    /// Likewise; the bytes need not be mapped when they are registered.
    OnDemand,
    /// By copies, as no processor can load from them: `base` is dangling.
    Copies(Arc<dyn DmOps>),
}

// SAFETY: `base` points to memory that `owner` keeps mapped, and is used for raw copies and atomics only, which any
// thread may do at any time. Test: buf_is_shared_between_threads.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({:?}, {:p}, {} B)", self.kind, self.base, self.len)
    }
}

/// Words of a [`Buf`]'s memory, which stays mapped as long as this lives.
#[derive(Clone)]
pub struct Words {
    at: NonNull<AtomicU64>,
    count: usize,
    _owner: Owner,
}

// SAFETY: as those of `Buf`. Test: words_are_the_memory_itself.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Words({:p}, {})", self.at, self.count)
    }
}

impl std::ops::Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: in bounds and aligned, as `Buf::words` has checked, mapped as long as the owner lives, and never
        // accessed through a plain reference. Test: as above.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is only an address range; unmapping it is allowed from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Buf::alloc` and no handle is left. Test: alloc_zeroes_and_frees.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

impl Buf {
    /// Allocates `len` bytes of private host memory: zeroed, page-aligned, committed on first touch.
    ///
    /// # Errors
    /// [`Error::Invalid`] for zero bytes, [`Error::System`] if the memory cannot be allocated.
    pub fn alloc(len: usize) -> Result<Self> {
        if len == 0 {
            return Err(Error::Invalid("a buffer needs at least one byte".into()));
        }
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: an anonymous mapping at an address of the kernel's choice affects no other mapping. Test: all of this
        // file.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }
            .map_err(|e| Error::system(format!("cannot allocate a buffer of {len} bytes"), e))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| {
            Error::system("cannot allocate a buffer", std::io::Error::other("mapped at address 0"))
        })?;
        let owner = Arc::new(Mapping { base, len });
        Ok(Self { base, len, kind: MemoryKind::Host, nic_offset: 0, owner, access_path: AccessPath::Mapped })
    }

    /// Private memory as of [`Buf::alloc`] that serves as NIC memory: for NICs that are part of this process.
    /// `nic_offset` is the NIC's own address of the first byte.
    ///
    /// # Errors
    /// As [`Buf::alloc`].
    pub fn alloc_nic(len: usize, nic_offset: u64) -> Result<Self> {
        Ok(Self { kind: MemoryKind::Nic, nic_offset, ..Self::alloc(len)? })
    }

    /// Memory of another owner: a C program's buffer, or a NIC's memory.
    ///
    /// `nic_offset` is the NIC's own address of the first byte (0 for host memory).
    ///
    /// # Safety
    /// `base..base+len` must stay mapped for reading and writing until `owner` is dropped, and no reference
    /// to its bytes may be alive while a handle is.
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        len: usize,
        kind: MemoryKind,
        nic_offset: u64,
        owner: Arc<dyn Send + Sync>,
    ) -> Self {
        Self { base, len, kind, nic_offset, owner, access_path: AccessPath::Mapped }
    }

    /// Memory of a program that may unmap it, protect it or truncate its file at any time, as C programs do.
    /// Registration checks that it is mapped ([`crate::Pd::reg_mr`]); later requests for unmapped memory fail, as do
    /// copies to and from this buffer.
    ///
    /// # Safety
    /// No reference to its bytes may be alive while a handle is, or while a request uses them. [`Buf::byte`],
    /// [`Buf::word`], [`Buf::words`] and [`Buf::fill`] are only for memory that is mapped.
    pub unsafe fn from_program(base: NonNull<u8>, len: usize) -> Self {
        let (kind, owner) = (MemoryKind::Host, Arc::new(()));
        Self { base, len, kind, nic_offset: 0, owner, access_path: AccessPath::Program }
    }

    /// Lets memory of a program be unmapped when it is registered (`IBV_ACCESS_ON_DEMAND`): each request accesses what is
    /// mapped there at that time. Other memory is returned as it is.
    #[must_use]
    pub fn on_demand(mut self) -> Self {
        if let AccessPath::Program = self.access_path {
            self.access_path = AccessPath::OnDemand;
        }
        self
    }

    /// Whether the memory need not be mapped when it is registered.
    pub fn is_on_demand(&self) -> bool {
        matches!(self.access_path, AccessPath::OnDemand)
    }

    /// NIC memory that is accessed by copies only ([`DmAccess::Copy`]): `len` bytes at the NIC's own address
    /// `nic_offset`.
    pub fn copy_only(len: usize, nic_offset: u64, copies: Arc<impl DmOps + 'static>) -> Self {
        let (base, kind, owner) = (NonNull::dangling(), MemoryKind::Nic, copies.clone());
        Self { base, len, kind, nic_offset, owner, access_path: AccessPath::Copies(copies) }
    }

    /// The length in bytes; never zero.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The location of the memory.
    #[inline]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// How this process accesses the bytes: by copies only, or also by [`Buf::byte`] and [`Buf::word`].
    pub fn access(&self) -> DmAccess {
        if matches!(self.access_path, AccessPath::Copies(_)) { DmAccess::Copy } else { DmAccess::Coherent }
    }

    /// Checks memory that may be unmapped: that it can be accessed with these rights, unless it is mapped on demand. From
    /// then on faults in it become errors.
    pub(crate) fn check_presence(&self, access: Access) -> Result<()> {
        if !matches!(self.access_path, AccessPath::Program | AccessPath::OnDemand) {
            return Ok(());
        }
        uaccess::arm().map_err(|why| Error::system("cannot handle faults of registered memory", why))?;
        if self.is_on_demand() {
            return Ok(());
        }
        uaccess::check(self.base.as_ptr(), self.len, access.contains(Access::LOCAL_WRITE))
            .map_err(|why| self.unmapped_error(why))
    }

    /// The error for memory that cannot be accessed.
    #[cold]
    fn unmapped_error(&self, why: impl std::fmt::Display) -> Error {
        Error::Memory { addr: self.addr(), len: self.len as u64, why: why.to_string() }
    }

    /// Whether other handles of the same memory exist, cloned or sliced from this one or vice versa.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.owner) > 1
    }

    /// The address of byte 0 in this process. Meaningless if the bytes are accessed by copies only.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// The NIC's own address of byte 0; 0 for host memory.
    pub fn nic_offset(&self) -> u64 {
        self.nic_offset
    }

    /// A pointer to the first byte, for code that places data. Valid while any handle lives; not for memory that is
    /// accessed by copies only.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// A handle of a part.
    ///
    /// # Errors
    /// [`Error::Limit`] or [`Error::Invalid`] if `range` is not inside, or empty.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        if range.start >= range.end {
            return Err(Error::Invalid(format!("the range {range:?} is empty")));
        }
        Error::check_limit("the end of the range", range.end as u64, self.len as u64)?;
        let base = match self.access_path {
            AccessPath::Copies(_) => self.base,
            // SAFETY: start < end <= len, so the pointer stays inside the mapping. Test: slices_share_and_check.
            AccessPath::Mapped | AccessPath::Program | AccessPath::OnDemand => unsafe {
                self.base.add(range.start)
            },
        };
        let nic_offset = self.nic_offset + range.start as u64;
        Ok(Self { base, len: range.end - range.start, nic_offset, ..self.clone() })
    }

    /// Copies bytes into the buffer at `offset`.
    ///
    /// # Errors
    /// [`Error::Limit`] if they do not fit; nothing is written then. [`Error::Memory`] if the program has unmapped it.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check_range(offset, bytes.len())?;
        if !matches!(self.access_path, AccessPath::Mapped) {
            return self.write_slow(offset, bytes);
        }
        // SAFETY: there is room for the bytes (checked), and a caller's slice never overlaps NIC-reachable
        // memory. Peers may write at the same time: the outcome is then some mixture of bytes, as on any NIC.
        unsafe { uaccess::copy(self.base.as_ptr().add(offset), bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// As [`Buf::write`], for many bytes that another processor reads next, and this one does not: the stores bypass the caches
    /// where the memory is mapped. All of them are visible before any later store of this thread.
    ///
    /// # Errors
    /// As [`Buf::write`].
    pub fn write_nontemporal(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check_range(offset, bytes.len())?;
        if !matches!(self.access_path, AccessPath::Mapped) {
            return self.write_slow(offset, bytes);
        }
        // SAFETY: as in `write`. Test: bytes_are_written_past_the_caches.
        unsafe {
            uaccess::copy_nontemporal(self.base.as_ptr().add(offset), bytes.as_ptr(), bytes.len());
        }
        Ok(())
    }

    /// As [`Buf::write`], where a plain copy is not possible; the range has been checked.
    #[cold]
    fn write_slow(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        match &self.access_path {
            AccessPath::Copies(copies) => copies.write(self.nic_offset + offset as u64, bytes),
            AccessPath::Mapped | AccessPath::Program | AccessPath::OnDemand => {
                let at = self.base.as_ptr().wrapping_add(offset);
                // SAFETY: as in `write`, but the memory need not be mapped. Test: unmapped_program_memory_is_an_error.
                unsafe { uaccess::copy_last_byte_last(at, bytes.as_ptr(), bytes.len()) }
                    .map_err(|_| self.unmapped_error("it is not mapped for writing any more"))?;
            }
        }
        Ok(())
    }

    /// Copies bytes out of the buffer at `offset`.
    ///
    /// # Errors
    /// [`Error::Limit`] if the range ends outside; [`Error::Memory`] if the program has unmapped it.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check_range(offset, bytes.len())?;
        if !matches!(self.access_path, AccessPath::Mapped) {
            return self.read_slow(offset, bytes);
        }
        // SAFETY: as in `write`, the other way.
        unsafe { uaccess::copy(bytes.as_mut_ptr(), self.base.as_ptr().add(offset), bytes.len()) };
        Ok(())
    }

    /// As [`Buf::read`], where a plain copy is not possible; the range has been checked.
    #[cold]
    fn read_slow(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        match &self.access_path {
            AccessPath::Copies(copies) => copies.read(self.nic_offset + offset as u64, bytes),
            AccessPath::Mapped | AccessPath::Program | AccessPath::OnDemand => {
                let at = self.base.as_ptr().wrapping_add(offset);
                // SAFETY: as in `write_slow`.
                unsafe { uaccess::copy_last_byte_last(bytes.as_mut_ptr(), at, bytes.len()) }
                    .map_err(|_| self.unmapped_error("it is not mapped any more"))?;
            }
        }
        Ok(())
    }

    /// Copies `len` bytes from offset `at` into another buffer, or elsewhere into this one, at `dst_at`: a single
    /// copy by the processor.
    ///
    /// # Errors
    /// [`Error::Limit`] if either range ends outside; nothing is written then. [`Error::Memory`] as [`Buf::write`].
    pub fn copy_to(&self, at: usize, dst: &Self, dst_at: usize, len: usize) -> Result<()> {
        self.check_range(at, len)?;
        dst.check_range(dst_at, len)?;
        if !matches!((&self.access_path, &dst.access_path), (AccessPath::Mapped, AccessPath::Mapped)) {
            return dst.write(dst_at, &self.to_vec(at..at + len)?);
        }
        // SAFETY: both ranges are mapped (checked), and may overlap, as handles share bytes. Peers may write to either
        // meanwhile, as in `write`. Test: bytes_are_copied_between_buffers_and_within_one.
        unsafe { uaccess::copy(dst.base.as_ptr().add(dst_at), self.base.as_ptr().add(at), len) };
        Ok(())
    }

    /// A copy of a range of bytes.
    ///
    /// # Errors
    /// [`Error::Limit`] if the range ends outside.
    pub fn to_vec(&self, range: Range<usize>) -> Result<Vec<u8>> {
        self.check_range(range.start, range.end.saturating_sub(range.start))?;
        let mut bytes = vec![0; range.end.saturating_sub(range.start)];
        self.read(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        if let AccessPath::Copies(copies) = &self.access_path {
            return copies.write(self.nic_offset, &vec![byte; self.len]);
        }
        // SAFETY: the whole range is ours to write, as in `write`.
        unsafe { std::ptr::write_bytes(self.base.as_ptr(), byte, self.len) };
    }

    /// One byte as an atomic, for polling for data that arrives without an event.
    ///
    /// # Errors
    /// [`Error::Limit`] if it is outside; [`Error::Unsupported`] if the bytes are accessed by copies only.
    #[inline]
    pub fn byte(&self, offset: usize) -> Result<&AtomicU8> {
        let at = self.check(offset, 1)?;
        // SAFETY: in bounds, alive as long as `self`, and never accessed through a plain reference.
        Ok(unsafe { AtomicU8::from_ptr(at) })
    }

    /// Eight bytes as an atomic.
    ///
    /// # Errors
    /// [`Error::Limit`] if they end outside, [`Error::Invalid`] if they are not 8-byte aligned in memory; as
    /// [`Buf::byte`].
    #[inline]
    pub fn word(&self, offset: usize) -> Result<&AtomicU64> {
        let at = self.check(offset, 8)?.cast::<u64>();
        if !at.is_aligned() {
            return Err(Error::Invalid(format!("offset {offset} is not aligned to 8 bytes")));
        }
        // SAFETY: in bounds, aligned, alive as long as `self`, never accessed through a plain reference.
        Ok(unsafe { AtomicU64::from_ptr(at) })
    }

    /// Changes eight bytes atomically by a function, which may be called more than once; returns the old value.
    ///
    /// # Errors
    /// As [`Buf::word`]; [`Error::Memory`] if the program has unmapped them.
    pub fn update_word(&self, offset: usize, change: impl Fn(u64) -> u64) -> Result<u64> {
        let word = self.word(offset)?;
        if let AccessPath::Program | AccessPath::OnDemand = self.access_path {
            // SAFETY: in bounds and aligned, as `word` checked; it need not be mapped.
            // Test: unmapped_program_memory_is_an_error.
            return unsafe { uaccess::update(word.as_ptr(), change) }
                .map_err(|_| self.unmapped_error("it is not mapped for writing any more"));
        }
        let changed = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
        Ok(changed.unwrap_or_else(|old| old))
    }

    /// `count` words of eight bytes as atomics, checked once: a data path that uses them repeatedly need not check
    /// again.
    ///
    /// # Errors
    /// As [`Buf::word`].
    pub fn words(&self, offset: usize, count: usize) -> Result<Words> {
        let at = self.check(offset, count.saturating_mul(size_of::<u64>()))?.cast::<AtomicU64>();
        match NonNull::new(at).filter(|at| at.is_aligned()) {
            Some(at) => Ok(Words { at, count, _owner: self.owner() }),
            None => Err(Error::Invalid(format!("offset {offset} is not aligned to 8 bytes"))),
        }
    }

    /// A pointer to a range of mapped memory.
    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result<*mut u8> {
        self.check_range(offset, len)?;
        if let AccessPath::Copies(_) = self.access_path {
            let what = "load and store on its memory; copy instead";
            return Err(Error::Unsupported { device: "the device".into(), what });
        }
        // SAFETY: offset <= len of the mapping.
        Ok(unsafe { self.base.as_ptr().add(offset) })
    }

    #[inline]
    fn check_range(&self, offset: usize, len: usize) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::Limit {
                what: "the end of the access",
                given: (offset as u64).saturating_add(len as u64),
                limit: self.len as u64,
            }),
        }
    }

    /// Keeps the bytes mapped without a handle.
    pub fn owner(&self) -> Arc<dyn Send + Sync> {
        self.owner.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_memory_itself() {
        let buf = Buf::alloc(64).expect("memory");
        let words = buf.words(16, 4).expect("inside");
        assert!(buf.words(40, 4).is_err() && buf.words(4, 1).is_err() && buf.words(0, usize::MAX).is_err());
        let task = std::thread::spawn({
            let words = words.clone();
            move || words.iter().zip(1..).for_each(|(word, n)| word.store(n, Ordering::Relaxed))
        });
        task.join().expect("no panic");
        let stored: Vec<u64> =
            (0..8).map(|at| buf.word(8 * at).expect("inside").load(Ordering::Relaxed)).collect();
        assert_eq!(stored, [0, 0, 1, 2, 3, 4, 0, 0]);
        drop(buf);
        assert_eq!(words[3].load(Ordering::Relaxed), 4, "they keep it mapped");
    }

    #[test]
    fn alloc_zeroes_and_frees() {
        let buf = Buf::alloc(10_000).expect("memory");
        assert_eq!(buf.to_vec(0..10_000).expect("inside"), vec![0; 10_000]);
        assert!(Buf::alloc(0).is_err());
        assert!(Buf::alloc(usize::MAX / 2).is_err(), "more than there is");
    }

    #[test]
    fn bytes_are_written_past_the_caches() {
        let buf = Buf::alloc(300).expect("memory");
        let bytes: Vec<u8> = (0..200).collect();
        buf.write_nontemporal(3, &bytes).expect("fits");
        assert_eq!(buf.to_vec(0..300).expect("inside"), [&[0; 3], &bytes[..], &[0; 97]].concat());
        assert!(buf.write_nontemporal(101, &bytes).is_err());
    }

    #[test]
    fn nic_memory_may_be_private() {
        let buf = Buf::alloc_nic(100, 4096).expect("memory");
        assert_eq!((buf.kind(), buf.nic_offset(), buf.len()), (MemoryKind::Nic, 4096, 100));
        assert_eq!(buf.slice(10..20).expect("inside").nic_offset(), 4106);
        assert!(Buf::alloc_nic(0, 0).is_err());
    }

    /// Goal: memory that is accessed by copies only behaves like other memory, except for calls that need a pointer.
    #[test]
    fn copy_only_memory_behaves_like_memory() {
        struct Far(std::sync::Mutex<Vec<u8>>);
        impl DmOps for Far {
            fn write(&self, at: u64, bytes: &[u8]) {
                self.0.lock().expect("no panic")[at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            fn read(&self, at: u64, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.0.lock().expect("no panic")[at as usize..][..bytes.len()]);
            }
        }
        let far = Arc::new(Far(std::sync::Mutex::new(vec![0; 100])));
        let buf = Buf::copy_only(50, 30, far.clone());
        assert_eq!((buf.kind(), buf.access(), buf.nic_offset()), (MemoryKind::Nic, DmAccess::Copy, 30));
        let part = buf.slice(10..20).expect("inside");
        part.fill(3);
        part.write(9, &[4]).expect("fits");
        assert_eq!(far.0.lock().expect("no panic")[38..52], [0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 0, 0]);
        let near = Buf::alloc(8).expect("memory");
        part.copy_to(2, &near, 0, 8).expect("fits");
        assert_eq!(near.to_vec(0..8).expect("inside"), [3, 3, 3, 3, 3, 3, 3, 4]);
        near.copy_to(7, &part, 0, 1).expect("fits");
        assert_eq!(part.to_vec(0..2).expect("inside"), [4, 3]);
        for (at, len) in [(10, 1), (0, 11), (usize::MAX, 2)] {
            assert!(part.read(at, &mut vec![0; len]).is_err() && part.write(at, &vec![0; len]).is_err());
            assert!(near.copy_to(0, &part, at, len.min(8)).is_err() || len > 8);
        }
        assert!(matches!(part.byte(0), Err(Error::Unsupported { .. })));
        assert!(matches!(part.word(0), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn slices_share_and_check() {
        let buf = Buf::alloc(100).expect("memory");
        let part = buf.slice(10..20).expect("inside");
        part.write(0, &[7; 10]).expect("fits");
        assert_eq!(buf.to_vec(9..21).expect("inside")[..3], [0, 7, 7]);
        for (offset, len) in [(0, 11), (10, 1), (usize::MAX, 2)] {
            assert!(part.write(offset, &vec![1; len]).is_err(), "{offset}+{len}");
        }
        assert!(buf.slice(5..5).is_err());
        assert!(buf.slice(50..101).is_err());
        assert!(buf.word(4).is_err());
        assert!(buf.byte(100).is_err());
    }

    #[test]
    fn bytes_are_copied_between_buffers_and_within_one() {
        let (from, to) = (Buf::alloc(100).expect("memory"), Buf::alloc(50).expect("memory"));
        from.write(0, &(0..100).collect::<Vec<u8>>()).expect("fits");
        from.copy_to(90, &to, 40, 10).expect("fits");
        let expected: Vec<u8> = [0; 40].into_iter().chain(90..100).collect();
        assert_eq!(to.to_vec(0..50).expect("inside"), expected, "nothing else is touched");
        for (at, dst_at, len) in [(91, 0, 10), (0, 41, 10), (0, 0, 51), (usize::MAX, 0, 2)] {
            assert!(from.copy_to(at, &to, dst_at, len).is_err(), "{at} {dst_at} {len}");
        }
        assert_eq!(to.to_vec(0..50).expect("inside"), expected, "nothing is written then");
        let part = from.slice(2..100).expect("inside");
        from.copy_to(0, &part, 0, 50).expect("they overlap");
        assert_eq!(from.to_vec(2..52).expect("inside"), (0..50).collect::<Vec<u8>>());
    }

    /// Goal: copies and atomics of memory that a program has unmapped return errors, and so does registering it.
    /// Method: unmap one page of a mapping of the test's own. It is far below all other mappings: Linux fills the
    /// highest hole that is large enough, so no thread of another test maps memory there meanwhile.
    #[test]
    fn unmapped_program_memory_is_an_error() {
        const PAGE: usize = 4096;
        const FAR_BELOW: usize = 0x2000_0000_0000;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let near = std::ptr::without_provenance_mut(FAR_BELOW);
        // SAFETY: a new mapping, which replaces none.
        let base = unsafe { mmap_anonymous(near, 2 * PAGE, rights, flags) }.expect("memory");
        let base = NonNull::new(base.cast::<u8>()).expect("an address");
        // SAFETY: no references to it are made.
        let buf = unsafe { Buf::from_program(base, 2 * PAGE) };
        assert_eq!((buf.check_presence(Access::ALL), buf.access()), (Ok(()), DmAccess::Coherent));
        buf.write(PAGE - 4, &[7; 8]).expect("it is there");
        assert_eq!(
            (buf.to_vec(PAGE..PAGE + 5), buf.update_word(PAGE, |old| old + 1)),
            (Ok(vec![7, 7, 7, 7, 0]), Ok(0x0707_0707))
        );
        // SAFETY: no reference to it exists.
        unsafe { munmap(base.as_ptr().wrapping_add(PAGE).cast(), PAGE) }.expect("it was mapped");
        let plain = Buf::alloc(64).expect("memory");
        let is_memory_error = |result: Result<()>| matches!(result, Err(Error::Memory { .. }));
        assert!(
            is_memory_error(buf.write(PAGE - 4, &[1; 5])) && is_memory_error(buf.read(PAGE, &mut [0; 1]))
        );
        assert!(
            is_memory_error(buf.copy_to(PAGE, &plain, 0, 8))
                && is_memory_error(plain.copy_to(0, &buf, PAGE, 8))
        );
        assert!(is_memory_error(buf.update_word(PAGE, |old| old).map(drop)));
        assert!(
            is_memory_error(buf.check_presence(Access::empty()))
                && is_memory_error(buf.slice(PAGE..PAGE + 1).expect("a part").check_presence(Access::ALL))
        );
        assert_eq!(
            (buf.write(0, &[3; 8]), buf.slice(0..PAGE).expect("a part").check_presence(Access::ALL)),
            (Ok(()), Ok(()))
        );
        // SAFETY: as above.
        unsafe { munmap(base.as_ptr().cast(), PAGE) }.expect("it was mapped");
    }

    #[test]
    fn buf_is_shared_between_threads() {
        let buf = Buf::alloc(8).expect("memory");
        let other = buf.clone();
        std::thread::spawn(move || other.word(0).expect("aligned").store(42, Ordering::Release))
            .join()
            .expect("no panic");
        assert_eq!(buf.word(0).expect("aligned").load(Ordering::Acquire), 42);
    }
}
