//! One-sided communication: [`Window`]s, memory that other processes read and change without its owner's participation (MPI 5.0,
//! chapter 12).
//!
//! The caller does all of the work. A put is an RDMA write, a get is an RDMA read. Locks, and the order among accumulate
//! operations, are words in a block of registered memory that each member has (`control`). Other members change them by the
//! device's atomics, or by the processor's where the block is mapped. A member that computes without calling MPI therefore blocks
//! nobody. Where the device has no atomics, the member gets a request message, and must make progress.
//!
//! | file | contents |
//! |---|---|
//! | `object` | [`Window`]: its properties and attributes |
//! | `creation` | creation and freeing of windows |
//! | `desc` | the description of a member's memory for the others |
//! | `control`, `control_words` | the words that synchronize members, and how others change them |
//! | `control_messages` | the same by request and reply messages, where the device has no atomics |
//! | `target` | access to another member's memory |
//! | `segment` | memory that the processes of one host share |
//! | `directory`, `attached` | attached memory of dynamic windows |
//! | `epoch` | which operations an epoch allows |
//! | `sync` | fences, locks, flushes, and matching starts with posts |
//! | `transfer`, `accumulate` | the operations |
//! | `one_sided` | which one-sided operations are sent as messages |
//! | `message_rma` | puts and gets as messages, where the configuration selects them |
//! | `direct` | operations on mapped memory that complete immediately |

mod accumulate;
mod attached;
mod control;
mod control_messages;
mod control_words;
mod creation;
mod desc;
mod direct;
mod directory;
mod epoch;
mod message_rma;
mod object;
pub(crate) mod one_sided;
mod segment;
mod sync;
mod target;
mod transfer;

pub use direct::IntegerOp;
pub use epoch::{Assert, LockKind};
pub use object::{Flavor, SharedPart, Window};
pub use target::TargetRange;
