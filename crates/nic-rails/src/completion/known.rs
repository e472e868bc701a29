//! What a number stands for, at hand for whoever takes completions: queue pairs by the numbers of their lanes on a rail.

use std::sync::Arc;

/// Places of a table: at first, and at most.
const PLACES_MIN: usize = 8;
const PLACES_MAX: usize = 8192;

/// A number selects its place. What is not there is looked up where all are, once. It is held here, as counting references anew for
/// each completion costs as much as half of a short message: whoever drops it has it forgotten.
pub(crate) struct Known<T> {
    places: Vec<(u32, Option<Arc<T>>)>,
    /// Whether anything has a place.
    is_used: bool,
    /// Up to which change of what numbers mean this is right.
    upto: u64,
}

impl<T> Known<T> {
    pub(crate) fn new() -> Self {
        Self { places: empty(PLACES_MIN), is_used: false, upto: 0 }
    }

    /// What has this number after so many changes of what numbers mean, if it has not gone.
    #[inline]
    pub(crate) fn find(
        &mut self,
        num: u32,
        changes: u64,
        look_up: impl FnOnce() -> Option<Arc<T>>,
    ) -> Option<&Arc<T>> {
        let place = self.place(num);
        let (known, there) = &self.places[place];
        let place = if *known == num && self.upto == changes && there.is_some() {
            place
        } else {
            self.learn(num, changes, look_up()?)
        };
        self.places[place].1.as_ref()
    }

    /// Where a number has its place; there are a power of two of them.
    #[inline]
    fn place(&self, num: u32) -> usize {
        num as usize & (self.places.len() - 1)
    }

    #[cold]
    fn learn(&mut self, num: u32, changes: u64, found: Arc<T>) -> usize {
        if self.upto != changes {
            (self.places, self.upto) = (empty(self.places.len()), changes);
        }
        if self.places[self.place(num)].1.is_some() && self.places.len() < PLACES_MAX {
            // Two that live meet here.
            self.places = empty(2 * self.places.len());
        }
        let place = self.place(num);
        (self.places[place], self.is_used) = ((num, Some(found)), true);
        place
    }

    /// Lets go of all: one of them is about to be dropped, by which what is known here is out of date anyway.
    pub(crate) fn forget(&mut self) {
        if std::mem::take(&mut self.is_used) {
            self.places = empty(self.places.len());
        }
    }
}

fn empty<T>(places: usize) -> Vec<(u32, Option<Arc<T>>)> {
    std::iter::repeat_with(|| (0, None)).take(places).collect()
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
            assert_eq!(known.find(**one, changes, look_up), Some(one));
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
        known.forget();
        assert_eq!((Arc::strong_count(&one), known.find(7, 1, || None)), (1, None));
        assert_eq!(known.find(8, 1, || None), None);
    }
}
