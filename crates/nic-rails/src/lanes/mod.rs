//! Failure and reconnection of lanes.

pub(crate) mod mail;
pub(crate) mod mend;
pub(crate) mod rejoin;
pub(crate) mod stay;
