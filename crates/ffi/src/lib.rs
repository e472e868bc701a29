//! Building blocks that all C ABI libraries of this workspace share.
//!
//! A C ABI library exports `extern "C"` functions to programs that we did not build. This crate holds the unsafe code that all of these
//! libraries need, once:
//!
//! | file | what it holds |
//! |---|---|
//! | `firewall` | [`catch_panic`]: no panic leaves a call |
//! | `callback` | [`call`], [`rethrow`]: calls of the program's functions; their exceptions pass our code as errors |
//! | `pointer` | [`In`], [`Out`], [`Bytes`], [`Text`]: arguments that are addresses; each value is read once and copied |
//! | `address` | [`SockAddr`]: a socket address in C's layout |
//! | `c_buffer` | [`CBuffer`]: a buffer of ours that a program may read |
//! | `handles` | [`Table`]: handles that are checked at each use, and stale after their object was removed |
//! | `log` | why calls fail: the reasons behind error numbers, written to standard error or to a file |
//! | `reserve_alloc` | [`ReserveAlloc`]: an allocator with a reserve, so that a memory shortage is an error of a call |
//! | `sync` | [`lock`]: a lock that a panic does not poison |
//!
//! Each library has its own error codes: functions here take the error to return, or return a type that names the problem.
//!
//! Verification: the tests of this crate also run under Miri (`cargo +nightly miri test -p ffi`), and loom checks the lifetime of an
//! object on the table itself.

mod address;
mod c_buffer;
mod callback;
mod firewall;
mod handles;
#[cfg(not(loom))]
pub mod log;
mod pointer;
mod reserve_alloc;
mod sync;

pub use address::{BadAddress, SockAddr};
pub use c_buffer::CBuffer;
pub use callback::{Thrown, Uncaught, call, rethrow};
pub use firewall::{Panicked, catch_panic};
pub use handles::{Handle, InsertError, ObjectRef, Table};
pub use pointer::{BadBytes, Bytes, In, Items, Out, Text};
pub use reserve_alloc::ReserveAlloc;
pub use sync::lock;
