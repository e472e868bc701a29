//! Parts that several software NICs share. Code for a single NIC is in that NIC's crate, except lock-free
//! parts.
//!
//! | module | contents |
//! |---|---|
//! | `control` | the control socket of a process, over which its devices answer requests |
//! | `events` | event queues that programs sleep on |
//! | `floor` | measures what the machine itself can do, as a bound for benchmarks |
//! | `fork` | the fork guard: a forked child cannot use a device that it inherits |
//! | `heap_trim` | counts the memory of a device's objects and returns freed memory |
//! | `limits` | limits of the system, and the errors that name them |
//! | `process_file` | files that each process of a run writes under a name of its own |
//! | `refusal` | why requests fail, in words that all NICs use |
//! | `sg_list` | scatter-gather lists of a request, and copies from and to them |
//! | `string_moves` | measures at which distances the kernel's copies are slow on this processor |
//! | `sync` | lock-free parts, each with a loom model |
//! | `thread` | a device's thread: its start and end, and the descriptors it sleeps on |
//! | `windows` | memory windows: what each is bound to |
//! | `lab` | fork(2) for the siege (feature `lab` only) |
//!
//! Functions on a data path are marked `#[inline]`: they are called from other crates.

#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod events;
#[cfg(not(loom))]
pub mod floor;
#[cfg(not(loom))]
pub mod fork;
#[cfg(not(loom))]
pub mod heap_trim;
#[cfg(all(feature = "lab", not(loom)))]
pub mod lab;
#[cfg(not(loom))]
pub mod limits;
#[cfg(not(loom))]
pub mod process_file;
#[cfg(not(loom))]
pub mod refusal;
#[cfg(not(loom))]
pub mod sg_list;
#[cfg(not(loom))]
pub mod string_moves;
#[cfg_attr(loom, allow(dead_code, reason = "only the models of these parts are built"))]
pub mod sync;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod windows;
