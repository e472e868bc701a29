//! API handles, except those of connection management.

pub(crate) mod cq;
pub(crate) mod handle;
pub(crate) mod mr;
pub(crate) mod srq;
pub(crate) mod window;
