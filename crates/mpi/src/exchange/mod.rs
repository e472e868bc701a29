//! Collective operations without messages: members of one host show what they give in memory that all of them map, and take from
//! there what the others show. It is the algorithm `shared` of the crate `collectives`, for blocking operations of few members and
//! few bytes; all else goes by schedules.
//!
//! | file | what it holds |
//! |---|---|
//! | `desks` | [`desks::Desks`]: the memory, and what each member writes where |
//! | `setup` | how members come to map it |
//! | `operations` | [`operations::Exchange`]: the operations |
//! | `choice` | which calls go this way, and what a communicator keeps for it: [`Place`] |

mod choice;
mod desks;
mod operations;
mod setup;

pub(crate) use choice::Place;
pub use choice::shared_bytes;
pub(crate) use desks::{Retired, SHOWN_MAX};
