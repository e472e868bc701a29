//! What the machine itself refuses, as a [`Fault`].

use super::super::Fault;

/// The fault of a call of the system's, with what was wanted before it.
pub(super) fn machine(what: &str) -> impl FnOnce(std::io::Error) -> Fault {
    move |why| Fault::Machine(format!("{what}: {why}"))
}
