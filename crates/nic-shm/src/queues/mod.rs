//! Completion queues, their channels, and shared receive queues, as queue pairs know them.

pub(crate) mod channel;
pub(crate) mod completions;
pub(crate) mod receives;
