//! [`Negotiated`]: what both sides of a handshake agreed on.

use super::frame::RtrSet;

/// The revisions of the handshake that are spoken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Revision {
    /// RFC 5044.
    V1,
    /// RFC 6581.
    V2,
}

impl Revision {
    /// As it stands in frames.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The message that lets the responder speak (RFC 6581 section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rtr {
    /// An RDMA Write of no bytes.
    Write,
    /// An RDMA Read of no bytes.
    Read,
    /// A Send of no bytes.
    Send,
}

impl Rtr {
    /// In the order of preference of a responder that may choose. A Send first: Linux siw neither offers nor takes one, so
    /// both sides then know that the other is none, and answers reads of no bytes as it should. Then a Write, which asks
    /// nothing of anybody.
    pub(super) const PREFERENCE: [Self; 3] = [Self::Send, Self::Write, Self::Read];

    pub(super) const fn as_set(self) -> RtrSet {
        match self {
            Self::Write => RtrSet::WRITE,
            Self::Read => RtrSet::READ,
            Self::Send => RtrSet::SEND,
        }
    }

    /// The only one in a set.
    pub(super) fn only(set: RtrSet) -> Option<Self> {
        Self::PREFERENCE.into_iter().find(|rtr| rtr.as_set() == set)
    }
}

/// Who opened the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The side that sent the request; it speaks first (RFC 5044 section 7.1.2).
    Initiator,
    /// The side that replied; it speaks when the first FPDU has arrived.
    Responder,
}

/// What both sides agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// Of the side that has this.
    pub role: Role,
    /// Of the frames that were exchanged.
    pub revision: Revision,
    /// FPDUs carry CRCs, in both directions.
    pub crc: bool,
    /// Reads and atomics of the peer that this side serves at once.
    pub ird: u16,
    /// Reads and atomics that this side may have outstanding.
    pub ord: u16,
    /// The initiator's first FPDU, in peer-to-peer connections.
    pub rtr: Option<Rtr>,
    /// What the peer's program said.
    pub private_data: Vec<u8>,
}

impl Negotiated {
    /// Whether this peer may be asked by reads of no bytes whether something has arrived. Linux siw may not: while it sends, it
    /// answers them with bytes of whatever it sent before (docs/interop.md). It neither takes nor offers a Send as the first
    /// message, and speaks revision 2 unless it was asked in revision 1.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.may_have_extensions() && self.ord > 0
    }

    /// Whether this peer may understand receipts ([`crate::outcome`]) and limits of retries ([`crate::rnr_limit`]). They mean nothing to
    /// others.
    pub(crate) fn may_have_extensions(&self) -> bool {
        self.revision == Revision::V1 || self.rtr == Some(Rtr::Send)
    }
}
