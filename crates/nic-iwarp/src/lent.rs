//! Data path: what a connection lends to one of its halves for one call.

use std::os::fd::BorrowedFd;

use iwarp::Connection;

use super::queues::Queues;

/// What a connection lends to one of its halves for one call.
pub(super) struct Lent<'a> {
    /// The protocol's machine, of both directions.
    pub(super) machine: &'a mut Connection,
    pub(super) socket: BorrowedFd<'a>,
    /// The queue pair's.
    pub(super) queues: &'a Queues,
}
