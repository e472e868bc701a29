//! Collective operations without messages, for members on one host. Members publish short data in memory that all of them map. Of
//! long data they publish the address, and the others read them there. This is the algorithm `shared` of the crate `collectives`,
//! for blocking operations of few members. All other calls, and a communicator's first ones, use schedules.
//!
//! | file | contents |
//! |---|---|
//! | `slots` | [`slots::ShmSlots`]: the shared memory and its layout |
//! | `setup` | how members map it |
//! | `state` | [`state::ShmColl`]: a member's state for the operations; [`CommShmColl`]: its communicator's state |
//! | `operations` | the operations |
//! | `transfer` | how members publish and read data |
//! | `reduce_long` | long reductions |
//! | `small` | the same operations for short elements without gaps |
//! | `choice` | which calls use shared memory |

mod choice;
mod operations;
mod reduce_long;
mod setup;
mod slots;
mod small;
mod state;
mod transfer;

pub use choice::shared_bytes;
pub(crate) use slots::{BCOPY_MAX, RetiredSlots};
pub use small::SmallCollective;
pub(crate) use state::CommShmColl;
