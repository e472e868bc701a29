//! Events of the network, encoded in 64 bits for the world's queue.

use super::packet::PortId;

/// A scheduled event. Numbers are table keys, unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A queue pair's doorbell is rung.
    Doorbell(u32),
    /// The card learns of another request of the queue pair.
    Rung(u32),
    /// The oldest requested descriptor arrives at the card (index).
    Fetched(u32),
    /// The card's (index) DMA engine can continue reading.
    ReadOn(u32),
    /// The card's (index) DMA engine can continue writing.
    WriteOn(u32),
    /// The processor notifies the card (index) of polled completions or of a posted receive.
    CardNotified(u32),
    /// The processor learns that a failed queue pair holds no more shared receives.
    LastReceive(u32),
    /// A queue pair can start its next message.
    Begin(u32),
    /// A packet (index) has its data and goes to the transport engine.
    Loaded(u32),
    /// A port's link may continue sending.
    Link(PortId),
    /// A packet's head is ready to leave the switch.
    Head(u32),
    /// A packet has arrived completely.
    Arrive(u32),
    /// A packet's data are ready to be written to memory.
    Place(u32),
    /// A packet's data are in memory.
    Placed(u32),
    /// The processor sees the next entry of a completion queue.
    Entry(u32),
    /// A completion queue's event reaches its channel.
    Notify(u32),
    /// A queue pair may retry a message that found no receive.
    Ready(u32),
    /// A queue pair checks whether an answer is overdue.
    Overdue(u32),
    /// Requests posted to a queue pair in the error state are flushed.
    Flush(u32),
    /// A message between connection managers arrives.
    Message(u32),
    /// A connect request times out.
    Timeout(u32),
    /// A queue pair gives up its unreachable peer.
    Lost(u32),
    /// A cable is cut.
    Cut,
    /// The cut cable is repaired.
    Whole,
    /// A machine dies.
    Death,
}

impl Event {
    pub(super) fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::Doorbell(n) => (0, n),
            Self::Rung(n) => (1, n),
            Self::Fetched(n) => (2, n),
            Self::ReadOn(n) => (3, n),
            Self::Loaded(n) => (4, n),
            Self::Link(port) => (5, (port.card as u32) << 3 | port.port as u32),
            Self::Head(n) => (6, n),
            Self::Arrive(n) => (7, n),
            Self::Place(n) => (8, n),
            Self::Placed(n) => (9, n),
            Self::Entry(n) => (10, n),
            Self::Notify(n) => (11, n),
            Self::Ready(n) => (12, n),
            Self::Overdue(n) => (13, n),
            Self::Flush(n) => (14, n),
            Self::Message(n) => (15, n),
            Self::Timeout(n) => (16, n),
            Self::Lost(n) => (17, n),
            Self::Cut => (18, 0),
            Self::Death => (19, 0),
            Self::WriteOn(n) => (20, n),
            Self::Whole => (21, 0),
            Self::Begin(n) => (22, n),
            Self::CardNotified(n) => (23, n),
            Self::LastReceive(n) => (24, n),
        };
        (kind as u64) << 32 | u64::from(number)
    }

    /// The event of a token made by [`Event::token`].
    pub(super) fn of(token: u64) -> Option<Self> {
        let n = token as u32;
        Some(match token >> 32 {
            0 => Self::Doorbell(n),
            1 => Self::Rung(n),
            2 => Self::Fetched(n),
            3 => Self::ReadOn(n),
            4 => Self::Loaded(n),
            5 => Self::Link(PortId { card: (n >> 3) as usize, port: (n & 7) as usize }),
            6 => Self::Head(n),
            7 => Self::Arrive(n),
            8 => Self::Place(n),
            9 => Self::Placed(n),
            10 => Self::Entry(n),
            11 => Self::Notify(n),
            12 => Self::Ready(n),
            13 => Self::Overdue(n),
            14 => Self::Flush(n),
            15 => Self::Message(n),
            16 => Self::Timeout(n),
            17 => Self::Lost(n),
            18 => Self::Cut,
            19 => Self::Death,
            20 => Self::WriteOn(n),
            21 => Self::Whole,
            22 => Self::Begin(n),
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
    fn tokens_give_their_event_back() {
        let kinds = (0..).map(|kind: u64| kind << 32 | 7).map_while(Event::of);
        assert_eq!(kinds.clone().count(), 25);
        for event in kinds {
            assert_eq!(Event::of(event.token()), Some(event));
        }
    }
}
