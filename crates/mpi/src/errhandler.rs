//! [`Errhandler`]: what a program wants done with errors of an object's operations.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What is to happen when an operation of an object fails (`MPI_Errhandler`). Calls of this crate return their errors, whatever it
/// says: a face acts on it, and this crate keeps and inherits it.
#[derive(Clone, Default)]
pub enum Errhandler {
    /// All processes of the job end (`MPI_ERRORS_ARE_FATAL`).
    #[default]
    Fatal,
    /// The processes of the communicator end (`MPI_ERRORS_ABORT`).
    Abort,
    /// The call returns (`MPI_ERRORS_RETURN`).
    Return,
    /// A function of the program's, in whatever form its face keeps it.
    User(Arc<dyn Any + Send + Sync>),
}

impl fmt::Debug for Errhandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fatal => "Fatal",
            Self::Abort => "Abort",
            Self::Return => "Return",
            Self::User(_) => "User",
        })
    }
}
