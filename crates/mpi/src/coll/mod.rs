//! Collective operations (MPI 5.0, chapter 6).
//!
//! | file | contents |
//! |---|---|
//! | `calls` | how a [`Comm`](crate::Comm) carries out a [`Collective`](crate::Collective) |
//! | `collective`, `args` | [`Collective`](crate::Collective): collective operations, and the checks of their arguments |
//! | `tuning` | the choice of algorithms |
//! | `buffers`, `sched` | schedules with memory in place of spans, and their execution |
//! | `check` | detection of mismatched collectives |
//! | `shm` | collective operations without messages, where members map the same memory |

pub(crate) mod args;
pub(crate) mod buffers;
mod calls;
pub(crate) mod check;
pub(crate) mod collective;
pub(crate) mod sched;
pub(crate) mod shm;
pub(crate) mod tuning;
