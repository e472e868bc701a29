//! Completion queues: delivering completions, and taking them from the rails.

pub(crate) mod announced;
pub(crate) mod completions;
pub(crate) mod known;
pub(crate) mod polling;
