//! The sending half of a queue pair: when a request may start, on which lanes, and how it completes.

pub(crate) mod lane_rates;
pub(crate) mod request;
pub(crate) mod send_half;
pub(crate) mod send_queue;
