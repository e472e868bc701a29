//! The exported functions: each line of functions.txt becomes a symbol under its version node. build.rs describes the format of the
//! lines.

use std::arch::global_asm;
use std::ffi::{c_char, c_int, c_void};

use ffi::{In, Out, SockAddr, Text, log};
use libc::{iovec, msghdr, pollfd};
use rdma_abi::cma::*;
use rdma_abi::verbs::*;

use crate::answer;
use crate::calls;
use crate::cm::event::CmEvent;
use crate::cm::sync;
use crate::discovery::device::Device;
use crate::errno::{Errno, NOT_SUPPORTED};
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
        define! { $name () [Err(Errno::$why.because(format_args!("{NOT_SUPPORTED}")))] $($how)+ }
        symbol! { $symbol $name }
    };
}

macro_rules! define {
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] errno) => {
        define! { $name ($($argument: $kind),*) -> c_int [answer::errno(stringify!($name), || $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] minus) => {
        define! { $name ($($argument: $kind),*) -> c_int [answer::minus(stringify!($name), || $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] waits) => {
        define! { $name ($($argument: $kind),*) -> c_int [answer::waits(stringify!($name), || $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] completes) => {
        define! { $name ($($argument: $kind),*) -> c_int
            [answer::completes(stringify!($name), || $call, sync::poll_event)]
        }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] long) => {
        define! { $name ($($argument: $kind),*) -> isize [answer::minus(stringify!($name), || $call) as isize] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] steps) => {
        define! { $name ($($argument: $kind),*) -> isize [answer::steps(stringify!($name), $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] numbers) => {
        define! { $name ($($argument: $kind),*) -> isize [answer::number(stringify!($name), || $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] void) => {
        define! { $name ($($argument: $kind),*) -> () [answer::void(stringify!($name), || $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] pointer $returns:ty) => {
        define! { $name ($($argument: $kind),*) -> $returns [answer::pointer(stringify!($name), || $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) [$call:expr] value $returns:ty) => {
        define! { $name ($($argument: $kind),*) -> $returns [answer::value(|| $call)] }
    };
    ($name:ident ($($argument:ident: $kind:ty),*) -> $returns:ty [$result:expr]) => {
        extern "C" fn $name($($argument: $kind),*) -> $returns {
            let result = $result;
            if log::reports_calls() {
                log::call(stringify!($name), &[$(&$argument),*], &result);
            }
            result
        }
    };
}

macro_rules! symbol {
    ($symbol:literal $name:ident) => {
        global_asm!(concat!(".globl \"", $symbol, "\""), concat!(".set \"", $symbol, "\", {0}"), sym $name);
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
