//! Rings of requests, completions and events, and the queues of a queue pair.

pub(crate) mod cm_events;
pub(crate) mod completions;
pub(crate) mod cq_events;
pub(crate) mod messages;
pub(crate) mod qp_queues;
pub(crate) mod receives;
pub(crate) mod request_ring;
pub(crate) mod status;
