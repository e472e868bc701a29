//! The API's connection manager: event channels, listeners, and the calls that start connections; `state_machine`
//! continues them.
//!
//! A listener is a socket with an abstract name, which the kernel removes with its process: nothing remains
//! in a file system, unless another user has taken the name (`names`).

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;
use verbs::provider::{BoundAddrOps, CmOps, ListenerOps, QpOps, downcast};
use verbs::{CmEvent, ConnParam, Error, Result, Screen};

use crate::api::handle::QpHandle;
use crate::connect::handshake::{hello_of, send_hello};
use crate::connect::port::{BoundPortGuard, Port};
use crate::connect::registry::{CmEvents, Conn, ConnPhase, Listener, failed};
use crate::device_inner::DeviceInner;
use crate::memory::layout::state;
use crate::protocol::names::{ConnectedSocket, connect_to};
use crate::protocol::socket::{check_local, ip_of};
use crate::protocol::wire::Message;
use crate::qp::QpInner;

/// The API handle of a listener.
struct ListenerHandle {
    guard: Arc<BoundPortGuard>,
    /// Keeps the event channel.
    _events: Arc<CmEvents>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.guard.bound.addr
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        self.guard.stop_listening();
    }
}

/// The event channel of an API handle.
pub(crate) fn find_events(device: &Arc<DeviceInner>, cm: &dyn CmOps) -> Result<Arc<CmEvents>> {
    let any: &dyn std::any::Any = cm;
    let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
    if !Arc::ptr_eq(&handle.device, device) {
        return Err(Error::Foreign { what: "the event channel" });
    }
    Ok(handle.events.clone())
}

/// The queue pair of an API handle, if it is not connected yet.
pub(crate) fn own_idle_qp(qp: &Arc<dyn QpOps>, call: &'static str) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = downcast(qp.clone(), "the queue pair")?;
    if handle.qp.connection.state() != state::INIT {
        return Err(Error::WrongState { call, state: handle.state() });
    }
    Ok(handle.qp.clone())
}

/// The API handle of an event channel.
pub(crate) struct CmHandle {
    device: Arc<DeviceInner>,
    events: Arc<CmEvents>,
}

impl CmHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>) -> Result<Self> {
        Ok(Self { device: device.clone(), events: Arc::new(CmEvents::new()?) })
    }

    fn listener(&self, guard: Arc<BoundPortGuard>) -> Box<dyn ListenerOps> {
        Box::new(ListenerHandle { guard, _events: self.events.clone() })
    }

    /// Sends a connect request to the process that listens at `addr`; the connection comes from port `from`,
    /// or from any. Returns `None` if no listener could be reached, which an event reports.
    fn start_connect(
        &self,
        from: Option<u16>,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<Option<Arc<Conn>>> {
        check_local(addr)?;
        let device = &self.device;
        device.shared.fork_guard.check()?;
        let qp = own_idle_qp(qp, "connect")?;
        if device.registry.conn_of(&qp).is_some() {
            return Err(Error::Invalid("the queue pair is being connected already".into()));
        }
        let ConnectedSocket { socket, port, pid } = match connect_to(addr, from)? {
            Ok(connected) => connected,
            Err(why) => {
                self.events.push(failed(&qp, why));
                return Ok(None);
            }
        };
        let local = SocketAddr::new(ip_of(addr), port);
        let deadline = device.shared.host.now() + param.timeout;
        let request = Message::Request(hello_of(&device.shared, &qp, param));
        let phase = ConnPhase::AwaitReply { qp: qp.clone(), cm: self.events.clone(), deadline };
        let peer = SocketAddr::new(ip_of(addr), addr.port());
        let conn = device.registry.register_conn(&device.shared, socket, pid, (local, peer), phase)?;
        if let Err(why) = send_hello(&device.shared, &conn, &qp, &request) {
            device.registry.end_conn(&device.shared, &conn, &why);
        }
        device.shared.reactor.wake();
        Ok(Some(conn))
    }
}

impl CmOps for CmHandle {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        let listener = Listener::new(&self.events, backlog, screen);
        let guard = BoundPortGuard::bind(&self.device, addr, Some(listener))?;
        Ok(self.listener(Arc::new(guard)))
    }

    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn BoundAddrOps>> {
        Ok(Box::new(Port::new(BoundPortGuard::bind(&self.device, addr, None)?)))
    }

    fn listen_at(&self, port: &dyn BoundAddrOps, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        let port = Port::downcast(port, &self.device)?;
        let guard = port.listen(Listener::new(&self.events, backlog, None))?;
        Ok(self.listener(guard))
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.start_connect(None, qp, addr, param).map(drop)
    }

    fn connect_from(
        &self,
        port: &dyn BoundAddrOps,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        Port::downcast(port, &self.device)?.connect(|from| self.start_connect(Some(from), qp, addr, param))
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        let handle: Arc<QpHandle> = downcast(qp.clone(), "the queue pair")?;
        let device = &self.device;
        device.shared.fork_guard.check()?;
        if handle.qp.connection.link().is_none() {
            return Err(Error::WrongState { call: "disconnect", state: handle.state() });
        }
        device.registry.disconnect(&device.shared, &handle.qp, true);
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        self.device.shared.fork_guard.check().ok()?;
        self.events.pop(|| self.device.shared.count_bulk_free())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.events.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }
}
