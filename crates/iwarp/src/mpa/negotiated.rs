//! [`Negotiated`]: the parameters that both sides of a handshake agreed on.

use super::frame::RtrSet;

/// Supported revisions of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Revision {
    /// RFC 5044.
    V1,
    /// RFC 6581.
    V2,
}

impl Revision {
    /// The revision number in frames.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The ready-to-receive message, after which the responder may send (RFC 6581 section 9.2).
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
    /// The order of preference of a responder that may choose. Send comes first: Linux siw neither offers nor accepts
    /// it, so both sides then know that the other is not siw and answers zero-length reads correctly. Write comes
    /// next, because it requires nothing of the peer.
    pub(super) const PREFERENCE: [Self; 3] = [Self::Send, Self::Write, Self::Read];

    pub(super) const fn as_set(self) -> RtrSet {
        match self {
            Self::Write => RtrSet::WRITE,
            Self::Read => RtrSet::READ,
            Self::Send => RtrSet::SEND,
        }
    }

    /// The only message in a set; `None` if the set is empty or has several.
    pub(super) fn sole_member(set: RtrSet) -> Option<Self> {
        Self::PREFERENCE.into_iter().find(|rtr| rtr.as_set() == set)
    }
}

/// Which side of the handshake an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The side that sent the request; it speaks first (RFC 5044 section 7.1.2).
    Initiator,
    /// The side that replied; it may send when the first FPDU has arrived.
    Responder,
}

/// The parameters that both sides agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// Role of the side that holds this value.
    pub role: Role,
    /// Revision of the exchanged frames.
    pub revision: Revision,
    /// FPDUs carry CRCs, in both directions.
    pub crc: bool,
    /// Number of the peer's reads and atomics that this side serves concurrently.
    pub ird: u16,
    /// Reads and atomics that this side may have outstanding.
    pub ord: u16,
    /// The initiator's first FPDU, in peer-to-peer connections.
    pub rtr: Option<Rtr>,
    /// Private data of the peer's program.
    pub private_data: Vec<u8>,
}

impl Negotiated {
    /// Whether zero-length reads may be used to ask this peer whether something has arrived. With Linux siw they may
    /// not: while it sends, it answers them with bytes of earlier sends (docs/results/interop.md). siw neither accepts nor
    /// offers a Send as the first message, and replies in revision 2 unless the request was in revision 1.
    #[must_use]
    pub fn answers_empty_reads(&self) -> bool {
        self.may_have_extensions() && self.ord > 0
    }

    /// Whether this peer may understand receipts ([`crate::open_requests`]) and RNR retry limits
    /// ([`crate::rnr_limit`]). To other peers they mean nothing.
    pub(crate) fn may_have_extensions(&self) -> bool {
        self.revision == Revision::V1 || self.rtr == Some(Rtr::Send)
    }
}
