//! The end of every call: stops panics, passes errors to the error handler of the object that was used, and finally rethrows an
//! exception of a program's function.

use ffi::{Panicked, catch_panic, log};
use host::Time;

use crate::answer::{Answer, ErrhandlerOwner, Fault};
use crate::calls::{deliver_events, record_error};
use crate::constants as c;
use crate::handler::{self, Outcome};
use crate::profile::{self, NAMES};
use crate::state;

/// Runs a call that returns an error code; `function` is its index in the table.
#[inline]
pub(crate) fn run_call(at: usize, owner: ErrhandlerOwner, body: impl FnOnce() -> Answer) -> i32 {
    let began = profile::begin_call();
    match catch_panic(body) {
        Ok(Ok(())) if began.is_none() && !profile::had_exception() => c::MPI_SUCCESS,
        done => end(at, owner, began, done),
    }
}

/// The slow end of a call: after a failure, an exception of a program's function, or if the call is profiled.
#[cold]
#[inline(never)]
fn end(at: usize, owner: ErrhandlerOwner, began: Option<Time>, done: Result<Answer, Panicked>) -> i32 {
    let intern = |_| Fault::new(c::MPI_ERR_INTERN, "an internal error, which is described above");
    let fault = done.map_err(intern).and_then(|answer| answer).err();
    let owner = fault.as_ref().and_then(|fault| fault.owner).unwrap_or(owner);
    if let Some(fault) = fault.as_ref().filter(|fault| !fault.is_raised)
        && profile::events_enabled()
        && !matches!(owner, ErrhandlerOwner::Caller)
    {
        record_error(handler::class_of(fault.code));
    }
    if let Some(began) = began {
        profile::end_call(at, began);
        profile::trace_call(at, began, fault.as_ref().map_or(c::MPI_SUCCESS, |fault| fault.code));
        report_events();
    }
    // No locks or objects are held from here on: both may leave by an exception, which must not meet a `catch_unwind`.
    if ffi::rethrow().is_err() {
        state::abort_process(&format!(
            "{}: a function of the program threw an exception that nothing catches",
            NAMES[at]
        ));
    }
    let Some(fault) = fault else {
        log_call(at, began, c::MPI_SUCCESS);
        return c::MPI_SUCCESS;
    };
    log_call(at, began, fault.code);
    match catch_panic(|| handler::outcome(NAMES[at], owner, &fault)) {
        Ok(Outcome::Code(code)) => code,
        Ok(Outcome::Handler { function, handle, code, returns }) => {
            drop(fault);
            let code = function.handle_error(handle, code);
            returns.unwrap_or(code)
        }
        Err(Panicked) => fault.code,
    }
}

/// Writes a line for a call, if all calls are logged: its result and its time.
fn log_call(at: usize, began: Option<Time>, code: i32) {
    if let Some(began) = began.filter(|_| log::reports_calls()) {
        let rank = state::rank().map(|rank| format!("rank {rank}: ")).unwrap_or_default();
        let time = profile::now().since(began);
        log::write_line(format_args!("{rank}{} = {code} ({time})", NAMES[at]));
    }
}

/// Runs a call that returns a value and cannot fail.
#[inline]
pub(crate) fn run_infallible<T>(body: impl FnOnce() -> T) -> T {
    match catch_panic(body) {
        Ok(value) => value,
        // There is no code to return; the panic was reported on standard error.
        Err(_) => std::process::abort(),
    }
}

/// Reports pending events to tools, if events are enabled.
#[cold]
fn report_events() {
    if profile::events_enabled() {
        // A panic was reported on standard error; the call itself has completed.
        let _ = catch_panic(deliver_events);
    }
}
