//! The connection manager, as programs hold it: channels of events, listeners, and the calls that start things; `conns` carries
//! them on.
//!
//! A listener is a socket with an abstract name, which the kernel removes with its process: nothing is left in a
//! file system, unless another user has taken the name (`names`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use host::Wake;
use verbs::provider::{CmOps, ListenerOps, QpOps, own};
use verbs::{CmEvent, ConnParam, Error, Qp, Result, Screen};

use super::greeting::{greet, hello_of};
use super::handle::QpHandle;
use super::inner::Inner;
use super::layout::state;
use super::names::{Connected, connect_to, listen_at};
use super::qp::QpInner;
use super::registry::{CmEvents, Listener, Phase, failed};
use super::socket::{check_local, new_socket};
use super::wire::Message;
use crate::sync::unpoisoned;

/// The API's hold on a listener.
struct ListenerHandle {
    device: Arc<Inner>,
    inner: Arc<Listener>,
    /// Events need their channel.
    _events: Arc<CmEvents>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.inner.addr
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        if self.device.shared.birth.is_elsewhere() {
            return;
        }
        self.device.shared.reactor.unwatch(self.inner.socket.as_fd());
        self.inner.name.remove();
        unpoisoned(&self.device.registry.listeners).remove(&self.inner.id);
    }
}

/// The channel behind what a program gives.
pub(super) fn find_events(device: &Arc<Inner>, cm: &dyn CmOps) -> Result<Arc<CmEvents>> {
    let any: &dyn std::any::Any = cm;
    let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
    if !Arc::ptr_eq(&handle.device, device) {
        return Err(Error::Foreign { what: "the event channel" });
    }
    Ok(handle.events.clone())
}

/// The address that is meant, by an unspecified one, too.
fn ip_of(addr: SocketAddr) -> IpAddr {
    if addr.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { addr.ip() }
}

/// The queue pair behind the API's, if it is not yet connected.
pub(super) fn own_idle_qp(qp: &Qp, call: &'static str) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
    if handle.qp.connection.state() != state::INIT {
        return Err(Error::WrongState { call, state: handle.state() });
    }
    Ok(handle.qp.clone())
}

/// The API's hold on an event channel.
pub(super) struct CmHandle {
    device: Arc<Inner>,
    events: Arc<CmEvents>,
}

impl CmHandle {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Self> {
        Ok(Self { device: device.clone(), events: Arc::new(CmEvents::new()?) })
    }
}

impl CmOps for CmHandle {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        check_local(addr)?;
        let device = &self.device;
        device.shared.birth.check()?;
        let socket = new_socket()?;
        let name = listen_at(&socket, addr)?;
        let addr = SocketAddr::new(ip_of(addr), name.port);
        let id = device.shared.reactor.fresh_id();
        let inner = Arc::new(Listener {
            id,
            socket,
            name,
            addr,
            cm: Arc::downgrade(&self.events),
            backlog: backlog as usize,
            screen,
            pending: AtomicUsize::new(0),
        });
        let mut listeners = unpoisoned(&device.registry.listeners);
        device.shared.reactor.watch(inner.socket.as_fd(), id)?;
        listeners.insert(id, inner.clone());
        Ok(Box::new(ListenerHandle { device: device.clone(), inner, _events: self.events.clone() }))
    }

    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        check_local(addr)?;
        let device = &self.device;
        device.shared.birth.check()?;
        let qp = own_idle_qp(qp, "connect")?;
        if device.registry.conn_of(&qp).is_some() {
            return Err(Error::Invalid("the queue pair is being connected already".into()));
        }
        let Connected { socket, port, pid } = match connect_to(addr)? {
            Ok(connected) => connected,
            Err(why) => {
                self.events.push(failed(&qp, why));
                return Ok(());
            }
        };
        let local = SocketAddr::new(ip_of(addr), port);
        let deadline = device.shared.host.now() + param.timeout;
        let rnr_retry = param.rnr_retry;
        let request = Message::Request(hello_of(&device.shared, &qp, param));
        let phase = Phase::AwaitReply { qp: qp.clone(), cm: self.events.clone(), deadline, rnr_retry };
        let peer = SocketAddr::new(ip_of(addr), addr.port());
        let conn = device.registry.adopt(&device.shared, socket, pid, (local, peer), phase)?;
        if let Err(why) = greet(&device.shared, &conn, &qp, &request) {
            device.registry.on_end(&device.shared, &conn, &why);
        }
        device.shared.reactor.wake();
        Ok(())
    }

    fn disconnect(&self, qp: &Qp) -> Result<()> {
        let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
        let device = &self.device;
        device.shared.birth.check()?;
        if handle.qp.connection.link().is_none() {
            return Err(Error::WrongState { call: "disconnect", state: handle.state() });
        }
        device.registry.part(&device.shared, &handle.qp, true);
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        self.device.shared.birth.check().ok()?;
        self.events.pop(|| self.device.shared.ebb())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.events.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }
}
