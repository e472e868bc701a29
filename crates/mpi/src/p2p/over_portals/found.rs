//! [`PortalsKey`] and [`FoundMessage`]: the sends and receives of Portals that operations refer to, and the messages that a search
//! found.

use host::SlotKey;
use portals::Event;

use super::bits::LONG;
use crate::p2p::matching::Envelope;

/// The name of a send or a receive in [`Portals`](super::Portals).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortalsKey {
    Send(SlotKey),
    Receive(SlotKey),
}

/// A message that arrived before its receive.
#[derive(Debug)]
pub(crate) struct FoundMessage {
    pub(crate) envelope: Envelope,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// The match bits under which the sender has exposed the data; 0 if the receiver need not get them.
    pub(super) exposed_bits: u64,
    pub(super) is_long: bool,
    /// The data of a short message, if it was claimed.
    pub(super) bytes: Vec<u8>,
}

impl FoundMessage {
    pub(super) fn from_event(envelope: Envelope, event: &Event) -> Self {
        let is_long = event.match_bits & LONG != 0;
        Self { envelope, len: event.rlength, exposed_bits: event.hdr_data, is_long, bytes: Vec::new() }
    }
}
