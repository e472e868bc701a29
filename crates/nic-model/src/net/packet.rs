//! Packets under way, in a table that is used again without allocating.

use host::{Span, Time};
use verbs::{RemoteAddr, SendOp, WcStatus};

/// A port of a card, as both ends of a wire are named. The one behind the last port is the card's loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortId {
    pub(super) card: usize,
    pub(super) port: usize,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Body {
    /// Part of a request, or a request that carries no data.
    Request(SendOp),
    /// Part of what a read fetches.
    ReadResponse,
    /// What an atomic found.
    AtomicResponse(u64),
    /// All packets below this number are placed.
    #[default]
    Ack,
    /// The request with this packet failed at the responder.
    Nak(WcStatus),
    /// The message of this packet found no receive: it is sent again after a pause.
    RnrNak(Span),
    /// This is the packet that is missing.
    SequenceNak,
}

impl Body {
    /// Whether the first packet of such a message has a further header that says where data are.
    pub(super) fn has_address(self) -> bool {
        !matches!(
            self,
            Self::Request(SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_)) | Self::ReadResponse
        )
    }
}

/// Where a packet's data come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The packet has no data.
    Nowhere,
    /// The SGEs of the request with this number.
    Request(u64),
    /// Memory that the peer named.
    Peer(RemoteAddr),
}

/// A packet to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) packet: Packet,
    pub(super) source: Source,
    /// Whether the packet is its message's last.
    pub(super) ends: bool,
}

/// A packet on its way, from being read to being placed.
#[derive(Clone, Debug, Default)]
pub(super) struct Packet {
    pub(super) body: Body,
    pub(super) from: PortId,
    pub(super) to: PortId,
    /// The queue pair that it is for.
    pub(super) qp: u32,
    /// Its number within its connection and direction. (24 bits that wrap on a real wire.)
    pub(super) psn: u64,
    /// Where in its message its data begin, in bytes.
    pub(super) offset: u64,
    /// Bytes of its data.
    pub(super) len: u64,
    /// Bytes of its message.
    pub(super) total: u64,
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) solicited: bool,
    /// Whether it begins its request at the requester, for the first time.
    pub(super) begins: bool,
    /// SGEs that it was gathered from.
    pub(super) sges: u64,
    /// Its data came within the descriptor.
    pub(super) merged: bool,
    /// Its message takes a receive, and is ended behind its data.
    pub(super) finishes: bool,
    /// When the transport engine is done with it.
    pub(super) ready_at: Time,
    /// When its head arrived.
    pub(super) head_at: Time,
    /// The time from which on its data could be written, as they came in.
    pub(super) write_from: Time,
    /// When what it takes of the receive queue is there.
    pub(super) complete_from: Time,
    /// Bytes on the wire.
    pub(super) wire_bytes: u64,
    /// Whether it holds room at its destination.
    pub(super) credit: bool,
    /// The receive that it takes, by its number among those that the queue pair took.
    pub(super) receive: u64,
    /// The request at the requester that it answers, for responses.
    pub(super) request: u64,
    /// Its data, or what of them really moves.
    pub(super) data: Vec<u8>,
}

/// Packets by number.
#[derive(Debug, Default)]
pub(super) struct Packets {
    packets: Vec<Packet>,
    free: Vec<u32>,
    /// Data of packets that are gone, for others.
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

    /// An empty vector for data.
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
