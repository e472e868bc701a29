//! Collective operations without messages, for members on one host. Members show short data in memory that all of them map. Of long
//! data they show the address, and the others read them there. This is the algorithm `shared` of the crate `collectives`, for
//! blocking operations of few members. All other calls, and a communicator's first ones, use schedules.
//!
//! | file | contents |
//! |---|---|
//! | `desks` | [`desks::Desks`]: the shared memory and its layout |
//! | `setup` | how members map it |
//! | `exchange` | [`exchange::Exchange`]: a member's state for the operations; [`CommExchange`]: its communicator's state |
//! | `operations` | the operations |
//! | `giving` | how a member gives and takes data: shown or lent |
//! | `parts` | long reductions |
//! | `plain` | the same operations for short elements without gaps |
//! | `choice` | which calls use an exchange |

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
