//! The receiving half of a queue pair, and shared receive queues.

pub(crate) mod receives;
pub(crate) mod receiving;
pub(crate) mod srq;
