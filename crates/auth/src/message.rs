//! The messages of a connection's set-up. Each message has a fixed size, within what the connection manager of InfiniBand carries
//! (IBTA, volume 1, section 12.6): 56 bytes in a connect request of librdmacm, 148 in a rejection, 196 in a reply. Transports may
//! add zeros.

use std::fmt;

use crate::key::{KEY, Key, Mac, NoRandom};

/// Bytes of an [`Identity`].
pub const IDENTITY: usize = 12;
/// Bytes of the protocol's own data in a request or a reply, such as the memory that a process offers.
pub const OFFER: usize = 16;
const MAGIC: usize = 4;
/// Bytes of a [`Nonce`].
pub const NONCE: usize = 8;
/// Bytes of a [`Request`]: magic 4, identity 12, nonce 8, proof 16, offer 16.
pub const REQUEST: usize = MAGIC + IDENTITY + NONCE + KEY + OFFER;
/// Bytes of a [`Refusal`]: magic 4, challenge 16.
pub const REFUSAL: usize = MAGIC + KEY;
/// Bytes of a reply: magic 4, proof 16, offer 16.
pub const REPLY: usize = MAGIC + KEY + OFFER;

/// The protocol that a connection is for. Proofs of one are no proofs of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name, of up to 255 bytes.
    pub name: &'static str,
    /// What its messages begin with: another number for each version.
    pub magic: [u8; MAGIC],
}

/// One end of a connection. The protocol defines the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; IDENTITY]);

/// A number that an initiator uses for one request, so that the reply to an earlier request does not pass for the reply to this
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub(crate) [u8; NONCE]);

impl Nonce {
    /// The bytes of the number.
    pub const fn to_bytes(self) -> [u8; NONCE] {
        self.0
    }
}

/// A value of the responder's choice that a request must be proved with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge(pub(crate) [u8; KEY]);

impl Challenge {
    /// The challenge of a request whose initiator does not know the responder's seed. It proves nothing, so the responder refuses
    /// it, and says the right one.
    pub const UNKNOWN: Self = Self([0; KEY]);
}

/// The value from which a responder computes its challenges. The responder may publish it to other holders of the key, so that they
/// know their challenge before they connect. No proof depends on it being secret. It must differ each time a responder with
/// the same identity starts; otherwise recorded requests can be replayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed(Key);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

impl Seed {
    /// A random seed.
    ///
    /// # Errors
    /// [`NoRandom`].
    pub fn random() -> Result<Self, NoRandom> {
        Key::random().map(Self)
    }

    /// The seed that follows from 16 bytes, such as a [derived key](Key::derive).
    pub const fn from_key(key: Key) -> Self {
        Self(key)
    }

    /// The seed that 32 hexadecimal digits say; `None` for other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        Key::from_hex(text).map(Self)
    }

    /// As 32 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }

    /// The challenge for an initiator of which this responder has accepted `accepted` connections.
    pub fn challenge(&self, protocol: Protocol, initiator: Identity, accepted: u32) -> Challenge {
        let mut mac = self.0.mac("challenge");
        add_protocol(&mut mac, protocol);
        mac.add(&initiator.0);
        mac.add(&accepted.to_le_bytes());
        Challenge(mac.finish())
    }
}

/// The side that sends a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The side that connects.
    Initiator,
    /// The side that listens.
    Responder,
}

fn add_protocol(mac: &mut Mac, protocol: Protocol) {
    mac.add(&[protocol.name.len() as u8]);
    mac.add(protocol.name.as_bytes());
    mac.add(&protocol.magic);
}

/// Values that both proofs of a connection cover in addition to the fields of their messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProofContext {
    pub(crate) protocol: Protocol,
    pub(crate) from: Identity,
    pub(crate) to: Identity,
    pub(crate) challenge: Challenge,
    pub(crate) nonce: Nonce,
}

impl ProofContext {
    fn mac(&self, key: &Key, role: Role) -> Mac {
        let mut mac = key.mac("proof");
        add_protocol(&mut mac, self.protocol);
        mac.add(&[match role {
            Role::Initiator => 1,
            Role::Responder => 2,
        }]);
        mac.add(&self.from.0);
        mac.add(&self.to.0);
        mac.add(&self.challenge.0);
        mac.add(&self.nonce.0);
        mac
    }

    /// The proof of an initiator that sends this offer.
    pub(crate) fn initiator_proof(&self, key: &Key, offer: &[u8; OFFER]) -> Mac {
        let mut mac = self.mac(key, Role::Initiator);
        mac.add(offer);
        mac
    }

    /// The proof of a responder that sends this offer in reply to a request with `proof`.
    pub(crate) fn responder_proof(&self, key: &Key, proof: &[u8; KEY], offer: &[u8; OFFER]) -> Mac {
        let mut mac = self.mac(key, Role::Responder);
        mac.add(proof);
        mac.add(offer);
        mac
    }
}

/// The private data of a connect request. Its fields are claims until a [`crate::Gate`] has checked them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The initiator.
    pub from: Identity,
    /// Chosen by the initiator for this request alone.
    pub nonce: Nonce,
    /// Covers all other fields.
    pub(crate) proof: [u8; KEY],
    /// Data of the protocol.
    pub offer: [u8; OFFER],
}

/// Cuts bytes into pieces.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn next<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (piece, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*piece)
    }

    /// The pieces behind a protocol's magic.
    fn after_magic(bytes: &[u8], magic: [u8; MAGIC]) -> Option<FieldReader<'_>> {
        bytes.strip_prefix(&magic).map(FieldReader)
    }
}

impl Request {
    pub(crate) fn bytes(&self, protocol: Protocol) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        let all = [&protocol.magic[..], &self.from.0, &self.nonce.0, &self.proof, &self.offer].concat();
        bytes.copy_from_slice(&all);
        bytes
    }

    /// Parses a request of this protocol; `None` for other bytes.
    pub fn parse(bytes: &[u8], protocol: Protocol) -> Option<Self> {
        let mut fields = FieldReader::after_magic(bytes, protocol.magic)?;
        Some(Self {
            from: Identity(fields.next()?),
            nonce: Nonce(fields.next()?),
            proof: fields.next()?,
            offer: fields.next()?,
        })
    }
}

/// The private data of a rejection: the request carried no valid proof. The next one must use this challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub Challenge);

impl Refusal {
    /// The bytes that are sent for it.
    pub fn bytes(&self, protocol: Protocol) -> [u8; REFUSAL] {
        let mut bytes = [0; REFUSAL];
        bytes[..MAGIC].copy_from_slice(&protocol.magic);
        bytes[MAGIC..].copy_from_slice(&self.0.0);
        bytes
    }

    /// Parses a refusal of this protocol; `None` for other bytes.
    pub fn parse(bytes: &[u8], protocol: Protocol) -> Option<Self> {
        FieldReader::after_magic(bytes, protocol.magic)?.next().map(|challenge| Self(Challenge(challenge)))
    }
}

/// The private data of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) proof: [u8; KEY],
    pub(crate) offer: [u8; OFFER],
}

impl Reply {
    pub(crate) fn bytes(&self, protocol: Protocol) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..MAGIC].copy_from_slice(&protocol.magic);
        bytes[MAGIC..MAGIC + KEY].copy_from_slice(&self.proof);
        bytes[MAGIC + KEY..].copy_from_slice(&self.offer);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8], protocol: Protocol) -> Option<Self> {
        let mut fields = FieldReader::after_magic(bytes, protocol.magic)?;
        Some(Self { proof: fields.next()?, offer: fields.next()? })
    }
}
