//! Collective operations without messages: members of one host show what they give in memory that all of them map, and take from
//! there what the others show; of what is long they show where it lies, and the others read it there. It is the algorithm `shared` of
//! the crate `collectives`, for blocking operations of few members; all else goes by schedules, and so do a communicator's first calls.
//!
//! | file | what it holds |
//! |---|---|
//! | `desks` | [`desks::Desks`]: the memory, and what each member writes where |
//! | `setup` | how members come to map it |
//! | `exchange` | [`exchange::Exchange`]: what a member keeps for the operations; [`CommExchange`]: what its communicator keeps |
//! | `operations` | the operations |
//! | `giving` | what a member gives and takes in one: shown, or lent |
//! | `parts` | long reductions |
//! | `plain` | the same operations for short elements without gaps |
//! | `choice` | which calls go this way |

mod choice;
mod desks;
mod exchange;
mod giving;
mod operations;
mod parts;
mod plain;
mod setup;

pub use choice::shared_bytes;
pub(crate) use desks::{Retired, SHOWN_MAX};
pub(crate) use exchange::CommExchange;
pub use plain::PlainCall;
