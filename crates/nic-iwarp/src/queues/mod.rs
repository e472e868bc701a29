//! Rings of requests, completions and events, and the queues of a queue pair.

pub(crate) mod completions;
pub(crate) mod events;
pub(crate) mod messages;
pub(crate) mod per_qp;
pub(crate) mod receives;
pub(crate) mod reports;
pub(crate) mod request_ring;
pub(crate) mod status;
