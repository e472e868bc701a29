//! Data path: what a connection lends to one of its halves for one call.

use std::os::fd::BorrowedFd;

use iwarp::Connection;

use crate::queues::per_qp::Queues;

/// What a connection lends to one of its halves for one call.
pub(crate) struct QpContext<'a> {
    /// The protocol's machine, of both directions.
    pub(crate) machine: &'a mut Connection,
    pub(crate) socket: BorrowedFd<'a>,
    /// The queue pair's.
    pub(crate) queues: &'a Queues,
}
