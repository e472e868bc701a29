//! The functions of the standard ABI, and calls of the program's functions.
#![allow(non_snake_case, dead_code, clippy::too_many_arguments)] // names and arguments of the standard; the table is complete

use std::sync::OnceLock;

use crate::library::Library;

/// Declares the table of functions, and a function that calls each.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $returns:ty;)*) => {
        pub(crate) struct Functions {
            $(pub(crate) $name: extern "C-unwind" fn($($kind),*) -> $returns,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let name = c_name(concat!("P", stringify!($name), "\0"));
                        let address = library.symbol(name)?;
                        // SAFETY: a function of the standard ABI with this prototype, whose addresses and handles are words here. It checks
                        // handles, and the program vouches for addresses, as it does in C. Test: `programs_run`.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, extern "C-unwind" fn($($kind),*) -> $returns>(address)
                        }
                    },)*
                })
            }
        }

        $(#[inline(always)]
        pub(crate) fn $name($($argument: $kind),*) -> $returns {
            (functions().$name)($($argument),*)
        })*
    };
}

/// A name with its zero byte.
fn c_name(name: &'static str) -> &'static std::ffi::CStr {
    std::ffi::CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default()
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// The functions, if the library is loaded: for entry points that do nothing else before.
#[inline(always)]
pub(crate) fn loaded() -> Option<&'static Functions> {
    FUNCTIONS.get()
}

/// The functions; the first call loads the library.
#[inline(always)]
fn functions() -> &'static Functions {
    match FUNCTIONS.get() {
        Some(functions) => functions,
        None => load(),
    }
}

#[cold]
#[inline(never)]
fn load() -> &'static Functions {
    FUNCTIONS.get_or_init(|| {
        Library::load().and_then(|library| Functions::find(&library)).unwrap_or_else(|why| {
            // The program has called MPI, so that there is nothing to return to.
            host::real::remark(format_args!(
                "libmpi.so.12 needs libmpi_abi.so.1: {why}; install both, or build abi-mpi"
            ));
            std::process::abort()
        })
    })
}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// The most arguments of a function that a program passes.
const ARGUMENTS_MAX: usize = 6;

/// Calls a function of the program, whose arguments are integers and addresses.
pub(crate) fn call<const COUNT: usize>(function: usize, arguments: [usize; COUNT]) -> i32 {
    const { assert!(COUNT <= ARGUMENTS_MAX) };
    type Function = extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> i32;
    let mut words = [0; ARGUMENTS_MAX];
    words[..COUNT].copy_from_slice(&arguments);
    // SAFETY: the program has passed the function for this use, which takes `COUNT` words, all in registers. One that returns nothing
    // leaves a number, which its caller ignores. Test: `programs_run` of callbacks.c.
    let function = unsafe { std::mem::transmute::<usize, Function>(function) };
    let [a, b, c, d, e, f] = words;
    function(a, b, c, d, e, f)
}

/// Calls an error handler of the program, which has a variable number of arguments.
pub(crate) fn call_handler(function: usize, handle: usize, code: &mut i32) {
    type Handler = unsafe extern "C-unwind" fn(usize, *mut i32, ...);
    // SAFETY: the program has passed the function for this use; it accesses the handle and the code through their addresses while it
    // runs. Test: `programs_run` of callbacks.c.
    unsafe {
        let function = std::mem::transmute::<usize, Handler>(function);
        function(handle, code);
    }
}
