//! Data path: placement. Lists of memory that one request names, and copies between them and other memory.
//!
//! What the protection tables allowed becomes entries of a list here; whatever is copied into them is copied such that whoever sees the
//! last byte of it sees all.

use std::mem::MaybeUninit;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// SGEs in a work request, at most.
pub(crate) const SGE_MAX: usize = 16;

/// Local memory of one request: up to [`SGE_MAX`] entries that the protection table allowed.
pub(crate) struct SgList {
    list: [MaybeUninit<libc::iovec>; SGE_MAX],
    count: usize,
    total: u64,
}

impl SgList {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; SGE_MAX], count: 0, total: 0 }
    }

    /// Appends a piece; nothing happens beyond the maximum, which posting has checked.
    #[inline]
    pub(crate) fn push(&mut self, at: *mut u8, len: u64) {
        if self.count < SGE_MAX && len > 0 {
            self.list[self.count].write(libc::iovec { iov_base: at.cast(), iov_len: len as usize });
            self.count += 1;
            self.total += len;
        }
    }

    #[inline]
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[libc::iovec] {
        // SAFETY: the first `count` entries are written. Test: scatter_and_gather_cut_alike.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.count) }
    }

    /// The entries of the bytes `from..from+len`.
    pub(crate) fn part(&self, mut from: u64, mut len: u64) -> Self {
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

/// Copies `n` bytes such that whoever sees the last byte sees all.
///
/// # Safety
/// Both ranges must be mapped; they may overlap, and others may write them meanwhile.
#[inline]
pub(crate) unsafe fn copy_last_byte_last(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the caller's contract; pointer arithmetic stays inside the two ranges. Test: copies_every_size.
    unsafe {
        match n {
            0 => {}
            1 => dst.write_volatile(src.read()),
            2 => dst.cast::<[u8; 2]>().write_volatile(src.cast::<[u8; 2]>().read()),
            4 => dst.cast::<u32>().write_unaligned(src.cast::<u32>().read_unaligned()),
            8 => dst.cast::<u64>().write_unaligned(src.cast::<u64>().read_unaligned()),
            _ if n < 8 => {
                std::ptr::copy(src, dst, n - 1);
                compiler_fence(Ordering::SeqCst);
                dst.add(n - 1).write_volatile(src.add(n - 1).read());
            }
            _ => {
                let last = src.add(n - 8).cast::<u64>().read_unaligned();
                std::ptr::copy(src, dst, n - 8);
                fence(Ordering::Release);
                compiler_fence(Ordering::SeqCst);
                dst.add(n - 8).cast::<u64>().write_unaligned(last);
            }
        }
    }
}

/// Copies all entries, in order, to mapped memory.
///
/// # Safety
/// `dst` must have room for [`SgList::total`] bytes, and the entries must be mapped.
#[inline]
pub(crate) unsafe fn gather(src: &SgList, mut dst: *mut u8) {
    for piece in src.as_slice() {
        // SAFETY: the caller's contract.
        unsafe {
            copy_last_byte_last(dst, piece.iov_base.cast(), piece.iov_len);
            dst = dst.add(piece.iov_len);
        }
    }
}

/// Copies mapped memory, in order, to all entries.
///
/// # Safety
/// `src` must hold [`SgList::total`] bytes, and the entries must be mapped.
#[inline]
pub(crate) unsafe fn scatter(mut src: *const u8, dst: &SgList) {
    for piece in dst.as_slice() {
        // SAFETY: the caller's contract.
        unsafe {
            copy_last_byte_last(piece.iov_base.cast(), src, piece.iov_len);
            src = src.add(piece.iov_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_size() {
        let src: Vec<u8> = (0..300_u32).map(|i| i as u8 ^ 0x5a).collect();
        for n in 0..260 {
            for shift in 0..9 {
                let mut dst = vec![0_u8; 300];
                // SAFETY: both have 300 bytes, and n + shift < 300.
                unsafe { copy_last_byte_last(dst.as_mut_ptr().add(shift), src.as_ptr().add(1), n) };
                assert_eq!(dst[shift..shift + n], src[1..=n], "{n} bytes at {shift}");
                assert!(dst[..shift].iter().chain(&dst[shift + n..]).all(|&b| b == 0));
            }
        }
    }

    #[test]
    fn scatter_and_gather_cut_alike() {
        let mut bytes: Vec<u8> = (0..100).collect();
        let mut list = SgList::new();
        let base = bytes.as_mut_ptr();
        for (from, len) in [(10_usize, 5), (50, 0), (0, 7), (90, 3)] {
            list.push(base.wrapping_add(from), len);
        }
        let expected = [10, 11, 12, 13, 14, 0, 1, 2, 3, 4, 5, 6, 90, 91, 92];
        let mut out = [0_u8; 15];
        // SAFETY: 15 bytes on both sides.
        unsafe { gather(&list, out.as_mut_ptr()) };
        assert_eq!(out, expected);
        for from in 0..15_u64 {
            for len in 0..=(15 - from) {
                let part = list.part(from, len);
                assert_eq!(part.total(), len);
                let mut got = vec![0_u8; len as usize];
                // SAFETY: `len` bytes on both sides.
                unsafe { gather(&part, got.as_mut_ptr()) };
                assert_eq!(got, expected[from as usize..(from + len) as usize]);
            }
        }
    }
}
