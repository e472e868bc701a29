//! [`QueuePair`]: the state of a queue pair, its connection, and its two halves.

use host::Span;
use verbs::provider::QpParts;
use verbs::{Access, Error, QpState, RNR_PAUSE, RecvWr, Result, SendWr, WcStatus};

use super::packet::{Body, Packet, PortId, Source};
use super::protection::{Extent, Protection};
use super::receives::ReceiveQueue;
use super::requester::Requester;
use super::responder::Responder;

/// The keys of the objects that a queue pair uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePairParts {
    pub(crate) context: u32,
    pub(crate) domain: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<u32>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) qp: u32,
    pub(super) card: usize,
}

/// Cleanup for a queue pair that has entered the error state.
#[derive(Clone, Copy, Debug)]
pub(super) struct QpCleanup {
    pub(super) before: QpState,
    /// The peer that is not notified yet.
    pub(super) peer: Option<Peer>,
    /// The connect request that is no longer wanted.
    pub(super) request: Option<u32>,
    /// Its channel has reported the connection as established.
    pub(super) established: bool,
    /// The packet whose request failed here, and the status.
    pub(super) nak: Option<(u64, WcStatus)>,
}

/// A queue pair.
pub(super) struct QueuePair {
    pub(super) parts: QueuePairParts,
    pub(super) card: usize,
    /// The number in its completions, if not its own.
    pub(super) reported_qp_num: Option<u32>,
    /// Maximum data in a packet; equal at both ends once connected.
    mtu: u64,
    state: QpState,
    established: bool,
    peer: Option<Peer>,
    /// The port of its connection.
    port: usize,
    /// The channel that reports its events.
    pub(super) channel: Option<u32>,
    /// The connect request whose answer it awaits.
    request: Option<u32>,
    pub(super) requester: Requester,
    pub(super) receives: ReceiveQueue,
    pub(super) responder: Responder,
    /// The pause of the peer when it finds no receive here.
    pub(super) rnr_pause: Span,
    /// Whether it is among those of its card that have something to send.
    active: bool,
}

impl QueuePair {
    /// A queue pair of a card; packets have at most `mtu` bytes of data.
    pub(super) fn new(card: usize, parts: QueuePairParts, init: &QpParts, mtu: u64) -> Self {
        let cap = init.cap;
        Self {
            parts,
            card,
            reported_qp_num: init.reported_qp_num,
            mtu: init.mtu.map_or(mtu, u64::from).min(mtu),
            state: QpState::Init,
            established: false,
            peer: None,
            port: 0,
            channel: None,
            request: None,
            requester: Requester::new(cap, init.sq_sig_all),
            receives: ReceiveQueue::new("receive", cap.max_recv_wr, cap.max_recv_sge),
            responder: Responder::default(),
            rnr_pause: RNR_PAUSE,
            active: false,
        }
    }

    pub(super) fn state(&self) -> QpState {
        self.state
    }

    pub(super) fn mtu(&self) -> u64 {
        self.mtu
    }

    pub(super) fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// The port of its connection.
    pub(super) fn port(&self) -> PortId {
        PortId { card: self.card, port: self.port }
    }

    /// Whether packets for it are accepted.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend)
    }

    /// Whether packets from this card come from its peer.
    pub(super) fn is_peer_card(&self, card: usize) -> bool {
        self.peer.is_some_and(|peer| peer.card == card)
    }

    /// A packet to the peer without contents; `None` without a peer.
    pub(super) fn packet(&self) -> Option<Packet> {
        let peer = self.peer?;
        let to = PortId { card: peer.card, port: self.port };
        Some(Packet { from: self.port(), to, qp: peer.qp, ..Packet::default() })
    }

    /// Marks that the queue pair has something to send; returns whether this is new.
    pub(super) fn activate(&mut self) -> bool {
        !std::mem::replace(&mut self.active, true)
    }

    /// Marks that the queue pair has nothing to send.
    pub(super) fn deactivate(&mut self) {
        self.active = false;
    }
}

/// Checks of posted requests.
impl QueuePair {
    /// Checks whether a send request may be posted.
    pub(super) fn check_send(&self, wr: &SendWr<'_>) -> Result<()> {
        if matches!(wr.data, verbs::Data::Inline(_)) && wr.op.fetches() {
            return Err(Error::Invalid("inline data with an operation that returns data".into()));
        }
        if !matches!(self.state, QpState::ReadyToSend | QpState::Error) {
            return Err(Error::WrongState { call: "post_send", state: self.state });
        }
        self.requester.check_form(wr)?;
        self.requester.check_room()
    }

    /// Checks whether a receive may be posted.
    pub(super) fn check_receive(&self, wr: &RecvWr<'_>) -> Result<()> {
        match self.parts.srq {
            Some(_) => Err(Error::Invalid("receives go to the shared receive queue".into())),
            None => self.receives.check(wr),
        }
    }
}

/// Memory for the data of packets.
impl QueuePair {
    /// Finds the source of a packet's data; returns whether it is accessible.
    pub(super) fn source(
        &self,
        packet: &Packet,
        source: Source,
        protection: &Protection,
        out: &mut Vec<Extent>,
    ) -> bool {
        let domain = self.parts.domain;
        match source {
            Source::Nowhere => true,
            Source::Request(number) => {
                let range = (packet.offset, packet.len);
                self.requester.extents(number, range, Access::empty(), (protection, domain), out)
            }
            Source::Peer(remote) => {
                protection.peer_extents(domain, remote, packet.len, Access::REMOTE_READ, out)
            }
        }
    }

    /// Finds the destination of a packet's data; returns whether all of it is accessible.
    pub(super) fn target_extents(
        &self,
        packet: &Packet,
        protection: &Protection,
        out: &mut Vec<Extent>,
    ) -> bool {
        out.clear();
        let domain = self.parts.domain;
        match packet.body {
            _ if !self.accepts() => false,
            Body::Request(op) => self.responder.target_extents(packet, op, (protection, domain), out),
            Body::ReadResponse | Body::AtomicResponse(_) => {
                let (range, need) = ((packet.offset, packet.len), Access::LOCAL_WRITE);
                self.requester.extents(packet.request, range, need, (protection, domain), out)
            }
            _ => true,
        }
    }
}

/// Start and end of a connection.
impl QueuePair {
    /// Fails, with an error for `call`, unless a connection may start.
    pub(super) fn check_idle(&self, call: &'static str) -> Result<()> {
        match self.state {
            QpState::Init if self.request.is_none() => Ok(()),
            state => Err(Error::WrongState { call, state }),
        }
    }

    /// The queue pair awaits the answer to this connect request; `channel` will report it.
    pub(super) fn set_request(&mut self, request: u32, channel: u32) {
        (self.channel, self.request) = (Some(channel), Some(request));
    }

    /// Its connect request was answered.
    pub(super) fn clear_request(&mut self) {
        self.request = None;
    }

    /// The queue pair has accepted a peer, which has not reported that it is ready.
    pub(super) fn set_accepted(&mut self, peer: Peer, port: usize, mtu: u64) {
        self.state = QpState::ReadyToReceive;
        (self.peer, self.port, self.mtu) = (Some(peer), port, self.mtu.min(mtu));
    }

    /// The peer has accepted its request.
    pub(super) fn set_connected(&mut self, peer: Peer, port: usize, mtu: u64) {
        (self.state, self.established, self.request) = (QpState::ReadyToSend, true, None);
        (self.peer, self.port, self.mtu) = (Some(peer), port, self.mtu.min(mtu));
    }

    /// The accepted peer is ready; returns whether this is new.
    pub(super) fn establish(&mut self) -> bool {
        let is_new = self.state == QpState::ReadyToReceive;
        if is_new {
            (self.state, self.established) = (QpState::ReadyToSend, true);
        }
        is_new
    }

    /// The peer has ended the connection: it need not be notified.
    pub(super) fn forget_peer(&mut self) {
        self.peer = None;
    }

    /// Moves it to the error state; `None` if it is in that state already.
    pub(super) fn fail(&mut self) -> Option<QpCleanup> {
        if self.state == QpState::Error {
            return None;
        }
        let before = std::mem::replace(&mut self.state, QpState::Error);
        Some(QpCleanup {
            before,
            peer: self.peer.take(),
            request: self.request.take(),
            established: std::mem::take(&mut self.established),
            nak: self.responder.close(),
        })
    }

    /// The queue pair is destroyed: its requests do not complete, and no events are reported.
    pub(super) fn detach(&mut self) {
        self.channel = None;
        self.requester.clear();
        self.responder.clear();
        self.receives.clear();
    }
}
