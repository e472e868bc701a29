//! Allocates the numbers of a device's objects, which index its tables in shared memory: the last one freed
//! is reused first.

use verbs::{Error, Result, provider};

use crate::memory::allocator::PAGE;
use crate::memory::layout::{QP_MAX, qp_offset};

/// The numbers of one kind of object.
#[derive(Default)]
pub(crate) struct Numbers {
    next: usize,
    unused: Vec<usize>,
}

impl Numbers {
    pub(crate) fn alloc(&mut self, what: &'static str, max: usize) -> Result<usize> {
        if let Some(index) = self.unused.pop() {
            return Ok(index);
        }
        if self.next == max {
            return Err(Error::Limit { what, given: max as u64 + 1, limit: max as u64 });
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    pub(crate) fn free(&mut self, index: usize) {
        self.unused.push(index);
    }
}

/// Allocates the entries of queue pairs in the shared table, each with a generation, and their public
/// numbers; tracks the pages that hold the entries.
pub(crate) struct QpNumbers {
    indices: Numbers,
    /// The public numbers of queue pairs.
    pub(crate) numbers: provider::Numbers,
    /// For each entry, the queue pair that uses it or used it last.
    owners: Vec<QpNumber>,
    /// Number of queue pairs with an entry on each page.
    on_page: Vec<u32>,
}

/// The numbers that identify a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QpNumber {
    /// The index in the shared table.
    pub(crate) index: usize,
    /// Number of times that this index was allocated.
    pub(crate) generation: u32,
    /// The public number.
    pub(crate) num: u32,
}

impl Default for QpNumbers {
    fn default() -> Self {
        let numbers = provider::Numbers::new("queue pairs", QP_MAX);
        Self { indices: Numbers::default(), numbers, owners: Vec::new(), on_page: Vec::new() }
    }
}

impl QpNumbers {
    /// Allocates an entry and the numbers of its queue pair.
    pub(crate) fn alloc(&mut self) -> Result<QpNumber> {
        let index = self.indices.alloc("queue pairs", QP_MAX)?;
        let num = self.numbers.alloc().inspect_err(|_| self.indices.free(index))?;
        // One table for all entries: allocations that live between those of queue pairs would keep heap pages
        // from being returned.
        if self.owners.len() <= index {
            self.owners.resize(index + 1, QpNumber::default());
            self.on_page.resize(page_of(index) + 1, 0);
        }
        let generation = self.owners[index].generation.wrapping_add(1);
        self.owners[index] = QpNumber { index, generation, num };
        self.on_page[page_of(index)] += 1;
        Ok(self.owners[index])
    }

    /// Frees an entry. Returns the offset of its page if no queue pair uses the page any more.
    pub(crate) fn free(&mut self, index: usize) -> Option<u64> {
        self.numbers.free(self.owners[index].num);
        self.indices.free(index);
        let page = page_of(index);
        self.on_page[page] -= 1;
        (self.on_page[page] == 0).then_some(qp_offset(0) + page as u64 * PAGE)
    }
}

/// The page of the table that holds a queue pair's entry.
fn page_of(index: usize) -> usize {
    ((qp_offset(index) - qp_offset(0)) / PAGE) as usize
}

/// The numbers of all kinds of objects.
#[derive(Default)]
pub(crate) struct Indices {
    pub(crate) qp: QpNumbers,
    pub(crate) mr: Numbers,
    pub(crate) cq: Numbers,
    pub(crate) srq: Numbers,
    pub(crate) channel: Numbers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_index_gets_a_new_generation_and_limit_is_enforced() {
        let mut numbers = QpNumbers::default();
        let all: Vec<_> = (0..QP_MAX).map(|_| numbers.alloc().expect("room")).collect();
        assert!(all.iter().enumerate().all(|(i, taken)| (taken.index, taken.generation) == (i, 1)));
        assert!(matches!(numbers.alloc(), Err(Error::Limit { .. })));
        assert_eq!(numbers.free(7), None, "the page has other queue pairs");
        let again = numbers.alloc().expect("room");
        assert_eq!((again.index, again.generation), (7, 2));
        assert!(all.iter().all(|taken| taken.num != again.num), "the public number differs");
    }

    #[test]
    fn page_is_released_with_its_last_queue_pair() {
        let mut numbers = QpNumbers::default();
        let per_page = (0..).take_while(|&index| page_of(index) == 0).count();
        (0..=per_page).for_each(|index| assert_eq!(numbers.alloc().map(|taken| taken.index), Ok(index)));
        assert!((1..per_page).all(|index| numbers.free(index).is_none()));
        assert_eq!(numbers.free(0), Some(qp_offset(0)));
        assert_eq!(numbers.free(per_page), Some(qp_offset(per_page)));
    }
}
