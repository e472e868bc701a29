//! The other side of a connection: its device, its queue pair, and who waits there.

pub(crate) mod announce;
pub(crate) mod device;
pub(crate) mod queue_pair;
