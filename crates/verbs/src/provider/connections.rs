//! Connections, as a NIC implements them, and the events that it reports. A connect request is an event that can be
//! answered, so both are in one file.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;

use super::queues::{QpOps, unsupported};
use crate::conn::{CmFailure, ConnInfo, ConnParam};
use crate::error::Result;
use crate::screen::{Screen, ScreenRequest, Verdict};

/// An event of a connection (`rdma_cm_event`).
#[derive(Debug)]
pub enum CmEvent {
    /// A peer requests a connection to a listener of this channel. If it is dropped unanswered, it is rejected.
    ConnectRequest(ConnectRequest),
    /// The queue pair is connected and may send.
    Established {
        /// [`crate::Qp::num`], or [`crate::CmId::num`].
        qp_num: u32,
        /// The private data of the accepting side; empty on the passive side.
        private_data: Vec<u8>,
        /// The addresses of both ends, and the peer's depths.
        info: ConnInfo,
    },
    /// The peer rejected the request. The queue pair is back in `Init`.
    Rejected {
        /// [`crate::Qp::num`], or [`crate::CmId::num`].
        qp_num: u32,
        /// The private data of the peer.
        private_data: Vec<u8>,
    },
    /// The connection was not established. The queue pair is back in `Init`, or, on the passive side, in `Error`.
    ConnectFailed {
        /// [`crate::Qp::num`], or [`crate::CmId::num`].
        qp_num: u32,
        /// The reason.
        why: CmFailure,
    },
    /// The connection has ended, and the queue pair is in the error state.
    Disconnected {
        /// [`crate::Qp::num`], or [`crate::CmId::num`].
        qp_num: u32,
    },
}

/// A connect request, as it arrives at a listener.
pub struct ConnectRequest {
    ops: Option<Box<dyn RequestOps>>,
    /// The private data of the connecting side.
    pub private_data: Vec<u8>,
    /// The addresses of both ends, and the depths of the connecting side.
    pub info: ConnInfo,
    screened: Option<Box<dyn Any + Send>>,
}

impl std::fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConnectRequest(from {} to {})", self.info.peer, self.info.local)
    }
}

impl ConnectRequest {
    /// A request that a NIC has received.
    pub fn new(ops: Box<dyn RequestOps>, private_data: Vec<u8>, info: ConnInfo) -> Self {
        Self { ops: Some(ops), private_data, info, screened: None }
    }

    /// Adds the value that the listener's [`Screen`] returned; for NICs.
    pub fn screened(mut self, screened: Option<Box<dyn Any + Send>>) -> Self {
        self.screened = screened;
        self
    }

    /// Replaces the implementation's part by `wrap` of it; for NICs that pass on requests of another NIC. A request that
    /// has been answered stays as it is.
    pub fn wrapped(mut self, wrap: impl FnOnce(Box<dyn RequestOps>) -> Box<dyn RequestOps>) -> Self {
        self.ops = self.ops.take().map(wrap);
        self
    }

    /// Takes the value that the listener's [`Screen`] returned; `None` if there was no screen, the value has another
    /// type, or it has been taken.
    pub fn take_screened<T: Any>(&mut self) -> Option<T> {
        self.screened.take()?.downcast().ok().map(|found| *found)
    }

    /// Whether the connecting side still waits for the answer, as far as this side knows now.
    pub fn is_alive(&self) -> bool {
        self.ops.as_ref().is_some_and(|ops| ops.is_alive())
    }

    /// Rejects the request, with private data for the peer (`rdma_reject`).
    ///
    /// # Errors
    /// [`crate::Error::Limit`] for too much private data; the request is then rejected without any.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        match self.ops.take() {
            Some(ops) => ops.reject(private_data),
            None => Ok(()),
        }
    }

    /// The implementation's part, taken out to accept it; for NICs.
    pub fn take_ops(&mut self) -> Option<Box<dyn RequestOps>> {
        self.ops.take()
    }
}

impl Drop for ConnectRequest {
    fn drop(&mut self) {
        if let Some(ops) = self.ops.take() {
            // If even this fails, the peer learns it from the closed connection.
            let _ = ops.reject(&[]);
        }
    }
}

/// A channel of connection events.
pub trait CmOps: Any + Send + Sync {
    /// See [`crate::Cm::listen`] and [`crate::Cm::listen_screened`]. Before the NIC queues a request, it calls
    /// [`apply_screen`].
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>>;
    /// See [`crate::Cm::connect`].
    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()>;
    /// See [`crate::Cm::bind`].
    fn bind(&self, _addr: SocketAddr) -> Result<Box<dyn BoundAddrOps>> {
        Err(unsupported("the device", "addresses that are held"))
    }
    /// See [`crate::Cm::listen_at`].
    fn listen_at(&self, _port: &dyn BoundAddrOps, _backlog: u32) -> Result<Box<dyn ListenerOps>> {
        Err(unsupported("the device", "addresses that are held"))
    }
    /// See [`crate::Cm::connect_from`].
    fn connect_from(
        &self,
        _port: &dyn BoundAddrOps,
        _qp: &Arc<dyn QpOps>,
        _addr: SocketAddr,
        _param: &ConnParam,
    ) -> Result<()> {
        Err(unsupported("the device", "addresses that are held"))
    }
    /// See [`crate::Cm::disconnect`].
    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()>;
    /// See [`crate::Cm::poll_event`].
    fn poll_event(&self) -> Option<CmEvent>;
    /// As [`super::CqOps::prepare_wait`], for every event.
    fn prepare_wait(&self) -> Wake<'_>;
    /// See [`crate::Cm::fd`].
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A listener; dropping it stops listening.
pub trait ListenerOps: Any + Send + Sync {
    /// See [`crate::Listener::addr`].
    fn addr(&self) -> SocketAddr;
}

/// A reserved address; dropping it releases the address.
pub trait BoundAddrOps: Any + Send + Sync {
    /// See [`crate::BoundAddr::addr`].
    fn addr(&self) -> SocketAddr;
}

/// An unanswered connect request.
pub trait RequestOps: Any + Send {
    /// Accepts the request; later events go to `cm`. See [`crate::Cm::accept`].
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()>;
    /// See [`crate::ConnectRequest::is_alive`].
    fn is_alive(&self) -> bool;
    /// Rejects the request. See [`crate::ConnectRequest::reject`].
    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()>;
}

/// Applies a listener's screen, if there is one; returns the screen's value for a request that passes.
///
/// # Errors
/// The private data with which the request is rejected: at most `max` bytes, or none.
pub fn apply_screen(
    screen: Option<&Arc<dyn Screen>>,
    private_data: &[u8],
    info: ConnInfo,
    max: usize,
) -> Result<Option<Box<dyn Any + Send>>, Vec<u8>> {
    match screen.map(|screen| screen.screen(&ScreenRequest { private_data, info })) {
        None => Ok(None),
        Some(Verdict::Pass(found)) => Ok(Some(found)),
        Some(Verdict::Reject(words)) => Err(if words.len() <= max { words } else { Vec::new() }),
    }
}
