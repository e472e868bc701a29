//! Connection management: connections by number, their state machine, addresses, requests, and the program's calls.

pub(crate) mod cm;
pub(crate) mod handshake;
pub(crate) mod port;
pub(crate) mod registry;
pub(crate) mod request;
pub(crate) mod state_machine;
