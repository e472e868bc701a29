//! What the body of a call returns: [`Answer`], with the reason why a call fails and the object whose error handler is called.

use datatypes::ErrorKind;

use crate::constants as c;
use crate::types::{Comm, Errhandler, File, Session, Win};

/// Whose error handler hears of an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// The caller's own: the call returns. So with MPI_T, which has none.
    Caller,
    /// That of `MPI_COMM_SELF`, for what belongs to no communicator.
    Process,
    /// A communicator's; if the handle is none, that of the process.
    Comm(Comm),
    /// A window's; likewise.
    Win(Win),
    /// A file's; if the handle is none, that of `MPI_FILE_NULL`.
    File(File),
    /// A session's; if the handle is none, that of the process.
    Session(Session),
    /// The one that the call is given for what it makes, called with this null handle; if it is none, that of the process.
    Given(Errhandler, usize),
}

impl Whose {
    /// That of `MPI_FILE_NULL`, which files that are opened take over.
    pub(crate) const fn no_file() -> Self {
        Self::File(File::new(c::MPI_FILE_NULL))
    }
}

/// Why a call fails.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The error's code, of which a class is one.
    pub(crate) code: i32,
    /// What was wrong, and with which argument.
    pub(crate) text: String,
    /// Whose error handler hears of it, if that is not to be seen from the arguments.
    pub(crate) whose: Option<Whose>,
    /// Whether the program asked for its handler to be called, and nothing is wrong.
    pub(crate) is_raised: bool,
}

/// What the bodies of calls return.
pub(crate) type Answer<T = ()> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), whose: None, is_raised: false }
    }

    /// An error of the program's own, for the handler of the object that the call names; the call itself succeeds.
    pub(crate) fn raised(code: i32) -> Self {
        Self { is_raised: true, ..Self::new(code, "the program raised an error") }
    }

    /// This error, for the error handler of another object.
    pub(crate) fn at(self, whose: Whose) -> Self {
        Self { whose: Some(whose), ..self }
    }
}

impl From<mpi::Error> for Fault {
    fn from(error: mpi::Error) -> Self {
        Self::new(error.class.0, error.text)
    }
}

impl From<datatypes::Error> for Fault {
    fn from(error: datatypes::Error) -> Self {
        let code = match error.kind {
            ErrorKind::Count => c::MPI_ERR_COUNT,
            ErrorKind::Type => c::MPI_ERR_TYPE,
            ErrorKind::Arg => c::MPI_ERR_ARG,
            ErrorKind::Op => c::MPI_ERR_OP,
            ErrorKind::Dims => c::MPI_ERR_DIMS,
            ErrorKind::Truncate => c::MPI_ERR_TRUNCATE,
            ErrorKind::Conversion => c::MPI_ERR_CONVERSION,
            ErrorKind::Other(code) => code,
        };
        Self::new(code, error.text)
    }
}

/// A place for a result that is not there.
#[cold]
pub(crate) fn no_place(argument: &str) -> Answer {
    Err(Fault::new(c::MPI_ERR_ARG, format!("{argument}: its address is NULL")))
}
