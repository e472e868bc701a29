//! [`Path`]: where the time of a message goes, from the call that sent it on: every picosecond belongs to one component.

use host::{Span, Time};

/// What a message waits for.
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

/// The components by name: writes and reads between host and card; routers and cables; the card's processor setting up a transmission,
/// and a reception; telling the host of it; the card's loop until it finds work; Portals in the kernel of the host, traps included;
/// interrupts; waiting for a processor or an engine that is busy.
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

/// Where the time of something under way has gone so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    began: Time,
    /// How far it has come.
    pub(super) at: Time,
    spent: [Span; COMPONENTS.len()],
    interrupts: u32,
}

impl Path {
    pub(super) fn new(began: Time) -> Self {
        Self { began, at: began, spent: [Span::ZERO; COMPONENTS.len()], interrupts: 0 }
    }

    /// It has come to `to`, and this is what took the time since.
    pub(super) fn go(&mut self, to: Time, component: Component) {
        self.spent[component as usize] += to.since(self.at);
        self.at = self.at.max(to);
    }

    pub(super) fn interrupted(&mut self) {
        self.interrupts += 1;
    }
}

/// Where the time of the last message went that a program told its host of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// When the call was made that sent it.
    pub began: Time,
    /// When the host could see the record of it.
    pub ended: Time,
    /// What each of [`COMPONENTS`] took of the time between: together all of it.
    pub spent: [Span; COMPONENTS.len()],
    /// Interrupts that it waited for.
    pub interrupts: u32,
}

impl From<Path> for Profile {
    fn from(path: Path) -> Self {
        let Path { began, at: ended, spent, interrupts } = path;
        Self { began, ended, spent, interrupts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_time_belongs_to_somebody() {
        let us = |n| Time::ZERO + Span::from_us(n);
        let mut path = Path::new(us(1));
        for (to, component) in [(3, Component::Polling), (3, Component::Router), (7, Component::Polling)] {
            path.go(us(to), component);
        }
        let profile = Profile::from(path);
        assert_eq!((profile.began, profile.ended), (us(1), us(7)));
        assert_eq!(profile.spent[Component::Polling as usize], Span::from_us(6));
        let all = profile.spent.into_iter().fold(Span::ZERO, |sum, span| sum + span);
        assert_eq!(all, Span::from_us(6));
    }
}
