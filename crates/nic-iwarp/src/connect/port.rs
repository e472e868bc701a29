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
    held: Mutex<PortState>,
}

struct PortState {
    /// The bound socket, until a connection takes it.
    socket: Option<Arc<ForkSafeFd>>,
    /// Alive while a listener uses the port.
    listening: Weak<Listening>,
}

/// Marks a port as listening until it is dropped.
pub(crate) struct Listening;

impl Port {
    pub(crate) fn new(device: &Arc<DeviceInner>, socket: ForkSafeFd, addr: SocketAddr) -> Self {
        let held = PortState { socket: Some(Arc::new(socket)), listening: Weak::new() };
        Self { device: device.clone(), addr, held: Mutex::new(held) }
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
    fn check_not_listening(&self, held: &PortState) -> Result<()> {
        match held.listening.strong_count() {
            0 => Ok(()),
            _ => Err(Error::Busy { what: "the port", why: format!("a listener uses {}", self.addr) }),
        }
    }

    /// Makes the socket listen, and returns it.
    pub(crate) fn listen(&self, backlog: u32) -> Result<(Arc<ForkSafeFd>, Arc<Listening>)> {
        let mut held = unpoisoned(&self.held);
        self.check_not_listening(&held)?;
        let used = || format!("a connection was made from {}", self.addr);
        let socket = held.socket.clone().ok_or_else(|| Error::Busy { what: "the port", why: used() })?;
        listen_on(&socket, backlog).map_err(|errno| Error::system("cannot listen", errno))?;
        let listening = Arc::new(Listening);
        held.listening = Arc::downgrade(&listening);
        Ok((socket, listening))
    }

    /// The local address for a connection. The first attempt takes the socket; later ones bind another.
    pub(crate) fn source_addr(&self) -> Result<SourceAddr> {
        let mut held = unpoisoned(&self.held);
        self.check_not_listening(&held)?;
        let Some(socket) = &held.socket else { return Ok(SourceAddr::new(self.addr, None)) };
        // Requests that arrived at an earlier listener may keep the socket open a moment longer.
        let own = fcntl_dupfd_cloexec(&**socket, 0)
            .map_err(|errno| Error::system("cannot copy a socket", errno))?;
        held.socket = None;
        Ok(SourceAddr::new(self.addr, Some(own.into())))
    }
}

impl BoundAddrOps for Port {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}
