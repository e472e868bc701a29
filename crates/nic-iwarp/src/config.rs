//! Configuration of an iWARP device.

use std::net::IpAddr;
use std::path::PathBuf;

use host::{Network, Span};

/// Reads granted and requested beyond what the program asks for; used by the flush markers of `send::flush_markers`.
pub(crate) const MARKER_READS: u16 = 16;
/// Maximum private data of a program: a request of revision 2 uses four bytes itself (RFC 6581 section 6).
pub(crate) const PRIVATE_DATA_MAX: usize = iwarp::mpa::private_data_max(true);

/// When a write or a send completes at its initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// When the peer has placed or delivered it, as the API promises; the device finds out by a zero-length read. A
    /// peer of revision 2 that may be Linux siw does not support such reads and is treated as with `Sent`. In
    /// revision 1 siw cannot be recognized, so every peer is sent such reads, and siw then breaks the connection.
    #[default]
    Placed,
    /// When TCP has accepted it, as with RNICs. Cheaper, but no evidence that the peer has it.
    Sent,
}

/// The MPA revision to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mpa {
    /// Revision 2 (RFC 6581), or 1 with a peer that answers in revision 1.
    #[default]
    V2,
    /// Revision 1 (RFC 5044) only.
    V1,
}

/// The size of FPDUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FpduSize {
    /// As large as possible; 60,000 bytes with CRCs. TCP splits them as it likes, and the cost per FPDU does not
    /// depend on its size. The fastest choice at every MTU that was tried; docs/results/speed.md has them.
    #[default]
    Largest,
    /// One FPDU fits one TCP segment, as RFC 5044 recommends for hardware receivers.
    Segment,
    /// At most this many bytes.
    Bytes(u16),
}

/// What happens to the bytes that a device sends. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WireFaults {
    /// How much later each byte leaves.
    pub delay: Span,
    /// At most how much later still, chosen at random for each piece; pieces keep their order.
    pub jitter: Span,
    /// Bits per second; 0 for no limit.
    pub rate: u64,
    /// The probability with which a piece of the stream resets the connection instead. A piece is what the NIC sends at a
    /// time, at most 64 KiB.
    pub reset: f64,
    /// The probability with which a byte is changed.
    pub flip: f64,
    /// The seed of random choices.
    pub seed: u64,
}

impl WireFaults {
    /// Whether nothing happens to the bytes.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self { seed: self.seed, ..Self::default() }
    }
}

/// Configuration of an iWARP device.
#[derive(Clone, Debug)]
pub struct IwarpConfig {
    /// The local address: the source of outgoing connections, and the only address to listen on. `None` for any
    /// address.
    pub bind: Option<IpAddr>,
    /// Networks whose hosts may connect to this device's listeners; empty for all.
    pub allow: Vec<Network>,
    /// Request CRCs. They are used if either side requests them.
    pub crc: bool,
    /// The revision of MPA.
    pub mpa: Mpa,
    /// The size of FPDUs.
    pub fpdu: FpduSize,
    /// When a write or a send completes.
    pub completion: Completion,
    /// Bytes of NIC memory that can be allocated; `None` for half of the machine's memory.
    pub dm_size: Option<u64>,
    /// How long a peer's host may be silent before the connection is given up; at least 1 s. The connection ends within
    /// one and a half times this span; if nothing is in flight to the peer, it may take up to 3 s. A peer that
    /// acknowledges but accepts no data is never given up.
    pub silence: Span,
    /// What happens to the bytes that it sends, on purpose. With any of it, `silence` has no effect.
    pub wire: WireFaults,
    /// A file for Wireshark that gets what the connections send and receive. With it, `silence` has no effect.
    pub capture: Option<PathBuf>,
}

impl IwarpConfig {
    /// The smallest `silence`: some TCP retransmissions fit in it.
    pub const SILENCE_MIN: Span = Span::from_secs(1);

    /// Whether a host may connect. A host of unknown address may connect only if all hosts may.
    pub(crate) fn allows(&self, peer: Option<IpAddr>) -> bool {
        self.allow.is_empty() || peer.is_some_and(|peer| self.allow.iter().any(|network| network.has(peer)))
    }
}

impl Default for IwarpConfig {
    /// Any local address, any peer, no CRCs unless the peer requests them, revision 2, the largest FPDUs, 20 s of
    /// silence.
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
            wire: WireFaults::default(),
            capture: None,
        }
    }
}
