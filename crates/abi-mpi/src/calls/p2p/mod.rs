//! Point-to-point communication: messages, and the requests and statuses of operations.
//!
//! | file | what it holds |
//! |---|---|
//! | `messages` | sends and receives |
//! | `probe` | messages that are received after they were looked at |
//! | `request` | requests of all operations: waiting, testing, persistent ones |
//! | `status` | statuses |
//! | `buffered` | buffers of buffered sends |
//! | `partitioned` | messages whose parts become ready one by one |
//! | `generalized` | operations of the program's own |

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
