//! [`SpecialRequest`]: requests that are more than an operation in progress: persistent, partitioned and generalized requests (MPI 5.0,
//! sections 3.9, 4.2 and 13.2).

use std::sync::Arc;

use host::SlotKey;

use crate::error::Result;
use crate::p2p::engine::Started;
use crate::req::partitioned::PartitionedRequest;
use crate::status::Status;

/// Starts a persistent operation again.
pub(crate) type StartFn = Arc<dyn Fn() -> Result<Started> + Send + Sync>;

/// The program's side of a generalized request (`MPI_Grequest_start`). No lock is held when its functions are called.
pub trait Generalized: Send + Sync {
    /// Returns the status of a completed request; may be called more than once.
    fn query(&self) -> Status;
    /// Called once when the request is freed, after the last query.
    ///
    /// # Errors
    /// The program's.
    fn free(&self) -> Result<()>;
    /// Called when the program cancels the request; `is_complete` is true if it has completed already.
    ///
    /// # Errors
    /// The program's.
    fn cancel(&self, is_complete: bool) -> Result<()>;
}

/// The state of a special request.
#[derive(Clone)]
pub(crate) enum RequestState {
    /// It is not started.
    Inactive,
    Completed(Status),
    InProgress(SlotKey),
}

impl From<Started> for RequestState {
    fn from(started: Started) -> Self {
        match started {
            Started::Completed(status) => Self::Completed(status),
            Started::InProgress(key) => Self::InProgress(key),
        }
    }
}

/// The kind of a special request.
#[derive(Clone)]
pub(crate) enum RequestKind {
    Persistent(StartFn),
    Partitioned(StartFn, PartitionedRequest),
    Program(Arc<dyn Generalized>),
}

/// A persistent, partitioned or generalized request.
pub(crate) struct SpecialRequest {
    pub(crate) state: RequestState,
    pub(crate) kind: RequestKind,
    /// The number of its communicator, if it has one.
    pub(crate) comm: Option<u64>,
}

impl std::fmt::Debug for SpecialRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.state {
            RequestState::Inactive => "Special(inactive)",
            RequestState::Completed(_) => "Special(completed)",
            RequestState::InProgress(_) => "Special(in progress)",
        })
    }
}
