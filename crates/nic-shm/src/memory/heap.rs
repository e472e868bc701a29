//! Allocator for ranges of the segment: first fit over an ordered map, for set-up paths only.

use std::collections::BTreeMap;

use verbs::{Error, Result};

/// The free ranges of an address space, by offset.
pub(crate) struct Heap {
    free_ranges: BTreeMap<u64, u64>,
    what: &'static str,
    total: u64,
}

impl Heap {
    /// Creates a heap in which all of `base..end` is free; `what` names it in errors.
    pub(crate) fn new(what: &'static str, base: u64, end: u64) -> Self {
        Self { free_ranges: BTreeMap::from([(base, end - base)]), what, total: end - base }
    }

    /// Allocates `len` bytes, a multiple of `align`, which is a power of two.
    pub(crate) fn alloc(&mut self, len: u64, align: u64) -> Result<u64> {
        let found = self.free_ranges.iter().find_map(|(&at, &size)| {
            let start = at.next_multiple_of(align);
            (start - at).checked_add(len).filter(|&need| need <= size).map(|_| (at, size, start))
        });
        let Some((at, size, start)) = found else {
            return Err(Error::Limit { what: self.what, given: len, limit: self.largest() });
        };
        self.free_ranges.remove(&at);
        if start > at {
            self.free_ranges.insert(at, start - at);
        }
        if start + len < at + size {
            self.free_ranges.insert(start + len, at + size - start - len);
        }
        Ok(start)
    }

    /// Frees a range that `alloc` returned; returns the merged free range that contains it.
    pub(crate) fn free(&mut self, offset: u64, len: u64) -> (u64, u64) {
        let (mut at, mut size) = (offset, len);
        if let Some((&before, &its)) = self.free_ranges.range(..offset).next_back()
            && before + its == offset
        {
            self.free_ranges.remove(&before);
            (at, size) = (before, its + size);
        }
        if let Some(&its) = self.free_ranges.get(&(offset + len)) {
            self.free_ranges.remove(&(offset + len));
            size += its;
        }
        self.free_ranges.insert(at, size);
        (at, size)
    }

    fn largest(&self) -> u64 {
        self.free_ranges.values().copied().max().unwrap_or(0)
    }

    /// Total number of bytes, allocated or free.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_aligns_and_merges_freed_ranges() {
        let mut heap = Heap::new("test bytes", 100, 1124);
        let a = heap.alloc(64, 64).expect("room");
        let b = heap.alloc(64, 64).expect("room");
        let c = heap.alloc(128, 128).expect("room");
        assert_eq!((a, b, c % 128), (128, 192, 0));
        assert!(heap.alloc(1024, 64).is_err());
        for (at, len) in [(b, 64), (a, 64), (c, 128)] {
            heap.free(at, len);
        }
        assert_eq!(heap.free_ranges, BTreeMap::from([(100, 1024)]));
        assert_eq!(heap.total(), 1024);
    }
}
