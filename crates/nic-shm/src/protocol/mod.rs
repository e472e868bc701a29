//! The connection protocol: its messages, and the sockets and socket names that carry them.

pub(crate) mod names;
pub(crate) mod socket;
pub(crate) mod token;
#[cfg(any(test, feature = "lab"))]
pub(crate) mod twist;
pub(crate) mod wire;
