//! [`Numbers`]: allocates numbers for a device's objects. No two objects have the same number at a time, and a freed
//! number is reused late.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::{Error, Result};

/// Numbers of one kind of object. A stale number usually names no object, as a free number is reused only after all
/// others of the range.
#[derive(Debug)]
pub struct Numbers {
    taken: BTreeSet<u32>,
    next: u32,
    range: Range<u32>,
    what: &'static str,
    max: usize,
}

impl Numbers {
    /// Numbers for at most `max` objects at a time, of the kind that `what` names in errors: from 1 on, of 24 bits, as
    /// InfiniBand has for queue pairs (IBA 3.5.3).
    pub fn new(what: &'static str, max: usize) -> Self {
        Self { taken: BTreeSet::new(), next: 1, range: 1..1 << 24, what, max }
    }

    /// The numbers of a range, each for one object at a time.
    pub(crate) fn with_range(what: &'static str, range: Range<u32>) -> Self {
        Self { taken: BTreeSet::new(), next: range.start, max: range.len(), range, what }
    }

    /// Allocates a number that no object has.
    ///
    /// # Errors
    /// [`Error::Limit`] if the maximum number of objects exists, or the range is exhausted.
    pub fn alloc(&mut self) -> Result<u32> {
        let limit = self.max.min(self.range.len());
        if self.taken.len() >= limit {
            let limit = limit as u64;
            return Err(Error::Limit { what: self.what, given: limit + 1, limit });
        }
        loop {
            let number = self.next;
            self.next = if number + 1 == self.range.end { self.range.start } else { number + 1 };
            if self.taken.insert(number) {
                return Ok(number);
            }
        }
    }

    /// Frees the number of a destroyed object.
    pub fn free(&mut self, number: u32) {
        self.taken.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_numbers_are_reused_late_up_to_the_limit() {
        let mut numbers = Numbers::new("things", 2);
        assert_eq!((numbers.alloc(), numbers.alloc()), (Ok(1), Ok(2)));
        assert_eq!(numbers.alloc(), Err(Error::Limit { what: "things", given: 3, limit: 2 }));
        numbers.free(1);
        assert_eq!(numbers.alloc(), Ok(3), "not the one that was just freed");
        numbers.next = 0xff_ffff;
        numbers.free(2);
        assert_eq!(numbers.alloc(), Ok(0xff_ffff));
        numbers.free(0xff_ffff);
        assert_eq!(numbers.alloc(), Ok(1), "round again, without 0");
    }

    #[test]
    fn numbers_of_a_range_wrap_inside_it() {
        let mut numbers = Numbers::with_range("things", 20..23);
        assert_eq!([(); 3].map(|()| numbers.alloc()), [Ok(20), Ok(21), Ok(22)]);
        assert_eq!(numbers.alloc(), Err(Error::Limit { what: "things", given: 4, limit: 3 }));
        numbers.free(21);
        assert_eq!(numbers.alloc(), Ok(21));
        numbers.free(22);
        numbers.free(20);
        assert_eq!([(); 2].map(|()| numbers.alloc()), [Ok(22), Ok(20)]);
    }
}
