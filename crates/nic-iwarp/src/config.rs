//! How an iWARP device is set up.

use std::net::IpAddr;

use host::{Network, Span};

/// Reads that are granted, and wished for, beyond what the program asks: for the questions of `send::flush_markers`.
pub(crate) const QUESTIONS: u16 = 16;
/// What a request of revision 2 has room for beside its own four bytes (RFC 6581 section 6).
pub(crate) const PRIVATE_DATA_MAX: usize = iwarp::mpa::private_data_max(true);

/// When a write or a send is complete at its initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// When the peer has placed or delivered it: the device asks, by a read of no bytes. What the API promises. A peer of
    /// revision 2 that may be Linux siw, which cannot be asked, is treated as with `Sent`. In revision 1 nothing tells, and
    /// everybody is asked: a siw then breaks the connection.
    #[default]
    Placed,
    /// When TCP has taken it, as RNICs do. Cheaper, and says nothing about the peer.
    Sent,
}

/// The revision of MPA that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mpa {
    /// Revision 2 (RFC 6581), and 1 with a peer that answers in that.
    #[default]
    V2,
    /// Revision 1 (RFC 5044) only.
    V1,
}

/// How large FPDUs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FpduSize {
    /// As large as they can be, with CRCs 60,000 bytes: TCP cuts them as it likes, and each costs the same whatever its size.
    /// The fastest at every MTU that was tried; CAVEATS.md has the figures.
    #[default]
    Largest,
    /// One fits a TCP segment, as RFC 5044 wants for receivers in hardware.
    Segment,
    /// At most so many bytes.
    Bytes(u16),
}

/// How an iWARP device is set up.
#[derive(Clone, Debug)]
pub struct IwarpConfig {
    /// The address of this side: of connections that it makes, and the only one that it listens on. Any, if not given.
    pub bind: Option<IpAddr>,
    /// Networks whose hosts may connect to this side's listeners: all, if none is given.
    pub allow: Vec<Network>,
    /// Ask for CRCs. They are used if either side asks.
    pub crc: bool,
    /// The revision of MPA.
    pub mpa: Mpa,
    /// How large FPDUs are.
    pub fpdu: FpduSize,
    /// When a write or a send is complete.
    pub completion: Completion,
    /// Bytes of NIC memory that can be allocated; half of the machine's memory if not given.
    pub dm_size: Option<u64>,
    /// A peer whose host answers nothing for so long is given up, within one and a half times that, or within 3 s if nothing
    /// is on its way to it; at least 1 s. A peer that answers but takes nothing in may go on with that for ever.
    pub silence: Span,
}

impl IwarpConfig {
    /// The least silence that can be asked for: some retransmissions of TCP fit in.
    pub const SILENCE_MIN: Span = Span::from_secs(1);

    /// Whether a host may connect. A host whose address is unknown may if all may.
    pub(crate) fn allows(&self, peer: Option<IpAddr>) -> bool {
        self.allow.is_empty() || peer.is_some_and(|peer| self.allow.iter().any(|network| network.has(peer)))
    }
}

impl Default for IwarpConfig {
    /// Any side, any peer, no CRCs unless the peer wants them, revision 2, the largest FPDUs, 20 s of silence.
    fn default() -> Self {
        Self {
            bind: None,
            allow: Vec::new(),
            crc: false,
            mpa: Mpa::default(),
            fpdu: FpduSize::default(),
            completion: Completion::default(),
            dm_size: None,
            silence: Span::from_secs(20),
        }
    }
}
