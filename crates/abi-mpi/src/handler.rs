//! Error handlers: what becomes of a call's error, and the texts behind codes.
//!
//! A code is a class, or a class with the number of a text beside it, so that `MPI_Error_string` says of an error what was wrong
//! and not only of which class it is. The last texts are kept; the class is in the code itself.

use std::collections::VecDeque;
use std::sync::Mutex;

use host::{Bell, Span};
use mpi::Errhandler;

use crate::answer::{Fault, Whose};
use crate::callback::Function;
use crate::calls::{errhandler_of_file, errhandler_of_session, host};
use crate::constants as c;
use crate::objects::{get, lock};
use crate::{state, types};

/// Bits of a code that are its class; the others below `MPI_ERR_LASTCODE` number the text.
const CLASS_BITS: i32 = 6;
/// Texts that are kept: numbers from 1 on.
const TEXTS: usize = 250;

/// The texts of the last errors, with the codes that name them.
static RECENT: Mutex<Recent> = Mutex::new(Recent { texts: VecDeque::new(), last: 0 });

struct Recent {
    texts: VecDeque<(i32, String)>,
    last: i32,
}

/// A code for an error of this class, by which its text is found for a while.
pub(crate) fn code_of(class: i32, text: &str) -> i32 {
    if !(1..1 << CLASS_BITS).contains(&class) {
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

/// The class of a code of this library's own.
pub(crate) fn class_of(code: i32) -> i32 {
    code & ((1 << CLASS_BITS) - 1)
}

/// The text that a code was made for, if it is not too long ago.
pub(crate) fn text_of(code: i32) -> Option<String> {
    let recent = lock(&RECENT);
    recent.texts.iter().find(|(known, _)| *known == code).map(|(_, text)| text.clone())
}

/// Calls the error handler that is responsible; what the call then returns.
pub(crate) fn call(name: &str, whose: Whose, fault: &Fault) -> i32 {
    let handle = match whose {
        Whose::Caller => return fault.code,
        Whose::Comm(handle) => handle,
        Whose::Process => types::Comm::new(c::MPI_COMM_SELF),
        Whose::Win(handle) => {
            return match get(handle, "win") {
                Ok(win) => act(name, &win.window.errhandler(), handle.value(), fault),
                Err(_) => call(name, Whose::Process, fault),
            };
        }
        Whose::Session(handle) => {
            return match errhandler_of_session(handle) {
                Some(handler) => act(name, &handler, handle.value(), fault),
                None => call(name, Whose::Process, fault),
            };
        }
        Whose::Given(handler, null) => {
            return match get(handler, "errhandler") {
                Ok(handler) => act(name, &handler, null, fault),
                Err(_) => call(name, Whose::Process, fault),
            };
        }
        Whose::File(handle) => return act(name, &errhandler_of_file(handle), handle.value(), fault),
    };
    match get(handle, "comm") {
        Ok(comm) => act(name, &comm.errhandler(), handle.value(), fault),
        // It is no communicator, and that is for the process to hear.
        Err(_) if handle.value() != c::MPI_COMM_SELF => call(name, Whose::Process, fault),
        Err(_) => fatal(name, fault),
    }
}

/// What a handler has happen for an object's handle; what the call then returns.
fn act(name: &str, handler: &Errhandler, handle: usize, fault: &Fault) -> i32 {
    match handler {
        Errhandler::Return => code_of(fault.code, &format!("{name}: {}", fault.text)),
        Errhandler::Fatal | Errhandler::Abort => fatal(name, fault),
        Errhandler::User(function) => {
            let code = code_of(fault.code, &format!("{name}: {}", fault.text));
            let function = function.downcast_ref::<Function>();
            function.map_or(code, |function| function.handle_error(handle, code))
        }
    }
}

/// Calls an object's handler for an error of the program's own.
pub(crate) fn raise(name: &str, handler: &Errhandler, handle: usize, code: i32) -> i32 {
    match handler {
        Errhandler::User(function) => {
            if let Some(function) = function.downcast_ref::<Function>() {
                function.handle_error(handle, code);
            }
        }
        Errhandler::Return => {}
        Errhandler::Fatal | Errhandler::Abort => {
            fatal(name, &Fault::new(code, "the program raised an error"));
        }
    }
    c::MPI_SUCCESS
}

/// For the launcher to end the job first, of which a process was lost: it knows which one and how it ended.
const A_MOMENT: Span = Span::from_ms(300);

/// Ends the job with a line that says why.
fn fatal(name: &str, fault: &Fault) -> ! {
    if fault.code == c::MPI_ERR_PROC_ABORTED {
        let host = host();
        host.wait("a launcher", &Bell::new(), host.after(A_MOMENT), || None::<()>);
    }
    let rank = state::rank().map(|rank| format!("rank {rank}: ")).unwrap_or_default();
    let class = mpi::Class(fault.code).about().unwrap_or("An error of the program's.");
    let message = format!("nicety: {rank}{name}: {} ({class} Errors are fatal here.)", fault.text);
    state::abort(fault.code, &message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_class_and_their_text() {
        let code = code_of(c::MPI_ERR_RANK, "rank 7 of 2");
        assert_eq!((class_of(code), text_of(code).as_deref()), (c::MPI_ERR_RANK, Some("rank 7 of 2")));
        assert_eq!(code_of(c::MPI_ERR_RANK, "rank 7 of 2"), code);
        for n in 0..2 * TEXTS {
            let code = code_of(c::MPI_ERR_TAG, &format!("tag {n}"));
            assert!(code < c::MPI_ERR_LASTCODE && class_of(code) == c::MPI_ERR_TAG);
        }
        assert_eq!((text_of(code), code_of(20_000, "a program's")), (None, 20_000));
    }
}
