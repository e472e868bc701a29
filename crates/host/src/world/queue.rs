//! The event queue: least time first, and first come first served among equal times.
//!
//! A radix heap: nothing is ever put in before what was last taken out, so an event needs no finer place than the highest bit in
//! which its time differs from that. It moves towards the front as time goes on, always together with its neighbours, and so in
//! order in memory, where a binary heap would jump from line to line (at 16,384 ranks that took a quarter of all time).

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

#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    number: u64,
    event: Event,
}

/// Times of which the highest bit that differs from the last time taken out is the same, in the order in which they were put in.
#[derive(Default)]
struct Bucket {
    entries: Vec<Entry>,
    /// The least of their times; of no meaning without entries.
    least: u64,
}

/// Events that are due, in order.
pub(super) struct Queue {
    /// The time last taken out.
    last: u64,
    /// Due at `last`, from `taken` on.
    front: Vec<Entry>,
    taken: usize,
    /// By the highest bit that differs from `last`.
    buckets: [Bucket; 64],
    /// Which of them have entries.
    filled: u64,
    inserted: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            last: 0,
            front: Vec::new(),
            taken: 0,
            buckets: std::array::from_fn(|_| Bucket::default()),
            filled: 0,
            inserted: 0,
        }
    }
}

impl Queue {
    /// Puts an event in. A time before the one last taken out counts as that.
    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.inserted += 1;
        self.place(Entry { at: at.as_ps().max(self.last), number: self.inserted, event });
    }

    fn place(&mut self, entry: Entry) {
        let differing = entry.at ^ self.last;
        if differing == 0 {
            return self.front.push(entry);
        }
        let index = differing.ilog2() as usize;
        let bucket = &mut self.buckets[index];
        bucket.least = if bucket.entries.is_empty() { entry.at } else { bucket.least.min(entry.at) };
        bucket.entries.push(entry);
        self.filled |= 1 << index;
    }

    /// The next event, its time, and its share of the trace.
    pub(super) fn pop(&mut self) -> Option<(Time, Event, u64)> {
        if self.taken == self.front.len() {
            self.advance()?;
        }
        let Entry { at, number, event } = self.front[self.taken];
        self.taken += 1;
        let digest = at ^ number.rotate_left(32) ^ event.digest().rotate_left(13);
        Some((Time::from_ps(at), event, digest))
    }

    /// Goes on to the next time: all events of the lowest bucket find their places anew, the earliest at the front.
    fn advance(&mut self) -> Option<()> {
        self.front.clear();
        self.taken = 0;
        let index = self.first_filled()?;
        self.filled &= !(1 << index);
        let mut entries = std::mem::take(&mut self.buckets[index].entries);
        self.last = self.buckets[index].least;
        entries.drain(..).for_each(|entry| self.place(entry));
        // It keeps its memory.
        self.buckets[index].entries = entries;
        Some(())
    }

    /// The event that is due after so many others, if it is known: of those that are due at the same time.
    pub(super) fn ahead(&self, others: usize) -> Option<Event> {
        self.front.get(self.taken + others).map(|entry| entry.event)
    }

    fn first_filled(&self) -> Option<usize> {
        (self.filled != 0).then(|| self.filled.trailing_zeros() as usize)
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<Time> {
        if self.taken < self.front.len() {
            return Some(Time::from_ps(self.last));
        }
        self.first_filled().map(|index| Time::from_ps(self.buckets[index].least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the order is that of time, then of insertion. Method: seeded pushes and pops beside a sorted list; times in clusters,
    /// equal ones, far ones, and some before what was last taken out.
    #[test]
    fn events_come_by_time_and_then_by_insertion() {
        for seed in 1..=200_u64 {
            let mut state = seed;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            let (mut queue, mut sorted) = (Queue::default(), Vec::new());
            let mut now = 0;
            for number in 0..400_u64 {
                if random() % 5 < 3 {
                    let ahead = [0, random() % 4, random() % 1_000, random() << (random() % 28)]
                        [(random() % 4) as usize];
                    let at = now + ahead;
                    queue.push(Time::from_ps(at), Event::Act { actor: 0, token: number });
                    sorted.push((at, number));
                    sorted.sort_unstable();
                } else {
                    let next = (!sorted.is_empty()).then(|| sorted.remove(0));
                    assert_eq!(queue.next_at(), next.map(|(at, _)| Time::from_ps(at)), "seed {seed}");
                    let got = queue.pop().map(|(at, event, _)| (at, event));
                    let due = |(at, token)| (Time::from_ps(at), Event::Act { actor: 0, token });
                    assert_eq!(got, next.map(due), "seed {seed}");
                    now = next.map_or(now, |(at, _)| at);
                }
            }
        }
    }

    #[test]
    fn those_of_the_present_are_known_ahead() {
        let mut queue = Queue::default();
        for (at, node) in [(50, 1), (70, 4), (50, 2), (50, 3)] {
            queue.push(Time::from_ps(at), Event::Signal { node });
        }
        assert_eq!(queue.ahead(0), None, "which are of the present shows with the first");
        assert_eq!(queue.pop().map(|(_, event, _)| event), Some(Event::Signal { node: 1 }));
        let ahead: Vec<_> = (0..3).map(|others| queue.ahead(others)).collect();
        assert_eq!(ahead, [Some(Event::Signal { node: 2 }), Some(Event::Signal { node: 3 }), None]);
    }

    #[test]
    fn what_is_late_comes_next() {
        let mut queue = Queue::default();
        queue.push(Time::from_ps(50), Event::Signal { node: 1 });
        queue.pop();
        queue.push(Time::from_ps(60), Event::Signal { node: 2 });
        queue.push(Time::from_ps(10), Event::Signal { node: 3 });
        let order = [queue.pop(), queue.pop()].map(|next| next.map(|(_, event, _)| event));
        assert_eq!(order, [Some(Event::Signal { node: 3 }), Some(Event::Signal { node: 2 })]);
        assert_eq!((queue.pop(), queue.next_at()), (None, None));
    }
}
