//! API handles of the objects.

pub(crate) mod channel;
pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod handle;
pub(crate) mod pd;
