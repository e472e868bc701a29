//! The other side of a connection: its device, its queue pair, and notifying its waiters.

pub(crate) mod device;
pub(crate) mod notify;
pub(crate) mod queue_pair;
