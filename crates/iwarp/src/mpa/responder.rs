//! The side that accepts the connection (RFC 5044 section 7.1.2, RFC 6581 section 9).

use std::time::Duration;

use super::error::HandshakeError;
use super::frame::{
    DEPTH_UNKNOWN, Enhanced, Frame, FrameKind, FrameReader, RtrSet, check_depth, check_private_data,
};
use super::negotiated::{Negotiated, Revision, Role, Rtr};
use super::send_buffer::SendBuffer;

/// Default time to wait for the request: the value of Linux siw.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Capabilities of a responder.
#[derive(Clone, Debug)]
pub struct ResponderConfig {
    /// Highest revision supported.
    pub revision_max: Revision,
    /// Request CRCs; they are used if either side requests them.
    pub crc: bool,
    /// Ready-to-receive messages accepted in peer-to-peer connections; an empty set refuses such connections.
    pub peer_to_peer: RtrSet,
    /// Time to wait for the request.
    pub timeout: Duration,
}

impl Default for ResponderConfig {
    /// Revision 2 with CRC and every ready-to-receive message.
    fn default() -> Self {
        Self { revision_max: Revision::V2, crc: true, peer_to_peer: RtrSet::all(), timeout: REQUEST_TIMEOUT }
    }
}

/// A connection request, for the program to decide on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MpaRequest {
    /// Revision of the request, and so of the reply.
    pub revision: Revision,
    /// The peer requested CRCs.
    pub crc: bool,
    /// Depths and peer-to-peer parameters, if the request has them.
    pub enhanced: Option<Enhanced>,
    /// Private data of the peer's program.
    pub private_data: Vec<u8>,
}

/// The parameters with which a program accepts a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptParams {
    /// Maximum number of the peer's reads and atomics to serve concurrently, at most [`super::DEPTH_MAX`].
    pub ird: u16,
    /// Maximum number of own reads and atomics outstanding, at most [`super::DEPTH_MAX`]; lowered to what the peer
    /// serves.
    pub ord: u16,
    /// Private data for the peer's program, at most [`super::private_data_max`] bytes.
    pub private_data: Vec<u8>,
}

impl Default for AcceptParams {
    /// 16 reads in each direction, no private data.
    fn default() -> Self {
        Self { ird: 16, ord: 16, private_data: Vec::new() }
    }
}

#[derive(Debug)]
enum ResponderState {
    Reading,
    Deciding(MpaRequest),
    Done,
}

/// The responder's side of the handshake. See [`super`] for the order of calls. Between request and reply the program
/// decides, by [`Self::accept`] or [`Self::reject`]; this type sets no deadline for the decision.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    reader: FrameReader,
    out: SendBuffer,
    deadline: Duration,
    state: ResponderState,
}

impl Responder {
    /// Starts at `now`, counted from any epoch that the caller keeps.
    pub fn new(config: ResponderConfig, now: Duration) -> Self {
        let deadline = now.saturating_add(config.timeout);
        let reader = FrameReader::new(FrameKind::Request);
        Self { config, reader, out: SendBuffer::default(), deadline, state: ResponderState::Reading }
    }

    /// The bytes to send next; empty if there are none.
    pub fn transmit(&self) -> &[u8] {
        self.out.unsent()
    }

    /// Reports that `n` bytes of [`Self::transmit`] have been sent.
    pub fn transmitted(&mut self, n: usize) {
        self.out.sent(n);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        matches!(self.state, ResponderState::Reading).then_some(self.deadline)
    }

    /// Consumes bytes of the request; returns their number, and the request when it is complete. After the reply it
    /// consumes nothing: the bytes are FPDUs.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(usize, Option<MpaRequest>), HandshakeError> {
        match &self.state {
            ResponderState::Done => return Ok((0, None)),
            // RFC 5044 section 7.1.2: the initiator sends nothing until it has the reply.
            ResponderState::Deciding(_) if bytes.is_empty() => return Ok((0, None)),
            ResponderState::Deciding(_) => return Err(self.end(HandshakeError::EarlyBytes)),
            ResponderState::Reading => {}
        }
        match self.reader.feed(bytes) {
            Ok((taken, None)) => Ok((taken, None)),
            Ok((taken, Some(_))) if taken < bytes.len() => Err(self.end(HandshakeError::EarlyBytes)),
            Ok((taken, Some(request))) => self.evaluate(request).map(|request| (taken, Some(request))),
            Err(error) => Err(self.end(error)),
        }
    }

    /// The stream has ended; returns the error to report.
    pub fn handle_eof(&mut self) -> HandshakeError {
        self.end(HandshakeError::Closed)
    }

    /// Ends the attempt if its deadline has passed.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), HandshakeError> {
        match self.deadline() {
            Some(deadline) if now >= deadline => Err(self.end(HandshakeError::Timeout)),
            _ => Ok(()),
        }
    }

    /// Ends without a reply (RFC 5044 section 7.1.2: an invalid request is not answered).
    fn end(&mut self, error: HandshakeError) -> HandshakeError {
        self.state = ResponderState::Done;
        self.out.set(Vec::new());
        error
    }

    fn evaluate(&mut self, frame: Frame) -> Result<MpaRequest, HandshakeError> {
        let revision = match frame.revision {
            1 => Revision::V1,
            // RFC 5044 section 7.1.1 asks to close the connection on an unknown revision. A rejection in revision 1
            // before the close shows an initiator that it should try revision 1.
            2 if self.config.revision_max == Revision::V1 => {
                let request = MpaRequest {
                    revision: Revision::V1,
                    crc: false,
                    enhanced: None,
                    private_data: Vec::new(),
                };
                return Err(self.refuse(&request, HandshakeError::Revision(2)));
            }
            2 => Revision::V2,
            unknown => return Err(self.end(HandshakeError::Revision(unknown))),
        };
        let request = MpaRequest {
            revision,
            crc: frame.crc,
            enhanced: frame.enhanced,
            private_data: frame.private_data,
        };
        // Markers would cut the payload of gathered sends into pieces of 508 bytes, and no deployed stack asks for
        // them. Linux siw refuses them in the same way.
        if frame.markers {
            return Err(self.refuse(&request, HandshakeError::MarkersDemanded));
        }
        let offered = request.enhanced.filter(|enhanced| enhanced.peer_to_peer);
        if offered.is_some_and(|enhanced| !enhanced.rtr.intersects(self.config.peer_to_peer)) {
            return Err(self.refuse(&request, HandshakeError::NoCommonRtr));
        }
        self.state = ResponderState::Deciding(request.clone());
        Ok(request)
    }

    /// Ends with a rejecting reply.
    fn refuse(&mut self, request: &MpaRequest, error: HandshakeError) -> HandshakeError {
        let error = self.end(error);
        self.out.set(rejection(request, Vec::new()).emit());
        error
    }

    /// Rejects the request; `private_data` is the program's reason.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), HandshakeError> {
        let ResponderState::Deciding(request) = &self.state else { return Err(HandshakeError::NoRequest) };
        check_private_data(private_data.len(), request.enhanced.is_some())?;
        let reply = rejection(request, private_data.to_vec());
        self.state = ResponderState::Done;
        self.out.set(reply.emit());
        Ok(())
    }

    /// Accepts the request. If `accept` itself is invalid, the request stays open for another answer; if the peer's
    /// parameters cannot be met, it is rejected.
    pub fn accept(&mut self, accept: &AcceptParams) -> Result<Negotiated, HandshakeError> {
        let ResponderState::Deciding(request) = &self.state else { return Err(HandshakeError::NoRequest) };
        let request = request.clone();
        check_depth(accept.ird)?;
        check_depth(accept.ord)?;
        check_private_data(accept.private_data.len(), request.enhanced.is_some())?;
        let crc = self.config.crc || request.crc;
        let (mut ord, mut rtr) = (accept.ord, None);
        if let Some(enhanced) = request.enhanced {
            if enhanced.ird != DEPTH_UNKNOWN {
                ord = ord.min(enhanced.ird);
            }
            if enhanced.peer_to_peer {
                let Some(chosen) = self.choose(enhanced, accept.ird) else {
                    return Err(self.refuse(&request, HandshakeError::NoCommonRtr));
                };
                rtr = Some(chosen);
            }
        }
        let reply = Frame {
            kind: FrameKind::Reply,
            markers: false,
            crc,
            reject: false,
            revision: request.revision.number(),
            enhanced: request.enhanced.map(|enhanced| Enhanced {
                peer_to_peer: rtr.is_some(),
                rtr: rtr.map_or(RtrSet::empty(), Rtr::as_set),
                // RFC 6581 section 9.1: a depth that the initiator leaves open stays open.
                ird: if enhanced.ord == DEPTH_UNKNOWN { DEPTH_UNKNOWN } else { accept.ird },
                ord: if enhanced.ird == DEPTH_UNKNOWN { DEPTH_UNKNOWN } else { ord },
            }),
            private_data: accept.private_data.clone(),
        };
        self.state = ResponderState::Done;
        self.out.set(reply.emit());
        let (revision, ird, private_data) = (request.revision, accept.ird, request.private_data);
        Ok(Negotiated { role: Role::Responder, revision, crc, ird, ord, rtr, private_data })
    }

    /// Chooses a ready-to-receive message that both sides support. A Read needs a side that serves it (RFC 6581
    /// section 9.2).
    fn choose(&self, offer: Enhanced, ird: u16) -> Option<Rtr> {
        let common = offer.rtr & self.config.peer_to_peer;
        Rtr::PREFERENCE
            .into_iter()
            .find(|rtr| common.contains(rtr.as_set()) && (*rtr != Rtr::Read || ird > 0 && offer.ord > 0))
    }
}

/// A reply with R set, in the format of its request.
fn rejection(request: &MpaRequest, private_data: Vec<u8>) -> Frame {
    Frame {
        kind: FrameKind::Reply,
        markers: false,
        crc: request.crc,
        reject: true,
        revision: request.revision.number(),
        enhanced: request.enhanced.map(|_| Enhanced {
            peer_to_peer: false,
            rtr: RtrSet::empty(),
            ird: 0,
            ord: 0,
        }),
        private_data,
    }
}
