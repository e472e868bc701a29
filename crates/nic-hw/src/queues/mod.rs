//! Completion queues, their channels, and shared receive queues, as the API sees them.

pub(crate) mod arming;
pub(crate) mod channel;
pub(crate) mod cq;
pub(crate) mod srq;
