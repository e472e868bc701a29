//! System errors as a [`Fault`].

use super::super::Fault;

/// The fault for a failed system call; `what` names the operation.
pub(super) fn machine(what: &str) -> impl FnOnce(std::io::Error) -> Fault {
    move |why| Fault::Machine(format!("{what}: {why}"))
}
