//! The connection manager: channels of events, listeners, and the calls that start things.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::{Bell, Wake};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use verbs::provider::{CmOps, ListenerOps, own};
use verbs::{CmEvent, ConnParam, Error, Qp, Result};

use super::active::Active;
use super::device::{Inner, unpoisoned};
use super::handshake::Wish;
use super::nic::LISTENER;
use super::qp::{QpHandle, QpInner, state, state_of};
use super::stream::End;
use crate::fork::Fd;

/// Room for events that an empty channel keeps.
const EVENTS_KEPT: usize = 256;

/// Events, with the listener that they came to. Each is in a box: one large block, given back, would raise the size from which
/// malloc(3) gives blocks back to the system.
type Events = VecDeque<(Option<u64>, Box<CmEvent>)>;

/// A channel of events.
pub(super) struct CmInner {
    pub(super) device: Arc<Inner>,
    bell: Bell,
    fd: Fd,
    queue: Mutex<Events>,
}

impl CmInner {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = eventfd(0, flags).map_err(|e| Error::system("cannot create an event channel", e))?;
        Ok(Arc::new(Self {
            device: device.clone(),
            bell: Bell::new(),
            fd: fd.into(),
            queue: Mutex::default(),
        }))
    }

    /// Something happened.
    pub(super) fn push(&self, event: CmEvent) {
        let mut queue = unpoisoned(&self.queue);
        self.append(&mut queue, None, event);
    }

    /// A request came to a listener, which may be gone already: then nobody gets it.
    pub(super) fn push_request(&self, listener: &ListenerInner, event: CmEvent) {
        let mut queue = unpoisoned(&self.queue);
        if listener.open.load(Ordering::Acquire) {
            self.append(&mut queue, Some(listener.id), event);
        } else {
            drop(queue);
            drop(event);
        }
    }

    fn append(&self, queue: &mut Events, of: Option<u64>, event: CmEvent) {
        queue.push_back((of, Box::new(event)));
        // Under the lock, so that the descriptor is readable exactly while there is an event. The counter cannot fill up
        // before memory does.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        self.bell.ring();
    }

    fn lower(&self) {
        let mut count = [0; 8];
        // There is one count for each event.
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    /// Requests that came to a listener and that nobody has taken are answered: by dropping them, they are rejected.
    fn drop_requests_of(&self, listener: u64) {
        let mut queue = unpoisoned(&self.queue);
        let (gone, stay): (Events, Events) = queue.drain(..).partition(|(of, _)| *of == Some(listener));
        *queue = stay;
        gone.iter().for_each(|_| self.lower());
        drop(queue);
        drop(gone);
    }
}

/// A listening socket.
pub(super) struct ListenerInner {
    pub(super) socket: Fd,
    pub(super) id: u64,
    pub(super) addr: SocketAddr,
    pub(super) cm: Weak<CmInner>,
    pub(super) backlog: usize,
    /// Requests that the program has not answered.
    pub(super) pending: AtomicUsize,
    open: AtomicBool,
}

/// The API's hold on a listener.
struct ListenerHandle {
    device: Arc<Inner>,
    inner: Arc<ListenerInner>,
    /// Events need their channel.
    cm: Arc<CmInner>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.inner.addr
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.inner.open.store(false, Ordering::Release);
        self.device.nic.unwatch(self.inner.socket.as_fd());
        self.device.nic.registry.forget_listener(self.inner.id);
        // The thread may hold the socket for another moment; nobody gets through from now on.
        let _ = rustix::net::shutdown(&self.inner.socket, rustix::net::Shutdown::Both);
        self.cm.drop_requests_of(self.inner.id);
    }
}

/// The channel behind the API's, if it is this device's.
pub(super) fn find_cm(device: &Arc<Inner>, cm: &dyn CmOps) -> Result<Arc<CmInner>> {
    let any: &dyn std::any::Any = cm;
    let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
    if !Arc::ptr_eq(&handle.0.device, device) {
        return Err(Error::Foreign { what: "the event channel" });
    }
    Ok(handle.0.clone())
}

/// The queue pair behind the API's.
pub(super) fn own_qp(qp: &Qp) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
    Ok(handle.0.clone())
}

/// The API's hold on an event channel.
pub(super) struct CmHandle(pub(super) Arc<CmInner>);

impl CmOps for CmHandle {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        let device = &self.0.device;
        device.birth.check()?;
        let addr = match device.config.bind {
            Some(own) if addr.ip().is_unspecified() => SocketAddr::new(own, addr.port()),
            Some(own) if addr.ip() != own => {
                let why = format!("this device's side is {own}; listen there, or open another device");
                return Err(Error::Address { addr, why });
            }
            _ => addr,
        };
        let (socket, addr) = device.listening_socket(addr, backlog)?;
        let inner = Arc::new(ListenerInner {
            socket,
            id: device.nic.fresh_id(),
            addr,
            cm: Arc::downgrade(&self.0),
            backlog: backlog as usize,
            pending: AtomicUsize::new(0),
            open: AtomicBool::new(true),
        });
        device.nic.registry.add_listener(&inner);
        let handle = ListenerHandle { device: device.clone(), inner: inner.clone(), cm: self.0.clone() };
        device.nic.watch(inner.socket.as_fd(), LISTENER | inner.id, EventFlags::IN)?;
        Ok(Box::new(handle))
    }

    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        let device = &self.0.device;
        device.birth.check()?;
        let qp = own_qp(qp)?;
        if let Some(own) = device.config.bind.filter(|own| own.is_ipv4() != addr.is_ipv4()) {
            let why = format!("it is not of the kind of this device's side, {own}");
            return Err(Error::Address { addr, why });
        }
        if !qp.advance(state::INIT, state::CONNECTING) {
            return Err(match qp.state() {
                state::CONNECTING => Error::Invalid("the queue pair is being connected already".into()),
                now => Error::WrongState { call: "connect", state: state_of(now) },
            });
        }
        let active = Active::new(device, qp, self.0.clone(), addr, param.clone());
        device.nic.ask(Wish::Connect(active));
        Ok(())
    }

    fn disconnect(&self, qp: &Qp) -> Result<()> {
        self.0.device.birth.check()?;
        let qp = own_qp(qp)?;
        let was_connected = qp.with(|stream| stream.began());
        if !was_connected {
            return Err(Error::WrongState { call: "disconnect", state: state_of(qp.state()) });
        }
        qp.end(End::Asked);
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        self.0.device.birth.check().ok()?;
        let mut queue = unpoisoned(&self.0.queue);
        let (_, event) = queue.pop_front()?;
        self.0.lower();
        if queue.is_empty() && queue.capacity() > EVENTS_KEPT {
            // What a crowd's events took.
            *queue = Events::new();
            self.0.device.tide.ebb();
            self.0.device.nic.wake();
        }
        Some(*event)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.0.bell)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.fd.as_fd())
    }
}
