//! How a call answers: no panic leaves it, and its errors go through the error handler of the object that was used. The call
//! rethrows an exception of the program's functions last.

use cface::{Panicked, contain};
use datatypes::ErrorKind;
use host::Time;

use crate::calls::{note_error, tell_of_events};
use crate::constants as c;
use crate::handler::{self, Outcome};
use crate::profile::{self, NAMES};
use crate::state;
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

/// Runs a call that answers with an error code: that of the function at this place of the table.
#[inline]
pub(crate) fn answer(at: usize, whose: Whose, body: impl FnOnce() -> Answer) -> i32 {
    let began = profile::begin();
    match contain(body) {
        Ok(Ok(())) if began.is_none() && !profile::has_thrown() => c::MPI_SUCCESS,
        done => end(at, whose, began, done),
    }
}

/// What is left to do when a call has failed, is noted, or had a function of the program's throw.
#[cold]
#[inline(never)]
fn end(at: usize, whose: Whose, began: Option<Time>, done: Result<Answer, Panicked>) -> i32 {
    let intern = |_| Fault::new(c::MPI_ERR_INTERN, "an error of this library's own; it is described above");
    let fault = done.map_err(intern).and_then(|answer| answer).err();
    let whose = fault.as_ref().and_then(|fault| fault.whose).unwrap_or(whose);
    if let Some(fault) = fault.as_ref().filter(|fault| !fault.is_raised)
        && profile::tells_events()
        && !matches!(whose, Whose::Caller)
    {
        note_error(handler::class_of(fault.code));
    }
    if let Some(began) = began {
        profile::end(at, began);
        tell();
    }
    // Nothing is held from here on: both may leave by an exception, which must meet no `catch_unwind`.
    if cface::rethrow().is_err() {
        state::die(&format!(
            "{}: a function of the program threw an exception, which nothing catches",
            NAMES[at]
        ));
    }
    let Some(fault) = fault else { return c::MPI_SUCCESS };
    match contain(|| handler::outcome(NAMES[at], whose, &fault)) {
        Ok(Outcome::Code(code)) => code,
        Ok(Outcome::Handler { function, handle, code, returns }) => {
            drop(fault);
            let code = function.handle_error(handle, code);
            returns.unwrap_or(code)
        }
        Err(Panicked) => fault.code,
    }
}

/// Runs a call that answers with a value, which cannot fail.
#[inline]
pub(crate) fn value<T>(body: impl FnOnce() -> T) -> T {
    match contain(body) {
        Ok(value) => value,
        // There is no code to return: what is wrong stands on standard error.
        Err(_) => std::process::abort(),
    }
}

/// Tells tools of what has happened meanwhile, if they want to hear.
#[cold]
fn tell() {
    if profile::tells_events() {
        // A panic has said what it is; the call itself is over.
        let _ = contain(tell_of_events);
    }
}
