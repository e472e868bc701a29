//! Protection domains and regions on all rails, and the keys that represent a region's keys on each.

pub(crate) mod domain;
pub(crate) mod keys;
