//! Broadcast algorithms.

pub(crate) mod binomial;
pub(crate) mod chain;
pub(crate) mod flat;
pub(crate) mod scatter_ring;
