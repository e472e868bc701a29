//! The connection manager of the API: event channels, listeners, and the calls that start connections.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use host::{Span, Wake};
use rustix::event::epoll::EventFlags;
use verbs::provider::{BoundAddrOps, CmOps, ListenerOps, QpOps, downcast};
use verbs::{CmEvent, ConnParam, Error, Result, Screen};

use crate::api::handle::QpHandle;
use crate::connect::listener::{Listener, SocketRequest};
use crate::connect::outgoing::{OutgoingConn, SourceAddr};
use crate::connect::port::{Port, PortListenGuard};
use crate::connect::registry::ThreadRequest;
use crate::connection::end_reason::EndReason;
use crate::device_inner::DeviceInner;
use crate::qp::QpInner;
use crate::queues::cm_events::CmEvents;
use crate::queues::qp_queues::{state, state_of};
use crate::tcp::socket::stop_listening;
use crate::wake::reactor::LISTENER;
use nic_util::fork::ForkSafeFd;

/// Time limit for the NIC thread to create a socket.
const SOCKET_TIMEOUT: Span = Span::from_secs(10);

/// The API's handle of a listener.
struct ListenerHandle {
    device: Arc<DeviceInner>,
    inner: Arc<Listener>,
    /// Keeps the event channel alive.
    events: Arc<CmEvents>,
    /// Marks the port as listening, if the listener belongs to a bound port.
    _port_guard: Option<Arc<PortListenGuard>>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.inner.addr
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        if self.device.shared.fork_guard.is_forked() {
            return;
        }
        self.inner.close();
        self.device.shared.reactor.unwatch(self.inner.socket.as_fd());
        self.device.registry.forget_listener(self.inner.id);
        // The NIC thread may keep the socket open for a moment, and a bound port may keep it longer, but it accepts
        // nothing more.
        stop_listening(&self.inner.socket);
        self.events.drop_requests_of(self.inner.id);
    }
}

/// The events of the API's channel, if it belongs to this device.
pub(crate) fn find_events(device: &Arc<DeviceInner>, cm: &dyn CmOps) -> Result<Arc<CmEvents>> {
    let any: &dyn std::any::Any = cm;
    let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
    if !Arc::ptr_eq(&handle.device, device) {
        return Err(Error::Foreign { what: "the event channel" });
    }
    Ok(handle.events.clone())
}

/// Our queue pair for that of the API.
pub(crate) fn own_qp(qp: &Arc<dyn QpOps>) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = downcast(qp.clone(), "the queue pair")?;
    Ok(handle.qp().clone())
}

/// The API's handle of an event channel.
pub(crate) struct CmHandle {
    device: Arc<DeviceInner>,
    events: Arc<CmEvents>,
}

impl CmHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>) -> Result<Self> {
        Ok(Self { device: device.clone(), events: Arc::new(CmEvents::new()?) })
    }

    /// A bound socket, which listens if there is a backlog. The NIC thread creates it, because a socket belongs to
    /// the network namespace of the thread that creates it, and a device to the namespace in which it was opened.
    fn socket_at(&self, addr: SocketAddr, backlog: Option<u32>) -> Result<(ForkSafeFd, SocketAddr)> {
        let shared = &self.device.shared;
        shared.fork_guard.check()?;
        let addr = match shared.config.bind {
            Some(own) if addr.ip().is_unspecified() => SocketAddr::new(own, addr.port()),
            Some(own) if addr.ip() != own => {
                let why =
                    format!("this device is bound to {own}; listen on that address, or open another device");
                return Err(Error::Address { addr, why });
            }
            _ => addr,
        };
        let request = Arc::new(SocketRequest::new(addr, backlog));
        self.device.request_thread(ThreadRequest::Socket(request.clone()));
        let call = if backlog.is_some() { "Cm::listen" } else { "Cm::bind" };
        let host = &shared.host;
        host.wait(call, request.wakeup(), host.after(SOCKET_TIMEOUT), || request.take())
            .unwrap_or(Err(Error::TimedOut { call }))
    }

    /// Starts to accept connections of a listening socket.
    fn start_listener(
        &self,
        socket: Arc<ForkSafeFd>,
        addr: SocketAddr,
        (backlog, screen): (u32, Option<Arc<dyn Screen>>),
        port_guard: Option<Arc<PortListenGuard>>,
    ) -> Result<Box<dyn ListenerOps>> {
        let shared = &self.device.shared;
        let id = shared.reactor.new_id();
        let inner = Arc::new(Listener::new(socket, id, addr, (backlog, screen), &self.events));
        self.device.registry.add_listener(&inner);
        let (device, events) = (self.device.clone(), self.events.clone());
        let handle = ListenerHandle { device, inner: inner.clone(), events, _port_guard: port_guard };
        shared.reactor.watch(inner.socket.as_fd(), LISTENER | id, EventFlags::IN)?;
        Ok(Box::new(handle))
    }

    fn begin(
        &self,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
        source: Option<SourceAddr>,
    ) -> Result<()> {
        let shared = &self.device.shared;
        shared.fork_guard.check()?;
        let qp = own_qp(qp)?;
        if let Some(own) = shared.config.bind.filter(|own| own.is_ipv4() != addr.is_ipv4()) {
            let why = format!("its address family differs from that of this device's address, {own}");
            return Err(Error::Address { addr, why });
        }
        if !qp.queues.advance(state::INIT, state::CONNECTING) {
            return Err(match qp.queues.state() {
                state::CONNECTING => Error::Invalid("the queue pair is being connected already".into()),
                now => Error::WrongState { call: "connect", state: state_of(now) },
            });
        }
        let outgoing = OutgoingConn::new(shared, qp, self.events.clone(), addr, param.clone(), source);
        self.device.request_thread(ThreadRequest::Connect(outgoing));
        Ok(())
    }
}

impl CmOps for CmHandle {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        let (socket, addr) = self.socket_at(addr, Some(backlog))?;
        self.start_listener(Arc::new(socket), addr, (backlog, screen), None)
    }

    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn BoundAddrOps>> {
        let (socket, addr) = self.socket_at(addr, None)?;
        Ok(Box::new(Port::new(&self.device, socket, addr)))
    }

    fn listen_at(&self, port: &dyn BoundAddrOps, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        let port = Port::downcast_own(port, &self.device)?;
        let (socket, port_guard) = port.listen(backlog)?;
        self.start_listener(socket, port.addr(), (backlog, None), Some(port_guard))
    }

    fn connect_from(
        &self,
        port: &dyn BoundAddrOps,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        let port = Port::downcast_own(port, &self.device)?;
        self.begin(qp, addr, param, Some(port.take_source_addr()?))
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.begin(qp, addr, param, None)
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        let qp = own_qp(qp)?;
        let was_connected = qp.with(|conn| conn.was_started());
        if !was_connected {
            return Err(Error::WrongState { call: "disconnect", state: state_of(qp.queues.state()) });
        }
        qp.end(&EndReason::Disconnected);
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        let shared = &self.device.shared;
        shared.fork_guard.check().ok()?;
        self.events.take(|| shared.on_memory_freed())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.events.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }
}
