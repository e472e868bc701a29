//! [`ReservedMapping`]: a reserved address range for a part of a file, which becomes accessible as it is used.
//!
//! A segment is much larger than its used part. Inaccessible pages cost nothing and disturb nothing: a core
//! dump and a leak checker read everything that is readable, and reading a hole of a shared file allocates
//! memory for it.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};
use verbs::{Error, Result};

use nic_util::fork;
use nic_util::sync::unpoisoned;

/// The accessible part grows by at least this much, with one system call each time.
const STEP: u64 = 1 << 20;

/// Whether core dumps include the accessible part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoreDump {
    /// Include: the program's own data.
    Yes,
    /// Exclude: a peer's memory, and memory that only this library uses.
    No,
}

/// A reserved address range for a part of a file. Addresses stay valid until this is dropped.
pub(crate) struct ReservedMapping {
    base: NonNull<u8>,
    len: u64,
    /// Number of accessible bytes, from the beginning.
    open: AtomicU64,
    growing: Mutex<()>,
    dump: CoreDump,
}

// SAFETY: shared memory, which is accessed through atomics and raw copies only, from any thread. Test: the
// conformance suite.
unsafe impl Send for ReservedMapping {}
// SAFETY: as above.
unsafe impl Sync for ReservedMapping {}

impl ReservedMapping {
    /// Reserves addresses for `len` bytes of a file from `offset` on, the first `open` bytes accessible.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, len: u64, open: u64, dump: CoreDump) -> Result<Self> {
        let size = usize::try_from(len)
            .map_err(|_| Error::Invalid("the segment exceeds the address space".into()))?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), size, ProtFlags::empty(), flags, fd, offset) }
            .map_err(|e| {
                Error::system(
                    "cannot map a device's segment (is the address space limited? see ulimit -v)",
                    e,
                )
            })?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| {
            Error::system("cannot map a segment", std::io::Error::other("mapped at address 0"))
        })?;
        fork::mapped(base.as_ptr(), size);
        let reserve = Self { base, len, open: AtomicU64::new(0), growing: Mutex::default(), dump };
        reserve.advise(0, len, Advice::LinuxDontDump);
        if open > 0 {
            reserve.grow(open).ok_or_else(|| {
                Error::system("cannot access a device's segment", std::io::Error::last_os_error())
            })?;
        }
        Ok(reserve)
    }

    /// The address of the first byte.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Number of reserved bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Makes the bytes from one offset to another accessible and returns their address; `None` if they are
    /// outside.
    #[inline]
    pub(crate) fn bytes(&self, from: u64, end: u64) -> Option<*mut u8> {
        if end > self.open.load(Ordering::Acquire) {
            self.grow(end)?;
        }
        // SAFETY: from <= end <= the length of the mapping. Test: only_the_used_part_is_accessible.
        Some(unsafe { self.base.as_ptr().add(from as usize) })
    }

    /// Makes everything up to `end` accessible; `None` if that is outside, or the kernel refuses.
    #[cold]
    fn grow(&self, end: u64) -> Option<()> {
        if end > self.len {
            return None;
        }
        let _growing = unpoisoned(&self.growing);
        let open = self.open.load(Ordering::Acquire);
        if end > open {
            let to = end.checked_next_multiple_of(STEP).unwrap_or(self.len).min(self.len);
            let rights = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: a part of this mapping that nobody could access before. Test: as above.
            unsafe { mprotect(self.at(open), (to - open) as usize, rights) }.ok()?;
            if self.dump == CoreDump::Yes {
                self.advise(open, to, Advice::LinuxDoDump);
            }
            fork::grown(self.base.as_ptr(), to as usize);
            self.open.store(to, Ordering::Release);
        }
        Some(())
    }

    fn at(&self, offset: u64) -> *mut c_void {
        self.base.as_ptr().wrapping_add(offset as usize).cast()
    }

    /// Sets whether core dumps include a part.
    fn advise(&self, from: u64, to: u64, advice: Advice) {
        // SAFETY: a part of this mapping; no content changes. If the kernel refuses, core dumps are larger or
        // smaller.
        let _ = unsafe { madvise(self.at(from), (to - from) as usize, advice) };
    }
}

impl Drop for ReservedMapping {
    fn drop(&mut self) {
        fork::unmapped(self.base.as_ptr(), || {
            // SAFETY: mapped by `new`, and nobody uses it any more.
            let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len as usize) };
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// The mappings of a range from /proc/self/smaps: length, rights, and whether core dumps include them.
    fn mappings(reserve: &ReservedMapping) -> Vec<(u64, String, bool)> {
        let (first, end) = (reserve.base().addr(), reserve.base().addr() + reserve.len() as usize);
        let text = std::fs::read_to_string("/proc/self/smaps").expect("the file exists");
        let mut found = Vec::new();
        let mut is_inside = false;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let word = words.next().unwrap_or_default();
            if let Some((from, to)) = word.split_once('-')
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                is_inside = first <= from && to <= end;
                if is_inside {
                    found.push(((to - from) as u64, words.next().unwrap_or_default().to_owned(), true));
                }
            } else if word == "VmFlags:" && is_inside {
                let is_dumped = !words.any(|flag| flag == "dd");
                found.last_mut().expect("a mapping").2 = is_dumped;
            }
        }
        found
    }

    /// Goal: used parts are accessible and dumped, the rest is neither. Method: the kernel's own list, as the
    /// range is used.
    #[test]
    fn only_the_used_part_is_accessible() {
        let file = memfd_create("reserve", MemfdFlags::CLOEXEC).expect("a file");
        let len = 64 * STEP;
        ftruncate(&file, len).expect("a size");
        for dump in [CoreDump::Yes, CoreDump::No] {
            let reserve = ReservedMapping::new(file.as_fd(), 0, len, 0, dump).expect("addresses");
            assert_eq!(mappings(&reserve), [(len, "---s".to_owned(), false)]);
            for (from, end, open) in
                [(0, 1, 1), (5, STEP, 1), (9, STEP + 1, 2), (0, 8, 2), (40 * STEP, 41 * STEP, 41)]
            {
                assert_eq!(reserve.bytes(from, end), Some(reserve.base().wrapping_add(from as usize)));
                let (used, rest) =
                    ((open * STEP, "rw-s".to_owned(), dump == CoreDump::Yes), len - open * STEP);
                assert_eq!(mappings(&reserve), [used, (rest, "---s".to_owned(), false)]);
            }
            assert_eq!(reserve.bytes(len - 8, len + 1), None);
            assert!(reserve.bytes(len - 8, len).is_some());
            assert_eq!(mappings(&reserve).len(), 1);
        }
    }
}
