//! The exported functions: each line of functions.txt becomes a strong `PMPI_` name, and a weak `MPI_` name for the same code.
//!
//! Programs call `MPI_`; a tracer that is loaded before defines some of these names, and goes on to `PMPI_`. Nothing in here
//! calls either. What the lines look like is in build.rs.

use std::arch::global_asm;

use ffi::{In, Out, Text};

use crate::answer::{Whose, no_place};
use crate::calls;
use crate::constants as c;
use crate::firewall::{answer, value};
use crate::types::{
    Address, Comm, Datatype, Errhandler, File, Group, Info, Message, Op, Request, Session, Status, Win,
};

/// A function, and the weak name beside it.
macro_rules! export {
    ($strong:ident $weak:literal ($($name:ident: $kind:ty),*) -> $returns:ty, $($how:tt)*) => {
        // SAFETY: the standard's names and signatures, which no other library of a program has, unless it is there instead of
        // this one. Test: `every_function_is_exported_under_both_names`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_variables)]
        extern "C-unwind" fn $strong($($name: $kind),*) -> $returns {
            body!($($how)*)
        }
        // In the same module, so that rustc has both in one object file, where a symbol can be set to another.
        global_asm!(concat!(".weak ", $weak), concat!(".set ", $weak, ", {0}"), sym $strong);
    };
}

/// What a function does: answers with a value, or carries out a call.
macro_rules! body {
    (value $call:expr) => {
        value(|| $call)
    };
    (call $at:literal ($whose:expr) [$($result:ident),*] $call:expr) => {
        answer($at, $whose, || {
            $(if !$result.is_some() { return no_place(stringify!($result)) })*
            $call
        })
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
