//! Numbers of a device's objects: none is given twice, and one that was given back comes round again late.

use std::collections::BTreeSet;
use std::sync::Mutex;

use verbs::{Error, Result};

use crate::sync::unpoisoned;

/// Numbers of one kind of object, each from 1 to [`Numbers::MASK`].
pub(super) struct Numbers {
    taken: Mutex<Taken>,
    what: &'static str,
    max: usize,
}

struct Taken {
    numbers: BTreeSet<u32>,
    next: u32,
}

impl Numbers {
    const MASK: u32 = 0xff_ffff;

    /// At most `max` at a time of `what`.
    pub(super) fn new(what: &'static str, max: usize) -> Self {
        Self { taken: Mutex::new(Taken { numbers: BTreeSet::new(), next: 1 }), what, max }
    }

    pub(super) fn take(&self) -> Result<u32> {
        let mut taken = unpoisoned(&self.taken);
        let limit = self.max as u64;
        if taken.numbers.len() == self.max {
            return Err(Error::Limit { what: self.what, given: limit + 1, limit });
        }
        loop {
            let number = taken.next;
            taken.next = (number + 1) & Self::MASK;
            if number != 0 && taken.numbers.insert(number) {
                return Ok(number);
            }
        }
    }

    pub(super) fn give(&self, number: u32) {
        unpoisoned(&self.taken).numbers.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_late_and_end_at_the_limit() {
        let numbers = Numbers::new("things", 2);
        assert_eq!((numbers.take(), numbers.take()), (Ok(1), Ok(2)));
        assert_eq!(numbers.take(), Err(Error::Limit { what: "things", given: 3, limit: 2 }));
        numbers.give(1);
        assert_eq!(numbers.take(), Ok(3), "not the one that was just given back");
        unpoisoned(&numbers.taken).next = Numbers::MASK;
        numbers.give(2);
        assert_eq!(numbers.take(), Ok(Numbers::MASK));
        numbers.give(Numbers::MASK);
        assert_eq!(numbers.take(), Ok(1), "round again, without 0");
    }
}
