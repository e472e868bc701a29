//! Point-to-point communication: messages, and the requests and statuses of operations (MPI 5.0, chapters 3 and 4).
//!
//! | file | what it holds |
//! |---|---|
//! | `messages` | sends and receives |
//! | `probe` | probes, and receives of matched messages |
//! | `request` | requests of all operations: waiting, testing, persistent ones |
//! | `status` | statuses |
//! | `buffered` | buffers of buffered sends |
//! | `partitioned` | partitioned communication |
//! | `generalized` | operations that the program defines |

pub(super) mod buffered;
pub(super) mod generalized;
pub(super) mod messages;
pub(super) mod partitioned;
pub(super) mod probe;
pub(super) mod request;
pub(super) mod status;

pub(crate) use buffered::*;
pub(crate) use generalized::*;
pub(crate) use messages::*;
pub(crate) use partitioned::*;
pub(crate) use probe::*;
pub(crate) use request::*;
pub(crate) use status::*;
