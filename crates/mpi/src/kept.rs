//! [`Kept`]: regions that are kept for the next operation on the same memory, as MVAPICH2 keeps them by default
//! (`MV2_USE_LAZY_MEM_UNREGISTER`).
//!
//! A region holds its memory, so that nothing else comes to its addresses: whether one is found is decided by what the program does,
//! and not by where the allocator puts it. When nobody else holds the memory, the region goes with the next that is kept.

use std::ops::Range;
use std::sync::Arc;

use verbs::Buf;

/// Regions that are kept at most: the one not used for longest goes.
const MOST: usize = 1000;

/// What ranges of memory were registered as.
#[derive(Debug)]
pub(crate) struct Kept<T>(Vec<Entry<T>>);

#[derive(Debug)]
struct Entry<T> {
    bytes: Range<usize>,
    memory: Arc<Buf>,
    region: Arc<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Kept<T> {
    /// The region that these bytes lie in, if there is one.
    pub(crate) fn find(&mut self, bytes: &Range<usize>) -> Option<Arc<T>> {
        let covers = |kept: &Range<usize>| kept.start <= bytes.start && bytes.end <= kept.end;
        let at = self.0.iter().rposition(|entry| covers(&entry.bytes))?;
        let found = self.0.remove(at);
        let region = found.region.clone();
        self.0.push(found);
        Some(region)
    }

    /// The handle by which regions of this memory hold it: one for all of them, so that it is told apart who else does.
    pub(crate) fn handle(&self, memory: &Buf) -> Arc<Buf> {
        let is_same = |held: &Buf| (held.addr(), held.len()) == (memory.addr(), memory.len());
        let held = self.0.iter().map(|entry| &entry.memory).find(|held| is_same(held));
        held.map_or_else(|| Arc::new(memory.clone()), Arc::clone)
    }

    /// Keeps a region with the handle by which it holds its memory: in the place of those that lie in it, of those whose memory nobody
    /// else holds, and of the oldest.
    pub(crate) fn keep(&mut self, bytes: Range<usize>, memory: Arc<Buf>, region: Arc<T>) {
        let is_inside = |kept: &Range<usize>| bytes.start <= kept.start && kept.end <= bytes.end;
        self.0.retain(|entry| entry.memory.is_shared() && !is_inside(&entry.bytes));
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Entry { bytes, memory, region });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Buf, Arc<Buf>) {
        let memory = Buf::alloc(4096).expect("memory");
        let handle = Kept::<()>::default().handle(&memory);
        (memory, handle)
    }

    #[test]
    fn memory_is_found_in_what_was_registered() {
        let ((_memory, handle), mut kept) = (memory(), Kept::default());
        assert!(kept.find(&(0..1)).is_none());
        kept.keep(100..200, handle.clone(), Arc::new('a'));
        assert_eq!(kept.find(&(100..200)).as_deref(), Some(&'a'));
        assert_eq!(kept.find(&(150..160)).as_deref(), Some(&'a'), "a part of it");
        assert!(kept.find(&(150..201)).is_none() && kept.find(&(99..101)).is_none(), "more than it");
        kept.keep(50..250, handle, Arc::new('b'));
        assert_eq!(kept.find(&(150..160)).as_deref(), Some(&'b'));
        assert_eq!(kept.0.len(), 1, "what lies in another one is not kept beside it");
    }

    #[test]
    fn memory_that_nobody_else_holds_goes() {
        let ((program, handle), (_other, another)) = (memory(), memory());
        let mut kept = Kept::default();
        kept.keep(0..5, handle, Arc::new(0));
        kept.keep(5..9, kept.handle(&program), Arc::new(0));
        kept.keep(10..15, another.clone(), Arc::new(1));
        assert_eq!(kept.0.len(), 3);
        drop(program);
        kept.keep(20..25, another, Arc::new(2));
        let found = [0, 10, 20].map(|at| kept.find(&(at..at + 5)).is_some());
        assert_eq!(found, [false, true, true]);
    }

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let ((_memory, handle), mut kept) = (memory(), Kept::default());
        let of = |n: usize| n * 10..n * 10 + 5;
        (0..MOST).for_each(|n| kept.keep(of(n), handle.clone(), Arc::new(n)));
        assert!(kept.find(&of(0)).is_some());
        kept.keep(of(MOST), handle, Arc::new(MOST));
        assert_eq!([0, 1, 2, MOST].map(|n| kept.find(&of(n)).is_some()), [true, false, true, true]);
    }
}
