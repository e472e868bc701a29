//! One-sided communication: [`Window`]s, memory that other processes read and change without its owner's taking
//! part.
//!
//! Whoever calls does all of the work. A put is an RDMA write, a get is an RDMA read. Locks, and the order among operations that
//! accumulate, are words in a block of registered memory that each member has (`control`): who wants them changes them by the
//! device's atomics, or by the processor's where the block is mapped. So a member that computes and calls nothing holds up nobody;
//! where the device has no atomics, the member is asked, and must make progress.
//!
//! | file | what it holds |
//! |---|---|
//! | `object` | [`Window`] itself: what it is, and what hangs on it |
//! | `creation` | how windows are made, and freed |
//! | `card` | what a member tells the others of its memory |
//! | `control`, `words` | the words by which members keep out of each other's way; how others change them |
//! | `served` | the same where the device has no atomics, by questions and answers |
//! | `target` | a member's memory as another one reaches it |
//! | `segment` | memory that the processes of one host share |
//! | `directory`, `attached` | memory that comes and goes, in dynamic windows |
//! | `epoch` | when which operations are allowed |
//! | `sync` | fences, locks, flushes, and matching starts with posts |
//! | `transfer`, `accumulate` | the operations |
//! | `one_sided` | which one-sided operations are messages |
//! | `carried` | puts and gets as messages, where the process is told to |
//! | `direct` | the same on mapped memory, at once |

mod accumulate;
mod attached;
mod card;
mod carried;
mod control;
mod creation;
mod direct;
mod directory;
mod epoch;
mod object;
pub(crate) mod one_sided;
mod segment;
mod served;
mod sync;
mod target;
mod transfer;
mod words;

pub use direct::Change;
pub use epoch::{Assert, LockKind};
pub use object::{Flavor, Shared, Window};
pub use target::At;
