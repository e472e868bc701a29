//! Two endpoints and the bytes between them.

use std::time::Duration;

use super::Endpoint;
use crate::connection::{Connection, Limits};
use crate::mpa::{
    AcceptParams, HandshakeError, HandshakeOutcome, Initiator, InitiatorConfig, Negotiated, Responder,
    ResponderConfig,
};

/// How a stream is cut: into pieces of pseudo-random size from a seed, or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Splitter {
    state: u64,
    max: usize,
}

impl Splitter {
    /// Pieces of 1 to `max` bytes.
    pub const fn new(seed: u64, max: usize) -> Self {
        Self { state: seed, max }
    }

    /// Everything in one piece.
    pub const fn whole() -> Self {
        Self { state: 0, max: 0 }
    }

    /// The size of the next piece, at most `len`; at least 1 unless `len` is 0.
    pub fn next(&mut self, len: usize) -> usize {
        if self.max == 0 {
            return len;
        }
        // The constants of Knuth's MMIX generator; its upper bits are the better ones.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        len.min(1 + (self.state >> 33) as usize % self.max)
    }
}

/// Runs both sides' handshakes against each other. Returns what the initiator and the responder negotiated.
pub fn run_handshake(
    initiator: InitiatorConfig,
    responder: ResponderConfig,
    accept: &AcceptParams,
    mut splitter: Splitter,
) -> Result<(Negotiated, Negotiated), HandshakeError> {
    let mut a = Initiator::new(initiator, Duration::ZERO)?;
    let mut b = Responder::new(responder, Duration::ZERO);
    let mut accepted = None;
    while accepted.is_none() {
        let piece = a.transmit()[..splitter.next(a.transmit().len())].to_vec();
        a.transmitted(piece.len());
        match b.handle_bytes(&piece) {
            Ok((_, Some(_))) => accepted = Some(b.accept(accept)),
            Ok((_, None)) => {}
            Err(error) => accepted = Some(Err(error)),
        }
    }
    loop {
        let piece = b.transmit()[..splitter.next(b.transmit().len())].to_vec();
        b.transmitted(piece.len());
        match a.handle_bytes(&piece)?.1 {
            Some(HandshakeOutcome::Established(at_initiator)) => {
                return Ok((at_initiator, accepted.unwrap_or(Err(HandshakeError::NoRequest))?));
            }
            None if !piece.is_empty() => {}
            // Rejected; the responder knows the reason.
            _ => return Err(accepted.and_then(Result::err).unwrap_or(HandshakeError::Closed)),
        }
    }
}

/// Two endpoints. Bytes that one sends wait in a pipe until a test lets the other receive them.
#[derive(Debug)]
pub struct Pair {
    /// The initiator.
    pub a: Endpoint,
    /// The responder.
    pub b: Endpoint,
    /// Bytes in flight to `b`.
    pub to_b: Vec<u8>,
    /// Bytes in flight to `a`.
    pub to_a: Vec<u8>,
    splitter: Splitter,
}

impl Pair {
    /// A pair after its handshake.
    pub fn new(negotiated: &(Negotiated, Negotiated), limits: &Limits, splitter: Splitter) -> Self {
        let end = |negotiated| Endpoint::new(Connection::new(negotiated, limits, Duration::ZERO));
        let (a, b) = (end(&negotiated.0), end(&negotiated.1));
        Self { a, b, to_b: Vec::new(), to_a: Vec::new(), splitter }
    }

    /// A pair with the default configuration on both sides.
    pub fn with_defaults(splitter: Splitter) -> Self {
        let negotiated = run_handshake(
            InitiatorConfig::default(),
            ResponderConfig::default(),
            &AcceptParams::default(),
            splitter,
        );
        Self::new(&negotiated.expect("the defaults are compatible"), &Limits::default(), splitter)
    }

    /// Lets each endpoint send everything it has and receive one piece. Returns whether anything moved.
    pub fn step(&mut self) -> bool {
        self.a.transmit(&mut self.to_b);
        self.b.transmit(&mut self.to_a);
        let moved = !self.to_a.is_empty() || !self.to_b.is_empty();
        let n = self.splitter.next(self.to_b.len());
        self.b.receive_bytes(&self.to_b[..n]);
        self.to_b.drain(..n);
        let n = self.splitter.next(self.to_a.len());
        self.a.receive_bytes(&self.to_a[..n]);
        self.to_a.drain(..n);
        moved
    }

    /// Steps until nothing moves any more.
    pub fn run(&mut self) {
        while self.step() {}
    }
}
