//! Descriptors that threads sleep on, and what wakes them.

pub(crate) mod reactor;
pub(crate) mod wake_socket;
