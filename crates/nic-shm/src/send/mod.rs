//! The sending half of a queue pair: from the post to the peer's memory and its completion ring.

pub(crate) mod delivery;
pub(crate) mod engine;
pub(crate) mod failed_request;
pub(crate) mod fast_path;
pub(crate) mod send_half;
pub(crate) mod service_client;
pub(crate) mod transfer;
