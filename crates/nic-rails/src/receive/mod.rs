//! The receiving half of a queue pair, and shared receive queues.

pub(crate) mod receive_queue;
pub(crate) mod recv_half;
pub(crate) mod srq;
