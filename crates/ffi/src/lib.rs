//! What every C face of ours needs, and nothing of what lies behind one.
//!
//! A C face is a library of `extern "C"` functions whose callers are programs that we did not build. Some things are the same in
//! all of them, and are unsafe code that wants to be written once:
//!
//! | file | what it holds |
//! |---|---|
//! | `firewall` | [`contain`]: no panic leaves a call |
//! | `callback` | [`call`], [`rethrow`]: calls of the program's functions; their exceptions pass our code as errors |
//! | `pointer` | [`In`], [`Out`], [`Bytes`], [`Text`]: arguments that are addresses, looked at once and copied |
//! | `address` | [`SockAddr`]: a socket address as C passes and lays it out |
//! | `loan` | [`Loan`]: bytes of ours that a program may look at |
//! | `handles` | [`Table`]: handles that are checked at each use, and stale once their object is gone |
//! | `spare` | [`Spare`]: an allocator with memory set aside, so that a shortage is an error of a call |
//! | `sync` | [`lock`]: a lock that a panic does not poison |
//!
//! What answers a call has its own errors: functions here take the error to return, or say in a type what was wrong.
//!
//! Proof: the tests of this crate also run under Miri (`cargo +nightly miri test -p ffi`), and the table's life of an object
//! is modelled with loom, on the table itself.

mod address;
mod callback;
mod firewall;
mod handles;
mod loan;
mod pointer;
mod spare;
mod sync;

pub use address::{BadAddress, SockAddr};
pub use callback::{Thrown, Uncaught, call, rethrow};
pub use firewall::{Panicked, contain};
pub use handles::{Handle, Look, Refused, Table};
pub use loan::Loan;
pub use pointer::{BadBytes, Bytes, In, Items, Out, Text};
pub use spare::Spare;
pub use sync::lock;
