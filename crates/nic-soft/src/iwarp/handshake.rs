//! Connections in the making: TCP, then the frames of MPA, until there is a stream. On the device's thread, except that the
//! program answers requests from wherever it likes.
//!
//! Bounded: how many may be about to say what they want, how long they take, how many requests wait for the program's answer
//! (the listener's backlog), and what a frame holds (512 bytes of private data).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::{Span, Time};
use iwarp::mpa::{
    Accept, HandshakeError, Initiator, InitiatorConfig, MULPDU_MAX, MULPDU_MIN, Negotiated, Outcome,
    Responder, ResponderConfig, Revision, Role, Rtr, RtrSet, mulpdu_for,
};
use iwarp::{Connection, Limits};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, acceptfrom_with, sockopt};
use verbs::provider::{CmOps, RequestOps};
use verbs::{CmEvent, CmFailure, ConnParam, ConnectRequest, Error, Qp, Result};

use super::cm::{CmInner, ListenerInner, find_cm, own_qp};
use super::config::{Completion, FpduSize, Mpa};
use super::device::{Inner, PRIVATE_DATA_MAX, unpoisoned};
use super::nic::ATTEMPT;
use super::place::segment_len;
use super::qp::{QpInner, state, state_of};
use super::receive::Incoming;
use super::socket::{connect_to, failure, prepare};
use super::stream::{End, Link};
use super::transmit::Outgoing;

/// How long somebody who has connected to a listener may take to say what it wants.
const REQUEST_PATIENCE: Span = Span::from_secs(5);
/// How many may be in that state at once; the one that has taken longest gives way to the next.
const HALF_OPEN_MAX: usize = 256;
/// Reads that are granted, and wished for, beyond what the program asks: for the questions of `transmit`.
const QUESTIONS: u16 = 16;
/// Operations that a machine holds: those of one request, a question, and a greeting.
const MACHINE_QUEUE: usize = 4;

/// Listeners, and connections in the making, by number.
#[derive(Default)]
pub(super) struct Registry {
    listeners: Mutex<BTreeMap<u64, Arc<ListenerInner>>>,
    attempts: Mutex<BTreeMap<u64, Attempt>>,
}

impl Registry {
    pub(super) fn add_listener(&self, listener: &Arc<ListenerInner>) {
        unpoisoned(&self.listeners).insert(listener.id, listener.clone());
    }

    pub(super) fn forget_listener(&self, id: u64) {
        unpoisoned(&self.listeners).remove(&id);
    }
}

/// What the active side wants.
pub(super) struct Active {
    qp: Arc<QpInner>,
    cm: Arc<CmInner>,
    addr: SocketAddr,
    param: ConnParam,
    deadline: Time,
    revision: Revision,
}

/// A connection in the making.
struct Attempt {
    socket: OwnedFd,
    deadline: Time,
    phase: Phase,
}

enum Phase {
    /// TCP is connecting.
    Connecting(Active),
    /// The request is on its way; the reply is awaited.
    Asking(Active, Initiator),
    /// Somebody has connected and is about to say what it wants.
    Hearing(Responder, Arc<ListenerInner>, SocketAddr),
}

impl Active {
    pub(super) fn new(
        device: &Inner,
        qp: Arc<QpInner>,
        cm: Arc<CmInner>,
        addr: SocketAddr,
        param: ConnParam,
    ) -> Self {
        let deadline = device.host.now() + param.timeout;
        let revision = match device.config.mpa {
            Mpa::V1 => Revision::V1,
            Mpa::V2 => Revision::V2,
        };
        Self { qp, cm, addr, param, deadline, revision }
    }

    fn fail(self, why: CmFailure) {
        if self.qp.advance(state::CONNECTING, state::INIT) {
            self.cm.push(CmEvent::ConnectFailed { qp_num: self.qp.num, why });
        }
    }

    fn config(&self, device: &Inner, now: Time) -> InitiatorConfig {
        let rtr = if self.revision == Revision::V2 { RtrSet::all() } else { RtrSet::empty() };
        InitiatorConfig {
            revision: self.revision,
            crc: device.config.crc,
            ird: u16::from(self.param.responder_resources) + QUESTIONS,
            ord: u16::from(self.param.initiator_depth) + QUESTIONS,
            ord_min: 0,
            peer_to_peer: rtr,
            private_data: self.param.private_data.clone(),
            timeout: self.deadline.since(now).to_std(),
        }
    }
}

/// A time as the machines count it.
fn since_start(now: Time) -> Duration {
    now.since(Time::ZERO).to_std()
}

/// What an error of the handshake means to the program.
fn meaning(error: &HandshakeError) -> CmFailure {
    match error {
        HandshakeError::Timeout => CmFailure::TimedOut,
        HandshakeError::Closed => CmFailure::PeerGone,
        HandshakeError::Key => CmFailure::Protocol(
            "it is no iWARP device: what it sent is no MPA frame; is the port right?".into(),
        ),
        error => CmFailure::Protocol(error.to_string()),
    }
}

impl Inner {
    /// Begins to connect; events tell how it goes.
    pub(super) fn begin_attempt(&self, active: Active) {
        let socket = match connect_to(active.addr, self.config.bind) {
            Ok(socket) => socket,
            Err(why) => return active.fail(why),
        };
        let attempt = Attempt { socket, deadline: active.deadline, phase: Phase::Connecting(active) };
        self.add_attempt(attempt, EventFlags::OUT);
        // The thread may be in a longer sleep.
        self.nic.wake();
    }

    fn add_attempt(&self, attempt: Attempt, flags: EventFlags) {
        let id = self.nic.fresh_id();
        let mut attempts = unpoisoned(&self.nic.registry.attempts);
        match self.nic.watch(attempt.socket.as_fd(), ATTEMPT | id, flags) {
            Ok(()) => drop(attempts.insert(id, attempt)),
            Err(why) => {
                drop(attempts);
                if let Phase::Connecting(active) | Phase::Asking(active, _) = attempt.phase {
                    let addr = active.addr;
                    active.fail(CmFailure::Unreachable(addr, why.to_string()));
                }
            }
        }
    }

    /// A queue pair is going away or fails: it is not connected any more.
    pub(super) fn cancel_attempt(&self, qp: &Arc<QpInner>) {
        let mut attempts = unpoisoned(&self.nic.registry.attempts);
        attempts.retain(|_, attempt| match &attempt.phase {
            Phase::Connecting(active) | Phase::Asking(active, _) => !Arc::ptr_eq(&active.qp, qp),
            Phase::Hearing(..) => true,
        });
    }

    /// Somebody connects to a listener.
    pub(super) fn on_listener(self: &Arc<Self>, id: u64) {
        let listener = unpoisoned(&self.nic.registry.listeners).get(&id).cloned();
        let Some(listener) = listener else { return };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Bounded, so that a flood does not keep the thread from everything else.
        for _ in 0..64 {
            let Ok((socket, peer)) = acceptfrom_with(&listener.socket, flags) else { return };
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(listener.addr);
            self.make_room();
            prepare(&socket);
            let config = ResponderConfig {
                revision_max: if self.config.mpa == Mpa::V1 { Revision::V1 } else { Revision::V2 },
                crc: self.config.crc,
                peer_to_peer: RtrSet::all(),
                timeout: REQUEST_PATIENCE.to_std(),
            };
            let now = self.host.now();
            let machine = Responder::new(config, since_start(now));
            let phase = Phase::Hearing(machine, listener.clone(), peer);
            let attempt = Attempt { socket, deadline: now + REQUEST_PATIENCE, phase };
            self.add_attempt(attempt, EventFlags::IN);
        }
    }

    /// Drops who has taken longest to say what it wants, if too many are about to.
    fn make_room(&self) {
        let mut attempts = unpoisoned(&self.nic.registry.attempts);
        let hearing = |attempt: &Attempt| matches!(attempt.phase, Phase::Hearing(..));
        if attempts.values().filter(|attempt| hearing(attempt)).count() >= HALF_OPEN_MAX
            && let Some(id) = attempts.iter().find(|(_, attempt)| hearing(attempt)).map(|(id, _)| *id)
        {
            attempts.remove(&id);
        }
    }

    /// The socket of a connection in the making wants something.
    pub(super) fn on_attempt(self: &Arc<Self>, id: u64) {
        let attempt = unpoisoned(&self.nic.registry.attempts).remove(&id);
        let Some(Attempt { socket, deadline, phase }) = attempt else { return };
        let (phase, flags) = match phase {
            Phase::Connecting(active) => match self.on_connected(&socket, active) {
                Some(phase) => (phase, EventFlags::IN),
                None => return,
            },
            Phase::Asking(active, machine) => match self.on_reply(&socket, active, machine) {
                Heard::Nothing(phase) => (phase, EventFlags::IN),
                Heard::Connected(active, negotiated, rest) => {
                    return self.begin_active(socket, *active, &negotiated, &rest);
                }
                Heard::Over => return,
            },
            Phase::Hearing(machine, listener, peer) => {
                match self.on_words(&socket, machine, listener, peer) {
                    Said::Nothing(phase) => (phase, EventFlags::IN),
                    Said::Request(machine, request, listener, peer) => {
                        self.nic.unwatch(socket.as_fd());
                        return self.on_request(socket, *machine, request, &listener, peer);
                    }
                    Said::Over => return,
                }
            }
        };
        // Back in its place, unless the queue pair has gone meanwhile.
        if let Phase::Asking(active, _) = &phase
            && active.qp.state() != state::CONNECTING
        {
            return;
        }
        self.nic.rewatch(socket.as_fd(), ATTEMPT | id, flags);
        unpoisoned(&self.nic.registry.attempts).insert(id, Attempt { socket, deadline, phase });
    }

    /// TCP has connected, or failed to.
    fn on_connected(&self, socket: &OwnedFd, active: Active) -> Option<Phase> {
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => {
                let why = failure(active.addr, errno);
                active.fail(why);
                return None;
            }
        }
        let now = self.host.now();
        let mut machine = match Initiator::new(active.config(self, now), since_start(now)) {
            Ok(machine) => machine,
            Err(error) => {
                active.fail(meaning(&error));
                return None;
            }
        };
        // A socket that has just connected takes a frame, which has at most 532 bytes.
        match say(socket, machine.transmit()) {
            Ok(n) => machine.transmitted(n),
            Err(errno) => {
                let why = failure(active.addr, errno);
                active.fail(why);
                return None;
            }
        }
        Some(Phase::Asking(active, machine))
    }

    fn on_reply(&self, socket: &OwnedFd, active: Active, mut machine: Initiator) -> Heard {
        let mut bytes = [0; 1024];
        let result = match hear(socket, &mut bytes) {
            Ok(None) => return Heard::Nothing(Phase::Asking(active, machine)),
            Ok(Some(0)) | Err(_) => Err(machine.handle_eof()),
            Ok(Some(n)) => machine.handle_bytes(&bytes[..n]).map(|(taken, outcome)| (taken, n, outcome)),
        };
        match result {
            Ok((_, _, None)) => Heard::Nothing(Phase::Asking(active, machine)),
            Ok((taken, n, Some(Outcome::Established(negotiated)))) => {
                Heard::Connected(Box::new(active), negotiated, bytes[taken..n].to_vec())
            }
            Ok((.., Some(Outcome::Rejected { .. }))) | Err(_) if machine.may_retry_as_v1() => {
                // On a fresh connection, with what is left of the time.
                self.begin_attempt(Active { revision: Revision::V1, ..active });
                Heard::Over
            }
            Ok((.., Some(Outcome::Rejected { private_data }))) => {
                if active.qp.advance(state::CONNECTING, state::INIT) {
                    active.cm.push(CmEvent::Rejected { qp_num: active.qp.num, private_data });
                }
                Heard::Over
            }
            Err(error) => {
                // The peer is told why, if it wants to hear it.
                let _ = say(socket, machine.transmit());
                active.fail(meaning(&error));
                Heard::Over
            }
        }
    }

    fn on_words(
        &self,
        socket: &OwnedFd,
        mut machine: Responder,
        listener: Arc<ListenerInner>,
        peer: SocketAddr,
    ) -> Said {
        let mut bytes = [0; 1024];
        match hear(socket, &mut bytes) {
            Ok(None) => Said::Nothing(Phase::Hearing(machine, listener, peer)),
            Ok(Some(0)) | Err(_) => Said::Over,
            Ok(Some(n)) => match machine.handle_bytes(&bytes[..n]) {
                Ok((_, None)) => Said::Nothing(Phase::Hearing(machine, listener, peer)),
                Ok((_, Some(request))) => {
                    Said::Request(Box::new(machine), request.private_data, listener, peer)
                }
                Err(_) => {
                    // A refusal, if there is one to give.
                    let _ = say(socket, machine.transmit());
                    Said::Over
                }
            },
        }
    }

    fn on_request(
        self: &Arc<Self>,
        socket: OwnedFd,
        machine: Responder,
        private_data: Vec<u8>,
        listener: &Arc<ListenerInner>,
        peer: SocketAddr,
    ) {
        let Some(cm) = listener.cm.upgrade() else { return };
        let waiting = listener.pending.fetch_add(1, Ordering::AcqRel);
        let ops =
            RequestHandle { device: self.clone(), listener: listener.clone(), open: Some((socket, machine)) };
        let request = ConnectRequest::new(Box::new(ops), private_data, peer, listener.addr);
        if waiting >= listener.backlog {
            // Rejected by being dropped.
            return drop(request);
        }
        cm.push_request(listener, CmEvent::ConnectRequest(request));
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
            if let Phase::Connecting(active) | Phase::Asking(active, _) = attempt.phase {
                active.fail(CmFailure::TimedOut);
            }
        }
        next
    }

    /// The handshake is through, on the active side.
    fn begin_active(&self, socket: OwnedFd, active: Active, negotiated: &Negotiated, rest: &[u8]) {
        let Active { qp, cm, param, .. } = active;
        let link = self.link(socket, negotiated, cm.clone(), &param, rest);
        let (qp_num, private_data) = (qp.num, negotiated.private_data.clone());
        qp.with(|stream| {
            // Destroyed or failed by the program while the reply was on its way: the socket closes.
            if qp.advance(state::CONNECTING, state::RTS) {
                cm.push(CmEvent::Established { qp_num, private_data });
                stream.begin(&qp, link.known(), negotiated.rtr.is_none());
            }
        });
    }

    fn link(
        &self,
        socket: OwnedFd,
        negotiated: &Negotiated,
        cm: Arc<CmInner>,
        param: &ConnParam,
        rest: &[u8],
    ) -> Link {
        let mulpdu = match self.config.fpdu {
            FpduSize::Largest => MULPDU_MAX,
            FpduSize::Segment => segment_len(socket.as_fd()).map_or(MULPDU_MIN, mulpdu_for),
            FpduSize::Bytes(bytes) => mulpdu_for(bytes.into()),
        };
        let limits = Limits { queue: MACHINE_QUEUE, mulpdu, rtr_timeout: param.timeout.to_std() };
        let connection = Connection::new(negotiated, &limits, since_start(self.host.now()));
        let passive = negotiated.role == Role::Responder;
        let greeting = passive && negotiated.rtr == Some(Rtr::Send);
        let first_send = if !passive && negotiated.rtr == Some(Rtr::Send) { 2 } else { 1 };
        let asks = self.config.completion == Completion::Placed && negotiated.ord > 0;
        let incoming = Incoming::new(param.rnr_retry, negotiated.ord, greeting).with_bytes(rest);
        let outgoing = Outgoing::new(asks, negotiated.ord, first_send);
        Link::new(socket, connection, cm, incoming, outgoing)
    }
}

/// What came of listening for a reply.
enum Heard {
    Nothing(Phase),
    Connected(Box<Active>, Negotiated, Vec<u8>),
    Over,
}

/// What came of listening for a request.
enum Said {
    Nothing(Phase),
    Request(Box<Responder>, Vec<u8>, Arc<ListenerInner>, SocketAddr),
    Over,
}

fn say(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return Ok(0);
    }
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// What has come; `None` if nothing has, 0 bytes at the end.
fn hear(socket: &OwnedFd, bytes: &mut [u8]) -> Result<Option<usize>, Errno> {
    match rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT) {
        Ok((_, n)) => Ok(Some(n)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A connect request that waits for its answer.
struct RequestHandle {
    device: Arc<Inner>,
    listener: Arc<ListenerInner>,
    open: Option<(OwnedFd, Responder)>,
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.listener.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RequestHandle {
    fn decline(&mut self, private_data: &[u8]) {
        let Some((socket, mut machine)) = self.open.take() else { return };
        if machine.reject(private_data).is_ok() {
            self.device.nic.linger(&self.device, socket, machine.transmit().to_vec());
        }
    }

    fn try_accept(&mut self, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let device = self.device.clone();
        let (cm, qp) = (find_cm(&device, cm)?, own_qp(&device, qp)?);
        if qp.state() != state::INIT {
            return Err(Error::WrongState { call: "accept", state: state_of(qp.state()) });
        }
        let Some((socket, mut machine)) = self.open.take() else {
            return Err(Error::Invalid("the connect request has already been answered".into()));
        };
        let accept = Accept {
            ird: u16::from(param.responder_resources) + QUESTIONS,
            ord: u16::from(param.initiator_depth) + QUESTIONS,
            private_data: param.private_data.clone(),
        };
        let negotiated = match machine.accept(&accept) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                self.open = Some((socket, machine));
                return Err(Error::Invalid(error.to_string()));
            }
        };
        if !qp.advance(state::INIT, state::RTR) {
            let now = state_of(qp.state());
            drop(socket);
            return Err(Error::WrongState { call: "accept", state: now });
        }
        let (reply, qp_num) = (machine.transmit(), qp.num);
        let said = device.nic.watch(socket.as_fd(), u64::MAX, EventFlags::ONESHOT).is_ok()
            && say(&socket, reply).is_ok_and(|n| n == reply.len());
        let link = device.link(socket, &negotiated, cm.clone(), param, &[]);
        qp.with(|stream| {
            if !said {
                qp.set_error();
                cm.push(CmEvent::ConnectFailed { qp_num, why: CmFailure::PeerGone });
                return stream.end(&qp, End::Closed);
            }
            stream.begin(&qp, link, false);
            if negotiated.rtr.is_none() {
                // Nothing more is awaited; what this side sends is held back until the peer has spoken.
                stream.ready(&qp);
            }
        });
        if negotiated.rtr.is_some() {
            device.nic.at(device.host.now() + param.timeout, &qp);
        }
        Ok(())
    }
}

impl RequestOps for RequestHandle {
    fn accept(mut self: Box<Self>, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let result = self.try_accept(cm, qp, param);
        if result.is_err() {
            self.decline(&[]);
        }
        result
    }

    fn reject(mut self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let fits =
            Error::check_limit("bytes of private data", private_data.len() as u64, PRIVATE_DATA_MAX as u64);
        self.decline(if fits.is_ok() { private_data } else { &[] });
        fits
    }
}
