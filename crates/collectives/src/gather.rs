//! Gathering to a root.

pub(crate) mod binomial;
pub(crate) mod linear;
