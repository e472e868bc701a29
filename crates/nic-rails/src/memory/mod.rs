//! Protection domains and regions on all rails, and the keys that stand for a region's keys on each.

pub(crate) mod domain;
pub(crate) mod keys;
