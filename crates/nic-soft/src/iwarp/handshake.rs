//! Connections in the making: TCP, then the frames of MPA, until there is a stream. On the device's thread, except that the
//! program answers requests from wherever it likes.
//!
//! Bounded: how many may be about to say what they want, how long they take, how many requests wait for the program's answer
//! (the listener's backlog), and what a frame holds (512 bytes of private data).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::Time;
use iwarp::mpa::{Initiator, MULPDU_MAX, MULPDU_MIN, Negotiated, Responder, Revision, Role, Rtr, mulpdu_for};
use iwarp::{Connection, Limits};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use verbs::{CmFailure, ConnParam};

use super::active::Active;
use super::cm::{CmInner, ListenerInner};
use super::config::{Completion, FpduSize};
use super::device::{Inner, unpoisoned};
use super::nic::ATTEMPT;
use super::passive::ListenWish;
use super::place::segment_len;
use super::qp::{QpInner, state};
use super::receive::Incoming;
use super::stream::Link;
use super::transmit::Outgoing;
use crate::fork::Fd;

/// Reads that are granted, and wished for, beyond what the program asks: for the questions of `transmit`.
pub(super) const QUESTIONS: u16 = 16;
/// Operations that a machine holds: those of one request, a question, and a greeting.
const MACHINE_QUEUE: usize = 4;
/// The largest FPDU with a CRC, unless a size is configured, in bytes. Two of them are sent at once, as copies. With 65,535
/// bytes these made a third TCP segment of a few bytes on loopback, and streams reached 5.3 GB/s instead of 7.3.
const CRC_FPDU_LEN: u32 = 60_000;

/// What a program wants of the device's thread.
pub(super) enum Wish {
    Connect(Active),
    Listen(Arc<ListenWish>),
}

/// Listeners, and connections in the making, by number.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) wishes: Mutex<Vec<Wish>>,
    pub(super) listeners: Mutex<BTreeMap<u64, Arc<ListenerInner>>>,
    pub(super) attempts: Mutex<BTreeMap<u64, Attempt>>,
    /// Descriptors ran out: until then nobody is let in.
    pub(super) rest_until: Mutex<Option<Time>>,
}

impl Registry {
    pub(super) fn add_listener(&self, listener: &Arc<ListenerInner>) {
        unpoisoned(&self.listeners).insert(listener.id, listener.clone());
    }

    pub(super) fn forget_listener(&self, id: u64) {
        unpoisoned(&self.listeners).remove(&id);
    }
}

/// A connection in the making.
pub(super) struct Attempt {
    pub(super) socket: Fd,
    pub(super) deadline: Time,
    pub(super) phase: Phase,
}

pub(super) enum Phase {
    /// TCP is connecting.
    Connecting(Active),
    /// The request is on its way; the reply is awaited.
    Asking(Active, Initiator),
    /// Somebody has connected and is about to say what it wants.
    Hearing(Responder, Arc<ListenerInner>, SocketAddr),
}

impl Phase {
    fn active(&self) -> Option<&Active> {
        match self {
            Self::Connecting(active) | Self::Asking(active, _) => Some(active),
            Self::Hearing(..) => None,
        }
    }

    fn into_active(self) -> Option<Active> {
        match self {
            Self::Connecting(active) | Self::Asking(active, _) => Some(active),
            Self::Hearing(..) => None,
        }
    }

    /// What its socket is to tell of.
    fn wanted(&self) -> EventFlags {
        if matches!(self, Self::Connecting(_)) { EventFlags::OUT } else { EventFlags::IN }
    }
}

/// What came of a turn of a connection in the making.
pub(super) enum Turn {
    /// It goes on.
    On(Phase),
    /// It is over. What the peer is still to be told.
    Over(Vec<u8>),
    /// The peer has accepted; what it said behind that.
    Agreed(Box<Active>, Negotiated, Vec<u8>),
    /// The peer asks, with this private data.
    Asked(Box<Responder>, Vec<u8>, Arc<ListenerInner>, SocketAddr),
}

/// A time as the machines count it.
pub(super) fn since_start(now: Time) -> Duration {
    now.since(Time::ZERO).to_std()
}

impl Inner {
    /// Begins what programs want.
    pub(super) fn fulfil_wishes(&self) {
        for wish in std::mem::take(&mut *unpoisoned(&self.nic.registry.wishes)) {
            match wish {
                Wish::Connect(active) => self.begin_attempt(active),
                Wish::Listen(wish) => wish.fulfil(),
            }
        }
    }

    pub(super) fn add_attempt(&self, attempt: Attempt, flags: EventFlags) {
        let id = self.nic.fresh_id();
        match self.nic.watch(attempt.socket.as_fd(), ATTEMPT | id, flags) {
            Ok(()) => self.keep_attempt(id, attempt),
            Err(why) => drop(attempt.phase.into_active().map(|active| active.fail_unwatched(&why))),
        }
    }

    /// Puts a connection in its place, unless its queue pair has gone meanwhile.
    fn keep_attempt(&self, id: u64, attempt: Attempt) {
        // Under the lock: whoever cancels has changed the state before, and takes the lock afterwards.
        let mut attempts = unpoisoned(&self.nic.registry.attempts);
        let gone = attempt.phase.active().is_some_and(|active| active.qp.state() != state::CONNECTING);
        if !gone {
            attempts.insert(id, attempt);
        }
    }

    /// A queue pair that is in the error state is not connected any more.
    pub(super) fn cancel_attempt(&self, qp: &Arc<QpInner>) {
        unpoisoned(&self.nic.registry.attempts)
            .retain(|_, attempt| attempt.phase.active().is_none_or(|active| !Arc::ptr_eq(&active.qp, qp)));
    }

    /// The socket of a connection in the making wants something.
    pub(super) fn on_attempt(self: &Arc<Self>, id: u64) {
        let attempt = unpoisoned(&self.nic.registry.attempts).remove(&id);
        let Some(Attempt { socket, deadline, phase }) = attempt else { return };
        let turn = match phase {
            Phase::Connecting(active) => self.on_connected(&socket, active),
            Phase::Asking(active, machine) => self.on_reply(&socket, active, machine),
            Phase::Hearing(machine, listener, peer) => self.on_words(&socket, machine, listener, peer),
        };
        match turn {
            Turn::On(phase) => {
                self.nic.rewatch(socket.as_fd(), ATTEMPT | id, phase.wanted());
                self.keep_attempt(id, Attempt { socket, deadline, phase });
            }
            Turn::Over(words) if words.is_empty() => {}
            Turn::Over(words) => {
                self.nic.unwatch(socket.as_fd());
                self.nic.linger(self, socket, words);
            }
            Turn::Agreed(active, negotiated, rest) => self.begin_active(socket, *active, &negotiated, &rest),
            Turn::Asked(machine, private_data, listener, peer) => {
                self.nic.unwatch(socket.as_fd());
                self.on_request(socket, *machine, private_data, &listener, peer);
            }
        }
    }

    /// Ends what takes too long; when the next deadline is.
    pub(super) fn expire_attempts(&self, now: Time) -> Option<Time> {
        let mut attempts = unpoisoned(&self.nic.registry.attempts);
        let late: Vec<u64> =
            attempts.iter().filter(|(_, attempt)| now >= attempt.deadline).map(|(id, _)| *id).collect();
        let late: Vec<Attempt> = late.iter().filter_map(|id| attempts.remove(id)).collect();
        let next = attempts.values().map(|attempt| attempt.deadline).min();
        drop(attempts);
        for attempt in late {
            if let Some(active) = attempt.phase.into_active() {
                active.fail(CmFailure::TimedOut);
            }
        }
        next
    }

    /// What a stream needs that both sides have agreed on.
    pub(super) fn link(
        &self,
        socket: Fd,
        negotiated: &Negotiated,
        cm: Arc<CmInner>,
        param: &ConnParam,
        rest: &[u8],
    ) -> Link {
        let mulpdu = match self.config.fpdu {
            FpduSize::Largest if negotiated.crc => mulpdu_for(CRC_FPDU_LEN),
            FpduSize::Largest => MULPDU_MAX,
            FpduSize::Segment => segment_len(socket.as_fd()).map_or(MULPDU_MIN, mulpdu_for),
            FpduSize::Bytes(bytes) => mulpdu_for(bytes.into()),
        };
        let limits = Limits { queue: MACHINE_QUEUE, mulpdu, rtr_timeout: param.timeout.to_std() };
        let passive = negotiated.role == Role::Responder;
        let asks = self.may_ask(negotiated);
        let mut negotiated = negotiated.clone();
        if negotiated.revision == Revision::V1 && !asks {
            // Nothing was negotiated: the program's word alone says how many reads the peer serves.
            negotiated.ord = negotiated.ord.min(param.initiator_depth.into());
        }
        let negotiated = &negotiated;
        let connection = Connection::new(negotiated, &limits, since_start(self.host.now()));
        let greeting = passive && negotiated.rtr == Some(Rtr::Send);
        let first_send = if !passive && negotiated.rtr == Some(Rtr::Send) { 2 } else { 1 };
        let incoming = Incoming::new(param.rnr_retry, negotiated.ord, greeting).with_bytes(rest);
        let outgoing = Outgoing::new(asks, negotiated.ord, first_send);
        Link::new(socket, connection, cm, incoming, outgoing)
    }

    /// Whether this peer is asked by reads of no bytes. In revision 1 nothing tells siw from others: the program says
    /// `complete=sent`, or loses the connection rather than a message.
    fn may_ask(&self, negotiated: &Negotiated) -> bool {
        negotiated.may_ask() && self.config.completion == Completion::Placed
    }
}

/// Sends what fits at once; a frame always does.
pub(super) fn say(socket: &Fd, bytes: &[u8]) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return Ok(0);
    }
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// What has come; `None` if nothing has, 0 bytes at the end.
pub(super) fn hear(socket: &Fd, bytes: &mut [u8]) -> Result<Option<usize>, Errno> {
    match rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT) {
        Ok((_, n)) => Ok(Some(n)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}
