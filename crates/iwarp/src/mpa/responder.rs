//! The side that is connected to (RFC 5044 section 7.1.2, RFC 6581 section 9).

use std::time::Duration;

use super::error::HandshakeError;
use super::frame::{
    DEPTH_UNKNOWN, Enhanced, Frame, FrameKind, FrameReader, RtrSet, check_depth, check_private_data,
};
use super::negotiated::{Negotiated, Revision, Role, Rtr};
use super::outgoing::Outgoing;

/// How long the request may take unless the configuration says otherwise: what Linux siw grants.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What a responder can do.
#[derive(Clone, Debug)]
pub struct ResponderConfig {
    /// The highest revision that is spoken.
    pub revision_max: Revision,
    /// Ask for CRCs; they are used if either side asks.
    pub crc: bool,
    /// The first messages that are taken in peer-to-peer connections; empty refuses such connections.
    pub peer_to_peer: RtrSet,
    /// How long the request may take.
    pub timeout: Duration,
}

impl Default for ResponderConfig {
    /// Revision 2 with CRC, every first message.
    fn default() -> Self {
        Self { revision_max: Revision::V2, crc: true, peer_to_peer: RtrSet::all(), timeout: REQUEST_TIMEOUT }
    }
}

/// A request to connect, for the program to decide on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Of the request, and so of the reply.
    pub revision: Revision,
    /// The peer asked for CRCs.
    pub crc: bool,
    /// Depths and peer-to-peer wishes, if the request has them.
    pub enhanced: Option<Enhanced>,
    /// What the peer's program says.
    pub private_data: Vec<u8>,
}

/// What a program accepts a request with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// Reads and atomics of the peer to serve at once, at most [`super::DEPTH_MAX`].
    pub ird: u16,
    /// Reads and atomics to have outstanding, at most [`super::DEPTH_MAX`]; lowered to what the peer serves.
    pub ord: u16,
    /// For the peer's program, at most [`super::private_data_max`] bytes.
    pub private_data: Vec<u8>,
}

impl Default for Accept {
    /// 16 reads each way, no private data.
    fn default() -> Self {
        Self { ird: 16, ord: 16, private_data: Vec::new() }
    }
}

#[derive(Debug)]
enum State {
    Reading,
    Deciding(Request),
    Done,
}

/// The responder's half of the handshake. See [`super`] for the order of calls; between the request and the reply is the
/// program's decision, [`Self::accept`] or [`Self::reject`], for which there is no deadline here.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    reader: FrameReader,
    out: Outgoing,
    deadline: Duration,
    state: State,
}

impl Responder {
    /// Begins at `now`, counted from any epoch that the caller keeps to.
    pub fn new(config: ResponderConfig, now: Duration) -> Self {
        let deadline = now.saturating_add(config.timeout);
        let reader = FrameReader::new(FrameKind::Request);
        Self { config, reader, out: Outgoing::default(), deadline, state: State::Reading }
    }

    /// What is to be sent next; empty when nothing is.
    pub fn transmit(&self) -> &[u8] {
        self.out.rest()
    }

    /// So many bytes of [`Self::transmit`] have been sent.
    pub fn transmitted(&mut self, n: usize) {
        self.out.sent(n);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        matches!(self.state, State::Reading).then_some(self.deadline)
    }

    /// Takes bytes of the request; says how many, and the request when it is whole. After the reply it takes nothing: the
    /// bytes are FPDUs.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(usize, Option<Request>), HandshakeError> {
        match &self.state {
            State::Done => return Ok((0, None)),
            // RFC 5044 section 7.1.2: the initiator sends nothing until it has the reply.
            State::Deciding(_) if bytes.is_empty() => return Ok((0, None)),
            State::Deciding(_) => return Err(self.end(HandshakeError::EarlyBytes)),
            State::Reading => {}
        }
        match self.reader.feed(bytes) {
            Ok((taken, None)) => Ok((taken, None)),
            Ok((taken, Some(_))) if taken < bytes.len() => Err(self.end(HandshakeError::EarlyBytes)),
            Ok((taken, Some(request))) => self.evaluate(request).map(|request| (taken, Some(request))),
            Err(error) => Err(self.end(error)),
        }
    }

    /// The stream has ended.
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

    /// Ends without a reply (RFC 5044 section 7.1.2: what is no valid request is not answered).
    fn end(&mut self, error: HandshakeError) -> HandshakeError {
        self.state = State::Done;
        self.out.set(Vec::new());
        error
    }

    fn evaluate(&mut self, frame: Frame) -> Result<Request, HandshakeError> {
        let revision = match frame.revision {
            1 => Revision::V1,
            // RFC 5044 section 7.1.1 asks to close the connection on a revision that is not known. A rejection in
            // revision 1 before that tells an initiator that it should try revision 1.
            2 if self.config.revision_max == Revision::V1 => {
                let request =
                    Request { revision: Revision::V1, crc: false, enhanced: None, private_data: Vec::new() };
                return Err(self.refuse(&request, HandshakeError::Revision(2)));
            }
            2 => Revision::V2,
            unknown => return Err(self.end(HandshakeError::Revision(unknown))),
        };
        let request =
            Request { revision, crc: frame.crc, enhanced: frame.enhanced, private_data: frame.private_data };
        // Markers in gathered sends would cut the payload into pieces of 508 bytes, and no stack that is in use asks for
        // them. Linux siw refuses them in this way, too.
        if frame.markers {
            return Err(self.refuse(&request, HandshakeError::MarkersDemanded));
        }
        let offered = request.enhanced.filter(|enhanced| enhanced.peer_to_peer);
        if offered.is_some_and(|enhanced| !enhanced.rtr.intersects(self.config.peer_to_peer)) {
            return Err(self.refuse(&request, HandshakeError::NoCommonRtr));
        }
        self.state = State::Deciding(request.clone());
        Ok(request)
    }

    /// Ends with a reply that refuses.
    fn refuse(&mut self, request: &Request, error: HandshakeError) -> HandshakeError {
        let error = self.end(error);
        self.out.set(rejection(request, Vec::new()).emit());
        error
    }

    /// Refuses the request; `private_data` is the program's reason.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), HandshakeError> {
        let State::Deciding(request) = &self.state else { return Err(HandshakeError::NoRequest) };
        check_private_data(private_data.len(), request.enhanced.is_some())?;
        let reply = rejection(request, private_data.to_vec());
        self.state = State::Done;
        self.out.set(reply.emit());
        Ok(())
    }

    /// Accepts the request. What is wrong with `accept` itself leaves the request to be answered still; when the peer's
    /// wishes cannot be met, it is rejected.
    pub fn accept(&mut self, accept: &Accept) -> Result<Negotiated, HandshakeError> {
        let State::Deciding(request) = &self.state else { return Err(HandshakeError::NoRequest) };
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
                // RFC 6581 section 9.1: what the initiator leaves open stays open.
                ird: if enhanced.ord == DEPTH_UNKNOWN { DEPTH_UNKNOWN } else { accept.ird },
                ord: if enhanced.ird == DEPTH_UNKNOWN { DEPTH_UNKNOWN } else { ord },
            }),
            private_data: accept.private_data.clone(),
        };
        self.state = State::Done;
        self.out.set(reply.emit());
        let (revision, ird, private_data) = (request.revision, accept.ird, request.private_data);
        Ok(Negotiated { role: Role::Responder, revision, crc, ird, ord, rtr, private_data })
    }

    /// The first message, of those that both sides take. A Read needs somebody who serves it (RFC 6581 section 9.2).
    fn choose(&self, offer: Enhanced, ird: u16) -> Option<Rtr> {
        let common = offer.rtr & self.config.peer_to_peer;
        Rtr::PREFERENCE
            .into_iter()
            .find(|rtr| common.contains(rtr.as_set()) && (*rtr != Rtr::Read || ird > 0 && offer.ord > 0))
    }
}

/// A reply with R set, in the form of its request.
fn rejection(request: &Request, private_data: Vec<u8>) -> Frame {
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
