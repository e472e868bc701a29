//! [`Service`]: makes the connections of one device. A thread accepts them while the program does something else, as the kernel does
//! for TCP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ffi::lock;
use host::EventCount;
use verbs::{BoundAddr, Cm, CmEvent, ConnParam, ConnectRequest, Device};

use crate::config::Carrier;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::socket::{Ends, Socket, State};
use crate::wire::ConnData;

/// The most connections of one listener that wait to be taken.
const BACKLOG_MAX: usize = 4096;

/// The connections of a device, until dropped.
#[derive(Debug)]
pub struct Service(Arc<Inner>);

struct Inner {
    device: Device,
    carrier: Carrier,
    cm: Cm,
    registry: Mutex<Registry>,
    is_ending: AtomicBool,
    ending: EventCount,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inner({:?})", self.device)
    }
}

/// The sockets that events are for.
#[derive(Default)]
struct Registry {
    /// Sockets that connect, by the numbers of their queue pairs.
    connecting: BTreeMap<u32, Weak<Socket>>,
    /// Connections that peers have requested, and the sockets that get them.
    accepting: BTreeMap<u32, (Arc<Socket>, Weak<Socket>)>,
    listeners: Vec<(SocketAddr, Weak<Socket>)>,
}

/// An address of a device that a socket is bound to.
#[derive(Debug)]
pub struct Port {
    /// `None` if the device does not reserve addresses.
    reserved: Option<BoundAddr>,
    addr: SocketAddr,
}

impl Port {
    /// The address; the device has chosen its port if 0 was requested.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Service {
    /// Starts the thread. Messages travel as `carrier` says; all peers of the device must use the same.
    ///
    /// # Errors
    /// As [`Device::create_cm`]; the system's, if it refuses a thread.
    pub fn new(device: &Device, carrier: Carrier) -> Result<Self> {
        let inner = Arc::new(Inner {
            device: device.clone(),
            carrier,
            cm: device.create_cm()?,
            registry: Mutex::default(),
            is_ending: AtomicBool::new(false),
            ending: EventCount::new(),
        });
        let serving = inner.clone();
        let started = device.host().spawn("nicety-rsocket", None, move || serving.serve());
        started.map_err(|why| verbs::Error::system("cannot start a thread", why))?;
        Ok(Self(inner))
    }

    /// The device whose connections it makes.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Reserves an address; for port 0 the device chooses one.
    ///
    /// # Errors
    /// As [`Cm::bind`].
    pub fn bind(&self, addr: SocketAddr) -> Result<Port> {
        match self.0.cm.bind(addr) {
            Ok(reserved) => Ok(Port { addr: reserved.addr(), reserved: Some(reserved) }),
            Err(verbs::Error::Unsupported { .. }) => Ok(Port { addr, reserved: None }),
            Err(why) => Err(why.into()),
        }
    }

    /// Has a socket listen at an address of this device; several devices may serve one socket.
    ///
    /// # Errors
    /// [`Error::WrongState`]; as [`Cm::listen_at`].
    pub fn listen(&self, socket: &Arc<Socket>, port: &Port, backlog: usize) -> Result<()> {
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        // Locked first, so that a request finds its listener.
        let mut registry = lock(&self.0.registry);
        registry.listeners.retain(|(_, known)| known.strong_count() > 0);
        let listener = match &port.reserved {
            Some(reserved) => self.0.cm.listen_at(reserved, u32::MAX)?,
            None => self.0.cm.listen(port.addr, u32::MAX)?,
        };
        registry.listeners.push((listener.addr(), Arc::downgrade(socket)));
        socket.add_listener(backlog, Some(listener))
    }

    /// Begins to connect a socket, from an address that it is bound to, if any.
    ///
    /// # Errors
    /// [`Error::WrongState`]; as [`Cm::connect`], and those of the objects of a connection.
    pub fn connect(&self, socket: &Arc<Socket>, from: Option<&Port>, to: SocketAddr) -> Result<()> {
        let config = socket.config();
        socket.begin(|state| {
            let link = Box::new(Link::new(&self.0.device, &config, self.0.carrier)?);
            let param = ConnParam::with_private_data(link.memory.conn_data(&link.config).encode());
            let qp_num = link.qp.num();
            let mut registry = lock(&self.0.registry);
            registry.connecting.retain(|_, known| known.strong_count() > 0);
            registry.connecting.insert(qp_num, Arc::downgrade(socket));
            drop(registry);
            let begun = match from.and_then(|port| port.reserved.as_ref()) {
                Some(reserved) => self.0.cm.connect_from(reserved, &link.qp, to, &param),
                None => self.0.cm.connect(&link.qp, to, &param),
            };
            if let Err(why) = begun {
                lock(&self.0.registry).connecting.remove(&qp_num);
                return Err(why.into());
            }
            *state = State::Connecting(link);
            Ok(())
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.0.is_ending.store(true, Ordering::Release);
        self.0.device.host().notify(&self.0.ending);
    }
}

impl Inner {
    /// The thread: handles events until the service ends.
    fn serve(&self) {
        let sources = (&self.cm, &self.ending);
        let next = || match self.cm.poll_event() {
            Some(event) => Some(Some(event)),
            None => self.is_ending.load(Ordering::Acquire).then_some(None),
        };
        while let Some(Some(event)) = self.device.host().wait("rsocket events", &sources, None, next) {
            self.on_event(event);
        }
    }

    fn on_event(&self, event: CmEvent) {
        match event {
            CmEvent::ConnectRequest(request) => self.accept(request),
            CmEvent::Established { qp_num, private_data, info } => {
                let (connecting, accepting) = self.take(qp_num);
                if let Some(socket) = connecting {
                    socket.connected(Ends { local: Some(info.local), peer: Some(info.peer) }, &private_data);
                }
                if let Some((socket, listener)) = accepting
                    && let Some(listener) = listener.upgrade()
                {
                    listener.push(socket);
                }
            }
            CmEvent::Rejected { qp_num, .. } => self.on_failure(qp_num, Error::Rejected),
            CmEvent::ConnectFailed { qp_num, why } => self.on_failure(qp_num, Error::Unconnected(why)),
            // The completions that are flushed then report it.
            CmEvent::Disconnected { qp_num } => drop(self.take(qp_num)),
        }
    }

    fn on_failure(&self, qp_num: u32, why: Error) {
        let (connecting, accepting) = self.take(qp_num);
        connecting.into_iter().for_each(|socket| socket.failed(why.clone()));
        drop(accepting);
    }

    /// Removes the sockets that wait for events of this queue pair.
    #[expect(clippy::type_complexity, reason = "a pair of what the registry holds")]
    fn take(&self, qp_num: u32) -> (Option<Arc<Socket>>, Option<(Arc<Socket>, Weak<Socket>)>) {
        let mut registry = lock(&self.registry);
        let connecting = registry.connecting.remove(&qp_num);
        (connecting.and_then(|socket| socket.upgrade()), registry.accepting.remove(&qp_num))
    }

    /// Accepts a request, unless there is no room, or the peer is no rsocket: then it is rejected, as it is dropped.
    fn accept(&self, request: ConnectRequest) {
        let local = request.info.local;
        let is_it = |at: &SocketAddr| {
            at.port() == local.port() && (at.ip() == local.ip() || at.ip().is_unspecified())
        };
        let registry = lock(&self.registry);
        let exact = registry.listeners.iter().find(|(at, known)| *at == local && known.strong_count() > 0);
        let listener = exact
            .or_else(|| registry.listeners.iter().find(|(at, known)| is_it(at) && known.strong_count() > 0));
        let listener = listener.and_then(|(_, socket)| socket.upgrade());
        // Peers that never finish take places of the backlog, too, so that they cannot take all memory.
        let is_for = |of: &Weak<Socket>| listener.as_ref().is_some_and(|own| of.as_ptr() == Arc::as_ptr(own));
        let pending = registry.accepting.values().filter(|(_, of)| is_for(of)).count();
        drop(registry);
        let Some(listener) = listener.filter(|listener| listener.has_room(pending)) else { return };
        let Ok(peer) = ConnData::decode(&request.private_data) else { return };
        // Without the resources for a connection it is rejected, too.
        let _ = self.accept_for(&listener, request, peer);
    }

    fn accept_for(&self, listener: &Arc<Socket>, request: ConnectRequest, peer: ConnData) -> Result<()> {
        let link = Link::new(&self.device, &listener.config(), self.carrier)?;
        let param = ConnParam::with_private_data(link.memory.conn_data(&link.config).encode());
        let ends = Ends { local: Some(request.info.local), peer: Some(request.info.peer) };
        let socket = Arc::new(Socket::accepted(link, peer, ends)?);
        let Some(stream) = socket.stream() else { return Ok(()) };
        let qp_num = stream.link.qp.num();
        lock(&self.registry).accepting.insert(qp_num, (socket.clone(), Arc::downgrade(listener)));
        let accepted = self.cm.accept(request, &stream.link.qp, &param);
        if accepted.is_err() {
            lock(&self.registry).accepting.remove(&qp_num);
        }
        Ok(accepted?)
    }
}
