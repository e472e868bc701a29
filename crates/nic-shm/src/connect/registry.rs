//! Connections by number, and the state that each is in: made by whoever connects or accepts, carried on by the NIC thread
//! ([`crate::connect::conns`]), ended by either.
//!
//! One socket per connection stays open: its end tells of the peer's death.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::Time;
use verbs::{CmEvent, CmFailure, ConnInfo, Depths, Result, Screen};

use crate::protocol::names::Name;
use crate::protocol::socket::send;
use crate::protocol::wire::{Hello, Message};
use crate::qp::QpInner;
use crate::shared::Shared;
use nic_util::events::Events;
use nic_util::fork::Fd;
use nic_util::sync::unpoisoned;

/// How many connections that say nothing may be in the making at once, for one place and for the device; the one that has taken
/// longest gives way. A peer that means it speaks at once, so those who say nothing cannot keep it out.
const SILENT_OF_PLACE: usize = 256;
const SILENT_MAX: usize = 1024;

/// The events of a channel of the connection manager.
pub(crate) type CmEvents = Events<CmEvent>;

/// An address with its listening socket, whether or not a program listens there.
pub(crate) struct Place {
    pub(crate) id: u64,
    pub(crate) socket: Fd,
    pub(crate) name: Name,
    pub(crate) addr: SocketAddr,
    /// The program's listener; without one, requests are refused.
    pub(crate) listener: Mutex<Option<Arc<Listener>>>,
}

/// A program that listens.
pub(crate) struct Listener {
    pub(crate) cm: Weak<CmEvents>,
    pub(crate) backlog: usize,
    pub(crate) screen: Option<Arc<dyn Screen>>,
    /// Requests that the program has not answered.
    pub(crate) pending: AtomicUsize,
}

impl Listener {
    pub(crate) fn new(cm: &Arc<CmEvents>, backlog: u32, screen: Option<Arc<dyn Screen>>) -> Self {
        let (cm, backlog) = (Arc::downgrade(cm), backlog as usize);
        Self { cm, backlog, screen, pending: AtomicUsize::new(0) }
    }
}

/// Sockets that the NIC thread watches, by number.
#[derive(Default)]
pub(crate) struct Registry {
    conns: Mutex<BTreeMap<u64, Arc<Conn>>>,
    pub(crate) places: Mutex<BTreeMap<u64, Arc<Place>>>,
    making: Mutex<Making>,
    /// Descriptors ran out: until then nobody is let in.
    pub(crate) rest_until: Mutex<Option<Time>>,
}

/// Connections in the making, so that none has to be looked for among all.
#[derive(Default)]
struct Making {
    /// By the time at which they are given up.
    deadlines: BTreeSet<(Time, u64)>,
    /// Those that have said nothing yet, with their place; a smaller number is an older one.
    silent: BTreeSet<(u64, u64)>,
}

impl Registry {
    /// A connection by its number.
    pub(crate) fn conn(&self, id: u64) -> Option<Arc<Conn>> {
        unpoisoned(&self.conns).get(&id).cloned()
    }

    /// The connection of a queue pair, if it has one.
    pub(crate) fn conn_of(&self, qp: &Arc<QpInner>) -> Option<Arc<Conn>> {
        self.conn(qp.connection.socket.load(Ordering::Acquire)).filter(|conn| conn.is_of(qp))
    }

    /// Connection `id` is in this phase from now on.
    pub(crate) fn enter(&self, id: u64, phase: &Phase) {
        let mut making = unpoisoned(&self.making);
        making.deadlines.extend(phase.deadline().map(|deadline| (deadline, id)));
        if let Phase::AwaitRequest { place, .. } = phase {
            making.silent.insert((place.id, id));
        }
    }

    /// Connection `id` was in this phase.
    pub(crate) fn leave(&self, id: u64, phase: &Phase) {
        let mut making = unpoisoned(&self.making);
        if let Some(deadline) = phase.deadline() {
            making.deadlines.remove(&(deadline, id));
        }
        if let Phase::AwaitRequest { place, .. } = phase {
            making.silent.remove(&(place.id, id));
        }
    }

    /// Who has to give way to another one that says nothing yet; with `any`, who is the first that can.
    pub(crate) fn oldest_silent(&self, place: u64, any: bool) -> Option<Arc<Conn>> {
        let making = unpoisoned(&self.making);
        let its = || making.silent.range((place, 0)..=(place, u64::MAX)).map(|(_, id)| *id);
        let oldest = || making.silent.iter().map(|(_, id)| *id).min();
        let victim = match its().count() >= SILENT_OF_PLACE {
            true => its().next(),
            false if any || making.silent.len() >= SILENT_MAX => oldest(),
            false => None,
        };
        drop(making);
        self.conn(victim?)
    }

    /// Connections whose time is up, and when the next one's will be.
    pub(crate) fn overdue(&self, now: Time) -> (Vec<Arc<Conn>>, Option<Time>) {
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

    /// Has the NIC thread look after a socket. The queue pair knows its connection before anybody else does.
    pub(crate) fn adopt(
        &self,
        device: &Shared,
        socket: Fd,
        pid: i32,
        ends: (SocketAddr, SocketAddr),
        phase: Phase,
    ) -> Result<Arc<Conn>> {
        let id = device.reactor.fresh_id();
        device.reactor.watch(socket.as_fd(), id)?;
        if let Some(qp) = phase.qp() {
            qp.connection.socket.store(id, Ordering::Release);
        }
        self.enter(id, &phase);
        let conn = Arc::new(Conn { socket, id, pid, ends, said: OnceLock::new(), phase: Mutex::new(phase) });
        unpoisoned(&self.conns).insert(id, conn.clone());
        Ok(conn)
    }

    /// Forgets a connection and closes its socket.
    pub(crate) fn drop_conn(&self, device: &Shared, conn: &Conn) {
        device.reactor.unwatch(conn.socket.as_fd());
        unpoisoned(&self.conns).remove(&conn.id);
        // The socket itself closes with the last reference; the peer shall know now.
        let _ = rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Both);
    }

    /// The other end of a connection has gone, or must not go on.
    pub(crate) fn on_end(&self, device: &Shared, conn: &Conn, why: &CmFailure) {
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), Phase::Over);
        self.leave(conn.id, &phase);
        self.drop_conn(device, conn);
        // A peer that is only late, or speaks nonsense, may still be inside.
        let gone = *why == CmFailure::PeerGone;
        match phase {
            Phase::AwaitReply { qp, cm, .. } => cm.push(failed(&qp, why.clone())),
            Phase::AwaitReady { qp, cm, .. } => {
                qp.bury_peer(gone);
                cm.push(failed(&qp, why.clone()));
            }
            Phase::Up { qp, cm } => {
                qp.bury_peer(gone);
                cm.push(CmEvent::Disconnected { qp_num: qp.num() });
            }
            Phase::AwaitRequest { .. } | Phase::Requested { .. } | Phase::Over => {}
        }
    }

    /// Tells the peer that the connection is over; the program is told too if it is `told`.
    pub(crate) fn part(&self, device: &Shared, qp: &Arc<QpInner>, told: bool) {
        let Some(conn) = self.conn_of(qp) else { return };
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), Phase::Over);
        self.leave(conn.id, &phase);
        // Before the peer knows: what fails here because the peer has gone is flushed then, and no failure.
        qp.fail_as_expected();
        // If it cannot be told so, the closed socket tells it.
        let _ = send(&conn.socket, &Message::Disconnect, &[]);
        device.reactor.unwatch(conn.socket.as_fd());
        unpoisoned(&self.conns).remove(&conn.id);
        if let (true, Phase::Up { cm, .. } | Phase::AwaitReady { cm, .. }) = (told, phase) {
            cm.push(CmEvent::Disconnected { qp_num: qp.num() });
        }
    }
}

/// The event that a queue pair could not be connected.
pub(crate) fn failed(qp: &QpInner, why: CmFailure) -> CmEvent {
    CmEvent::ConnectFailed { qp_num: qp.num(), why }
}

/// A connection, or one in the making.
pub(crate) struct Conn {
    pub(crate) socket: Fd,
    pub(crate) id: u64,
    pub(crate) pid: i32,
    /// This end and the other.
    ends: (SocketAddr, SocketAddr),
    /// The other end's parameters, from its hello.
    said: OnceLock<Said>,
    pub(crate) phase: Mutex<Phase>,
}

/// The part of a hello that events contain.
struct Said {
    depths: Depths,
    qp_num: u32,
    rnr_retry: u8,
}

/// Where a connection stands.
pub(crate) enum Phase {
    /// Passive: nothing said yet.
    AwaitRequest { place: Arc<Place>, deadline: Time },
    /// Passive: the program decides.
    Requested { hello: Box<Hello>, fds: Vec<OwnedFd> },
    /// Passive: accepted, not yet confirmed.
    AwaitReady { qp: Arc<QpInner>, cm: Arc<CmEvents>, deadline: Time },
    /// Active: asked.
    AwaitReply { qp: Arc<QpInner>, cm: Arc<CmEvents>, deadline: Time },
    /// Connected.
    Up { qp: Arc<QpInner>, cm: Arc<CmEvents> },
    /// Nothing more will happen.
    Over,
}

impl Phase {
    /// When it is given up.
    pub(crate) fn deadline(&self) -> Option<Time> {
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

impl Conn {
    /// What events tell of it.
    pub(crate) fn info(&self) -> ConnInfo {
        let (local, peer) = self.ends;
        match self.said.get() {
            None => ConnInfo::of_ends(local, peer),
            Some(said) => ConnInfo {
                depths: Some(said.depths),
                qp_num: Some(said.qp_num),
                rnr_retry: Some(said.rnr_retry),
                ..ConnInfo::of_ends(local, peer)
            },
        }
    }

    /// Keeps what events contain of the other end's hello.
    pub(crate) fn note_hello(&self, hello: &Hello) {
        let Hello { depths, qp_num, rnr_retry, .. } = *hello;
        let _ = self.said.set(Said { depths, qp_num, rnr_retry });
    }

    /// Whether it has ended, or was never made.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*unpoisoned(&self.phase), Phase::Over)
    }

    /// Whether it is this queue pair's.
    fn is_of(&self, qp: &Arc<QpInner>) -> bool {
        unpoisoned(&self.phase).qp().is_some_and(|its| Arc::ptr_eq(its, qp))
    }
}
