//! Connections as the NIC thread sees them: the state machine of the connection protocol, over Unix seqpacket sockets.
//!
//! Both ends check by SO_PEERCRED that the other runs as the same user. One socket per connection stays open: its end
//! tells of the peer's death.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use host::{Span, Time};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use verbs::{CmEvent, CmFailure, ConnectRequest, Error, Result};

use super::cm::{CmInner, ListenerInner, RequestHandle};
use super::device::{Inner, process_token, unpoisoned};
use super::layout::state;
use super::peer::{Link, Peer};
use super::qp::QpInner;
use super::socket::{life_of, receive, same_user, send};
use super::wire::{Hello, Message};
use crate::sync::fence;

/// How long somebody who has connected to a listener may take to say what it wants.
const HELLO_PATIENCE: Span = Span::from_secs(5);
/// How many may be in that state at once; more are turned away.
const HALF_OPEN_MAX: usize = 256;

/// Sockets that the NIC thread watches, by number.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) conns: Mutex<BTreeMap<u64, Arc<Conn>>>,
    pub(super) listeners: Mutex<BTreeMap<u64, Arc<ListenerInner>>>,
}

/// A connection, or one in the making.
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    id: u64,
    pid: i32,
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

impl Inner {
    pub(super) fn hello(&self, qp: &QpInner, private_data: &[u8]) -> Hello {
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
    pub(super) fn greet(&self, conn: &Conn, qp: &QpInner, message: &Message) -> Result<(), Errno> {
        let mut fds = vec![self.segment.as_fd(), self.nic.button()];
        fds.extend(qp.recv_cq.channel.as_ref().map(|c| c.doorbell.button()));
        send(&conn.socket, message, &fds)
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

    pub(super) fn adopt(&self, socket: OwnedFd, pid: i32, phase: Phase) -> Result<Arc<Conn>> {
        let id = self.nic.watch(socket.as_fd())?;
        let conn = Arc::new(Conn { socket, id, pid, phase: Mutex::new(phase) });
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
    pub(super) fn on_end(self: &Arc<Self>, conn: &Arc<Conn>, why: &CmFailure) {
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
    pub(super) fn is_of(&self, qp: &Arc<QpInner>) -> bool {
        match &*unpoisoned(&self.phase) {
            Phase::AwaitReady { qp: its, .. }
            | Phase::AwaitReply { qp: its, .. }
            | Phase::Up { qp: its, .. } => Arc::ptr_eq(its, qp),
            _ => false,
        }
    }
}
