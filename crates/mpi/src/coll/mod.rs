//! Collective operations.
//!
//! | file | what it holds |
//! |---|---|
//! | `calls` | what a [`Comm`](crate::Comm) does with a [`Collective`](crate::Collective) |
//! | `collective`, `args` | [`Collective`](crate::Collective): collective operations, and the checks of their arguments |
//! | `tuning` | the choice of algorithms |
//! | `places`, `sched` | schedules with memory in the place of spans; how they are carried out |
//! | `check` | how members find out that they have not called alike |
//! | `shm` | collective operations without messages, where members map the same memory |

pub(crate) mod args;
mod calls;
pub(crate) mod check;
pub(crate) mod collective;
pub(crate) mod places;
pub(crate) mod sched;
pub(crate) mod shm;
pub(crate) mod tuning;
