//! Events of the network, encoded in 64 bits for the world's queue.

use super::packet::PortId;

/// A scheduled event. Numbers are table keys, unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A queue pair's doorbell is rung.
    DoorbellRung(u32),
    /// The card learns of another request of the queue pair.
    DoorbellSeen(u32),
    /// The oldest requested descriptor arrives at the card (index).
    DescriptorFetched(u32),
    /// The card's (index) DMA engine can continue reading.
    DmaReadDone(u32),
    /// The card's (index) DMA engine can continue writing.
    DmaWriteDone(u32),
    /// The processor notifies the card (index) of polled completions or of a posted receive.
    CardNotified(u32),
    /// The processor learns that a failed queue pair holds no more shared receives.
    LastReceive(u32),
    /// A queue pair can start its next message.
    BeginDue(u32),
    /// A packet (index) has its data and goes to the transport engine.
    PacketLoaded(u32),
    /// A port's link may continue sending.
    LinkReady(PortId),
    /// A packet's head is ready to leave the switch.
    HeadAtSwitch(u32),
    /// A packet has arrived completely.
    PacketArrived(u32),
    /// A packet's data are ready to be written to memory.
    PacketReadyToPlace(u32),
    /// A packet's data are in memory.
    PacketPlaced(u32),
    /// The processor sees the next entry of a completion queue.
    EntryVisible(u32),
    /// A completion queue's event reaches its channel.
    ChannelNotified(u32),
    /// A queue pair may retry a message that found no receive.
    RnrPauseEnded(u32),
    /// A queue pair checks whether an answer is overdue.
    AnswerCheck(u32),
    /// Requests posted to a queue pair in the error state are flushed.
    Flush(u32),
    /// A message between connection managers arrives.
    CmMessage(u32),
    /// A connect request times out.
    ConnectTimeout(u32),
    /// A queue pair gives up its unreachable peer.
    PeerLost(u32),
    /// A cable is cut.
    CableCut,
    /// The cut cable is repaired.
    CableRepaired,
    /// A machine dies.
    MachineDeath,
}

impl Event {
    pub(super) fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::DoorbellRung(n) => (0, n),
            Self::DoorbellSeen(n) => (1, n),
            Self::DescriptorFetched(n) => (2, n),
            Self::DmaReadDone(n) => (3, n),
            Self::PacketLoaded(n) => (4, n),
            Self::LinkReady(port) => (5, (port.card as u32) << 3 | port.port as u32),
            Self::HeadAtSwitch(n) => (6, n),
            Self::PacketArrived(n) => (7, n),
            Self::PacketReadyToPlace(n) => (8, n),
            Self::PacketPlaced(n) => (9, n),
            Self::EntryVisible(n) => (10, n),
            Self::ChannelNotified(n) => (11, n),
            Self::RnrPauseEnded(n) => (12, n),
            Self::AnswerCheck(n) => (13, n),
            Self::Flush(n) => (14, n),
            Self::CmMessage(n) => (15, n),
            Self::ConnectTimeout(n) => (16, n),
            Self::PeerLost(n) => (17, n),
            Self::CableCut => (18, 0),
            Self::MachineDeath => (19, 0),
            Self::DmaWriteDone(n) => (20, n),
            Self::CableRepaired => (21, 0),
            Self::BeginDue(n) => (22, n),
            Self::CardNotified(n) => (23, n),
            Self::LastReceive(n) => (24, n),
        };
        (kind as u64) << 32 | u64::from(number)
    }

    /// The event of a token made by [`Event::token`].
    pub(super) fn from_token(token: u64) -> Option<Self> {
        let n = token as u32;
        Some(match token >> 32 {
            0 => Self::DoorbellRung(n),
            1 => Self::DoorbellSeen(n),
            2 => Self::DescriptorFetched(n),
            3 => Self::DmaReadDone(n),
            4 => Self::PacketLoaded(n),
            5 => Self::LinkReady(PortId { card: (n >> 3) as usize, port: (n & 7) as usize }),
            6 => Self::HeadAtSwitch(n),
            7 => Self::PacketArrived(n),
            8 => Self::PacketReadyToPlace(n),
            9 => Self::PacketPlaced(n),
            10 => Self::EntryVisible(n),
            11 => Self::ChannelNotified(n),
            12 => Self::RnrPauseEnded(n),
            13 => Self::AnswerCheck(n),
            14 => Self::Flush(n),
            15 => Self::CmMessage(n),
            16 => Self::ConnectTimeout(n),
            17 => Self::PeerLost(n),
            18 => Self::CableCut,
            19 => Self::MachineDeath,
            20 => Self::DmaWriteDone(n),
            21 => Self::CableRepaired,
            22 => Self::BeginDue(n),
            23 => Self::CardNotified(n),
            24 => Self::LastReceive(n),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_token_inverts_token() {
        let kinds = (0..).map(|kind: u64| kind << 32 | 7).map_while(Event::from_token);
        assert_eq!(kinds.clone().count(), 25);
        for event in kinds {
            assert_eq!(Event::from_token(event.token()), Some(event));
        }
    }
}
