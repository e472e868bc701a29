//! Data path: placement. Scatter-gather lists of a request, and copies between them and contiguous memory.
//!
//! A list holds the pieces that the protection tables allowed. Another thread that sees the last byte of a
//! copied piece sees all of its bytes, and memory that the program has unmapped makes the copy an error.

use std::mem::MaybeUninit;

pub use uaccess::{Fault, copy_last_byte_last};

/// Maximum number of SGEs in a work request.
pub const SGE_MAX: usize = 16;

/// Local memory of one request: up to [`SGE_MAX`] entries that the protection table allowed.
pub struct SgList {
    list: [MaybeUninit<libc::iovec>; SGE_MAX],
    count: usize,
    total: u64,
}

impl Default for SgList {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl SgList {
    /// An empty list.
    #[inline]
    pub fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; SGE_MAX], count: 0, total: 0 }
    }

    /// Appends a piece. Ignores pieces beyond the maximum, which posting has checked.
    #[inline]
    pub fn push(&mut self, at: *mut u8, len: u64) {
        if self.count < SGE_MAX && len > 0 {
            self.list[self.count].write(libc::iovec { iov_base: at.cast(), iov_len: len as usize });
            self.count += 1;
            self.total += len;
        }
    }

    /// Total number of bytes.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The entries in the form that system calls need.
    #[inline]
    pub fn as_slice(&self) -> &[libc::iovec] {
        // SAFETY: the first `count` entries are written. Test: scatter_and_gather_split_at_the_same_offsets.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.count) }
    }

    /// The entries for the bytes `from..from+len`.
    #[inline]
    pub fn part(&self, mut from: u64, mut len: u64) -> Self {
        let mut part = Self::new();
        for piece in self.as_slice() {
            let size = piece.iov_len as u64;
            let take = size.saturating_sub(from).min(len);
            // SAFETY: from < size where anything is taken, so the pointer stays in the piece.
            part.push(piece.iov_base.cast::<u8>().wrapping_add(from.min(size) as usize), take);
            from = from.saturating_sub(size);
            len -= take;
        }
        part
    }
}

/// Copies all entries, in order, to contiguous memory.
///
/// # Safety
/// `dst` has room for [`SgList::total`] bytes; as with [`copy_last_byte_last`], neither side needs to be
/// mapped.
///
/// # Errors
/// The side that could not be accessed.
#[inline]
pub unsafe fn gather(src: &SgList, mut dst: *mut u8) -> Result<(), Fault> {
    for piece in src.as_slice() {
        // SAFETY: the caller's contract.
        unsafe { copy_last_byte_last(dst, piece.iov_base.cast(), piece.iov_len)? };
        dst = dst.wrapping_add(piece.iov_len);
    }
    Ok(())
}

/// Copies contiguous memory to all entries, in order.
///
/// # Safety
/// `src` has [`SgList::total`] bytes; as with [`copy_last_byte_last`], neither side needs to be mapped.
///
/// # Errors
/// The side that could not be accessed.
#[inline]
pub unsafe fn scatter(mut src: *const u8, dst: &SgList) -> Result<(), Fault> {
    for piece in dst.as_slice() {
        // SAFETY: the caller's contract.
        unsafe { copy_last_byte_last(piece.iov_base.cast(), src, piece.iov_len)? };
        src = src.wrapping_add(piece.iov_len);
    }
    Ok(())
}

/// Whether all entries may be read now, or written: to find the side that made a system call fail.
#[cold]
pub fn is_accessible(list: &SgList, writes: bool) -> bool {
    let is_there = |piece: &libc::iovec| uaccess::check(piece.iov_base.cast(), piece.iov_len, writes).is_ok();
    !uaccess::is_armed() || list.as_slice().iter().all(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_and_gather_split_at_the_same_offsets() {
        let mut bytes: Vec<u8> = (0..100).collect();
        let mut list = SgList::new();
        let base = bytes.as_mut_ptr();
        for (from, len) in [(10_usize, 5), (50, 0), (0, 7), (90, 3)] {
            list.push(base.wrapping_add(from), len);
        }
        let expected = [10, 11, 12, 13, 14, 0, 1, 2, 3, 4, 5, 6, 90, 91, 92];
        let mut out = [0_u8; 15];
        // SAFETY: 15 bytes on both sides.
        assert_eq!(unsafe { gather(&list, out.as_mut_ptr()) }, Ok(()));
        assert_eq!(out, expected);
        for from in 0..15_u64 {
            for len in 0..=(15 - from) {
                let part = list.part(from, len);
                assert_eq!(part.total(), len);
                let mut got = vec![0_u8; len as usize];
                // SAFETY: `len` bytes on both sides.
                assert_eq!(unsafe { gather(&part, got.as_mut_ptr()) }, Ok(()));
                assert_eq!(got, expected[from as usize..(from + len) as usize]);
            }
        }
    }
}
