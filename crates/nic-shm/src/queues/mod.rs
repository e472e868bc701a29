//! Completion queues, their channels, and shared receive queues, as far as queue pairs use them.

pub(crate) mod channel;
pub(crate) mod completions;
pub(crate) mod receives;
