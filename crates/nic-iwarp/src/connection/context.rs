//! Data path: the parts of a connection that sending and receiving use during one call.

use std::os::fd::BorrowedFd;

use iwarp::Connection;

use crate::queues::qp_queues::QpQueues;

/// The parts of a connection that sending and receiving use during one call.
pub(crate) struct QpContext<'a> {
    /// The protocol's state machine, for both directions.
    pub(crate) machine: &'a mut Connection,
    pub(crate) socket: BorrowedFd<'a>,
    /// The queues of the queue pair.
    pub(crate) queues: &'a QpQueues,
}
