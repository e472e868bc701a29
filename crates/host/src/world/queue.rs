//! The event queue: ordered by time; events with equal times in order of insertion.
//!
//! A radix heap: no event is inserted before the time of the last one removed, so it suffices to sort an event by the
//! highest bit in which its time differs from that time. As time advances, events move towards the front together with
//! their neighbours, in memory order, where a binary heap would jump between cache lines (at 16,384 fibers that took a
//! quarter of all time).

use crate::Time;

/// What happens when the event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A fiber is resumed.
    Resume { fiber: usize },
    /// A fiber's deadline may have passed.
    Timer { fiber: usize },
    /// Something happened on a node: its waiting fibers are woken.
    Signal { node: usize },
    /// A device handles its event.
    Handle { handler: usize, token: u64 },
}

impl Event {
    /// The event's contribution to the trace.
    fn digest(self) -> u64 {
        match self {
            Self::Resume { fiber } => (fiber as u64) << 2,
            Self::Timer { fiber } => (fiber as u64) << 2 | 1,
            Self::Signal { node } => (node as u64) << 2 | 2,
            Self::Handle { handler, token } => (token.rotate_left(20) ^ handler as u64) << 2 | 3,
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    number: u64,
    event: Event,
}

/// Entries whose times have the same highest bit that differs from the time last removed, in order of insertion.
#[derive(Default)]
struct Bucket {
    entries: Vec<Entry>,
    /// The earliest of their times; meaningless without entries.
    least: u64,
}

/// Pending events, in order.
pub(super) struct Queue {
    /// The time last removed.
    last: u64,
    /// Events due at `last`; those before `taken` have been removed.
    front: Vec<Entry>,
    taken: usize,
    /// Later events, by the highest bit that differs from `last`.
    buckets: [Bucket; 64],
    /// Bit mask of the buckets that have entries.
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
    /// Inserts an event. A time before the one last removed is set to that.
    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.inserted += 1;
        self.store(Entry { at: at.as_ps().max(self.last), number: self.inserted, event });
    }

    /// Stores an entry in front if it is due at `last`, else in the bucket of the highest bit in which its time differs.
    fn store(&mut self, entry: Entry) {
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

    /// The next event, its time, and its contribution to the trace.
    pub(super) fn pop(&mut self) -> Option<(Time, Event, u64)> {
        if self.taken == self.front.len() {
            self.advance()?;
        }
        let Entry { at, number, event } = self.front[self.taken];
        self.taken += 1;
        let digest = at ^ number.rotate_left(32) ^ event.digest().rotate_left(13);
        Some((Time::from_ps(at), event, digest))
    }

    /// Advances to the next time: redistributes the events of the lowest bucket, the earliest to the front.
    fn advance(&mut self) -> Option<()> {
        self.front.clear();
        self.taken = 0;
        let index = self.first_filled()?;
        self.filled &= !(1 << index);
        let mut entries = std::mem::take(&mut self.buckets[index].entries);
        self.last = self.buckets[index].least;
        entries.drain(..).for_each(|entry| self.store(entry));
        // Keeps the allocation.
        self.buckets[index].entries = entries;
        Some(())
    }

    /// The event that is due after `others` more events, if known: only among events that are due at the same time.
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

    /// Goal: events come in order of time, then of insertion. Method: seeded pushes and pops, compared with a sorted
    /// list; times in clusters, equal ones, far ones, and some before the last one removed.
    #[test]
    fn events_are_ordered_by_time_then_insertion() {
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
                    queue.push(Time::from_ps(at), Event::Handle { handler: 0, token: number });
                    sorted.push((at, number));
                    sorted.sort_unstable();
                } else {
                    let next = (!sorted.is_empty()).then(|| sorted.remove(0));
                    assert_eq!(queue.next_at(), next.map(|(at, _)| Time::from_ps(at)), "seed {seed}");
                    let got = queue.pop().map(|(at, event, _)| (at, event));
                    let due = |(at, token)| (Time::from_ps(at), Event::Handle { handler: 0, token });
                    assert_eq!(got, next.map(due), "seed {seed}");
                    now = next.map_or(now, |(at, _)| at);
                }
            }
        }
    }

    #[test]
    fn events_of_the_current_time_are_known_ahead() {
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
    fn late_event_comes_next() {
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
