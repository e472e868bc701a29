//! Connections by number, with their state: created by connecting or accepting, continued by the NIC thread
//! ([`crate::connect::state_machine`]), ended by either.
//!
//! One socket per connection stays open: when it closes, the peer has died.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::Time;
use verbs::{CmEvent, CmFailure, ConnInfo, Depths, Result, Screen};

use crate::protocol::names::SocketName;
use crate::protocol::socket::send;
use crate::protocol::wire::{Hello, Message};
use crate::qp::QpInner;
use crate::shared::DeviceShared;
use nic_util::events::EventQueue;
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

/// Maximum number of connections that have not sent a request, per place and per device; beyond it the oldest
/// one is closed. A proper peer sends its request immediately, so that silent connections cannot keep it out.
const SILENT_PER_PORT_MAX: usize = 256;
const SILENT_MAX: usize = 1024;

/// The events of a connection manager channel.
pub(crate) type CmEvents = EventQueue<CmEvent>;

/// An address with its listening socket, whether or not a program listens there.
pub(crate) struct BoundPort {
    pub(crate) id: u64,
    pub(crate) socket: ForkSafeFd,
    pub(crate) name: SocketName,
    pub(crate) addr: SocketAddr,
    /// The program's listener; without one, requests are refused.
    pub(crate) listener: Mutex<Option<Arc<Listener>>>,
}

/// A listening program.
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
    pub(crate) bound_ports: Mutex<BTreeMap<u64, Arc<BoundPort>>>,
    handshakes: Mutex<Handshakes>,
    /// Set when descriptors ran out: no connection is accepted until then.
    pub(crate) paused_until: Mutex<Option<Time>>,
}

/// Connections that are being set up, indexed to avoid a search through all.
#[derive(Default)]
struct Handshakes {
    /// Sorted by the time at which they time out.
    deadlines: BTreeSet<(Time, u64)>,
    /// Those without a request yet, with their place; a smaller number is older.
    silent: BTreeSet<(u64, u64)>,
}

impl Registry {
    /// A connection by its number.
    pub(crate) fn conn(&self, id: u64) -> Option<Arc<Conn>> {
        unpoisoned(&self.conns).get(&id).cloned()
    }

    /// The connection of a queue pair, if it has one.
    pub(crate) fn conn_of(&self, qp: &Arc<QpInner>) -> Option<Arc<Conn>> {
        self.conn(qp.connection.socket.load(Ordering::Acquire)).filter(|conn| conn.belongs_to(qp))
    }

    /// Indexes connection `id` when it enters this phase.
    pub(crate) fn index_phase(&self, id: u64, phase: &ConnPhase) {
        let mut handshakes = unpoisoned(&self.handshakes);
        handshakes.deadlines.extend(phase.deadline().map(|deadline| (deadline, id)));
        if let ConnPhase::AwaitRequest { bound, .. } = phase {
            handshakes.silent.insert((bound.id, id));
        }
    }

    /// Removes connection `id` from the index when it leaves this phase.
    pub(crate) fn unindex_phase(&self, id: u64, phase: &ConnPhase) {
        let mut handshakes = unpoisoned(&self.handshakes);
        if let Some(deadline) = phase.deadline() {
            handshakes.deadlines.remove(&(deadline, id));
        }
        if let ConnPhase::AwaitRequest { bound, .. } = phase {
            handshakes.silent.remove(&(bound.id, id));
        }
    }

    /// The connection to close so that another one without a request can be accepted; with `any`, the oldest
    /// one even below the limits.
    pub(crate) fn oldest_silent(&self, bound: u64, any: bool) -> Option<Arc<Conn>> {
        let handshakes = unpoisoned(&self.handshakes);
        let its = || handshakes.silent.range((bound, 0)..=(bound, u64::MAX)).map(|(_, id)| *id);
        let oldest = || handshakes.silent.iter().map(|(_, id)| *id).min();
        let victim = match its().count() >= SILENT_PER_PORT_MAX {
            true => its().next(),
            false if any || handshakes.silent.len() >= SILENT_MAX => oldest(),
            false => None,
        };
        drop(handshakes);
        self.conn(victim?)
    }

    /// Connections that have timed out, and when the next one will.
    pub(crate) fn take_timed_out(&self, now: Time) -> (Vec<Arc<Conn>>, Option<Time>) {
        let mut handshakes = unpoisoned(&self.handshakes);
        let mut late = Vec::new();
        while let Some((deadline, id)) = handshakes.deadlines.first().copied()
            && deadline <= now
        {
            handshakes.deadlines.pop_first();
            late.push(id);
        }
        let next = handshakes.deadlines.first().map(|(deadline, _)| *deadline);
        drop(handshakes);
        (late.into_iter().filter_map(|id| self.conn(id)).collect(), next)
    }

    /// Makes the NIC thread watch a socket. The queue pair gets the connection's number first.
    pub(crate) fn register_conn(
        &self,
        device: &DeviceShared,
        socket: ForkSafeFd,
        pid: i32,
        ends: (SocketAddr, SocketAddr),
        phase: ConnPhase,
    ) -> Result<Arc<Conn>> {
        let id = device.reactor.fresh_id();
        device.reactor.watch(socket.as_fd(), id)?;
        if let Some(qp) = phase.qp() {
            qp.connection.socket.store(id, Ordering::Release);
        }
        self.index_phase(id, &phase);
        let conn =
            Arc::new(Conn { socket, id, pid, ends, peer_params: OnceLock::new(), phase: Mutex::new(phase) });
        unpoisoned(&self.conns).insert(id, conn.clone());
        Ok(conn)
    }

    /// Forgets a connection and closes its socket.
    pub(crate) fn drop_conn(&self, device: &DeviceShared, conn: &Conn) {
        device.reactor.unwatch(conn.socket.as_fd());
        unpoisoned(&self.conns).remove(&conn.id);
        // The socket closes with the last reference only; the peer must notice now.
        let _ = rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Both);
    }

    /// Ends a connection whose peer has gone or must not continue.
    pub(crate) fn end_conn(&self, device: &DeviceShared, conn: &Conn, why: &CmFailure) {
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), ConnPhase::Closed);
        self.unindex_phase(conn.id, &phase);
        self.drop_conn(device, conn);
        // A peer that timed out or sent nonsense may still be inside.
        let gone = *why == CmFailure::PeerGone;
        match phase {
            ConnPhase::AwaitReply { qp, cm, .. } => cm.push(failed(&qp, why.clone())),
            ConnPhase::AwaitReady { qp, cm, .. } => {
                qp.set_peer_lost(gone);
                cm.push(failed(&qp, why.clone()));
            }
            ConnPhase::Established { qp, cm } => {
                qp.set_peer_lost(gone);
                cm.push(CmEvent::Disconnected { qp_num: qp.num() });
            }
            ConnPhase::AwaitRequest { .. } | ConnPhase::Requested { .. } | ConnPhase::Closed => {}
        }
    }

    /// Disconnects from the peer; `with_event` is whether the program gets an event.
    pub(crate) fn disconnect(&self, device: &DeviceShared, qp: &Arc<QpInner>, with_event: bool) {
        let Some(conn) = self.conn_of(qp) else { return };
        let phase = std::mem::replace(&mut *unpoisoned(&conn.phase), ConnPhase::Closed);
        self.unindex_phase(conn.id, &phase);
        // Before the peer sees it: requests that fail here because the peer disconnects are then flushed, not
        // failed.
        qp.fail_without_event();
        // If this cannot be sent, the closed socket notifies the peer.
        let _ = send(&conn.socket, &Message::Disconnect, &[]);
        device.reactor.unwatch(conn.socket.as_fd());
        unpoisoned(&self.conns).remove(&conn.id);
        if let (true, ConnPhase::Established { cm, .. } | ConnPhase::AwaitReady { cm, .. }) =
            (with_event, phase)
        {
            cm.push(CmEvent::Disconnected { qp_num: qp.num() });
        }
    }
}

/// The event that a queue pair could not be connected.
pub(crate) fn failed(qp: &QpInner, why: CmFailure) -> CmEvent {
    CmEvent::ConnectFailed { qp_num: qp.num(), why }
}

/// A connection, established or being set up.
pub(crate) struct Conn {
    pub(crate) socket: ForkSafeFd,
    pub(crate) id: u64,
    pub(crate) pid: i32,
    /// The local and the remote address.
    ends: (SocketAddr, SocketAddr),
    /// The other end's parameters, from its hello.
    peer_params: OnceLock<PeerParams>,
    pub(crate) phase: Mutex<ConnPhase>,
}

/// The part of a hello that events contain.
struct PeerParams {
    depths: Depths,
    qp_num: u32,
    rnr_retry: u8,
}

/// The phase of a connection.
pub(crate) enum ConnPhase {
    /// Passive: no request received yet.
    AwaitRequest { bound: Arc<BoundPort>, deadline: Time },
    /// Passive: the program decides.
    Requested { hello: Box<Hello>, fds: Vec<OwnedFd> },
    /// Passive: accepted, not yet confirmed.
    AwaitReady { qp: Arc<QpInner>, cm: Arc<CmEvents>, deadline: Time },
    /// Active: request sent.
    AwaitReply { qp: Arc<QpInner>, cm: Arc<CmEvents>, deadline: Time },
    /// Connected.
    Established { qp: Arc<QpInner>, cm: Arc<CmEvents> },
    /// The connection has ended.
    Closed,
}

impl ConnPhase {
    /// When this phase times out.
    pub(crate) fn deadline(&self) -> Option<Time> {
        match self {
            Self::AwaitRequest { deadline, .. }
            | Self::AwaitReady { deadline, .. }
            | Self::AwaitReply { deadline, .. } => Some(*deadline),
            Self::Requested { .. } | Self::Established { .. } | Self::Closed => None,
        }
    }

    /// The queue pair of the connection, once that is known.
    fn qp(&self) -> Option<&Arc<QpInner>> {
        match self {
            Self::AwaitReady { qp, .. } | Self::AwaitReply { qp, .. } | Self::Established { qp, .. } => {
                Some(qp)
            }
            Self::AwaitRequest { .. } | Self::Requested { .. } | Self::Closed => None,
        }
    }
}

impl Conn {
    /// The description of the connection in events.
    pub(crate) fn info(&self) -> ConnInfo {
        let (local, peer) = self.ends;
        match self.peer_params.get() {
            None => ConnInfo::of_ends(local, peer),
            Some(peer_params) => ConnInfo {
                depths: Some(peer_params.depths),
                qp_num: Some(peer_params.qp_num),
                rnr_retry: Some(peer_params.rnr_retry),
                ..ConnInfo::of_ends(local, peer)
            },
        }
    }

    /// Stores the part of the peer's hello that events contain.
    pub(crate) fn store_peer_params(&self, hello: &Hello) {
        let Hello { depths, qp_num, rnr_retry, .. } = *hello;
        let _ = self.peer_params.set(PeerParams { depths, qp_num, rnr_retry });
    }

    /// Whether it has ended, or was never established.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(*unpoisoned(&self.phase), ConnPhase::Closed)
    }

    /// Whether it belongs to this queue pair.
    fn belongs_to(&self, qp: &Arc<QpInner>) -> bool {
        unpoisoned(&self.phase).qp().is_some_and(|its| Arc::ptr_eq(its, qp))
    }
}
