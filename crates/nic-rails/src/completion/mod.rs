//! Completion queues: delivering completions, and taking them from the rails.

pub(crate) mod completions;
pub(crate) mod event_queue;
pub(crate) mod number_cache;
pub(crate) mod polled_cq;
