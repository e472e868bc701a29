//! The receiving half of a queue pair, and what the owner does for a peer that may not copy.

pub(crate) mod arrival;
pub(crate) mod receiving;
pub(crate) mod serving;
