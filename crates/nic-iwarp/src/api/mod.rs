//! Objects of the API, except those of connection management.

pub(crate) mod channel;
pub(crate) mod cq;
pub(crate) mod handle;
pub(crate) mod mr;
pub(crate) mod srq;
