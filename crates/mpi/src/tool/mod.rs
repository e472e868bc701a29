//! Measurements and settings of a running process, which the tool interface (`MPI_T`) exposes (MPI 5.0, section 15.3).
//!
//! | file | contents |
//! |---|---|
//! | `gauges` | [`Gauge`]: queue lengths and counters |
//! | `events` | [`ToolEvent`]: events for tools |
//! | `reports` | the reports of a [`Process`](crate::Process) and a [`Comm`](crate::Comm): gauges, events and messages sent |
//! | `limits` | [`Limits`]: the message sizes at which the protocol changes |
//!
//! [`Traffic`], the messages and bytes sent by each [`Proto`](crate::Proto), is a type of `pmi`: a launcher reads it in profiles.
//!
//! Counting happens under the engine's lock, so that a count is a plain addition.

mod events;
mod gauges;
mod limits;
mod reports;

pub(crate) use events::EventRecorder;
pub use events::{ToolEvent, ToolEvents};
pub use gauges::Gauge;
pub use limits::Limits;
pub use pmi::profile::{MessageTotals, Traffic};
