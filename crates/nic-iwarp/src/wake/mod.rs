//! What the device's thread sleeps on, and which of many connections something has come for.

pub(crate) mod linger;
pub(crate) mod reactor;
pub(crate) mod ready;
