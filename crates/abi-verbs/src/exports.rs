//! The exported functions: each line of functions.txt becomes a symbol under its version node. build.rs describes the format of the
//! lines.

use std::arch::global_asm;
use std::ffi::{c_char, c_int, c_void};

use ffi::{In, Out, SockAddr, Text};
use rdma_abi::cma::*;
use rdma_abi::verbs::*;

use crate::answer;
use crate::calls;
use crate::cm::event::CmEvent;
use crate::cm::sync;
use crate::discovery::device::Device;
use crate::errno::Errno;
use crate::objects::{Channel, CmId, Context, Cq, EventChannel, Pd, Qp, Srq};
use crate::resources::ah::Ah;
use crate::resources::mr::Mr;
use crate::slab::Handle;

/// An address that the call itself validates.
type Address = *mut c_void;

/// Defines an implemented function and its versioned symbol. Both are in one module, so that rustc emits them into one object file, as
/// an assembler alias requires.
macro_rules! export {
    ($symbol:literal $name:ident ($($argument:ident: $kind:ty),*) $($how:tt)+) => {
        define! { $name ($($argument: $kind),*) [calls::$name($($argument),*)] $($how)+ }
        symbol! { $symbol $name }
    };
}

/// Defines an unsupported function and the error that it returns.
macro_rules! missing {
    ($why:ident $symbol:literal $name:ident () value $kind:ty) => {
        define! { $name () [<$kind>::default()] value $kind }
        symbol! { $symbol $name }
    };
    ($why:ident $symbol:literal $name:ident () $($how:tt)+) => {
        define! { $name () [Err(Errno::$why)] $($how)+ }
        symbol! { $symbol $name }
    };
}

macro_rules! define {
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] errno) => {
        extern "C" fn $name($($argument: $kind),*) -> c_int { answer::errno(|| $call) }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] minus) => {
        extern "C" fn $name($($argument: $kind),*) -> c_int { answer::minus(|| $call) }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] waits) => {
        extern "C" fn $name($($argument: $kind),*) -> c_int { answer::waits(|| $call) }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] completes) => {
        extern "C" fn $name($($argument: $kind),*) -> c_int { answer::completes(|| $call, sync::poll_event) }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] long) => {
        extern "C" fn $name($($argument: $kind),*) -> isize { answer::minus(|| $call) as isize }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] void) => {
        extern "C" fn $name($($argument: $kind),*) { answer::void(|| $call) }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] pointer $returns:ty) => {
        extern "C" fn $name($($argument: $kind),*) -> $returns { answer::pointer(|| $call) }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] value $returns:ty) => {
        extern "C" fn $name($($argument: $kind),*) -> $returns { answer::value(|| $call) }
    };
}

macro_rules! symbol {
    ($symbol:literal $name:ident) => {
        global_asm!(concat!(".globl \"", $symbol, "\""), concat!(".set \"", $symbol, "\", {0}"), sym $name);
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
