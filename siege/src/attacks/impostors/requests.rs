//! [`Forger`]: connect requests under a foreign key, for the listeners of MPI and Portals; [`Mpa`]: those requests as they are sent by TCP.

use std::net::TcpStream;

use anyhow::{Result, ensure};
use auth::{Attempt, Challenge, IDENTITY, Identity, Key, Nonces, OFFER, Protocol, Refusal, Seed};
use host::Rng;

use super::tcp::{HUGE, WireProtocol, garbage};
use super::{Behaviour, Outcome};

/// MPA's request and reply, which differ in byte 7: revision 2, with the depths of reads (RFC 5044 section 7.1.1, RFC 6581 section 9).
const FRAME: [u8; 24] = *b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x10\xc0\x10";
const REPLY: &[u8] = b"MPA ID Rep Frame";
const HEAD: usize = 20;
const DEPTHS: usize = 4;
/// The bit of a reply's flags by which it rejects.
const REJECT: u8 = 0x20;

/// The identities in a forged request.
pub(super) enum Claim {
    /// Rank 1 of a random job asks rank 0 of another one. The impostor knows the seed of the challenges, as the job publishes it through
    /// PMI.
    Guessed(Seed),
    /// The identity of an honest process. The impostor learns the challenge from rejections.
    Known { from: Identity, to: Identity, challenge: Challenge },
}

/// Makes requests in which everything but the key is valid.
pub(super) struct Forger {
    protocol: Protocol,
    key: Key,
    nonces: Nonces,
    claim: Claim,
    offer: [u8; OFFER],
}

impl Forger {
    /// With a random key; `offer` is the protocol's data in a request.
    pub(super) fn new(protocol: Protocol, claim: Claim, offer: [u8; OFFER]) -> Result<Self> {
        let key = Key::random()?;
        Ok(Self { protocol, nonces: Nonces::new(key.clone()), offer, key, claim })
    }

    /// The private data of a request.
    pub(super) fn request(&mut self, rng: &mut Rng) -> Vec<u8> {
        let (from, to, challenge) = match &self.claim {
            Claim::Guessed(seed) => {
                let [from, to] = [1, 0].map(|rank| job_member(rank, rng));
                (from, to, seed.challenge(self.protocol, from, 0))
            }
            Claim::Known { from, to, challenge } => (*from, *to, *challenge),
        };
        let about = (challenge, self.nonces.next_nonce());
        Attempt::new(self.protocol, self.key.clone(), (from, to), about, self.offer).request().to_vec()
    }

    /// Interprets the private data of a rejection.
    pub(super) fn rejected(&mut self, way: Behaviour, said: &[u8]) -> Result<(Outcome, u64)> {
        let Some(Refusal(told)) = Refusal::parse(said, self.protocol) else {
            return Ok((Outcome::Refused, said.len() as u64));
        };
        ensure!(way != Behaviour::Garbage, "garbage was answered by a challenge");
        if let Claim::Known { challenge, .. } = &mut self.claim {
            *challenge = told;
        }
        Ok((Outcome::Challenged, 0))
    }
}

/// A rank of a random job, as MPI names it.
fn job_member(rank: u32, rng: &mut Rng) -> Identity {
    let mut bytes = [0; IDENTITY];
    bytes[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&rank.to_le_bytes());
    Identity(bytes)
}

/// Requests in MPA's frames.
pub(super) struct Mpa(pub(super) Forger);

/// A request frame with private data, whose length field announces `len` bytes.
fn frame(private: &[u8], len: usize) -> Vec<u8> {
    let mut frame = FRAME.to_vec();
    let len = u16::try_from(DEPTHS + len).unwrap_or(u16::MAX);
    frame[HEAD - 2..HEAD].copy_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(private);
    frame
}

impl WireProtocol for Mpa {
    /// The responder waits for the request (RFC 5044 section 7.1).
    fn read_greeting(&mut self, _: &mut TcpStream) -> Result<bool> {
        Ok(true)
    }

    fn foreign_key_message(&mut self, rng: &mut Rng) -> Result<Vec<u8>> {
        let private = self.0.request(rng);
        Ok(frame(&private, private.len()))
    }

    fn oversized_message(&mut self, rng: &mut Rng) -> Result<Vec<u8>> {
        let mut private = self.0.request(rng);
        private.resize(HUGE, 0);
        Ok(frame(&private, HUGE))
    }

    fn garbage(&mut self, rng: &mut Rng) -> (Vec<u8>, bool) {
        let bytes = garbage(rng);
        // Every second one is in a valid frame.
        if rng.below(2) == 0 { (bytes, false) } else { (frame(&bytes, bytes.len()), true) }
    }

    fn outcome(&mut self, way: Behaviour, answer: &[u8]) -> Result<(Outcome, u64)> {
        if answer.is_empty() {
            return Ok((Outcome::Refused, 0));
        }
        let is_rejection =
            answer.starts_with(REPLY) && answer.get(16).is_some_and(|flags| flags & REJECT != 0);
        if !is_rejection {
            return Ok((Outcome::Accepted, answer.len() as u64));
        }
        // Replies of revision 1 have no depths.
        let is_deep = answer.get(17).is_some_and(|revision| *revision >= 2);
        let private = answer.get(HEAD + if is_deep { DEPTHS } else { 0 }..).unwrap_or_default();
        self.0.rejected(way, private)
    }
}
