//! Descriptors that threads sleep on, and what wakes them.

pub(crate) mod doorbell;
pub(crate) mod reactor;
