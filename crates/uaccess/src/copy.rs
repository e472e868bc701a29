//! Data path: copies that report a fault as an error, at the cost of memmove(3).

use crate::arch;
use crate::fault::Fault;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PAGE, Pages};

    /// Sizes around every branch of the copy.
    fn sizes() -> impl Iterator<Item = usize> {
        let long = [511, 512, 513, 1000, 4095, 4096, 4097, 4103, 4104, 4105, 4112, 5000, 70_000];
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
                }
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
