//! [`Screen`]: a check of connect requests that runs in the NIC, before a request occupies an entry of the backlog or
//! wakes the program.
//!
//! A screen refuses foreign requests cheaply. It runs where the NIC receives the request, which is the NIC's own thread
//! on software NICs. It must not block; the NIC waits until it returns.

use std::any::Any;

use crate::conn::ConnInfo;

/// A connect request as a [`Screen`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct ScreenRequest<'a> {
    /// The private data of the request. Zeros may follow it on NICs whose private data has a fixed size.
    pub private_data: &'a [u8],
    /// The addresses of both ends, and the initiator's depths.
    pub info: ConnInfo,
}

/// The decision about a connect request.
#[derive(Debug)]
pub enum Verdict {
    /// The program gets the request, and this value with [`crate::ConnectRequest::take_screened`], so that nothing is
    /// parsed twice.
    Pass(Box<dyn Any + Send>),
    /// The NIC rejects the request with this private data, and closes the connection. Data longer than
    /// [`crate::DeviceAttr::max_private_data`] bytes are not sent.
    Reject(Vec<u8>),
}

/// Checks connect requests of a listener ([`crate::Cm::listen_screened`]).
pub trait Screen: Send + Sync {
    /// Decides about a request. It may be called from any thread, and from several at the same time.
    fn screen(&self, request: &ScreenRequest<'_>) -> Verdict;
}
