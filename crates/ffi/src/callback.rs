//! Calls of a program's functions, which may throw C++ exceptions.
//!
//! A C++ exception must not unwind through our code: `catch_unwind` aborts on it, and callers would be left in the middle of a change.
//! [`call`] stops an exception at the border, keeps it in thread-local storage, and reports a failed call, which returns up the stack as
//! any error does. The exported function calls [`rethrow`] last, when it holds no locks or objects any more, and the exception continues
//! from there.
//!
//! The unwinder's own means stop an exception (Itanium C++ ABI, level I): the frame that calls the program has a personality routine that
//! handles everything. Forced unwinding, as of `pthread_exit`, passes through.

use std::cell::Cell;

/// A function of the program threw an exception, which this thread keeps until [`rethrow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thrown;

/// An exception that no function up the stack catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncaught;

/// An exception as the unwinder represents it.
type Exception = std::ffi::c_void;

thread_local! {
    /// The exception that this thread keeps, or null.
    static OWN: Cell<*mut Exception> = const { Cell::new(std::ptr::null_mut()) };
}

/// The most arguments of a called function: as many as fit into registers.
const ARGUMENTS_MAX: usize = 6;

/// Calls a function with integers and addresses as its arguments, and returns the word that it returns.
///
/// While it runs, the thread keeps no exception, so that nested calls do not throw an earlier one. If several exceptions occur before a
/// [`rethrow`], the first is kept and the others are lost.
///
/// # Safety
/// The address must be that of a function which takes these arguments, each an integer or an address, and returns such a word or nothing;
/// and the arguments must point to what that function expects.
///
/// # Errors
/// [`Thrown`] if it threw.
pub unsafe fn call<const COUNT: usize>(function: usize, arguments: [usize; COUNT]) -> Result<usize, Thrown> {
    const { assert!(COUNT <= ARGUMENTS_MAX) };
    let mut words = [0; ARGUMENTS_MAX];
    words[..COUNT].copy_from_slice(&arguments);
    let mut thrown = std::ptr::null_mut();
    let earlier = take_exception();
    // SAFETY: the caller's promise; the function ignores registers beyond its arguments. Test: `exceptions_are_kept_until_rethrown`.
    let returned = unsafe { border::call(function, &words, &mut thrown) };
    let is_thrown = !thrown.is_null();
    OWN.set(if earlier.is_null() { thrown } else { earlier });
    if is_thrown { Err(Thrown) } else { Ok(returned) }
}

/// Throws the kept exception, and does not return if a caller catches it. Must not be called below a `catch_unwind`.
///
/// # Errors
/// [`Uncaught`] if nothing catches it.
#[cold]
pub fn rethrow() -> Result<(), Uncaught> {
    let exception = take_exception();
    if exception.is_null() {
        return Ok(());
    }
    // SAFETY: `call` stopped it, and this thread gives it up. Test: `exceptions_are_kept_until_rethrown`.
    unsafe { border::throw(exception) };
    Err(Uncaught)
}

/// Removes the kept exception; null if there is none.
fn take_exception() -> *mut Exception {
    OWN.replace(std::ptr::null_mut())
}

/// The stack frame that stops exceptions.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod border {
    use super::Exception;
    use std::arch::global_asm;
    use std::ffi::c_void;

    // Loads six registers, calls, and returns what the function returned. The unwinder lands at `landing` with the exception in the
    // register of the result and the callee-saved registers as they were at the call.
    #[cfg(target_arch = "x86_64")]
    global_asm!(
        ".pushsection .text.nicety_call_program, \"ax\", @progbits",
        ".globl nicety_call_program",
        ".hidden nicety_call_program",
        ".type nicety_call_program, @function",
        "nicety_call_program:",
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}",
        ".cfi_lsda 0x1b, .Lnicety_landing",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "mov rbx, rdx",
        "mov r11, rdi",
        "mov r10, rsi",
        "mov rdi, [r10]",
        "mov rsi, [r10 + 8]",
        "mov rdx, [r10 + 16]",
        "mov rcx, [r10 + 24]",
        "mov r8, [r10 + 32]",
        "mov r9, [r10 + 40]",
        // Variadic functions: no floating-point arguments.
        "xor eax, eax",
        "call r11",
        "jmp .Lnicety_returned",
        ".Lnicety_landing:",
        "mov [rbx], rax",
        ".Lnicety_returned:",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        ".size nicety_call_program, . - nicety_call_program",
        ".popsection",
        personality = sym personality,
    );
    // The same. Variadic functions take their arguments in these registers, too.
    #[cfg(target_arch = "aarch64")]
    global_asm!(
        ".pushsection .text.nicety_call_program, \"ax\", @progbits",
        ".globl nicety_call_program",
        ".hidden nicety_call_program",
        ".type nicety_call_program, @function",
        ".p2align 2",
        "nicety_call_program:",
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}",
        ".cfi_lsda 0x1b, .Lnicety_landing",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "str x19, [sp, #16]",
        ".cfi_offset x19, -16",
        "mov x29, sp",
        "mov x19, x2",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [x17]",
        "ldp x2, x3, [x17, #16]",
        "ldp x4, x5, [x17, #32]",
        "blr x16",
        "b .Lnicety_returned",
        ".Lnicety_landing:",
        "str x0, [x19]",
        ".Lnicety_returned:",
        "ldr x19, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x19",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".cfi_endproc",
        ".size nicety_call_program, . - nicety_call_program",
        ".popsection",
        personality = sym personality,
    );

    // SAFETY: the function above, and functions of the unwinder that the standard library links; `_Unwind_RaiseException` returns only if
    // no frame catches. Test: `exceptions_are_kept_until_rethrown`.
    unsafe extern "C-unwind" {
        fn nicety_call_program(function: usize, words: *const usize, thrown: *mut *mut Exception) -> usize;
        fn _Unwind_RaiseException(exception: *mut Exception) -> i32;
        fn _Unwind_SetGR(context: *mut c_void, register: i32, value: usize);
        fn _Unwind_SetIP(context: *mut c_void, value: usize);
        fn _Unwind_GetLanguageSpecificData(context: *mut c_void) -> usize;
    }

    /// Actions and results of personality routines.
    const SEARCH: i32 = 1;
    const HANDLER_FRAME: i32 = 4;
    const FORCED: i32 = 8;
    const HANDLER_FOUND: i32 = 6;
    const INSTALL_CONTEXT: i32 = 7;
    const CONTINUE_UNWIND: i32 = 8;
    /// The number of the result's register in unwind tables: rax, or x0.
    const RESULT: i32 = 0;

    /// Catches everything but forced unwinding, and resumes at the address in the frame's language-specific data.
    unsafe extern "C" fn personality(
        _version: i32,
        actions: i32,
        _class: u64,
        exception: *mut Exception,
        context: *mut c_void,
    ) -> i32 {
        if actions & FORCED != 0 {
            return CONTINUE_UNWIND;
        }
        if actions & SEARCH != 0 {
            return HANDLER_FOUND;
        }
        if actions & HANDLER_FRAME == 0 {
            return CONTINUE_UNWIND;
        }
        // SAFETY: the unwinder's context of the frame above, whose data is the address of its landing pad. Test: as above.
        unsafe {
            _Unwind_SetGR(context, RESULT, exception.expose_provenance());
            _Unwind_SetIP(context, _Unwind_GetLanguageSpecificData(context));
        }
        INSTALL_CONTEXT
    }

    /// Calls a function with the words as its arguments; if it throws, `thrown` is set, and the result is meaningless.
    ///
    /// # Safety
    /// As for [`super::call`].
    pub(super) unsafe fn call(function: usize, words: &[usize; 6], thrown: &mut *mut Exception) -> usize {
        // SAFETY: the caller's promise. Test: as above.
        unsafe { nicety_call_program(function, words.as_ptr(), thrown) }
    }

    /// Throws an exception again that [`call`] has stopped; returns if no frame catches it.
    ///
    /// # Safety
    /// No other thread may use the exception.
    pub(super) unsafe fn throw(exception: *mut Exception) {
        // SAFETY: the caller's promise. Test: as above.
        unsafe { _Unwind_RaiseException(exception) };
    }
}

/// On other targets, functions are called directly: an exception ends the process.
#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
mod border {
    use super::Exception;

    /// Calls a function with the words as its arguments.
    ///
    /// # Safety
    /// As for [`super::call`].
    pub(super) unsafe fn call(function: usize, words: &[usize; 6], _thrown: &mut *mut Exception) -> usize {
        type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;
        let [a, b, c, d, e, f] = *words;
        // SAFETY: the caller's promise. Test: `call_passes_arguments_and_result`.
        unsafe { std::mem::transmute::<usize, Function>(function)(a, b, c, d, e, f) }
    }

    /// Does nothing, as [`call`] stops no exception here.
    ///
    /// # Safety
    /// None.
    pub(super) unsafe fn throw(_exception: *mut Exception) {}
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

    extern "C-unwind" fn number(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
        a + 10 * (b + 10 * (c + 10 * (d + 10 * (e + 10 * f))))
    }

    /// A panic is an exception, too.
    extern "C-unwind" fn throw(what: usize) {
        panic_any(what);
    }

    fn thrown(what: usize) -> Result<usize, Thrown> {
        // SAFETY: a function of one word.
        unsafe { call(throw as extern "C-unwind" fn(usize) as usize, [what]) }
    }

    fn rethrown() -> Option<usize> {
        let caught = catch_unwind(AssertUnwindSafe(rethrow)).err()?;
        Some(*caught.downcast::<usize>().expect("a number"))
    }

    type Six = extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

    #[test]
    fn call_passes_arguments_and_result() {
        // SAFETY: a function of six words.
        let returned = unsafe { call(number as Six as usize, [1, 2, 3, 4, 5, 6]) };
        assert_eq!(returned, Ok(654_321));
    }

    #[test]
    fn exceptions_are_kept_until_rethrown() {
        for what in 0..100 {
            assert_eq!(thrown(what), Err(Thrown));
            assert_eq!(rethrown(), Some(what));
            assert_eq!((rethrow(), rethrown()), (Ok(()), None));
        }
    }

    #[test]
    fn of_several_exceptions_the_first_is_kept() {
        assert_eq!((thrown(1), thrown(2)), (Err(Thrown), Err(Thrown)));
        assert_eq!((rethrown(), rethrown()), (Some(1), None));
    }

    /// Goal: a function that is called while an exception is kept does not throw that one in nested calls, and the exception is still
    /// kept afterwards. Method: it makes calls that throw and rethrow.
    #[test]
    fn kept_exception_is_invisible_to_nested_calls() {
        extern "C-unwind" fn nested() -> usize {
            assert_eq!((rethrown(), thrown(8)), (None, Err(Thrown)));
            rethrown().expect("its own")
        }
        assert_eq!(thrown(7), Err(Thrown));
        // SAFETY: a function without arguments.
        assert_eq!(unsafe { call(nested as extern "C-unwind" fn() -> usize as usize, []) }, Ok(8));
        assert_eq!(rethrown(), Some(7));
    }

    #[test]
    fn each_thread_keeps_its_own() {
        assert_eq!(thrown(3), Err(Thrown));
        let other = std::thread::spawn(|| (rethrown(), thrown(4), rethrown()));
        assert_eq!(other.join().expect("no panic"), (None, Err(Thrown), Some(4)));
        assert_eq!(rethrown(), Some(3));
    }
}
