//! Bound ports, to listen on or to connect from: each is a bound socket, which becomes a listener or a connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use rustix::io::fcntl_dupfd_cloexec;
use verbs::provider::BoundAddrOps;
use verbs::{Error, Result};

use crate::connect::outgoing::SourceAddr;
use crate::device_inner::DeviceInner;
use crate::tcp::socket::listen_on;
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

/// A bound port.
pub(crate) struct Port {
    device: Arc<DeviceInner>,
    addr: SocketAddr,
    state: Mutex<PortState>,
}

struct PortState {
    /// The bound socket, until a connection takes it.
    reserved_socket: Option<Arc<ForkSafeFd>>,
    /// Alive while a listener uses the port.
    listening: Weak<PortListenGuard>,
}

/// Marks a port as listening until it is dropped.
pub(crate) struct PortListenGuard;

impl Port {
    pub(crate) fn new(device: &Arc<DeviceInner>, socket: ForkSafeFd, addr: SocketAddr) -> Self {
        let state = PortState { reserved_socket: Some(Arc::new(socket)), listening: Weak::new() };
        Self { device: device.clone(), addr, state: Mutex::new(state) }
    }

    /// Our port for that of the API, if it belongs to this device.
    pub(crate) fn downcast_own<'p>(
        port: &'p dyn BoundAddrOps,
        device: &Arc<DeviceInner>,
    ) -> Result<&'p Self> {
        let port = (port as &dyn std::any::Any).downcast_ref::<Self>();
        port.filter(|port| Arc::ptr_eq(&port.device, device)).ok_or(Error::Foreign { what: "the port" })
    }

    /// Fails if the port is listening.
    fn check_not_listening(&self, state: &PortState) -> Result<()> {
        match state.listening.strong_count() {
            0 => Ok(()),
            _ => Err(Error::Busy { what: "the port", why: format!("a listener uses {}", self.addr) }),
        }
    }

    /// Makes the socket listen, and returns it.
    pub(crate) fn listen(&self, backlog: u32) -> Result<(Arc<ForkSafeFd>, Arc<PortListenGuard>)> {
        let mut state = unpoisoned(&self.state);
        self.check_not_listening(&state)?;
        let used = || format!("a connection was made from {}", self.addr);
        let socket =
            state.reserved_socket.clone().ok_or_else(|| Error::Busy { what: "the port", why: used() })?;
        listen_on(&socket, backlog).map_err(|errno| Error::system("cannot listen", errno))?;
        let guard = Arc::new(PortListenGuard);
        state.listening = Arc::downgrade(&guard);
        Ok((socket, guard))
    }

    /// The local address for a connection. The first call takes the reserved socket with it; later connections bind another.
    pub(crate) fn take_source_addr(&self) -> Result<SourceAddr> {
        let mut state = unpoisoned(&self.state);
        self.check_not_listening(&state)?;
        let Some(socket) = &state.reserved_socket else { return Ok(SourceAddr::new(self.addr, None)) };
        // Requests that arrived at an earlier listener may keep the socket open a moment longer.
        let copy = fcntl_dupfd_cloexec(&**socket, 0)
            .map_err(|errno| Error::system("cannot copy a socket", errno))?;
        state.reserved_socket = None;
        Ok(SourceAddr::new(self.addr, Some(copy.into())))
    }
}

impl BoundAddrOps for Port {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}
