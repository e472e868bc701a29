//! Error handlers: what becomes of a call's error.

use crate::answer::{Fault, Whose};

/// Calls the error handler that is responsible; what the call then returns.
pub(crate) fn call(name: &'static str, whose: Whose, fault: &Fault) -> i32 {
    match whose {
        Whose::Caller => fault.code,
        Whose::Process => fatal(name, fault, ""),
        Whose::Comm(comm) => fatal(name, fault, &format!(" on communicator {comm:?}")),
        Whose::Session(session) => fatal(name, fault, &format!(" on session {session:?}")),
    }
}

/// Ends the process with a line that says why.
fn fatal(name: &'static str, fault: &Fault, object: &str) -> ! {
    eprintln!(
        "{name}{object}: {} (error {}); the program ends, as its error handler says",
        fault.text, fault.code
    );
    std::process::exit(fault.code.clamp(1, 255));
}
