//! How the NIC thread sleeps, and which of many connections have events.

pub(crate) mod linger;
pub(crate) mod reactor;
pub(crate) mod ready;
