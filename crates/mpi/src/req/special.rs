//! [`Special`]: requests that are more than an operation under way: those that are started again and again, those whose message goes
//! in parts, and those that stand for something of the program's.

use std::sync::Arc;

use host::SlotKey;

use crate::error::Result;
use crate::p2p::engine::Begun;
use crate::req::partitioned::Parts;
use crate::status::Status;

/// Begins a persistent operation once more.
pub(crate) type Starter = Arc<dyn Fn() -> Result<Begun> + Send + Sync>;

/// Something of the program's that a request stands for (`MPI_Grequest_start`). Nothing is called with a lock held.
pub trait Generalized: Send + Sync {
    /// How it ended; asked for when it has, perhaps more than once.
    fn query(&self) -> Status;
    /// The request is gone: called once, behind the last query.
    ///
    /// # Errors
    /// The program's.
    fn free(&self) -> Result<()>;
    /// The program has asked for an end without effect; `is_complete` says whether it has ended already.
    ///
    /// # Errors
    /// The program's.
    fn cancel(&self, is_complete: bool) -> Result<()>;
}

/// How far a request is.
#[derive(Clone)]
pub(crate) enum State {
    /// It is not started.
    Inactive,
    Over(Status),
    Under(SlotKey),
}

impl From<Begun> for State {
    fn from(begun: Begun) -> Self {
        match begun {
            Begun::Over(status) => Self::Over(status),
            Begun::Under(key) => Self::Under(key),
        }
    }
}

/// What makes a request special.
#[derive(Clone)]
pub(crate) enum What {
    Persistent(Starter),
    Parts(Starter, Parts),
    Program(Arc<dyn Generalized>),
}

/// A request of this kind.
pub(crate) struct Special {
    pub(crate) state: State,
    pub(crate) what: What,
    /// The number of its communicator, if it has one.
    pub(crate) comm: Option<u64>,
}

impl std::fmt::Debug for Special {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.state {
            State::Inactive => "Special(inactive)",
            State::Over(_) => "Special(over)",
            State::Under(_) => "Special(under way)",
        })
    }
}
