//! The result of a call's body: [`Answer`], with the cause of a failure and the object whose error handler is called.

use datatypes::ErrorKind;

use crate::constants as c;
use crate::types::{Comm, Errhandler, File, Session, Win};

/// Which error handler an error invokes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ErrhandlerOwner {
    /// None: the call returns the code, as in MPI_T, which has no error handlers.
    Caller,
    /// The handler of `MPI_COMM_SELF`, for errors that belong to no communicator.
    Process,
    /// The communicator's; for an invalid handle, that of the process.
    Comm(Comm),
    /// The window's; for an invalid handle, that of the process.
    Win(Win),
    /// The file's; for an invalid handle, that of `MPI_FILE_NULL`.
    File(File),
    /// The session's; for an invalid handle, that of the process.
    Session(Session),
    /// The handler that the call receives for a new object, invoked with this null handle; if it is invalid, that of the process.
    NewObject(Errhandler, usize),
}

impl ErrhandlerOwner {
    /// The handler of `MPI_FILE_NULL`, which newly opened files inherit.
    pub(crate) const fn null_file() -> Self {
        Self::File(File::new(c::MPI_FILE_NULL))
    }
}

/// The cause of a failed call.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The error code or class.
    pub(crate) code: i32,
    /// The cause, and the name of the argument.
    pub(crate) text: String,
    /// The error handler to invoke, if it does not follow from the arguments.
    pub(crate) owner: Option<ErrhandlerOwner>,
    /// Whether the program itself raised the error by `MPI_Comm_call_errhandler` or its like.
    pub(crate) is_raised: bool,
}

/// The result of a call's body.
pub(crate) type Answer<T = ()> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), owner: None, is_raised: false }
    }

    /// An error that the program raised, for the handler of the object that the call names; the call itself succeeds.
    pub(crate) fn raised(code: i32, text: &str) -> Self {
        Self { is_raised: true, ..Self::new(code, format!("the program raised an error: {text}")) }
    }

    /// This error, for another object's error handler.
    pub(crate) fn for_owner(self, owner: ErrhandlerOwner) -> Self {
        Self { owner: Some(owner), ..self }
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

/// The error of a NULL address of a result.
#[cold]
pub(crate) fn null_result(argument: &str) -> Answer {
    Err(Fault::new(c::MPI_ERR_ARG, format!("{argument}: its address is NULL")))
}
