//! [`Destinations`]: the memory that outstanding requests of a process write to: receives, reads and atomics.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use findings::Stack;

/// Ranges that are compared with a new range: they begin in front of its end, the latest first.
const COMPARED: usize = 16;

/// A request that writes to memory.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) text: Arc<str>,
    pub(crate) is_recv: bool,
    pub(crate) posted: Stack,
    /// Another request writes to the same memory.
    pub(crate) is_shared: Arc<AtomicBool>,
}

/// The place of a range: its start, and a number.
pub(crate) type Place = (u64, u64);

#[derive(Default)]
pub(crate) struct Destinations {
    ranges: BTreeMap<Place, (u64, Writer)>,
    next: u64,
}

impl Destinations {
    /// A request that writes to some of this memory.
    pub(crate) fn writer_of(&self, range: &Range<u64>) -> Option<&Writer> {
        let before = self.ranges.range(..(range.end, 0)).rev().take(COMPARED);
        before.map(|(_, found)| found).find(|(end, _)| *end > range.start).map(|(_, writer)| writer)
    }

    /// Adds memory that a request writes to. Where another one does, both are marked.
    pub(crate) fn add(&mut self, range: &Range<u64>, writer: &Writer) -> (Place, Option<Writer>) {
        let other = self.writer_of(range).cloned();
        if let Some(other) = &other {
            other.is_shared.store(true, Ordering::Relaxed);
            writer.is_shared.store(true, Ordering::Relaxed);
        }
        self.next += 1;
        let place = (range.start, self.next);
        self.ranges.insert(place, (range.end, writer.clone()));
        (place, other)
    }

    pub(crate) fn remove(&mut self, places: &[Place]) {
        for place in places {
            self.ranges.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_found_as_long_as_both_are_there() {
        let mut all = Destinations::default();
        let writer = |text: &str| Writer {
            text: text.into(),
            is_recv: true,
            posted: Stack::default(),
            is_shared: Arc::default(),
        };
        let (first, none) = all.add(&(100..200), &writer("a"));
        assert!(none.is_none() && all.add(&(200..300), &writer("b")).1.is_none());
        for range in [150..160, 0..101, 199..200, 0..1000] {
            let (place, other) = all.add(&range, &writer("c"));
            assert!(other.is_some_and(|other| other.is_shared.load(Ordering::Relaxed)), "{range:?}");
            all.remove(&[place]);
        }
        assert!(all.writer_of(&(0..100)).is_none() && all.writer_of(&(300..400)).is_none());
        all.remove(&[first]);
        assert!(all.writer_of(&(100..200)).is_none());
    }
}
