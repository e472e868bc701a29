//! Connections: the state machine of the connection protocol, over Unix seqpacket sockets.
//!
//! A listener is a socket with an abstract name, which the kernel removes with its process: nothing is left in a
//! file system. Both ends check by SO_PEERCRED that the other runs as the same user. One socket per connection
//! stays open: its end tells of the peer's death.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::{Bell, Span, Time};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, connect, listen};
use verbs::provider::{CmOps, ListenerOps, QpOps, RequestOps, own};
use verbs::{CmEvent, CmFailure, ConnParam, ConnectRequest, Error, Qp, Result};

use super::device::{Inner, process_token, unpoisoned};
use super::layout::state;
use super::peer::{Link, Peer};
use super::qp::{QpHandle, QpInner, state_of};
use super::socket::{address, bind_port, check_local, life_of, new_socket, receive, same_user, send};
use super::wire::{Hello, Message};
use crate::sync::fence;

/// How long somebody who has connected to a listener may take to say what it wants.
const HELLO_PATIENCE: Span = Span::from_secs(5);
/// How many may be in that state at once; more are turned away.
const HALF_OPEN_MAX: usize = 256;

/// Sockets that the NIC thread watches, by number.
#[derive(Default)]
pub(super) struct Registry {
    conns: Mutex<BTreeMap<u64, Arc<Conn>>>,
    listeners: Mutex<BTreeMap<u64, Arc<ListenerInner>>>,
}

/// A connection, or one in the making.
pub(super) struct Conn {
    socket: OwnedFd,
    id: u64,
    pid: i32,
    phase: Mutex<Phase>,
}

/// Where a connection stands.
enum Phase {
    /// Passive: nothing said yet.
    AwaitRequest { listener: Arc<ListenerInner>, deadline: Time },
    /// Passive: the program decides.
    Requested { hello: Box<Hello>, fds: Vec<OwnedFd> },
    /// Passive: accepted, not yet confirmed.
    AwaitReady { qp: Arc<QpInner>, cm: Arc<CmInner>, deadline: Time },
    /// Active: asked.
    AwaitReply { qp: Arc<QpInner>, cm: Arc<CmInner>, deadline: Time, rnr_retry: u8 },
    /// Connected.
    Up { qp: Arc<QpInner>, cm: Arc<CmInner> },
    /// Nothing more will happen.
    Over,
}

/// A channel of events.
pub(super) struct CmInner {
    device: Arc<Inner>,
    bell: Bell,
    fd: OwnedFd,
    queue: Mutex<VecDeque<CmEvent>>,
}

impl CmInner {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = eventfd(0, flags).map_err(|e| Error::system("cannot create an event channel", e))?;
        let queue = Mutex::new(VecDeque::new());
        Ok(Arc::new(Self { device: device.clone(), bell: Bell::new(), fd, queue }))
    }

    fn push(&self, event: CmEvent) {
        unpoisoned(&self.queue).push_back(event);
        // The counter cannot fill up before memory does.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        self.bell.ring();
    }

    fn failed(&self, qp: &QpInner, why: CmFailure) {
        self.push(CmEvent::ConnectFailed { qp_num: qp.num, why });
    }
}

/// A listening socket.
pub(super) struct ListenerInner {
    socket: OwnedFd,
    addr: SocketAddr,
    cm: Weak<CmInner>,
    backlog: usize,
    /// Requests that the program has not answered.
    pending: AtomicUsize,
}

/// The API's hold on a listener.
struct ListenerHandle {
    device: Arc<Inner>,
    id: u64,
    inner: Arc<ListenerInner>,
    /// Events need their channel.
    _cm: Arc<CmInner>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.inner.addr
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        self.device.nic.unwatch(self.inner.socket.as_fd());
        unpoisoned(&self.device.nic.registry.listeners).remove(&self.id);
    }
}

impl Inner {
    fn hello(&self, qp: &QpInner, private_data: &[u8]) -> Hello {
        Hello {
            token: self.token,
            process: self.process,
            probe_addr: std::ptr::from_ref(process_token()).addr() as u64,
            qp_index: qp.index as u32,
            generation: qp.generation,
            qp_num: qp.num,
            barriers: fence::register(),
            private_data: private_data.to_vec(),
        }
    }

    /// Sends a hello with the descriptors that the peer needs.
    fn greet(&self, conn: &Conn, qp: &QpInner, message: &Message) -> Result<(), Errno> {
        let mut fds = vec![self.segment.as_fd(), self.nic.button()];
        fds.extend(qp.recv_cq.channel.as_ref().map(|c| c.doorbell.button()));
        send(&conn.socket, message, &fds)
    }

    /// Connects a queue pair to the one that said hello.
    fn link(&self, conn: &Conn, qp: &QpInner, hello: &Hello, mut fds: Vec<OwnedFd>, rnr: u8) -> Result<()> {
        if !hello.barriers {
            fence::require_full();
        }
        let peer = Peer::get(self, hello, conn.pid, || life_of(&conn.socket, conn.pid), &mut fds)?;
        let link = Link::new(peer, hello, fds.pop(), rnr)?;
        qp.link.set(link).map_err(|_| Error::Invalid("the queue pair was connected before".into()))
    }

    fn adopt(&self, socket: OwnedFd, pid: i32, phase: Phase) -> Result<Arc<Conn>> {
        let id = self.nic.watch(socket.as_fd())?;
        let conn = Arc::new(Conn { socket, id, pid, phase: Mutex::new(phase) });
        unpoisoned(&self.nic.registry.conns).insert(id, conn.clone());
        Ok(conn)
    }

    fn drop_conn(&self, conn: &Conn) {
        self.nic.unwatch(conn.socket.as_fd());
        unpoisoned(&self.nic.registry.conns).remove(&conn.id);
        // The socket itself closes with the last reference; the peer shall know now.
        let _ = rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Both);
    }

    /// A socket has something to read, or has ended. On the NIC thread.
    pub(super) fn on_socket(self: &Arc<Self>, id: u64) {
        let registry = &self.nic.registry;
        let conn = unpoisoned(&registry.conns).get(&id).cloned();
        if let Some(conn) = conn {
            return self.on_conn(&conn);
        }
        let listener = unpoisoned(&registry.listeners).get(&id).cloned();
        if let Some(listener) = listener {
            self.on_listener(&listener);
        }
    }

    fn on_listener(self: &Arc<Self>, listener: &Arc<ListenerInner>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = accept_with(&listener.socket, flags) {
            let half_open = self.half_open();
            // Another user's process, or too many at once: the closed socket says so.
            let Some(pid) = same_user(&socket).filter(|_| half_open < HALF_OPEN_MAX) else { continue };
            let deadline = self.host.now() + HELLO_PATIENCE;
            let phase = Phase::AwaitRequest { listener: listener.clone(), deadline };
            if let Ok(conn) = self.adopt(socket, pid, phase) {
                self.on_conn(&conn);
            }
        }
    }

    fn half_open(&self) -> usize {
        let conns: Vec<_> = unpoisoned(&self.nic.registry.conns).values().cloned().collect();
        conns.iter().filter(|c| matches!(*unpoisoned(&c.phase), Phase::AwaitRequest { .. })).count()
    }

    fn on_conn(self: &Arc<Self>, conn: &Arc<Conn>) {
        loop {
            match receive(&conn.socket) {
                Ok(None) => return,
                Ok(Some((packet, fds))) => match Message::parse(&packet) {
                    Ok(message) => self.on_message(conn, message, fds),
                    Err(why) => return self.on_end(conn, &CmFailure::Protocol(why.to_string())),
                },
                Err(Errno::BADMSG) => {
                    let why = "it sent descriptors that are none of the protocol's";
                    return self.on_end(conn, &CmFailure::Protocol(why.into()));
                }
                Err(_) => return self.on_end(conn, &CmFailure::PeerGone),
            }
            if matches!(*unpoisoned(&conn.phase), Phase::Over) {
                return;
            }
        }
    }

    fn on_message(self: &Arc<Self>, conn: &Arc<Conn>, message: Message, fds: Vec<OwnedFd>) {
        let mut phase = unpoisoned(&conn.phase);
        match (std::mem::replace(&mut *phase, Phase::Over), message) {
            (Phase::AwaitRequest { listener, .. }, Message::Request(hello)) => {
                *phase = Phase::Requested { hello: Box::new(hello.clone()), fds };
                drop(phase);
                self.on_request(conn, &listener, hello);
            }
            (Phase::AwaitReply { qp, cm, rnr_retry, .. }, Message::Reply(hello)) => {
                drop(phase);
                self.on_reply(conn, qp, cm, hello, fds, rnr_retry);
            }
            (Phase::AwaitReply { qp, cm, .. }, Message::Reject(private_data)) => {
                drop(phase);
                self.drop_conn(conn);
                cm.push(CmEvent::Rejected { qp_num: qp.num, private_data });
            }
            (Phase::AwaitReady { qp, cm, .. }, Message::Ready) => {
                *phase = Phase::Up { qp: qp.clone(), cm: cm.clone() };
                drop(phase);
                qp.advance(state::RTR, state::RTS);
                cm.push(CmEvent::Established { qp_num: qp.num, private_data: Vec::new() });
            }
            (Phase::Up { qp, cm }, Message::Disconnect) => {
                drop(phase);
                self.drop_conn(conn);
                self.disconnected(&qp, &cm);
            }
            (Phase::AwaitReady { qp, cm, .. }, Message::Disconnect) => {
                // Ready and gone again before anybody looked: both events, in order.
                drop(phase);
                self.drop_conn(conn);
                self.disconnected(&qp, &cm);
            }
            (other, _) => {
                *phase = other;
                drop(phase);
                self.on_end(conn, &CmFailure::Protocol("it sent a message out of turn".into()));
            }
        }
    }

    fn disconnected(&self, qp: &Arc<QpInner>, cm: &CmInner) {
        qp.quiet.store(true, Ordering::Release);
        qp.fail();
        cm.push(CmEvent::Disconnected { qp_num: qp.num });
    }

    fn on_request(self: &Arc<Self>, conn: &Arc<Conn>, listener: &Arc<ListenerInner>, hello: Hello) {
        let Some(cm) = listener.cm.upgrade() else { return self.drop_conn(conn) };
        let request = RequestHandle { device: self.clone(), conn: conn.clone(), listener: listener.clone() };
        if listener.pending.fetch_add(1, Ordering::AcqRel) >= listener.backlog {
            // Answered by its destructor: rejected.
            drop(request);
            let _ = send(&conn.socket, &Message::Reject(Vec::new()), &[]);
            return self.drop_conn(conn);
        }
        let peer = SocketAddr::new(listener.addr.ip(), 0);
        let request = ConnectRequest::new(Box::new(request), hello.private_data, peer, listener.addr);
        cm.push(CmEvent::ConnectRequest(request));
    }

    fn on_reply(
        self: &Arc<Self>,
        conn: &Arc<Conn>,
        qp: Arc<QpInner>,
        cm: Arc<CmInner>,
        hello: Hello,
        fds: Vec<OwnedFd>,
        rnr_retry: u8,
    ) {
        if let Err(why) = self.link(conn, &qp, &hello, fds, rnr_retry) {
            self.drop_conn(conn);
            return cm.failed(&qp, CmFailure::Protocol(why.to_string()));
        }
        *unpoisoned(&conn.phase) = Phase::Up { qp: qp.clone(), cm: cm.clone() };
        if !qp.advance(state::INIT, state::RTS) {
            // Destroyed or failed by the program while the reply was on its way.
            *unpoisoned(&conn.phase) = Phase::Over;
            return self.drop_conn(conn);
        }
        if let Some(link) = qp.link.get() {
            // The passive side may send from now on, before it has read our confirmation.
            let word = |s| state::word(link.generation, s);
            let status = &link.qp.status;
            let _ = status.compare_exchange(
                word(state::RTR),
                word(state::RTS),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
        let sent = send(&conn.socket, &Message::Ready, &[]);
        cm.push(CmEvent::Established { qp_num: qp.num, private_data: hello.private_data });
        if sent.is_err() {
            self.on_end(conn, &CmFailure::PeerGone);
        }
    }

    /// The other end of a connection has gone, or must not go on.
    fn on_end(self: &Arc<Self>, conn: &Arc<Conn>, why: &CmFailure) {
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), Phase::Over);
        self.drop_conn(conn);
        // A peer that is only late, or speaks nonsense, may still be inside.
        let gone = *why == CmFailure::PeerGone;
        match phase {
            Phase::AwaitReply { qp, cm, .. } => cm.failed(&qp, why.clone()),
            Phase::AwaitReady { qp, cm, .. } => {
                self.bury_peer(&qp, gone);
                cm.failed(&qp, why.clone());
            }
            Phase::Up { qp, cm } => {
                self.bury_peer(&qp, gone);
                cm.push(CmEvent::Disconnected { qp_num: qp.num });
            }
            Phase::AwaitRequest { .. } | Phase::Requested { .. } | Phase::Over => {}
        }
    }

    /// Ends set-ups that take too long; whether any set-up is under way.
    pub(super) fn expire_handshakes(self: &Arc<Self>) -> bool {
        let conns: Vec<_> = unpoisoned(&self.nic.registry.conns).values().cloned().collect();
        let now = self.host.now();
        let mut under_way = false;
        for conn in conns {
            let deadline = match &*unpoisoned(&conn.phase) {
                Phase::AwaitRequest { deadline, .. }
                | Phase::AwaitReady { deadline, .. }
                | Phase::AwaitReply { deadline, .. } => *deadline,
                _ => continue,
            };
            if now >= deadline {
                self.on_end(&conn, &CmFailure::TimedOut);
            } else {
                under_way = true;
            }
        }
        under_way
    }
}

impl super::nic::Nic {
    /// Tells the peer that the connection is over; the program is told too if it is `told`.
    pub(super) fn part(&self, device: &Inner, qp: &Arc<QpInner>, told: bool) {
        let conns: Vec<_> = unpoisoned(&self.registry.conns).values().cloned().collect();
        let Some(conn) = conns.into_iter().find(|c| c.is_of(qp)) else { return };
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), Phase::Over);
        // If it cannot be told so, the closed socket tells it.
        let _ = send(&conn.socket, &Message::Disconnect, &[]);
        qp.quiet.store(true, Ordering::Release);
        qp.fail();
        self.unwatch(conn.socket.as_fd());
        unpoisoned(&device.nic.registry.conns).remove(&conn.id);
        if let (true, Phase::Up { cm, .. } | Phase::AwaitReady { cm, .. }) = (told, phase) {
            cm.push(CmEvent::Disconnected { qp_num: qp.num });
        }
    }
}

impl Conn {
    fn is_of(&self, qp: &Arc<QpInner>) -> bool {
        match &*unpoisoned(&self.phase) {
            Phase::AwaitReady { qp: its, .. }
            | Phase::AwaitReply { qp: its, .. }
            | Phase::Up { qp: its, .. } => Arc::ptr_eq(its, qp),
            _ => false,
        }
    }
}

/// A connect request's answer.
struct RequestHandle {
    device: Arc<Inner>,
    conn: Arc<Conn>,
    listener: Arc<ListenerInner>,
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.listener.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RequestHandle {
    fn decline(&self, private_data: &[u8]) {
        *unpoisoned(&self.conn.phase) = Phase::Over;
        // A peer that is gone needs no answer.
        let _ = send(&self.conn.socket, &Message::Reject(private_data.to_vec()), &[]);
        self.device.drop_conn(&self.conn);
    }

    fn try_accept(&self, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let cm = find_cm(&self.device, cm)?;
        let qp = own_idle_qp(qp, "accept")?;
        let mut phase = unpoisoned(&self.conn.phase);
        let Phase::Requested { hello, fds } = std::mem::replace(&mut *phase, Phase::Over) else {
            return Err(Error::Invalid("the connecting side has given up".into()));
        };
        self.device.link(&self.conn, &qp, &hello, fds, param.rnr_retry)?;
        if !qp.advance(state::INIT, state::RTR) {
            return Err(Error::WrongState { call: "accept", state: state_of(qp.state()) });
        }
        let deadline = self.device.host.now() + param.timeout;
        *phase = Phase::AwaitReady { qp: qp.clone(), cm, deadline };
        drop(phase);
        let reply = Message::Reply(self.device.hello(&qp, &param.private_data));
        if self.device.greet(&self.conn, &qp, &reply).is_err() {
            self.device.on_end(&self.conn, &CmFailure::PeerGone);
        }
        self.device.nic.wake();
        Ok(())
    }
}

impl RequestOps for RequestHandle {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let result = self.try_accept(cm, qp, param);
        if result.is_err() {
            self.decline(&[]);
        }
        result
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let limit = super::wire::PRIVATE_MAX;
        let fits = Error::check_limit("bytes of private data", private_data.len() as u64, limit as u64);
        self.decline(if fits.is_ok() { private_data } else { &[] });
        fits
    }
}

fn find_cm(device: &Arc<Inner>, cm: &dyn CmOps) -> Result<Arc<CmInner>> {
    let any: &dyn std::any::Any = cm;
    let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
    if !Arc::ptr_eq(&handle.0.device, device) {
        return Err(Error::Foreign { what: "the event channel" });
    }
    Ok(handle.0.clone())
}

/// The queue pair behind the API's, if it is not yet connected.
fn own_idle_qp(qp: &Qp, call: &'static str) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
    if handle.0.state() != state::INIT {
        return Err(Error::WrongState { call, state: handle.state() });
    }
    Ok(handle.0.clone())
}

/// The API's hold on an event channel.
pub(super) struct CmHandle(pub(super) Arc<CmInner>);

impl CmOps for CmHandle {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        check_local(addr)?;
        let device = &self.0.device;
        let socket = new_socket()?;
        let port = bind_port(&socket, addr)?;
        listen(&socket, 4096).map_err(|e| Error::system("cannot listen", e))?;
        let ip = if addr.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { addr.ip() };
        let inner = Arc::new(ListenerInner {
            socket,
            addr: SocketAddr::new(ip, port),
            cm: Arc::downgrade(&self.0),
            backlog: backlog as usize,
            pending: AtomicUsize::new(0),
        });
        let mut listeners = unpoisoned(&device.nic.registry.listeners);
        let id = device.nic.watch(inner.socket.as_fd())?;
        listeners.insert(id, inner.clone());
        Ok(Box::new(ListenerHandle { device: device.clone(), id, inner, _cm: self.0.clone() }))
    }

    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        check_local(addr)?;
        let device = &self.0.device;
        let qp = own_idle_qp(qp, "connect")?;
        if unpoisoned(&device.nic.registry.conns).values().any(|c| c.is_of(&qp)) {
            return Err(Error::Invalid("the queue pair is being connected already".into()));
        }
        let socket = new_socket()?;
        let name = address(addr.port())?;
        match connect(&socket, &name) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED) => {
                self.0.failed(&qp, CmFailure::Refused(addr));
                return Ok(());
            }
            Err(e) => {
                self.0.failed(&qp, CmFailure::Unreachable(addr, e.to_string()));
                return Ok(());
            }
        }
        let Some(pid) = same_user(&socket) else {
            let why = "a process of another user listens there".into();
            self.0.failed(&qp, CmFailure::Unreachable(addr, why));
            return Ok(());
        };
        let deadline = device.host.now() + param.timeout;
        let rnr_retry = param.rnr_retry;
        let request = Message::Request(device.hello(&qp, &param.private_data));
        let phase = Phase::AwaitReply { qp: qp.clone(), cm: self.0.clone(), deadline, rnr_retry };
        let conn = device.adopt(socket, pid, phase)?;
        if device.greet(&conn, &qp, &request).is_err() {
            device.on_end(&conn, &CmFailure::PeerGone);
        }
        device.nic.wake();
        Ok(())
    }

    fn disconnect(&self, qp: &Qp) -> Result<()> {
        let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
        let device = &self.0.device;
        if handle.0.link.get().is_none() {
            return Err(Error::WrongState { call: "disconnect", state: handle.state() });
        }
        device.nic.part(device, &handle.0, true);
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        let mut count = [0; 8];
        // One count per event, written after it; where a look came between the two, the count stays one ahead
        // until the next look, which takes it back even if there is no event.
        let _ = rustix::io::read(&self.0.fd, &mut count);
        unpoisoned(&self.0.queue).pop_front()
    }

    fn bell(&self) -> &Bell {
        &self.0.bell
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.fd.as_fd())
    }
}
