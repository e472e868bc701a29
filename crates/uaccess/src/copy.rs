//! Data path: copies that take the same time at every distance between source and target. Guarded copies report a
//! fault as an error; plain copies have the fault.

use crate::arch;
use crate::fault::Fault;

/// Shorter copies are memmove(3)'s: it uses no string moves for them, and the compiler replaces calls of constant length.
const LONG_MIN: usize = 2048;

/// Detects the processor's vector instructions for copies. Called when a device is opened; earlier copies are
/// slower, but correct.
pub fn detect_features() {
    arch::detect_features();
}

/// Copies `n` bytes, which may overlap. A thread that sees the last byte sees all `n`, and all earlier copies of this thread.
///
/// # Safety
/// Both ranges belong to this process's memory and contain no Rust object that is accessed other than through
/// raw pointers and atomics. They need not be mapped once [`arm`](crate::arm) has been called, and other
/// threads may write them meanwhile.
///
/// # Errors
/// [`Fault`] if a byte could not be accessed; the target may then hold any part of the source.
#[inline]
pub unsafe fn copy_last_byte_last(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: the caller's contract. Tests: copies_every_size, copy_reports_each_inaccessible_byte.
    unsafe { arch::copy(dst, src, n) }
}

/// Copies `n` bytes, which may overlap, as [`std::ptr::copy`] does. For payloads: unlike memmove(3), it is not slower at
/// some distances between the two.
///
/// # Safety
/// As [`std::ptr::copy`].
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the caller's contract. Test: copies_every_size.
    unsafe {
        if n < LONG_MIN || cfg!(miri) {
            std::ptr::copy(src, dst, n);
        } else {
            copy_long(dst, src, n);
        }
    }
}

/// Does [`copy`] for at least [`LONG_MIN`] bytes.
///
/// # Safety
/// As there.
unsafe fn copy_long(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the caller's contract. Tests: copies_every_size, overlapping_ranges_are_copied_as_by_memmove.
    unsafe {
        if arch::copy(dst, src, n).is_err() {
            // Only memory that is not there, against the contract, leads here. This repeats the fault for the program.
            std::ptr::copy(src, dst, n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PAGE, Pages};

    /// Sizes around every branch of the copy.
    fn sizes() -> impl Iterator<Item = usize> {
        let long = [511, 512, 513, 1000, 2047, 2048, 4095, 4096, 4097, 4103, 4104, 4105, 4112, 5000, 70_000];
        (0..300).chain(long)
    }

    #[test]
    fn copies_every_size() {
        for with_avx in [false, true] {
            if with_avx {
                detect_features();
            }
            let src: Vec<u8> = (0..80_000_u32).map(|i| (i * 31 + i / 251) as u8).collect();
            for n in sizes() {
                for shift in [0, 1, 7, 31, 32, 33] {
                    let mut dst = vec![0_u8; n + 100];
                    // SAFETY: both have the bytes.
                    let done =
                        unsafe { copy_last_byte_last(dst.as_mut_ptr().add(shift), src.as_ptr().add(5), n) };
                    assert_eq!(done, Ok(()));
                    assert_eq!(dst[shift..shift + n], src[5..5 + n], "{n} bytes at {shift}");
                    assert!(dst[..shift].iter().chain(&dst[shift + n..]).all(|&b| b == 0), "{n} at {shift}");
                    let mut plain = vec![0_u8; n + 100];
                    // SAFETY: as above.
                    unsafe { copy(plain.as_mut_ptr().add(shift), src.as_ptr().add(5), n) };
                    assert_eq!(plain, dst, "{n} bytes at {shift}");
                }
            }
        }
    }

    /// Goal: long copies arrive whole at every distance at which memmove may be slow, and around them. Method: each distance
    /// at one length, some distances at the lengths where another instruction takes over.
    #[test]
    fn long_copies_at_slow_distances_arrive_whole() {
        detect_features();
        let src: Vec<u8> = (0..(1_u32 << 20) + 8192).map(|i| (i * 31 + i / 251) as u8).collect();
        let mut dst = vec![0_u8; src.len() + 8192];
        let mut check = |n: usize, distance: usize| {
            let start = (src.as_ptr().addr() + distance).wrapping_sub(dst.as_ptr().addr()) % PAGE;
            dst[start..start + n].fill(0);
            // SAFETY: both have the bytes.
            let done = unsafe { copy_last_byte_last(dst.as_mut_ptr().add(start), src.as_ptr(), n) };
            assert_eq!(done, Ok(()));
            assert!(dst[start..start + n] == src[..n], "{n} bytes at {distance}");
        };
        (0..70).chain(4090..4096).for_each(|distance| check(10_000, distance));
        for n in [2048, 65_536, 65_543, (1 << 20) + 7, (1 << 20) + 8, (1 << 20) + 9, (1 << 20) + 4096] {
            [0, 1, 15, 16, 31, 63, 64].into_iter().for_each(|distance| check(n, distance));
        }
    }

    /// Goal: long ranges that overlap within a page of each other are copied as by memmove, beyond the longest loop too.
    #[test]
    fn long_overlapping_ranges_are_copied_as_by_memmove() {
        detect_features();
        let original: Vec<u8> = (0..(1_u32 << 20) + 16_384).map(|i| (i * 7 + i / 253) as u8).collect();
        for n in [5000, (1 << 20) + 8, (1 << 20) + 9] {
            for (from, to) in [(100, 116), (116, 100), (100, 4204), (4204, 100), (4100, 12)] {
                let (mut memory, mut expected) = (original.clone(), original.clone());
                expected.copy_within(from..from + n, to);
                let at = memory.as_mut_ptr();
                // SAFETY: both ranges are inside.
                unsafe { copy(at.add(to), at.add(from), n) };
                assert!(memory == expected, "{n} bytes from {from} to {to}");
            }
        }
    }

    /// Goal: overlapping ranges are copied as by memmove. Method: every size, forward and backward, by small
    /// and large distances.
    #[test]
    fn overlapping_ranges_are_copied_as_by_memmove() {
        detect_features();
        let original: Vec<u8> = (0..90_000_u32).map(|i| (i * 7 + i / 253) as u8).collect();
        for n in sizes() {
            for (from, to) in
                [(100, 101), (101, 100), (100, 108), (108, 100), (100, 164), (164, 100), (500, 100)]
            {
                let (mut memory, mut expected) = (original.clone(), original.clone());
                expected.copy_within(from..from + n, to);
                let at = memory.as_mut_ptr();
                // SAFETY: both ranges are inside.
                let done = unsafe { copy_last_byte_last(at.add(to), at.add(from), n) };
                assert_eq!(done, Ok(()));
                assert!(memory == expected, "{n} bytes from {from} to {to}");
            }
        }
    }

    /// Goal: whichever byte is inaccessible, on whichever side, the copy reports it and the thread continues.
    /// Method: a range ends at an inaccessible page or begins in one, for each size and each number of
    /// inaccessible bytes.
    #[test]
    fn copy_reports_each_inaccessible_byte() {
        crate::arm().expect("a handler");
        detect_features();
        let (near, far) = (Pages::new(80), Pages::new(80));
        near.protect(40..44, libc::PROT_NONE);
        let (hole, behind) = (near.ptr_at(40 * PAGE), near.ptr_at(44 * PAGE));
        for n in sizes().filter(|n| *n > 0) {
            let missing = (1..=n).filter(|m| *m <= 70 || n - m <= 70 || m % 97 == 0);
            for missing in missing {
                for at in [hole.wrapping_sub(n - missing), behind.wrapping_sub(missing)] {
                    if missing > 4 * PAGE {
                        continue;
                    }
                    // SAFETY: memory of this test alone.
                    unsafe {
                        assert_eq!(
                            copy_last_byte_last(far.ptr_at(1), at, n),
                            Err(Fault::Source),
                            "{missing} of {n}"
                        );
                        assert_eq!(
                            copy_last_byte_last(at, far.ptr_at(1), n),
                            Err(Fault::Target),
                            "{missing} of {n}"
                        );
                    }
                }
            }
            // SAFETY: as above; all bytes are accessible here.
            unsafe {
                assert_eq!(copy_last_byte_last(far.ptr_at(1), hole.wrapping_sub(n), n), Ok(()));
                assert_eq!(copy_last_byte_last(behind, far.ptr_at(1), n), Ok(()));
            }
        }
    }

    /// Goal: memory that becomes inaccessible in the middle of a long copy is an error, too. Method: a thread
    /// protects the second half meanwhile.
    #[test]
    fn copy_reports_memory_that_becomes_inaccessible() {
        crate::arm().expect("a handler");
        let len = 4096 * PAGE;
        let is_cut = (0..1000).any(|_| {
            let (near, far) = (Pages::new(4096), Pages::new(4096));
            let result = std::thread::scope(|threads| {
                threads.spawn(|| near.protect(2048..4096, libc::PROT_NONE));
                // SAFETY: memory of this test alone.
                unsafe { copy_last_byte_last(far.ptr_at(0), near.ptr_at(0), len) }
            });
            assert!(matches!(result, Ok(()) | Err(Fault::Source)));
            result.is_err()
        });
        assert!(is_cut, "the memory never became inaccessible in time");
    }

    #[test]
    fn copy_reports_a_truncated_file() {
        crate::arm().expect("a handler");
        let (file, bytes) = (Pages::map_new_file(2), [7; 2 * PAGE]);
        file.truncate(PAGE);
        // SAFETY: memory of this test alone.
        unsafe {
            assert_eq!(copy_last_byte_last(file.ptr_at(0), bytes.as_ptr(), PAGE), Ok(()));
            for n in [1, 2, 3, 4, 8, 9, 100, PAGE] {
                assert_eq!(copy_last_byte_last(file.ptr_at(PAGE), bytes.as_ptr(), n), Err(Fault::Target));
            }
            file.truncate(0);
            let mut back = [0; 8];
            assert_eq!(copy_last_byte_last(back.as_mut_ptr(), file.ptr_at(0), 8), Err(Fault::Source));
        }
    }
}
