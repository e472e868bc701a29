//! Data path: atomics on eight bytes that may be inaccessible.

use crate::arch;

/// The memory could not be accessed as needed; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inaccessible;

/// Adds to eight aligned bytes and returns their previous value.
///
/// # Safety
/// As [`copy_last_byte_last`](crate::copy_last_byte_last), for eight bytes at `at`.
///
/// # Errors
/// [`Inaccessible`].
#[inline]
pub unsafe fn fetch_add(at: *mut u64, add: u64) -> Result<u64, Inaccessible> {
    let mut old = 0;
    // SAFETY: the caller's contract. Test: atomics_report_inaccessible_memory.
    let is_done = unsafe { arch::fetch_add(at, add, &raw mut old) };
    if is_done { Ok(old) } else { Err(Inaccessible) }
}

/// Sets eight aligned bytes to `new` if they equal `expected`; returns their previous value.
///
/// # Safety
/// As [`fetch_add`].
///
/// # Errors
/// [`Inaccessible`].
#[inline]
pub unsafe fn compare_swap(at: *mut u64, expected: u64, new: u64) -> Result<u64, Inaccessible> {
    let mut old = 0;
    // SAFETY: as above.
    let is_done = unsafe { arch::compare_swap(at, expected, new, &raw mut old) };
    if is_done { Ok(old) } else { Err(Inaccessible) }
}

/// Changes eight aligned bytes by a function, which may be called more than once; returns their previous
/// value.
///
/// # Safety
/// As [`fetch_add`].
///
/// # Errors
/// [`Inaccessible`].
#[inline]
pub unsafe fn update(at: *mut u64, change: impl Fn(u64) -> u64) -> Result<u64, Inaccessible> {
    // SAFETY: as above. The first exchange, of two equal values, only reads.
    let mut old = unsafe { compare_swap(at, 0, 0) }?;
    loop {
        // SAFETY: as above.
        match unsafe { compare_swap(at, old, change(old)) }? {
            found if found == old => return Ok(old),
            found => old = found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Pages;

    #[test]
    fn atomics_report_inaccessible_memory() {
        crate::arm().expect("a handler");
        let pages = Pages::new(2);
        let word = pages.ptr_at(8).cast::<u64>();
        // SAFETY: memory of this test alone, aligned.
        unsafe {
            assert_eq!(fetch_add(word, 5), Ok(0));
            assert_eq!(compare_swap(word, 5, 9), Ok(5));
            assert_eq!(compare_swap(word, 5, 1), Ok(9));
            assert_eq!(update(word, |old| old * 2), Ok(9));
            assert_eq!(*word, 18);
            pages.protect(0..2, libc::PROT_READ);
            assert_eq!(
                (fetch_add(word, 1), compare_swap(word, 18, 2)),
                (Err(Inaccessible), Err(Inaccessible))
            );
            assert_eq!((update(word, |old| old), *word), (Err(Inaccessible), 18));
            pages.protect(0..2, libc::PROT_NONE);
            assert_eq!((fetch_add(word, 1), update(word, |_| 3)), (Err(Inaccessible), Err(Inaccessible)));
        }
    }
}
