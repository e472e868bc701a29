//! What the NICs in software share. What only one of them uses is in its own crate, lock-free parts
//! excepted.
//!
//! | module | what it holds |
//! |---|---|
//! | `events` | queues of events that programs sleep on |
//! | `floor` | what the machine itself can do, for a benchmark to stand beside |
//! | `fork` | the fork guard: what a forked child inherits of a device is useless to it |
//! | `heap_trim` | how much memory the objects of a device take, and giving it back |
//! | `limits` | limits of the system, and the errors that name them |
//! | `sg_list` | lists of memory that one request names, and copies between them and other memory |
//! | `sync` | lock-free parts, each with a loom model |
//! | `thread` | a device's thread: its start and end, and what it sleeps on |
//! | `lab` | fork(2) for the siege (feature `lab` only) |
//!
//! Functions on a data path are marked `#[inline]`: they are called from other crates.

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
pub mod sg_list;
#[cfg_attr(loom, allow(dead_code, reason = "only the models of these parts are built"))]
pub mod sync;
#[cfg(not(loom))]
pub mod thread;
