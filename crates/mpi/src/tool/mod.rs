//! What a process tells of itself while it runs, and has set: what the tool interface (`MPI_T`) shows.
//!
//! | file | what it holds |
//! |---|---|
//! | `traffic` | [`Traffic`]: messages and bytes that have left, by [`Proto`](crate::Proto) |
//! | `gauges` | [`Gauge`]: lengths of queues, and counts |
//! | `profile` | [`Profile`]: what a process did, as text for whoever started it |
//! | `happenings` | [`Happening`]: what a tool hears of at once |
//! | `limits` | [`Limits`]: from which size on which protocol carries messages |
//!
//! Whoever counts has the engine's lock: a count is an addition.

mod gauges;
mod happenings;
mod limits;
mod profile;
mod traffic;

pub use gauges::Gauge;
pub(crate) use happenings::Watch;
pub use happenings::{Happened, Happening};
pub use limits::Limits;
pub use profile::{Called, Profile};
pub use traffic::{Carried, Traffic};
