//! Packets in flight, in a table that is reused without allocating.

use host::{Span, Time};
use verbs::{RemoteAddr, SendOp, WcStatus};

/// A port of a card, which names an end of a wire. The number after the last port is the card's loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortId {
    pub(super) card: usize,
    pub(super) port: usize,
}

/// The type of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Body {
    /// Part of a request, or a request without data.
    Request(SendOp),
    /// Part of a read's response.
    ReadResponse,
    /// The value that an atomic found.
    AtomicResponse(u64),
    /// All packets below this number are placed.
    #[default]
    Ack,
    /// The request of this packet failed at the responder.
    Nak(WcStatus),
    /// The message of this packet found no receive: it is retried after a pause.
    RnrNak(Span),
    /// This packet is missing.
    SequenceNak,
}

impl Body {
    /// Whether the first packet of such a message has an extra header with a memory address.
    pub(super) fn has_address(self) -> bool {
        !matches!(
            self,
            Self::Request(SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_)) | Self::ReadResponse
        )
    }
}

/// The source of a packet's data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The packet has no data.
    Nowhere,
    /// The SGEs of the request with this number.
    Request(u64),
    /// Memory named by the peer.
    Peer(RemoteAddr),
}

/// A packet to send.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) packet: Packet,
    pub(super) source: Source,
    /// Whether the packet is the last of its message.
    pub(super) ends: bool,
}

/// A packet in flight, from being read to being placed.
#[derive(Clone, Debug, Default)]
pub(super) struct Packet {
    pub(super) body: Body,
    pub(super) from: PortId,
    pub(super) to: PortId,
    /// The queue pair that receives it.
    pub(super) qp: u32,
    /// Its sequence number in its connection and direction. (24 bits that wrap on a real wire.)
    pub(super) psn: u64,
    /// Offset of its data in its message, in bytes.
    pub(super) offset: u64,
    /// Bytes of its data.
    pub(super) len: u64,
    /// Bytes of its message.
    pub(super) total: u64,
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) solicited: bool,
    /// Whether it starts its request at the requester, for the first time.
    pub(super) begins: bool,
    /// Number of SGEs that it was gathered from.
    pub(super) sges: u64,
    /// Its data were in the descriptor.
    pub(super) merged: bool,
    /// Its message takes a receive, which is completed after its data.
    pub(super) finishes: bool,
    /// When it has passed the transport engine.
    pub(super) ready_at: Time,
    /// When its head arrived.
    pub(super) head_at: Time,
    /// The earliest time at which its data could be written, as they came in.
    pub(super) write_from: Time,
    /// When its receive descriptor has arrived.
    pub(super) complete_from: Time,
    /// Bytes on the wire.
    pub(super) wire_bytes: u64,
    /// Whether it holds room at its destination.
    pub(super) credit: bool,
    /// The number of its receive in the queue pair's receives.
    pub(super) receive: u64,
    /// For responses: the request at the requester.
    pub(super) request: u64,
    /// Its data, or the part that is copied.
    pub(super) data: Vec<u8>,
}

/// Packets by index.
#[derive(Debug, Default)]
pub(super) struct Packets {
    packets: Vec<Packet>,
    free: Vec<u32>,
    /// Data buffers of freed packets, for reuse.
    spare: Vec<Vec<u8>>,
}

impl Packets {
    pub(super) fn insert(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.packets[number as usize] = packet;
                number
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        }
    }

    /// An empty buffer for data.
    pub(super) fn data(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn remove(&mut self, number: u32) -> Packet {
        let mut packet = std::mem::take(&mut self.packets[number as usize]);
        let mut data = std::mem::take(&mut packet.data);
        if data.capacity() > 0 {
            data.clear();
            self.spare.push(data);
        }
        self.free.push(number);
        packet
    }
}

impl std::ops::Index<u32> for Packets {
    type Output = Packet;
    fn index(&self, number: u32) -> &Packet {
        &self.packets[number as usize]
    }
}

impl std::ops::IndexMut<u32> for Packets {
    fn index_mut(&mut self, number: u32) -> &mut Packet {
        &mut self.packets[number as usize]
    }
}
