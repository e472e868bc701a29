//! [`Kept`]: registrations that are kept for the next operation on the same memory.

use std::ops::Range;
use std::sync::Arc;

/// Registrations that are kept at most: the one not used for longest goes.
const MOST: usize = 64;

/// What ranges of memory were registered as.
#[derive(Debug)]
pub(crate) struct Kept<T>(Vec<(Range<usize>, Arc<T>)>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Kept<T> {
    /// What memory lies in, if that is registered.
    pub(crate) fn find(&mut self, memory: &Range<usize>) -> Option<Arc<T>> {
        let covers = |kept: &Range<usize>| kept.start <= memory.start && memory.end <= kept.end;
        let at = self.0.iter().rposition(|(kept, _)| covers(kept))?;
        let found = self.0.remove(at);
        let what = found.1.clone();
        self.0.push(found);
        Some(what)
    }

    /// Keeps a registration, in the place of those that lie in it and of the oldest one.
    pub(crate) fn keep(&mut self, memory: Range<usize>, what: Arc<T>) {
        self.0.retain(|(kept, _)| kept.start < memory.start || memory.end < kept.end);
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push((memory, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_in_what_was_registered() {
        let mut kept = Kept::default();
        assert!(kept.find(&(0..1)).is_none());
        kept.keep(100..200, Arc::new('a'));
        assert_eq!(kept.find(&(100..200)).as_deref(), Some(&'a'));
        assert_eq!(kept.find(&(150..160)).as_deref(), Some(&'a'), "a part of it");
        assert!(kept.find(&(150..201)).is_none() && kept.find(&(99..101)).is_none(), "more than it");
        kept.keep(50..250, Arc::new('b'));
        assert_eq!(kept.find(&(150..160)).as_deref(), Some(&'b'));
        assert_eq!(kept.0.len(), 1, "what lies in another one is not kept beside it");
    }

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let mut kept = Kept::default();
        let of = |n: usize| n * 10..n * 10 + 5;
        (0..MOST).for_each(|n| kept.keep(of(n), Arc::new(n)));
        assert!(kept.find(&of(0)).is_some());
        kept.keep(of(MOST), Arc::new(MOST));
        assert_eq!([0, 1, 2, MOST].map(|n| kept.find(&of(n)).is_some()), [true, false, true, true]);
    }
}
