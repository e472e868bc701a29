//! The connection manager, as programs hold it: channels of events, listeners, and the calls that start things.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use host::{Span, Wake};
use rustix::event::epoll::EventFlags;
use verbs::provider::{CmOps, ListenerOps, own};
use verbs::{CmEvent, ConnParam, Error, Qp, Result, Screen};

use super::active::Active;
use super::end::End;
use super::events::Events;
use super::handle::QpHandle;
use super::inner::Inner;
use super::listener::{ListenWish, Listener};
use super::qp::QpInner;
use super::queues::{state, state_of};
use super::reactor::LISTENER;
use super::registry::Wish;
use crate::fork::Fd;

/// How long the device's thread may take to make a listening socket.
const LISTEN_PATIENCE: Span = Span::from_secs(10);

/// The API's hold on a listener.
struct ListenerHandle {
    device: Arc<Inner>,
    inner: Arc<Listener>,
    /// Events need their channel.
    events: Arc<Events>,
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
        self.inner.close();
        self.device.shared.reactor.unwatch(self.inner.socket.as_fd());
        self.device.registry.forget_listener(self.inner.id);
        // The thread may hold the socket for another moment; nobody gets through from now on.
        let _ = rustix::net::shutdown(&self.inner.socket, rustix::net::Shutdown::Both);
        self.events.drop_requests_of(self.inner.id);
    }
}

/// The events of the API's channel, if it is this device's.
pub(super) fn find_events(device: &Arc<Inner>, cm: &dyn CmOps) -> Result<Arc<Events>> {
    let any: &dyn std::any::Any = cm;
    let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
    if !Arc::ptr_eq(&handle.device, device) {
        return Err(Error::Foreign { what: "the event channel" });
    }
    Ok(handle.events.clone())
}

/// The queue pair behind the API's.
pub(super) fn own_qp(qp: &Qp) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
    Ok(handle.qp().clone())
}

/// The API's hold on an event channel.
pub(super) struct CmHandle {
    device: Arc<Inner>,
    events: Arc<Events>,
}

impl CmHandle {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Self> {
        Ok(Self { device: device.clone(), events: Arc::new(Events::new()?) })
    }

    /// A listening socket, made by the device's thread: a socket belongs to the network namespace of the thread that makes
    /// it, and a device to the one in which it was opened.
    fn listening_socket(&self, addr: SocketAddr, backlog: u32) -> Result<(Fd, SocketAddr)> {
        let wish = Arc::new(ListenWish::new(addr, backlog));
        self.device.ask(Wish::Listen(wish.clone()));
        let host = &self.device.shared.host;
        host.wait("Cm::listen", wish.bell(), host.after(LISTEN_PATIENCE), || wish.take())
            .unwrap_or(Err(Error::TimedOut { call: "Cm::listen" }))
    }
}

impl CmOps for CmHandle {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        let shared = &self.device.shared;
        shared.birth.check()?;
        let addr = match shared.config.bind {
            Some(own) if addr.ip().is_unspecified() => SocketAddr::new(own, addr.port()),
            Some(own) if addr.ip() != own => {
                let why = format!("this device's side is {own}; listen there, or open another device");
                return Err(Error::Address { addr, why });
            }
            _ => addr,
        };
        let (socket, addr) = self.listening_socket(addr, backlog)?;
        let id = shared.reactor.fresh_id();
        let inner = Arc::new(Listener::new(socket, id, addr, (backlog, screen), &self.events));
        self.device.registry.add_listener(&inner);
        let (device, events) = (self.device.clone(), self.events.clone());
        let handle = ListenerHandle { device, inner: inner.clone(), events };
        shared.reactor.watch(inner.socket.as_fd(), LISTENER | id, EventFlags::IN)?;
        Ok(Box::new(handle))
    }

    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        let shared = &self.device.shared;
        shared.birth.check()?;
        let qp = own_qp(qp)?;
        if let Some(own) = shared.config.bind.filter(|own| own.is_ipv4() != addr.is_ipv4()) {
            let why = format!("it is not of the kind of this device's side, {own}");
            return Err(Error::Address { addr, why });
        }
        if !qp.queues.advance(state::INIT, state::CONNECTING) {
            return Err(match qp.queues.state() {
                state::CONNECTING => Error::Invalid("the queue pair is being connected already".into()),
                now => Error::WrongState { call: "connect", state: state_of(now) },
            });
        }
        let active = Active::new(shared, qp, self.events.clone(), addr, param.clone());
        self.device.ask(Wish::Connect(active));
        Ok(())
    }

    fn disconnect(&self, qp: &Qp) -> Result<()> {
        self.device.shared.birth.check()?;
        let qp = own_qp(qp)?;
        let was_connected = qp.with(|stream| stream.began());
        if !was_connected {
            return Err(Error::WrongState { call: "disconnect", state: state_of(qp.queues.state()) });
        }
        qp.end(&End::Asked);
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        let shared = &self.device.shared;
        shared.birth.check().ok()?;
        self.events.take(|| shared.ebb())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.events.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }
}
