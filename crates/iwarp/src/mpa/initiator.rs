//! The side that opens the connection (RFC 5044 section 7.1.2, RFC 6581 section 9).

use std::time::Duration;

use super::error::HandshakeError;
use super::frame::{
    DEPTH_UNKNOWN, Enhanced, Frame, FrameKind, FrameReader, RtrSet, check_depth, check_private_data,
};
use super::negotiated::{Negotiated, Revision, Role, Rtr};
use super::send_buffer::SendBuffer;
use crate::terminate::Terminate;

/// Default time to wait for the reply: the value of Linux siw.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The parameters that an initiator requests.
#[derive(Clone, Debug)]
pub struct InitiatorConfig {
    /// Revision of the request.
    pub revision: Revision,
    /// Request CRCs; they are used if either side requests them.
    pub crc: bool,
    /// Maximum number of the peer's reads and atomics to serve concurrently, at most [`super::DEPTH_MAX`].
    pub ird: u16,
    /// Maximum number of own reads and atomics outstanding, at most [`super::DEPTH_MAX`]; the responder may grant
    /// fewer.
    pub ord: u16,
    /// Minimum number of outstanding reads; if the responder grants fewer, the connection ends.
    pub ord_min: u16,
    /// Ready-to-receive messages to offer for a peer-to-peer connection; empty for client-server. Revision 2 only.
    pub peer_to_peer: RtrSet,
    /// Private data for the peer's program, at most [`super::private_data_max`] bytes.
    pub private_data: Vec<u8>,
    /// Time to wait for the reply.
    pub timeout: Duration,
}

impl Default for InitiatorConfig {
    /// Revision 2 with CRC, client-server, 16 reads in each direction.
    fn default() -> Self {
        Self {
            revision: Revision::V2,
            crc: true,
            ird: 16,
            ord: 16,
            ord_min: 0,
            peer_to_peer: RtrSet::empty(),
            private_data: Vec::new(),
            timeout: REPLY_TIMEOUT,
        }
    }
}

/// Result of a completed handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandshakeOutcome {
    /// The connection is established.
    Established(Negotiated),
    /// The peer's program or its MPA refused.
    Rejected {
        /// The reason, as private data of the peer's program.
        private_data: Vec<u8>,
    },
}

/// The initiator's side of the handshake. See [`super`] for the order of calls.
#[derive(Debug)]
pub struct Initiator {
    config: InitiatorConfig,
    reader: FrameReader,
    out: SendBuffer,
    deadline: Duration,
    done: bool,
    retry_as_v1: bool,
}

impl Initiator {
    /// Starts at `now`, counted from any epoch that the caller keeps.
    pub fn new(config: InitiatorConfig, now: Duration) -> Result<Self, HandshakeError> {
        check_depth(config.ird)?;
        check_depth(config.ord)?;
        let enhanced = (config.revision == Revision::V2).then_some(Enhanced {
            peer_to_peer: !config.peer_to_peer.is_empty(),
            rtr: config.peer_to_peer,
            ird: config.ird,
            ord: config.ord,
        });
        check_private_data(config.private_data.len(), enhanced.is_some())?;
        let request = Frame {
            kind: FrameKind::Request,
            // RFC 5044 section 4.3 leaves the choice to the receiver. Markers help a receiver that processes TCP
            // segments out of order, and cost all others; we never request them.
            markers: false,
            crc: config.crc,
            reject: false,
            revision: config.revision.number(),
            enhanced,
            private_data: config.private_data.clone(),
        };
        let mut out = SendBuffer::default();
        out.set(request.emit());
        let deadline = now.saturating_add(config.timeout);
        let reader = FrameReader::new(FrameKind::Reply);
        Ok(Self { config, reader, out, deadline, done: false, retry_as_v1: false })
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
        (!self.done).then_some(self.deadline)
    }

    /// Whether the peer replied in revision 1, so that a new connection with [`Revision::V1`] is worth trying (RFC
    /// 6581 section 10). Call it after an error or a rejection. A connection that only closes is no evidence:
    /// anything could have broken it.
    pub fn may_retry_as_v1(&self) -> bool {
        self.retry_as_v1
    }

    /// Consumes bytes of the reply; returns their number, and the outcome once it is known. The rest of `bytes` are
    /// FPDUs.
    pub fn handle_bytes(
        &mut self,
        bytes: &[u8],
    ) -> Result<(usize, Option<HandshakeOutcome>), HandshakeError> {
        if self.done {
            return Ok((0, None));
        }
        let result = match self.reader.feed(bytes) {
            Ok((taken, None)) => return Ok((taken, None)),
            Ok((taken, Some(reply))) => self.evaluate(reply).map(|outcome| (taken, Some(outcome))),
            Err(error) => Err(error),
        };
        self.done = true;
        if let Err(error) = &result {
            // Unlike a responder, the initiator may already send FPDUs, so it can send the peer a Terminate.
            let terminate = error.terminate_code().map(|code| Terminate::new(code).to_fpdu());
            self.out.set(terminate.unwrap_or_default());
        }
        result
    }

    /// The stream has ended; returns the error to report.
    pub fn handle_eof(&mut self) -> HandshakeError {
        self.end(HandshakeError::Closed)
    }

    /// Ends the attempt if its deadline has passed.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), HandshakeError> {
        if self.done || now < self.deadline { Ok(()) } else { Err(self.end(HandshakeError::Timeout)) }
    }

    fn end(&mut self, error: HandshakeError) -> HandshakeError {
        self.done = true;
        self.out.set(Vec::new());
        error
    }

    fn evaluate(&mut self, reply: Frame) -> Result<HandshakeOutcome, HandshakeError> {
        let asked = self.config.revision;
        self.retry_as_v1 = asked == Revision::V2 && reply.revision == 1;
        if reply.revision == 0 || reply.revision > asked.number() {
            return Err(HandshakeError::Revision(reply.revision));
        }
        if reply.reject {
            return Ok(HandshakeOutcome::Rejected { private_data: reply.private_data });
        }
        // The responder took the words of revision 2 for its program's private data (RFC 6581 section 10), so this
        // connection cannot be used.
        if self.retry_as_v1 {
            return Err(HandshakeError::Downgraded);
        }
        if asked == Revision::V2 && reply.enhanced.is_none() {
            return Err(HandshakeError::EnhancedMissing);
        }
        if reply.markers {
            return Err(HandshakeError::MarkersDemanded);
        }
        let (ord, rtr) = match reply.enhanced {
            None => (self.config.ord, None),
            Some(enhanced) => self.negotiate(enhanced)?,
        };
        Ok(HandshakeOutcome::Established(Negotiated {
            role: Role::Initiator,
            revision: asked,
            // RFC 5044 section 7.1.1: CRCs are used if either side requests them.
            crc: self.config.crc || reply.crc,
            ird: self.config.ird,
            ord,
            rtr,
            private_data: reply.private_data,
        }))
    }

    /// Returns the depth of own reads and the first message (RFC 6581 sections 9.1 and 9.2).
    fn negotiate(&self, reply: Enhanced) -> Result<(u16, Option<Rtr>), HandshakeError> {
        let config = &self.config;
        if reply.ord != DEPTH_UNKNOWN && reply.ord > config.ird {
            return Err(HandshakeError::InsufficientIrd { wanted: reply.ord, granted: config.ird });
        }
        let ord = if reply.ird == DEPTH_UNKNOWN { config.ord } else { config.ord.min(reply.ird) };
        if ord < config.ord_min {
            return Err(HandshakeError::InsufficientIrd { wanted: config.ord_min, granted: ord });
        }
        if config.peer_to_peer.is_empty() {
            return Ok((ord, None));
        }
        let rtr = Rtr::sole_member(reply.rtr).filter(|rtr| config.peer_to_peer.contains(rtr.as_set()));
        match rtr {
            Some(Rtr::Read) if ord == 0 => Err(HandshakeError::InsufficientIrd { wanted: 1, granted: 0 }),
            Some(rtr) if reply.peer_to_peer => Ok((ord, Some(rtr))),
            _ => Err(HandshakeError::NoCommonRtr),
        }
    }
}
