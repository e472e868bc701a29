//! Pages that tests can protect, unmap and truncate.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};

pub(crate) const PAGE: usize = 4096;

/// Pages of a separate mapping.
pub(crate) struct Pages {
    base: *mut u8,
    count: usize,
    file: Option<File>,
}

// SAFETY: addresses of a mapping, which any thread may change.
unsafe impl Sync for Pages {}

impl Pages {
    /// Anonymous memory that may be read and written; none of it is resident.
    pub(crate) fn new(count: usize) -> Self {
        Self::map(count, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, None)
    }

    /// A shared mapping of a new file of this many pages.
    pub(crate) fn map_new_file(count: usize) -> Self {
        // SAFETY: a new descriptor.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"pages".as_ptr(), 0)) };
        file.set_len((count * PAGE) as u64).expect("room");
        Self::map(count, libc::MAP_SHARED, Some(file))
    }

    fn map(count: usize, flags: i32, file: Option<File>) -> Self {
        let descriptor = file.as_ref().map_or(-1, |file| file.as_raw_fd());
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), count * PAGE, rights, flags, descriptor, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), count, file }
    }

    pub(crate) fn ptr_at(&self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(offset)
    }

    pub(crate) fn protect(&self, pages: Range<usize>, rights: i32) {
        // SAFETY: pages of this mapping, which tests access by raw pointers only.
        let done =
            unsafe { libc::mprotect(self.ptr_at(pages.start * PAGE).cast(), pages.len() * PAGE, rights) };
        assert_eq!(done, 0);
    }

    /// Leaves a hole. A hole of one page is too small for the mappings of concurrent tests, which have two or
    /// more.
    pub(crate) fn unmap(&self, pages: Range<usize>) {
        // SAFETY: as `protect`.
        assert_eq!(unsafe { libc::munmap(self.ptr_at(pages.start * PAGE).cast(), pages.len() * PAGE) }, 0);
    }

    /// Truncates the file.
    pub(crate) fn truncate(&self, len: usize) {
        self.file.as_ref().expect("a file").set_len(len as u64).expect("the file can be truncated");
    }

    /// Number of resident pages.
    pub(crate) fn count_resident(&self) -> usize {
        let mut seen = vec![0_u8; self.count];
        // SAFETY: a byte for each page.
        assert_eq!(unsafe { libc::mincore(self.base.cast(), self.count * PAGE, seen.as_mut_ptr()) }, 0);
        seen.iter().filter(|byte| *byte & 1 == 1).count()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: as `protect`; holes are no error.
        unsafe { libc::munmap(self.base.cast(), self.count * PAGE) };
    }
}
