//! What may be due: events as the world keeps them, in 64 bits.

use super::packet::PortId;

/// Something that is due. Numbers are keys of tables, unless they say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A queue pair's doorbell is rung.
    Doorbell(u32),
    /// The card knows of a further request of the queue pair.
    Rung(u32),
    /// The card (number) has the oldest descriptor that it asked for.
    Fetched(u32),
    /// The card's (number) DMA engine can read on.
    ReadOn(u32),
    /// The card's (number) DMA engine can write on.
    WriteOn(u32),
    /// The processor tells the card (number) of completions that it took, or of a receive.
    Told(u32),
    /// The processor sees that a queue pair which failed has no more of its shared receives.
    LastReceive(u32),
    /// A queue pair can begin its next message.
    Begin(u32),
    /// A packet (number) has its data and goes to the transport engine.
    Loaded(u32),
    /// A port's link may send on.
    Link(PortId),
    /// A packet's head is ready to leave the switch.
    Head(u32),
    /// A packet has arrived whole.
    Arrive(u32),
    /// A packet's data are ready to be written to memory.
    Place(u32),
    /// A packet's data are in memory.
    Placed(u32),
    /// The processor sees the next entry of a completion queue.
    Entry(u32),
    /// A completion queue's event reaches its channel.
    Notify(u32),
    /// A queue pair may try again what found no receive.
    Ready(u32),
    /// A queue pair looks whether it has waited too long for an answer.
    Overdue(u32),
    /// What was posted to a queue pair in the error state is flushed.
    Flush(u32),
    /// A message of connection managers arrives.
    Message(u32),
    /// A connect request has waited as long as it may.
    Timeout(u32),
    /// A queue pair's peer is given up as unreachable.
    Lost(u32),
    /// A cable is cut.
    Cut,
    /// The cable that was cut is whole again.
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
            Self::Told(n) => (23, n),
            Self::LastReceive(n) => (24, n),
        };
        (kind as u64) << 32 | u64::from(number)
    }

    /// The event of a token, which [`Event::token`] made.
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
            23 => Self::Told(n),
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
