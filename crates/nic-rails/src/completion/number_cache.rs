//! A small cache of objects by number, for pollers: queue pairs by the numbers of their lanes on a rail.

use std::sync::Arc;

/// Entries of the table: at first, and at most.
const SLOTS_MIN: usize = 8;
const SLOTS_MAX: usize = 8192;

/// A direct-mapped cache: the number selects the entry. On a miss, the object is looked up in the device's table. The
/// cache holds references, as counting them for each completion costs as much as half of a short message; a thread that
/// drops an object clears the cache.
pub(crate) struct NumberCache<T> {
    slots: Vec<(u32, Option<Arc<T>>)>,
    /// Whether any entry is in use.
    is_used: bool,
    /// The change count for which the entries are valid.
    seen_changes: u64,
}

impl<T> NumberCache<T> {
    pub(crate) fn new() -> Self {
        Self { slots: empty_slots(SLOTS_MIN), is_used: false, seen_changes: 0 }
    }

    /// The object with this number, if it still exists; `changes` counts how often numbers were reassigned.
    #[inline]
    pub(crate) fn find(
        &mut self,
        num: u32,
        changes: u64,
        look_up: impl FnOnce() -> Option<Arc<T>>,
    ) -> Option<&Arc<T>> {
        let slot = self.slot_of(num);
        let (cached, object) = &self.slots[slot];
        let slot = if *cached == num && self.seen_changes == changes && object.is_some() {
            slot
        } else {
            self.insert(num, changes, look_up()?)
        };
        self.slots[slot].1.as_ref()
    }

    /// The entry of a number; the number of entries is a power of two.
    #[inline]
    fn slot_of(&self, num: u32) -> usize {
        num as usize & (self.slots.len() - 1)
    }

    #[cold]
    fn insert(&mut self, num: u32, changes: u64, found: Arc<T>) -> usize {
        if self.seen_changes != changes {
            (self.slots, self.seen_changes) = (empty_slots(self.slots.len()), changes);
        }
        if self.slots[self.slot_of(num)].1.is_some() && self.slots.len() < SLOTS_MAX {
            // Two live objects share this entry.
            self.slots = empty_slots(2 * self.slots.len());
        }
        let slot = self.slot_of(num);
        (self.slots[slot], self.is_used) = ((num, Some(found)), true);
        slot
    }

    /// Clears the cache: an object is about to be dropped, which invalidates the entries anyway.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_used) {
            self.slots = empty_slots(self.slots.len());
        }
    }
}

fn empty_slots<T>(slots: usize) -> Vec<(u32, Option<Arc<T>>)> {
    std::iter::repeat_with(|| (0, None)).take(slots).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds each number in the cache; returns the number of misses.
    fn misses(known: &mut NumberCache<u32>, all: &[Arc<u32>], changes: u64) -> usize {
        let mut misses = 0;
        for one in all {
            let look_up = || {
                misses += 1;
                Some(one.clone())
            };
            assert_eq!(known.find(**one, changes, look_up), Some(one));
        }
        misses
    }

    #[test]
    fn table_grows_until_no_two_numbers_collide() {
        let (mut known, all) = (NumberCache::new(), (100..400).map(Arc::new).collect::<Vec<_>>());
        for _ in 0..10 {
            misses(&mut known, &all, 0);
        }
        assert_eq!(misses(&mut known, &all, 0), 0);
        assert!(known.slots.len() <= 1024, "{} slots", known.slots.len());
    }

    #[test]
    fn reassigned_number_is_looked_up_again() {
        let (mut known, one) = (NumberCache::new(), Arc::new(7));
        assert_eq!(misses(&mut known, std::slice::from_ref(&one), 0), 1);
        assert_eq!(misses(&mut known, std::slice::from_ref(&one), 0), 0);
        assert_eq!(misses(&mut known, std::slice::from_ref(&one), 1), 1);
        known.clear();
        assert_eq!((Arc::strong_count(&one), known.find(7, 1, || None)), (1, None));
        assert_eq!(known.find(8, 1, || None), None);
    }
}
