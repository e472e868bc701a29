//! Addresses that programs hold, to listen at or to connect from.
//!
//! The socket of a held address listens from the beginning, so that other processes of the user see that the
//! port is taken (`names`). The NIC thread refuses requests while the program does not listen. A listening
//! socket cannot connect, so connections from the address have separate sockets.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};

use verbs::provider::BoundAddrOps;
use verbs::{Error, Result};

use crate::connect::registry::{BoundPort, Conn, Listener};
use crate::device_inner::DeviceInner;
use crate::protocol::names::listen_at;
use crate::protocol::socket::{check_local, ip_of, new_socket};
use nic_util::sync::unpoisoned;

/// A place that the NIC thread watches until this is dropped.
pub(crate) struct BoundPortGuard {
    device: Arc<DeviceInner>,
    pub(crate) bound: Arc<BoundPort>,
}

impl BoundPortGuard {
    /// Takes the requested port, or a free one, for a program that listens now or may later.
    pub(crate) fn bind(
        device: &Arc<DeviceInner>,
        addr: SocketAddr,
        listener: Option<Listener>,
    ) -> Result<Self> {
        check_local(addr)?;
        device.shared.fork_guard.check()?;
        let socket = new_socket()?;
        let name = listen_at(&socket, addr)?;
        let addr = SocketAddr::new(ip_of(addr), name.port);
        let id = device.shared.reactor.fresh_id();
        let listener = Mutex::new(listener.map(Arc::new));
        let bound = Arc::new(BoundPort { id, socket, name, addr, listener });
        let mut bound_ports = unpoisoned(&device.registry.bound_ports);
        device.shared.reactor.watch(bound.socket.as_fd(), id)?;
        bound_ports.insert(id, bound.clone());
        drop(bound_ports);
        Ok(Self { device: device.clone(), bound })
    }

    /// Refuses requests from now on.
    pub(crate) fn stop_listening(&self) {
        if !self.device.shared.fork_guard.is_forked() {
            unpoisoned(&self.bound.listener).take();
        }
    }
}

impl Drop for BoundPortGuard {
    fn drop(&mut self) {
        if self.device.shared.fork_guard.is_forked() {
            return;
        }
        self.device.shared.reactor.unwatch(self.bound.socket.as_fd());
        self.bound.name.remove();
        unpoisoned(&self.device.registry.bound_ports).remove(&self.bound.id);
    }
}

/// The API handle of an address.
pub(crate) struct Port {
    guard: Arc<BoundPortGuard>,
    /// The last connection from this address.
    conn: Mutex<Weak<Conn>>,
}

impl Port {
    pub(crate) fn new(guard: BoundPortGuard) -> Self {
        Self { guard: Arc::new(guard), conn: Mutex::default() }
    }

    /// The port of an API handle, if it belongs to this device.
    pub(crate) fn downcast<'p>(port: &'p dyn BoundAddrOps, device: &Arc<DeviceInner>) -> Result<&'p Self> {
        let port = (port as &dyn std::any::Any).downcast_ref::<Self>();
        port.filter(|port| Arc::ptr_eq(&port.guard.device, device)).ok_or(Error::Foreign { what: "the port" })
    }

    /// Checks that no connection from this port is in use.
    fn check_unconnected(&self, conn: &Weak<Conn>) -> Result<()> {
        match conn.upgrade().is_some_and(|conn| !conn.is_closed()) {
            true => self.busy("a connection comes from"),
            false => Ok(()),
        }
    }

    fn busy(&self, why: &str) -> Result<()> {
        Err(Error::Busy { what: "the port", why: format!("{why} {}", self.addr()) })
    }

    /// Delivers requests at this port to a listener, until [`BoundPortGuard::stop_listening`].
    pub(crate) fn listen(&self, listener: Listener) -> Result<Arc<BoundPortGuard>> {
        self.guard.device.shared.fork_guard.check()?;
        let conn = unpoisoned(&self.conn);
        self.check_unconnected(&conn)?;
        let mut now = unpoisoned(&self.guard.bound.listener);
        if now.is_some() {
            self.busy("a program listens at")?;
        }
        *now = Some(Arc::new(listener));
        Ok(self.guard.clone())
    }

    /// Lets `connect` create a connection from this port; `connect` returns `None` if no listener could be
    /// reached.
    pub(crate) fn connect(&self, connect: impl FnOnce(u16) -> Result<Option<Arc<Conn>>>) -> Result<()> {
        let mut conn = unpoisoned(&self.conn);
        self.check_unconnected(&conn)?;
        if unpoisoned(&self.guard.bound.listener).is_some() {
            self.busy("a program listens at")?;
        }
        *conn = connect(self.addr().port())?.map_or_else(Weak::new, |conn| Arc::downgrade(&conn));
        Ok(())
    }
}

impl BoundAddrOps for Port {
    fn addr(&self) -> SocketAddr {
        self.guard.bound.addr
    }
}
