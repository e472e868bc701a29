//! The active side of connection establishment, from the socket to the peer's reply. Runs on the NIC thread, which
//! also creates the sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use host::Time;
use iwarp::mpa::{
    HandshakeError, HandshakeOutcome, Initiator, InitiatorConfig, Negotiated, Revision, Rtr, RtrSet,
};
use rustix::net::sockopt;
use verbs::{CmEvent, CmFailure, ConnParam};

use crate::config::{IwarpConfig, MARKER_READS, Mpa};
use crate::connection::active_conn::ActiveConn;
use crate::qp::QpInner;
use crate::queues::cm_events::CmEvents;
use crate::queues::qp_queues::state;
use crate::shared::{DeviceShared, protocol_time};
use crate::tcp::capture::Way;
use crate::tcp::conn_info;
use crate::tcp::socket::{
    bind_at, connect_failure, connect_to, dissolve_self_connection, recv_available, send_now,
};
use nic_util::fork::ForkSafeFd;

/// An outgoing connection attempt.
pub(crate) struct OutgoingConn {
    pub(crate) qp: Arc<QpInner>,
    events: Arc<CmEvents>,
    addr: SocketAddr,
    param: ConnParam,
    source: Option<SourceAddr>,
    pub(crate) deadline: Time,
    revision: Revision,
}

/// The local address for an outgoing connection.
pub(crate) struct SourceAddr {
    addr: SocketAddr,
    /// A socket bound to the address, until an attempt has used it.
    socket: Option<ForkSafeFd>,
}

impl SourceAddr {
    pub(crate) fn new(addr: SocketAddr, socket: Option<ForkSafeFd>) -> Self {
        Self { addr, socket }
    }

    /// Takes a socket bound to the address.
    fn take(&mut self) -> verbs::Result<ForkSafeFd> {
        self.socket.take().map_or_else(|| bind_at(self.addr).map(|(socket, _)| socket), Ok)
    }
}

impl OutgoingConn {
    pub(crate) fn new(
        shared: &DeviceShared,
        qp: Arc<QpInner>,
        events: Arc<CmEvents>,
        addr: SocketAddr,
        param: ConnParam,
        source: Option<SourceAddr>,
    ) -> Self {
        let deadline = shared.host.now() + param.timeout;
        let revision = match shared.config.mpa {
            Mpa::V1 => Revision::V1,
            Mpa::V2 => Revision::V2,
        };
        Self { qp, events, addr, param, source, deadline, revision }
    }

    pub(crate) fn fail(self, why: CmFailure) {
        if self.qp.queues.advance(state::CONNECTING, state::INIT) {
            self.events.push(CmEvent::ConnectFailed { qp_num: self.qp.num(), why });
        }
    }

    /// Fails the attempt because its socket cannot be added to epoll.
    pub(crate) fn fail_to_watch(self, why: &verbs::Error) {
        let why = CmFailure::Unreachable(self.addr, why.to_string());
        self.fail(why);
    }

    fn config(&self, config: &IwarpConfig, now: Time) -> InitiatorConfig {
        let rtr = if self.revision == Revision::V2 { RtrSet::all() } else { RtrSet::empty() };
        InitiatorConfig {
            revision: self.revision,
            crc: config.crc,
            ird: u16::from(self.param.responder_resources) + MARKER_READS,
            ord: u16::from(self.param.initiator_depth) + MARKER_READS,
            ord_min: 0,
            peer_to_peer: rtr,
            private_data: self.param.private_data.clone(),
            timeout: self.deadline.since(now).to_std(),
        }
    }

    /// Whether the attempt is still wanted: the program has neither destroyed nor failed the queue pair.
    pub(crate) fn is_wanted(&self) -> bool {
        self.qp.queues.state() == state::CONNECTING
    }

    /// Starts to connect; `None` if that failed immediately.
    pub(crate) fn connect(mut self, shared: &DeviceShared) -> Option<(ForkSafeFd, Self)> {
        let bound = self.source.as_mut().map(SourceAddr::take).transpose();
        let bound = bound.map_err(|why| CmFailure::Unreachable(self.addr, why.to_string()));
        match bound.and_then(|bound| connect_to(self.addr, bound, &shared.config)) {
            Ok(socket) => Some((socket, self)),
            Err(why) => {
                self.fail(why);
                None
            }
        }
    }

    /// TCP has connected or failed.
    pub(crate) fn on_connected(self, shared: &DeviceShared, socket: &ForkSafeFd) -> OutgoingStep {
        match self.send_request(shared, socket) {
            Ok(machine) => OutgoingStep::AwaitingReply(self, Box::new(machine)),
            Err(why) => {
                self.fail(why);
                OutgoingStep::Ended(Vec::new())
            }
        }
    }

    /// Sends the MPA request.
    fn send_request(&self, shared: &DeviceShared, socket: &ForkSafeFd) -> Result<Initiator, CmFailure> {
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => return Err(connect_failure(self.addr, errno)),
        }
        if dissolve_self_connection(socket) {
            // Nobody listens, and the kernel happened to choose the destination port as the local port.
            return Err(CmFailure::Refused(self.addr));
        }
        let now = shared.host.now();
        let mut machine = Initiator::new(self.config(&shared.config, now), protocol_time(now))
            .map_err(|error| cm_failure(&error))?;
        // A newly connected socket accepts a frame, which has at most 532 bytes.
        let n = send_now(socket, machine.transmit()).map_err(|errno| connect_failure(self.addr, errno))?;
        shared.record(socket, Way::Out, &machine.transmit()[..n]);
        machine.transmitted(n);
        Ok(machine)
    }

    /// The peer has sent data or closed the connection.
    pub(crate) fn on_reply(
        self,
        shared: &DeviceShared,
        socket: &ForkSafeFd,
        mut machine: Box<Initiator>,
    ) -> OutgoingStep {
        let mut bytes = [0; 1024];
        let result = match recv_available(socket, &mut bytes) {
            Ok(None) => return OutgoingStep::AwaitingReply(self, machine),
            Ok(Some(0)) | Err(_) => Err(machine.handle_eof()),
            Ok(Some(n)) => {
                shared.record(socket, Way::In, &bytes[..n]);
                machine.handle_bytes(&bytes[..n]).map(|(taken, outcome)| (taken, n, outcome))
            }
        };
        match result {
            Ok((_, _, None)) => OutgoingStep::AwaitingReply(self, machine),
            Ok((taken, n, Some(HandshakeOutcome::Established(negotiated)))) => {
                OutgoingStep::Established(self, Box::new(negotiated), bytes[taken..n].to_vec())
            }
            Ok((.., Some(HandshakeOutcome::Rejected { .. }))) | Err(_) if machine.may_retry_as_v1() => {
                // Retry on a new connection, within the remaining time.
                OutgoingStep::Retry(Self { revision: Revision::V1, ..self })
            }
            Ok((.., Some(HandshakeOutcome::Rejected { private_data }))) => {
                if self.qp.queues.advance(state::CONNECTING, state::INIT) {
                    self.events.push(CmEvent::Rejected { qp_num: self.qp.num(), private_data });
                }
                OutgoingStep::Ended(Vec::new())
            }
            Err(error) => {
                self.fail(cm_failure(&error));
                // Send the peer the reason, in case it reads it.
                OutgoingStep::Ended(machine.transmit().to_vec())
            }
        }
    }

    /// The handshake has succeeded: starts the connection. `register` adds the queue pair to those with a connection.
    pub(crate) fn begin(
        self,
        shared: &DeviceShared,
        socket: ForkSafeFd,
        negotiated: &Negotiated,
        rest: &[u8],
        register: impl FnOnce(&Arc<QpInner>),
    ) {
        let Self { qp, events, addr, param, .. } = self;
        let info = conn_info::info(&socket, addr, conn_info::negotiated(negotiated));
        let mut active = ActiveConn::new(shared, socket, negotiated, events.clone(), &param, rest);
        let (queues, private_data) = (&qp.queues, negotiated.private_data.clone());
        qp.with(|conn| {
            // If the program destroyed or failed the queue pair while the reply was on its way, the socket closes.
            if queues.advance(state::CONNECTING, state::RTS) {
                events.push(CmEvent::Established { qp_num: queues.num, private_data, info });
                register(&qp);
                if negotiated.rtr.is_none() {
                    // The peer waits for a first message that nothing else would send.
                    active.send_first_message();
                }
                if negotiated.rtr != Some(Rtr::Send) {
                    active.schedule_first_message_repeats(queues);
                }
                conn.begin(queues, active);
            }
        });
    }
}

/// The result of one step of an attempt.
pub(crate) enum OutgoingStep {
    /// The request has been sent; wait for the reply.
    AwaitingReply(OutgoingConn, Box<Initiator>),
    /// Retry on a new connection.
    Retry(OutgoingConn),
    /// The peer has accepted; with the bytes that followed its reply.
    Established(OutgoingConn, Box<Negotiated>, Vec<u8>),
    /// The attempt has ended; with the last bytes to send to the peer.
    Ended(Vec<u8>),
}

/// The error that the program sees for a handshake error.
fn cm_failure(error: &HandshakeError) -> CmFailure {
    match error {
        HandshakeError::Timeout => CmFailure::TimedOut,
        HandshakeError::Closed => CmFailure::PeerGone,
        HandshakeError::Key => CmFailure::Protocol(
            "the peer is no iWARP device: it sent no MPA frame; is the port right?".into(),
        ),
        error => CmFailure::Protocol(error.to_string()),
    }
}
