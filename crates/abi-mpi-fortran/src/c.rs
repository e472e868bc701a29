//! The functions of C that this library calls, and calls of a program's Fortran functions.
#![allow(non_snake_case, dead_code)] // names of the standard; the table is complete

include!(concat!(env!("OUT_DIR"), "/c.rs"));

/// The most arguments of a Fortran function that a program passes.
const ARGUMENTS_MAX: usize = 7;

/// Calls a subroutine of the program, all of whose arguments are addresses.
pub(crate) fn call_fortran<const COUNT: usize>(subroutine: usize, arguments: [usize; COUNT]) {
    const { assert!(COUNT <= ARGUMENTS_MAX) };
    type Subroutine = extern "C-unwind" fn(usize, usize, usize, usize, usize, usize, usize);
    let mut words = [0; ARGUMENTS_MAX];
    words[..COUNT].copy_from_slice(&arguments);
    // SAFETY: the program has passed the subroutine for this use, in which it takes `COUNT` addresses. A caller removes arguments from the
    // stack, so that the further zeros are ignored. Tests: `callbacks_run_in_both_modules`.
    let subroutine = unsafe { std::mem::transmute::<usize, Subroutine>(subroutine) };
    let [a, b, c, d, e, f, g] = words;
    subroutine(a, b, c, d, e, f, g);
}
