//! What a process tells of itself while it runs, and has set: what the tool interface (`MPI_T`) shows.
//!
//! | file | what it holds |
//! |---|---|
//! | `gauges` | [`Gauge`]: lengths of queues, and counts |
//! | `happenings` | [`Happening`]: what a tool hears of at once |
//! | `reports` | what a [`Process`](crate::Process) and a [`Comm`](crate::Comm) report of these, and of messages sent |
//! | `limits` | [`Limits`]: from which size on which protocol carries messages |
//!
//! [`Traffic`], messages and bytes that have left by [`Proto`](crate::Proto), is a type of `pmi`: a launcher reads it in profiles.
//!
//! Whoever counts has the engine's lock: a count is an addition.

mod gauges;
mod happenings;
mod limits;
mod reports;

pub use gauges::Gauge;
pub(crate) use happenings::Watch;
pub use happenings::{Happened, Happening};
pub use limits::Limits;
pub use pmi::profile::{Carried, Traffic};
