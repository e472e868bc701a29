//! Collective operations without messages, for members on one host. Members publish short data in memory that all of them map, and
//! long data chunk by chunk in memory of their own that the others map. This is the algorithm `shared` of the crate `collectives`,
//! for blocking operations of few members. All other calls, and a communicator's first ones, use schedules.
//!
//! | file | contents |
//! |---|---|
//! | `slots` | [`slots::ShmSlots`]: the shared memory and its layout |
//! | `setup` | how members map it |
//! | `state` | [`state::ShmColl`]: a member's state for the operations; [`CommShmColl`]: its communicator's state |
//! | `operations` | the operations |
//! | `transfer` | how members publish and read data |
//! | `ring` | the memory of a member's chunks |
//! | `chunks`, `reduce_chunks` | how members exchange and reduce long data in chunks |
//! | `reduce_long` | long reductions where a member has no memory for chunks |
//! | `small` | the same operations for short elements without gaps |
//! | `choice` | which calls use shared memory |

mod choice;
mod chunks;
mod operations;
mod reduce_chunks;
mod reduce_long;
mod ring;
mod setup;
mod slots;
mod small;
mod state;
mod transfer;

pub use choice::shared_bytes;
pub(crate) use slots::{BCOPY_MAX, RetiredSlots};
pub use small::SmallCollective;
pub(crate) use state::CommShmColl;
