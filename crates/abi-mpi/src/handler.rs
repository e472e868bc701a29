//! Error handlers, and the texts of error codes.
//!
//! A code is a class, or a class combined with the number of a text, so that `MPI_Error_string` describes the cause of an error and
//! not only its class. Only the most recent texts are kept; the class is part of the code.

use std::collections::VecDeque;
use std::sync::Mutex;

use ffi::{lock, log};
use host::{EventCount, Span};
use mpi::Errhandler;

use crate::answer::{ErrhandlerOwner, Fault};
use crate::callback::{ErrorHandlerFunction, UserHandler};
use crate::clock::host;
use crate::constants as c;
use crate::objects::get;
use crate::state;
use crate::types::{self, File, Session};

/// The bits of a code that hold its class; the other bits below `MPI_ERR_LASTCODE` hold the number of the text.
const CLASS_BITS: i32 = 6;
/// The number of texts that are kept; they are numbered from 1.
const TEXTS: usize = 250;

/// The texts of the most recent errors, with their codes.
static RECENT: Mutex<Recent> = Mutex::new(Recent { texts: VecDeque::new(), last: 0 });

struct Recent {
    texts: VecDeque<(i32, String)>,
    last: i32,
}

/// The codes whose values the standard fixes (MPI 5.0, section 3.7.5): programs compare them without asking for their class.
const FIXED: [i32; 2] = [c::MPI_ERR_IN_STATUS, c::MPI_ERR_PENDING];

/// A code for an error of this class; its text can be found until newer ones replace it.
pub(crate) fn code_of(class: i32, text: &str) -> i32 {
    if !(1..1 << CLASS_BITS).contains(&class) || FIXED.contains(&class) {
        return class;
    }
    let mut recent = lock(&RECENT);
    let known = recent.texts.iter().find(|(code, known)| class_of(*code) == class && known == text);
    if let Some((code, _)) = known {
        return *code;
    }
    recent.last = recent.last % TEXTS as i32 + 1;
    let code = recent.last << CLASS_BITS | class;
    if recent.texts.len() == TEXTS {
        recent.texts.pop_front();
    }
    recent.texts.push_back((code, text.to_owned()));
    code
}

/// The class of a code that this library made.
pub(crate) fn class_of(code: i32) -> i32 {
    code & ((1 << CLASS_BITS) - 1)
}

/// The text of a code, if it is still kept.
pub(crate) fn text_of(code: i32) -> Option<String> {
    let recent = lock(&RECENT);
    recent.texts.iter().find(|(known, _)| *known == code).map(|(_, text)| text.clone())
}

/// How a failed call ends.
pub(crate) enum Outcome {
    /// It returns this code.
    Code(i32),
    /// It calls the program's error handler with a handle and a code. The call returns `returns`, or else the code that the handler
    /// left.
    Handler { function: ErrorHandlerFunction, handle: usize, code: i32, returns: Option<i32> },
}

/// Finds the responsible error handler and its outcome; does not return if errors are fatal.
pub(crate) fn outcome(name: &str, owner: ErrhandlerOwner, fault: &Fault) -> Outcome {
    let (handler, handle) = match owner {
        ErrhandlerOwner::Caller => {
            report(name, fault);
            return Outcome::Code(fault.code);
        }
        ErrhandlerOwner::Process => (process_handler(), c::MPI_COMM_SELF),
        ErrhandlerOwner::Comm(handle) => {
            (get(handle, "comm").ok().map(|comm| comm.errhandler()), handle.value())
        }
        ErrhandlerOwner::Win(handle) => {
            (get(handle, "win").ok().map(|win| win.window.errhandler()), handle.value())
        }
        ErrhandlerOwner::Session(handle) => (errhandler_of_session(handle), handle.value()),
        ErrhandlerOwner::NewObject(handler, null) => {
            (get(handler, "errhandler").ok().map(|handler| handler.clone()), null)
        }
        ErrhandlerOwner::File(handle) => (Some(errhandler_of_file(handle)), handle.value()),
    };
    // For an invalid handle, the process's handler is responsible.
    match handler.map(|handler| (handler, handle)).or_else(|| Some((process_handler()?, c::MPI_COMM_SELF))) {
        Some((handler, handle)) => outcome_of(name, &handler, handle, fault),
        None => fatal(name, fault),
    }
}

/// The error handler of `MPI_COMM_SELF`, while that communicator exists.
fn process_handler() -> Option<Errhandler> {
    get(types::Comm::new(c::MPI_COMM_SELF), "comm").ok().map(|comm| comm.errhandler())
}

/// The handler of `MPI_FILE_NULL`, which newly opened files inherit.
static NULL_FILE_ERRHANDLER: Mutex<Errhandler> = Mutex::new(Errhandler::Return);

/// The handler of a file; for an invalid handle, that of `MPI_FILE_NULL`.
pub(crate) fn errhandler_of_file(file: File) -> Errhandler {
    get(file, "fh").map_or_else(|_| lock(&NULL_FILE_ERRHANDLER).clone(), |file| file.errhandler())
}

/// Sets the handler of `MPI_FILE_NULL`.
pub(crate) fn set_null_file_errhandler(handler: Errhandler) {
    *lock(&NULL_FILE_ERRHANDLER) = handler;
}

/// The handler of a session; `None` for an invalid handle.
fn errhandler_of_session(session: Session) -> Option<Errhandler> {
    Some(lock(&get(session, "session").ok()?.errhandler).clone())
}

/// How the call ends under a given error handler.
fn outcome_of(name: &str, handler: &Errhandler, handle: usize, fault: &Fault) -> Outcome {
    let returns = fault.is_raised.then_some(c::MPI_SUCCESS);
    let code = match returns {
        // The program raised this code itself.
        Some(_) => fault.code,
        None => code_of(fault.code, &format!("{name}: {}", fault.text)),
    };
    if !matches!(handler, Errhandler::Fatal | Errhandler::Abort) && !fault.is_raised {
        report(name, fault);
    }
    match handler {
        Errhandler::Return => Outcome::Code(returns.unwrap_or(code)),
        Errhandler::Fatal | Errhandler::Abort => fatal(name, fault),
        Errhandler::User(user) => match user.downcast_ref::<UserHandler>() {
            Some(user) => Outcome::Handler { function: user.function, handle, code, returns },
            None => Outcome::Code(code),
        },
    }
}

/// Reports a failed call to the log, unless it ends the job with a line of its own.
#[cold]
fn report(name: &str, fault: &Fault) {
    if !log::reports_errors() {
        return;
    }
    let rank = state::rank().map(|rank| format!("rank {rank}: ")).unwrap_or_default();
    let (class, text) = (class_of(fault.code), &fault.text);
    let reason = match remedy(class) {
        // Some texts say what to do themselves.
        Some(remedy) if !text.contains(';') => format!("{text}; {remedy}"),
        _ => text.clone(),
    };
    let about = mpi::Class(class).about().unwrap_or("An error of the program's.");
    log::failure(&format!("{rank}{name}"), &format!("{reason} (error class {class}: {about})"));
}

/// What to do about an error of this class.
fn remedy(class: i32) -> Option<&'static str> {
    Some(match class {
        c::MPI_ERR_BUFFER => "pass memory for the whole count, and buffers that do not overlap",
        c::MPI_ERR_COUNT => "pass a count that is not negative and fits",
        c::MPI_ERR_TYPE => "pass a datatype that exists and is committed",
        c::MPI_ERR_TAG => "pass 0 to MPI_TAG_UB, or MPI_ANY_TAG to a receive",
        c::MPI_ERR_COMM => "pass a communicator that exists and is of the kind that the call needs",
        c::MPI_ERR_RANK | c::MPI_ERR_ROOT => "pass a rank of the communicator or group",
        c::MPI_ERR_REQUEST => "pass a request that has not been completed or freed",
        c::MPI_ERR_GROUP => "pass a group that exists",
        c::MPI_ERR_OP => "pass an operation that exists and fits the datatype",
        c::MPI_ERR_ARG => "pass the address of a variable, or a value that the standard allows",
        c::MPI_ERR_TRUNCATE => "receive with a larger count, or probe for the size first",
        c::MPI_ERR_INFO | c::MPI_ERR_WIN | c::MPI_ERR_FILE | c::MPI_ERR_SESSION | c::MPI_ERR_ERRHANDLER => {
            "pass a handle that exists"
        }
        c::MPI_ERR_KEYVAL => "pass a key that the matching MPI_*_create_keyval has returned",
        c::MPI_ERR_INFO_KEY => "pass a shorter key that is not empty",
        c::MPI_ERR_RMA_SYNC => "open an epoch first: MPI_Win_fence, MPI_Win_lock or MPI_Win_start",
        c::MPI_ERR_RMA_RANGE => "pass a displacement and a count inside of the target's window",
        _ => return None,
    })
}

/// How long a process that lost another one waits for the launcher to end the job: the launcher knows which process was lost, and
/// why.
const LAUNCHER_GRACE: Span = Span::from_ms(300);

/// Ends the job, after a line that gives the reason.
fn fatal(name: &str, fault: &Fault) -> ! {
    if fault.code == c::MPI_ERR_PROC_ABORTED {
        let host = host();
        host.wait("a launcher", &EventCount::new(), host.after(LAUNCHER_GRACE), || None::<()>);
    }
    let rank = state::rank().map(|rank| format!("rank {rank}: ")).unwrap_or_default();
    let class = mpi::Class(fault.code).about().unwrap_or("An error of the program's.");
    let message = format!("{rank}{name}: {} ({class} Errors are fatal here.)", fault.text);
    state::abort(fault.code, &message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_contain_their_class_and_refer_to_a_text() {
        let code = code_of(c::MPI_ERR_RANK, "rank 7 of 2");
        assert_eq!((class_of(code), text_of(code).as_deref()), (c::MPI_ERR_RANK, Some("rank 7 of 2")));
        assert_eq!(code_of(c::MPI_ERR_RANK, "rank 7 of 2"), code);
        for n in 0..2 * TEXTS {
            let code = code_of(c::MPI_ERR_TAG, &format!("tag {n}"));
            assert!(code < c::MPI_ERR_LASTCODE && class_of(code) == c::MPI_ERR_TAG);
        }
        assert_eq!((text_of(code), code_of(20_000, "a program's")), (None, 20_000));
        assert_eq!(FIXED.map(|class| code_of(class, "a text")), FIXED);
    }
}
