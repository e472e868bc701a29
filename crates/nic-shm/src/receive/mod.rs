//! The receiving half of a queue pair, and copies that the owner makes for a peer that may not copy.

pub(crate) mod arrival;
pub(crate) mod recv_half;
pub(crate) mod service_server;
