//! Allreduce algorithms.

pub(crate) mod direct;
pub(crate) mod flat;
pub(crate) mod rabenseifner;
pub(crate) mod recursive_doubling;
pub(crate) mod ring;
