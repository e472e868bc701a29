//! The connection protocol: its messages, and the sockets and socket names that carry them.

#[cfg(any(test, feature = "lab"))]
pub(crate) mod hello_fault;
pub(crate) mod names;
pub(crate) mod socket;
pub(crate) mod token;
pub(crate) mod wire;
