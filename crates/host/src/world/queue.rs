//! The event queue: least time first, and first come first served among equal times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::Time;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A rank goes on.
    Resume { rank: usize },
    /// A rank's deadline may have come.
    Timer { rank: usize },
    /// Something happened on a node.
    Signal { node: usize },
    /// A device acts.
    Act { actor: usize, token: u64 },
}

impl Event {
    /// Its share of the trace.
    fn digest(self) -> u64 {
        match self {
            Self::Resume { rank } => (rank as u64) << 2,
            Self::Timer { rank } => (rank as u64) << 2 | 1,
            Self::Signal { node } => (node as u64) << 2 | 2,
            Self::Act { actor, token } => (token.rotate_left(20) ^ actor as u64) << 2 | 3,
        }
    }
}

struct Entry {
    at: Time,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap gives its greatest first: the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Events that are due, in order.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    inserted: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.inserted += 1;
        self.heap.push(Entry { at, number: self.inserted, event });
    }

    /// The next event, its time, and its share of the trace.
    pub(super) fn pop(&mut self) -> Option<(Time, Event, u64)> {
        let Entry { at, number, event } = self.heap.pop()?;
        Some((at, event, at.as_ps() ^ number.rotate_left(32) ^ event.digest().rotate_left(13)))
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }
}
