//! Connections as the NIC thread sees them: the state machine of the connection protocol, over Unix seqpacket sockets.
//!
//! Both ends check by SO_PEERCRED that the other runs as the same user. One socket per connection stays open: its end
//! tells of the peer's death.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use host::{Span, Time};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use verbs::{CmEvent, CmFailure, ConnInfo, ConnParam, ConnectRequest, Depths, Error, Result};

use super::cm::{CmInner, ListenerInner, RequestHandle};
use super::device::{Inner, process_token, unpoisoned};
use super::layout::state;
use super::peer::{Link, Peer};
use super::qp::QpInner;
use super::socket::{life_of, peer_port, receive, same_user, send};
use super::wire::{Hello, Message, Shortage};
use crate::fork::Fd;
use crate::sync::fence;

/// How long somebody who has connected to a listener may take to say what it wants.
const HELLO_PATIENCE: Span = Span::from_secs(5);
/// How many may be in that state at once, for one listener and for the device; the one that has taken longest gives way. A
/// peer that means it speaks at once, so those who say nothing cannot keep it out.
const SILENT_OF_LISTENER: usize = 256;
const SILENT_MAX: usize = 1024;
/// Connections taken off a listener at a time, so that a flood does not keep the thread from everything else.
const ACCEPTS: usize = 64;
/// With descriptors or memory used up, listeners rest so long.
const SHORTAGE_PAUSE: Span = Span::from_ms(100);

/// Sockets that the NIC thread watches, by number.
#[derive(Default)]
pub(super) struct Registry {
    conns: Mutex<BTreeMap<u64, Arc<Conn>>>,
    pub(super) listeners: Mutex<BTreeMap<u64, Arc<ListenerInner>>>,
    making: Mutex<Making>,
    /// Descriptors ran out: until then nobody is let in.
    rest_until: Mutex<Option<Time>>,
}

/// Connections in the making, so that none has to be looked for among all.
#[derive(Default)]
struct Making {
    /// By the time at which they are given up.
    deadlines: BTreeSet<(Time, u64)>,
    /// Those that have said nothing yet, with their listener; a smaller number is an older one.
    silent: BTreeSet<(u64, u64)>,
}

impl Registry {
    /// A connection by its number.
    pub(super) fn conn(&self, id: u64) -> Option<Arc<Conn>> {
        unpoisoned(&self.conns).get(&id).cloned()
    }

    /// The connection of a queue pair, if it has one.
    pub(super) fn conn_of(&self, qp: &Arc<QpInner>) -> Option<Arc<Conn>> {
        self.conn(qp.conn.load(Ordering::Acquire)).filter(|conn| conn.is_of(qp))
    }

    /// Connection `id` is in this phase from now on.
    pub(super) fn enter(&self, id: u64, phase: &Phase) {
        let mut making = unpoisoned(&self.making);
        making.deadlines.extend(phase.deadline().map(|deadline| (deadline, id)));
        if let Phase::AwaitRequest { listener, .. } = phase {
            making.silent.insert((listener.id, id));
        }
    }

    /// Connection `id` was in this phase.
    fn leave(&self, id: u64, phase: &Phase) {
        let mut making = unpoisoned(&self.making);
        if let Some(deadline) = phase.deadline() {
            making.deadlines.remove(&(deadline, id));
        }
        if let Phase::AwaitRequest { listener, .. } = phase {
            making.silent.remove(&(listener.id, id));
        }
    }

    /// Who has to give way to another one that says nothing yet; with `any`, who is the first that can.
    fn oldest_silent(&self, listener: u64, any: bool) -> Option<Arc<Conn>> {
        let making = unpoisoned(&self.making);
        let its = || making.silent.range((listener, 0)..=(listener, u64::MAX)).map(|(_, id)| *id);
        let oldest = || making.silent.iter().map(|(_, id)| *id).min();
        let victim = match its().count() >= SILENT_OF_LISTENER {
            true => its().next(),
            false if any || making.silent.len() >= SILENT_MAX => oldest(),
            false => None,
        };
        drop(making);
        self.conn(victim?)
    }

    /// Connections whose time is up, and when the next one's will be.
    fn overdue(&self, now: Time) -> (Vec<Arc<Conn>>, Option<Time>) {
        let mut making = unpoisoned(&self.making);
        let mut late = Vec::new();
        while let Some((deadline, id)) = making.deadlines.first().copied()
            && deadline <= now
        {
            making.deadlines.pop_first();
            late.push(id);
        }
        let next = making.deadlines.first().map(|(deadline, _)| *deadline);
        drop(making);
        (late.into_iter().filter_map(|id| self.conn(id)).collect(), next)
    }
}

/// A connection, or one in the making.
pub(super) struct Conn {
    pub(super) socket: Fd,
    pub(super) id: u64,
    pid: i32,
    /// This end and the other.
    ends: (SocketAddr, SocketAddr),
    /// What the other end's program said.
    depths: OnceLock<Depths>,
    pub(super) phase: Mutex<Phase>,
}

/// Where a connection stands.
pub(super) enum Phase {
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

impl Phase {
    /// When it is given up.
    fn deadline(&self) -> Option<Time> {
        match self {
            Self::AwaitRequest { deadline, .. }
            | Self::AwaitReady { deadline, .. }
            | Self::AwaitReply { deadline, .. } => Some(*deadline),
            Self::Requested { .. } | Self::Up { .. } | Self::Over => None,
        }
    }

    /// Whose connection it is, once that is known.
    fn qp(&self) -> Option<&Arc<QpInner>> {
        match self {
            Self::AwaitReady { qp, .. } | Self::AwaitReply { qp, .. } | Self::Up { qp, .. } => Some(qp),
            Self::AwaitRequest { .. } | Self::Requested { .. } | Self::Over => None,
        }
    }
}

impl Inner {
    pub(super) fn hello(&self, qp: &QpInner, param: &ConnParam) -> Hello {
        Hello {
            token: self.token,
            process: self.process,
            probe_addr: std::ptr::from_ref(process_token()).addr() as u64,
            qp_index: qp.index as u32,
            generation: qp.generation,
            qp_num: qp.num,
            barriers: fence::register(),
            depths: Depths::of(param),
            private_data: param.private_data.clone(),
        }
    }

    /// Sends a hello with the descriptors that the peer needs.
    pub(super) fn greet(&self, conn: &Conn, qp: &QpInner, message: &Message) -> Result<(), CmFailure> {
        let mut fds = vec![self.segment.as_fd(), self.nic.button()];
        fds.extend(qp.recv_cq.channel.as_ref().map(|c| c.doorbell.button()));
        send(&conn.socket, message, &fds).map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => CmFailure::PeerGone,
            Errno::TOOMANYREFS => CmFailure::Shortage(
                "too many descriptors are on their way to peers; raise the limit with ulimit -n, or connect fewer \
                 at a time"
                    .into(),
            ),
            other => CmFailure::Shortage(format!("what the peer needs cannot be sent: {other}")),
        })
    }

    /// Connects a queue pair to the one that said hello.
    pub(super) fn link(
        &self,
        conn: &Conn,
        qp: &QpInner,
        hello: &Hello,
        mut fds: Vec<OwnedFd>,
        rnr: u8,
    ) -> Result<()> {
        if !hello.barriers {
            fence::require_full();
        }
        let peer = Peer::get(self, hello, conn.pid, || life_of(&conn.socket, conn.pid), &mut fds)?;
        let link = Link::new(peer, hello, fds.pop(), rnr)?;
        qp.link.set(link).map_err(|_| Error::Invalid("the queue pair was connected before".into()))
    }

    /// Has the NIC thread look after a socket. The queue pair knows its connection before anybody else does.
    pub(super) fn adopt(
        &self,
        socket: Fd,
        pid: i32,
        ends: (SocketAddr, SocketAddr),
        phase: Phase,
    ) -> Result<Arc<Conn>> {
        let id = self.nic.fresh_id();
        self.nic.watch(socket.as_fd(), id)?;
        if let Some(qp) = phase.qp() {
            qp.conn.store(id, Ordering::Release);
        }
        self.nic.registry.enter(id, &phase);
        let depths = OnceLock::new();
        let conn = Arc::new(Conn { socket, id, pid, ends, depths, phase: Mutex::new(phase) });
        unpoisoned(&self.nic.registry.conns).insert(id, conn.clone());
        Ok(conn)
    }

    pub(super) fn drop_conn(&self, conn: &Conn) {
        self.nic.unwatch(conn.socket.as_fd());
        unpoisoned(&self.nic.registry.conns).remove(&conn.id);
        // The socket itself closes with the last reference; the peer shall know now.
        let _ = rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Both);
    }

    /// A socket has something to read, or has ended. On the NIC thread.
    pub(super) fn on_socket(self: &Arc<Self>, id: u64) {
        let registry = &self.nic.registry;
        if let Some(conn) = registry.conn(id) {
            return self.on_conn(&conn);
        }
        let listener = unpoisoned(&registry.listeners).get(&id).cloned();
        if let Some(listener) = listener {
            self.on_listener(&listener);
        }
    }

    fn on_listener(self: &Arc<Self>, listener: &Arc<ListenerInner>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTS {
            match accept_with(&listener.socket, flags) {
                Ok(socket) => self.hear_out(socket.into(), listener),
                // The second when it has been shut down.
                Err(Errno::AGAIN | Errno::INVAL) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Whoever has said nothing holds what others need. If there is nobody, whoever waits can wait on.
                    match self.nic.registry.oldest_silent(listener.id, true) {
                        Some(silent) => self.on_end(&silent, &CmFailure::TimedOut),
                        None => return self.rest(listener),
                    }
                }
                // Of the one connection, which is gone already (accept(2)).
                Err(_) => {}
            }
        }
    }

    /// Lets nobody in for a while; asking again at once would only keep the thread busy.
    fn rest(&self, listener: &ListenerInner) {
        self.nic.rewatch(listener.socket.as_fd(), listener.id, false);
        *unpoisoned(&self.nic.registry.rest_until) = Some(self.host.now() + SHORTAGE_PAUSE);
    }

    /// Listeners that rest go on when it is time; when that will be.
    pub(super) fn wake_listeners(&self, now: Time) -> Option<Time> {
        let mut rest_until = unpoisoned(&self.nic.registry.rest_until);
        let until = (*rest_until)?;
        if now < until {
            return Some(until);
        }
        *rest_until = None;
        for (id, listener) in unpoisoned(&self.nic.registry.listeners).iter() {
            self.nic.rewatch(listener.socket.as_fd(), *id, true);
        }
        None
    }

    /// Waits for what a new connection wants.
    fn hear_out(self: &Arc<Self>, socket: Fd, listener: &Arc<ListenerInner>) {
        // Another user's process: the closed socket says so.
        let Some(pid) = same_user(&socket) else { return };
        if let Some(silent) = self.nic.registry.oldest_silent(listener.id, false) {
            self.on_end(&silent, &CmFailure::TimedOut);
        }
        let deadline = self.host.now() + HELLO_PATIENCE;
        let phase = Phase::AwaitRequest { listener: listener.clone(), deadline };
        let peer = SocketAddr::new(listener.addr.ip(), peer_port(&socket));
        if let Ok(conn) = self.adopt(socket, pid, (listener.addr, peer), phase) {
            self.on_conn(&conn);
        }
    }

    fn on_conn(self: &Arc<Self>, conn: &Arc<Conn>) {
        loop {
            match receive(&conn.socket) {
                Ok(None) => return,
                Ok(Some(packet)) if packet.is_cut => {
                    return self.refuse(conn, Shortage::Descriptors);
                }
                Ok(Some(packet)) => match Message::parse(&packet.bytes) {
                    Ok(message) => self.on_message(conn, message, packet.fds),
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

    /// Ends a connection in the making for want of something, and tells both sides of what.
    pub(super) fn refuse(self: &Arc<Self>, conn: &Arc<Conn>, shortage: Shortage) {
        // A peer that is gone needs no answer.
        let _ = send(&conn.socket, &Message::Refuse(shortage), &[]);
        self.on_end(conn, &CmFailure::Shortage(shortage.explain("this process")));
    }

    fn on_message(self: &Arc<Self>, conn: &Arc<Conn>, message: Message, fds: Vec<OwnedFd>) {
        let mut phase = unpoisoned(&conn.phase);
        self.nic.registry.leave(conn.id, &phase);
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
                let info = conn.info();
                cm.push(CmEvent::Established { qp_num: qp.num, private_data: Vec::new(), info });
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
            (other @ (Phase::AwaitReply { .. } | Phase::AwaitReady { .. }), Message::Refuse(shortage)) => {
                *phase = other;
                drop(phase);
                self.on_end(conn, &CmFailure::Shortage(shortage.explain("the peer's process")));
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
        qp.peer_parted.store(true, Ordering::Release);
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
        let _ = conn.depths.set(hello.depths);
        let request = ConnectRequest::new(Box::new(request), hello.private_data, conn.info());
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
            let why = self.not_linked(conn, &why);
            self.drop_conn(conn);
            return cm.failed(&qp, why);
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
        let _ = conn.depths.set(hello.depths);
        let (private_data, info) = (hello.private_data, conn.info());
        cm.push(CmEvent::Established { qp_num: qp.num, private_data, info });
        if sent.is_err() {
            self.on_end(conn, &CmFailure::PeerGone);
        }
    }

    /// Why a connection does not come about that could not be linked; the peer is told if it is for want of something.
    pub(super) fn not_linked(&self, conn: &Conn, why: &Error) -> CmFailure {
        // Of what the system says only this is a want; the rest is what the peer has sent.
        if !matches!(why, Error::System { errno: Some(errno), .. } if *errno == Errno::NOMEM.raw_os_error()) {
            return CmFailure::Protocol(why.to_string());
        }
        // A peer that is gone needs no answer.
        let _ = send(&conn.socket, &Message::Refuse(Shortage::Memory), &[]);
        CmFailure::Shortage(why.to_string())
    }

    /// The other end of a connection has gone, or must not go on.
    pub(super) fn on_end(self: &Arc<Self>, conn: &Arc<Conn>, why: &CmFailure) {
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), Phase::Over);
        self.nic.registry.leave(conn.id, &phase);
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

    /// Ends set-ups that take too long; when the next one will.
    pub(super) fn expire_handshakes(self: &Arc<Self>, now: Time) -> Option<Time> {
        let (late, next) = self.nic.registry.overdue(now);
        for conn in late {
            // Unless it has come about in this very moment.
            let is_late = unpoisoned(&conn.phase).deadline().is_some_and(|deadline| deadline <= now);
            if is_late {
                self.on_end(&conn, &CmFailure::TimedOut);
            }
        }
        next
    }
}

impl super::nic::Nic {
    /// Tells the peer that the connection is over; the program is told too if it is `told`.
    pub(super) fn part(&self, device: &Inner, qp: &Arc<QpInner>, told: bool) {
        let Some(conn) = self.registry.conn_of(qp) else { return };
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), Phase::Over);
        self.registry.leave(conn.id, &phase);
        // Before the peer knows: what fails here because the peer has gone is flushed then, and no failure.
        qp.quiet.store(true, Ordering::Release);
        qp.fail();
        // If it cannot be told so, the closed socket tells it.
        let _ = send(&conn.socket, &Message::Disconnect, &[]);
        self.unwatch(conn.socket.as_fd());
        unpoisoned(&device.nic.registry.conns).remove(&conn.id);
        if let (true, Phase::Up { cm, .. } | Phase::AwaitReady { cm, .. }) = (told, phase) {
            cm.push(CmEvent::Disconnected { qp_num: qp.num });
        }
    }
}

impl Conn {
    /// What events tell of it.
    fn info(&self) -> ConnInfo {
        let (local, peer) = self.ends;
        ConnInfo { local, peer, depths: self.depths.get().copied() }
    }

    /// Whether it is this queue pair's.
    fn is_of(&self, qp: &Arc<QpInner>) -> bool {
        unpoisoned(&self.phase).qp().is_some_and(|its| Arc::ptr_eq(its, qp))
    }
}
