//! Connection management: connection establishment, listeners, bound ports, and the program's calls.

pub(crate) mod cm;
pub(crate) mod handshake;
pub(crate) mod incoming;
pub(crate) mod listener;
pub(crate) mod outgoing;
pub(crate) mod port;
pub(crate) mod registry;
pub(crate) mod request;
