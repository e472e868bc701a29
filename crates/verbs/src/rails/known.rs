//! What a number stands for, at hand for whoever takes completions: queue pairs by the numbers of their lanes on a rail.

use std::sync::{Arc, Weak};

/// Places of a table: at first, and at most.
const PLACES_MIN: usize = 8;
const PLACES_MAX: usize = 8192;

/// A number selects its place. What is not there is looked up where all are, once.
pub(super) struct Known<T> {
    places: Vec<(u32, Weak<T>)>,
    /// Up to which change of what numbers mean this is right.
    upto: u64,
}

impl<T> Known<T> {
    pub(super) fn new() -> Self {
        Self { places: empty(PLACES_MIN), upto: 0 }
    }

    /// What has this number after so many changes of what numbers mean, if it has not gone.
    #[inline]
    pub(super) fn find(
        &mut self,
        num: u32,
        changes: u64,
        look_up: impl FnOnce() -> Option<Arc<T>>,
    ) -> Option<Arc<T>> {
        let (known, there) = &self.places[num as usize % self.places.len()];
        if *known == num
            && self.upto == changes
            && let Some(there) = there.upgrade()
        {
            return Some(there);
        }
        let found = look_up()?;
        self.learn(num, changes, &found);
        Some(found)
    }

    #[cold]
    fn learn(&mut self, num: u32, changes: u64, found: &Arc<T>) {
        if self.upto != changes {
            (self.places, self.upto) = (empty(self.places.len()), changes);
        }
        let (_, there) = &self.places[num as usize % self.places.len()];
        if there.strong_count() > 0 && self.places.len() < PLACES_MAX {
            // Two that live meet here.
            self.places = empty(2 * self.places.len());
        }
        let place = num as usize % self.places.len();
        self.places[place] = (num, Arc::downgrade(found));
    }
}

fn empty<T>(places: usize) -> Vec<(u32, Weak<T>)> {
    std::iter::repeat_with(|| (0, Weak::new())).take(places).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks numbers up; how many had to be looked up where all are.
    fn misses(known: &mut Known<u32>, all: &[Arc<u32>], changes: u64) -> usize {
        let mut misses = 0;
        for one in all {
            let look_up = || {
                misses += 1;
                Some(one.clone())
            };
            assert_eq!(known.find(**one, changes, look_up).as_ref(), Some(one));
        }
        misses
    }

    #[test]
    fn the_table_grows_until_no_two_meet() {
        let (mut known, all) = (Known::new(), (100..400).map(Arc::new).collect::<Vec<_>>());
        for _ in 0..10 {
            misses(&mut known, &all, 0);
        }
        assert_eq!(misses(&mut known, &all, 0), 0);
        assert!(known.places.len() <= 1024, "{} places", known.places.len());
    }

    #[test]
    fn a_number_that_changed_hands_is_looked_up_again() {
        let (mut known, one) = (Known::new(), Arc::new(7));
        assert_eq!(misses(&mut known, std::slice::from_ref(&one), 0), 1);
        assert_eq!(misses(&mut known, std::slice::from_ref(&one), 0), 0);
        assert_eq!(misses(&mut known, std::slice::from_ref(&one), 1), 1);
        drop(one);
        assert_eq!(known.find(7, 1, || None), None);
        assert_eq!(known.find(8, 1, || None), None);
    }
}
