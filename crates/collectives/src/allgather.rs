//! Allgather algorithms.

pub(crate) mod bruck;
pub(crate) mod direct;
pub(crate) mod recursive_doubling;
pub(crate) mod ring;
