//! Access to memory that a program may unmap, truncate or protect at any time: a fault is an error, not a
//! signal.
//!
//! A hardware NIC pins the pages that were registered. A software NIC copies to and from a program's memory
//! as it is at that moment, and the program may have freed it: by mistake, or correctly, when flushed writes
//! of a peer arrive late. Then a request fails, and no process ends.
//!
//! | module | contents |
//! |---|---|
//! | `copy`, `atomics` | copies and atomics that return an error where memory cannot be accessed; plain copies of payloads |
//! | `nontemporal` | copies past the caches, to memory that is mapped |
//! | `arch` | the instructions of both, which may fault, for x86-64 and aarch64 |
//! | `extable` | the exception table: which instructions may fault, and where execution continues |
//! | `registers` | the registers of interrupted code that the table reads and changes |
//! | `fault` | the side of a copy that could not be accessed |
//! | `handler` | the signal handler, which uses the table and passes all other faults on |
//! | `mapping` | checks whether a range may be accessed, for registration |
//!
//! The design is that of Linux's copy_from_user: a fault costs a signal, and an access without a fault costs
//! nothing extra. The alternative, process_vm_readv(2) on this process itself, would cost a system call for
//! each message.

mod arch;
mod atomics;
mod copy;
mod extable;
mod fault;
mod handler;
mod mapping;
mod nontemporal;
mod registers;
#[cfg(test)]
mod testing;

pub use atomics::{Inaccessible, compare_swap, fetch_add, update};
pub use copy::{copy, copy_last_byte_last, detect_features};
pub use fault::Fault;
pub use handler::{Unblocked, arm, is_armed, unblock};
pub use mapping::{BadRange, check, is_readable};
pub use nontemporal::copy_nontemporal;
