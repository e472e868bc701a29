//! The connecting side of connections in the making. On the device's thread, which makes the sockets, too.

use std::net::SocketAddr;
use std::sync::Arc;

use host::Time;
use iwarp::mpa::{HandshakeError, Initiator, InitiatorConfig, Negotiated, Outcome, Revision, Rtr, RtrSet};
use rustix::event::epoll::EventFlags;
use rustix::net::sockopt;
use verbs::{CmEvent, CmFailure, ConnParam};

use super::cm::CmInner;
use super::config::Mpa;
use super::device::Inner;
use super::handshake::{Attempt, Phase, QUESTIONS, Turn, hear, say, since_start};
use super::qp::{QpInner, state};
use super::socket::{connect_to, connects_to_itself, failure};
use crate::fork::Fd;

/// What the active side wants.
pub(super) struct Active {
    pub(super) qp: Arc<QpInner>,
    cm: Arc<CmInner>,
    addr: SocketAddr,
    param: ConnParam,
    deadline: Time,
    revision: Revision,
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

    pub(super) fn fail(self, why: CmFailure) {
        if self.qp.advance(state::CONNECTING, state::INIT) {
            self.cm.push(CmEvent::ConnectFailed { qp_num: self.qp.num, why });
        }
    }

    /// It cannot even be watched.
    pub(super) fn fail_unwatched(self, why: &verbs::Error) {
        let why = CmFailure::Unreachable(self.addr, why.to_string());
        self.fail(why);
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
        if active.qp.state() != state::CONNECTING {
            // Destroyed, or failed by the program.
            return;
        }
        let socket = match connect_to(active.addr, &self.config) {
            Ok(socket) => socket,
            Err(why) => return active.fail(why),
        };
        let attempt = Attempt { socket, deadline: active.deadline, phase: Phase::Connecting(active) };
        self.add_attempt(attempt, EventFlags::OUT);
    }

    /// TCP has connected, or failed to.
    pub(super) fn on_connected(&self, socket: &Fd, active: Active) -> Turn {
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => {
                let why = failure(active.addr, errno);
                active.fail(why);
                return Turn::Over(Vec::new());
            }
        }
        if connects_to_itself(socket) {
            // Nobody listens, and chance gave this side the very port that it wants to reach.
            let why = CmFailure::Refused(active.addr);
            active.fail(why);
            return Turn::Over(Vec::new());
        }
        let now = self.host.now();
        let mut machine = match Initiator::new(active.config(self, now), since_start(now)) {
            Ok(machine) => machine,
            Err(error) => {
                active.fail(meaning(&error));
                return Turn::Over(Vec::new());
            }
        };
        // A socket that has just connected takes a frame, which has at most 532 bytes.
        match say(socket, machine.transmit()) {
            Ok(n) => machine.transmitted(n),
            Err(errno) => {
                let why = failure(active.addr, errno);
                active.fail(why);
                return Turn::Over(Vec::new());
            }
        }
        Turn::On(Phase::Asking(active, machine))
    }

    /// The peer has said something, or closed.
    pub(super) fn on_reply(&self, socket: &Fd, active: Active, mut machine: Initiator) -> Turn {
        let mut bytes = [0; 1024];
        let result = match hear(socket, &mut bytes) {
            Ok(None) => return Turn::On(Phase::Asking(active, machine)),
            Ok(Some(0)) | Err(_) => Err(machine.handle_eof()),
            Ok(Some(n)) => machine.handle_bytes(&bytes[..n]).map(|(taken, outcome)| (taken, n, outcome)),
        };
        match result {
            Ok((_, _, None)) => Turn::On(Phase::Asking(active, machine)),
            Ok((taken, n, Some(Outcome::Established(negotiated)))) => {
                Turn::Agreed(Box::new(active), negotiated, bytes[taken..n].to_vec())
            }
            Ok((.., Some(Outcome::Rejected { .. }))) | Err(_) if machine.may_retry_as_v1() => {
                // On a fresh connection, with what is left of the time.
                self.begin_attempt(Active { revision: Revision::V1, ..active });
                Turn::Over(Vec::new())
            }
            Ok((.., Some(Outcome::Rejected { private_data }))) => {
                if active.qp.advance(state::CONNECTING, state::INIT) {
                    active.cm.push(CmEvent::Rejected { qp_num: active.qp.num, private_data });
                }
                Turn::Over(Vec::new())
            }
            Err(error) => {
                active.fail(meaning(&error));
                // The peer is told why, if it wants to hear it.
                Turn::Over(machine.transmit().to_vec())
            }
        }
    }

    /// The handshake is through, on the active side.
    pub(super) fn begin_active(&self, socket: Fd, active: Active, negotiated: &Negotiated, rest: &[u8]) {
        let Active { qp, cm, param, .. } = active;
        let link = self.link(socket, negotiated, cm.clone(), &param, rest);
        let (qp_num, private_data) = (qp.num, negotiated.private_data.clone());
        qp.with(|stream| {
            // Destroyed or failed by the program while the reply was on its way: the socket closes.
            if qp.advance(state::CONNECTING, state::RTS) {
                cm.push(CmEvent::Established { qp_num, private_data });
                stream.begin(&qp, link.known(), negotiated.rtr.is_none());
                if negotiated.rtr != Some(Rtr::Send) {
                    stream.expect_silence(&qp);
                }
            }
        });
    }
}
