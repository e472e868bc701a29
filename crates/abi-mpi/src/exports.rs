//! The exported functions: each line of functions.txt becomes a strong `PMPI_` name, and a weak `MPI_` name for the same code.
//!
//! Programs call `MPI_` names. A preloaded tracer defines some of them, and calls the `PMPI_` names; this library itself calls
//! neither. build.rs describes the format of the lines.

use std::arch::global_asm;

use ffi::{In, Out, Text};

use crate::answer::{ErrhandlerOwner, null_result};
use crate::calls;
use crate::constants as c;
use crate::firewall::{run_call, run_infallible};
use crate::types::{
    Address, Comm, Datatype, Errhandler, File, Group, Info, Message, Op, Request, Session, Status, Win,
};

/// Exports a function under its strong name and its weak alias.
macro_rules! export {
    ($strong:ident $weak:literal ($($name:ident: $kind:ty),*) -> $returns:ty, $($how:tt)*) => {
        // SAFETY: these are the standard's names and signatures; no other library of a program defines them, unless it replaces
        // this one. Test: `every_function_is_exported_under_both_names`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_variables)]
        extern "C-unwind" fn $strong($($name: $kind),*) -> $returns {
            body!($($how)*)
        }
        // In the same module, so that rustc puts both into one object file, where a symbol can alias another.
        global_asm!(concat!(".weak ", $weak), concat!(".set ", $weak, ", {0}"), sym $strong);
    };
}

/// The body of an exported function: returns a value, or runs a call.
macro_rules! body {
    (value $call:expr) => {
        run_infallible(|| $call)
    };
    (call $at:literal ($owner:expr) [$($result:ident),*] $call:expr) => {
        run_call($at, $owner, || {
            $(if !$result.is_some() { return null_result(stringify!($result)) })*
            $call
        })
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
