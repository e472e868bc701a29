//! [`Errhandler`]: how a program handles errors of an object's operations (MPI 5.0, section 9.3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The action when an operation of an object fails (`MPI_Errhandler`). Calls of this crate return their errors in any case: the
/// interface above acts on them, and this crate only stores and inherits the handler.
#[derive(Clone, Default)]
pub enum Errhandler {
    /// All processes of the job end (`MPI_ERRORS_ARE_FATAL`).
    #[default]
    Fatal,
    /// The processes of the communicator end (`MPI_ERRORS_ABORT`).
    Abort,
    /// The call returns (`MPI_ERRORS_RETURN`).
    Return,
    /// A function of the program, in the representation of the interface above.
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
