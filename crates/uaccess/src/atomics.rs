//! Data path: atomics on eight bytes that may be inaccessible.

use std::arch::naked_asm;

use crate::extable::asm_extable;

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
    let is_done = unsafe { fetch_add_guarded(at, add, &raw mut old) };
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
    let is_done = unsafe { compare_swap_guarded(at, expected, new, &raw mut old) };
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

#[unsafe(naked)]
unsafe extern "sysv64" fn fetch_add_guarded(at: *mut u64, add: u64, old: *mut u64) -> bool {
    naked_asm!(
        "2: lock xadd qword ptr [rdi], rsi",
        "3: mov qword ptr [rdx], rsi",
        "mov eax, 1",
        "ret",
        "4: xor eax, eax",
        "ret",
        asm_extable!("2b", "3b", "4b", "0"),
    )
}

#[unsafe(naked)]
unsafe extern "sysv64" fn compare_swap_guarded(at: *mut u64, expected: u64, new: u64, old: *mut u64) -> bool {
    naked_asm!(
        "mov rax, rsi",
        "2: lock cmpxchg qword ptr [rdi], rdx",
        "3: mov qword ptr [rcx], rax",
        "mov eax, 1",
        "ret",
        "4: xor eax, eax",
        "ret",
        asm_extable!("2b", "3b", "4b", "0"),
    )
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
