//! [`TransferTime`]: how the time of a message is spent, from the call that sent it: each picosecond is attributed to
//! one component.

use host::{Span, Time};

/// The components that a message passes or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    HyperTransport,
    Router,
    Transmit,
    Receive,
    Notify,
    Polling,
    Portals,
    Interrupt,
    Waiting,
}

/// The components by name: writes and reads between host and card; routers and cables; the card's processor
/// preparing a transmission, and a reception; notifying the host; the card's loop until it finds the work;
/// Portals in the host's kernel, including traps; interrupts; waiting for a busy processor or engine.
pub const COMPONENTS: [&str; 9] = [
    "hypertransport",
    "router",
    "transmit",
    "receive",
    "notify",
    "polling",
    "portals",
    "interrupt",
    "waiting",
];

/// How the time of a transfer was spent so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferTime {
    began: Time,
    /// Its current time.
    pub(super) at: Time,
    spent: [Span; COMPONENTS.len()],
    interrupts: u32,
}

impl TransferTime {
    pub(super) fn new(began: Time) -> Self {
        Self { began, at: began, spent: [Span::ZERO; COMPONENTS.len()], interrupts: 0 }
    }

    /// Advances to `to`, and attributes the time since the last call to a component.
    pub(super) fn advance_to(&mut self, to: Time, component: Component) {
        self.spent[component as usize] += to.since(self.at);
        self.at = self.at.max(to);
    }

    pub(super) fn interrupted(&mut self) {
        self.interrupts += 1;
    }
}

/// How the time of the last message that a program reported to its host was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Start of the call that sent it.
    pub began: Time,
    /// When the host could see its record.
    pub ended: Time,
    /// The share of each of [`COMPONENTS`]; their sum is the total time.
    pub spent: [Span; COMPONENTS.len()],
    /// Interrupts that it waited for.
    pub interrupts: u32,
}

impl From<TransferTime> for Profile {
    fn from(timing: TransferTime) -> Self {
        let TransferTime { began, at: ended, spent, interrupts } = timing;
        Self { began, ended, spent, interrupts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_time_attributes_all_time() {
        let us = |n| Time::ZERO + Span::from_us(n);
        let mut timing = TransferTime::new(us(1));
        for (to, component) in [(3, Component::Polling), (3, Component::Router), (7, Component::Polling)] {
            timing.advance_to(us(to), component);
        }
        let profile = Profile::from(timing);
        assert_eq!((profile.began, profile.ended), (us(1), us(7)));
        assert_eq!(profile.spent[Component::Polling as usize], Span::from_us(6));
        let all = profile.spent.into_iter().fold(Span::ZERO, |sum, span| sum + span);
        assert_eq!(all, Span::from_us(6));
    }
}
