//! Connection management: connections by number, their state machine, addresses, requests, and the program's calls.

pub(crate) mod cm;
pub(crate) mod conns;
pub(crate) mod greeting;
pub(crate) mod port;
pub(crate) mod registry;
pub(crate) mod request;
