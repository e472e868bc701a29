//! Access to memory that a program may unmap, cut short or protect at any time: a fault is an error, not a signal.
//!
//! A card holds the pages that were registered with it. A NIC in software copies to and from a program's memory as it is at that
//! moment, and the program may have freed it: by mistake, or in the right order, when flushed writes of a peer arrive late.
//! Then a request fails, and no process ends.
//!
//! | module | contents |
//! |---|---|
//! | `copy`, `word` | copies and atomics that return an error where memory cannot be accessed |
//! | `table` | the exception table: their instructions, and where execution continues after a fault |
//! | `handler` | the signal handler, which uses the table and passes all other faults on |
//! | `mapping` | whether a range may be accessed, asked when it is registered |
//!
//! The design is that of Linux's copy_from_user: a fault costs a signal, and everything else costs nothing. Instead: the
//! kernel's process_vm_readv(2) to this process itself. Why not: a system call for each message.

mod copy;
mod handler;
mod mapping;
mod table;
#[cfg(test)]
mod testing;
mod word;

pub use copy::{Fault, copy_last_byte_last, prepare};
pub use handler::{Unblocked, arm, is_armed, unblock};
pub use mapping::{BadRange, check, is_readable};
pub use word::{Gone, compare_swap, fetch_add, update};
