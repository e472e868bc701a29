//! The translation cache: the pages whose physical addresses the card holds, first in, first out. Missing
//! pages are read from a table in host memory.

use std::collections::{BTreeSet, VecDeque};

use host::Span;

use super::ns;
use crate::machine::Params;

/// A page of a registered region.
type Page = (u32, u64);

/// The cache of page translations.
#[derive(Clone, Debug)]
pub(crate) struct Translation {
    /// Capacity in pages; 0 for unlimited.
    entries: usize,
    page_bytes: u64,
    /// Bytes read from host memory for each missing page.
    pub(crate) entry_bytes: u64,
    /// How long the engine stalls for a missing page.
    pub(crate) miss: Span,
    known: BTreeSet<Page>,
    order: VecDeque<Page>,
    /// The last page: most accesses use the same page again.
    last: Option<Page>,
}

impl Translation {
    pub(crate) fn new(params: &Params) -> Self {
        let t = &params.translation;
        Self {
            entries: t.cache_entries as usize,
            page_bytes: t.page_bytes as u64,
            entry_bytes: t.entry_bytes as u64,
            miss: ns(t.miss_ns),
            known: BTreeSet::new(),
            order: VecDeque::new(),
            last: None,
        }
    }

    /// `len` bytes at `offset` of the region with this key are about to be accessed; returns how many of
    /// their pages are missing, and caches them. `offset` is counted from the start of a page.
    pub(crate) fn touch(&mut self, region: u32, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let pages = offset / self.page_bytes..=(offset + len - 1) / self.page_bytes;
        pages.map(|page| u64::from(self.miss_one((region, page)))).sum()
    }

    /// Looks up one page; returns whether its entry had to be fetched.
    fn miss_one(&mut self, page: Page) -> bool {
        if self.last.replace(page) == Some(page) || !self.known.insert(page) {
            return false;
        }
        self.order.push_back(page);
        if self.entries > 0
            && self.order.len() > self.entries
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn cache(entries: f64) -> Translation {
        let mut params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        params.translation.cache_entries = entries;
        Translation::new(&params)
    }

    #[test]
    fn cache_misses_once_if_pages_fit_and_always_otherwise() {
        for (pages, again) in [(8, 0), (9, 9)] {
            let mut cache = cache(8.0);
            for (round, expected) in [(0, pages), (1, again), (2, again)] {
                let missed: u64 = (0..pages).map(|page| cache.touch(1, page * 4096, 2048)).sum();
                assert_eq!(missed, expected, "round {round} of {pages} pages");
            }
        }
    }

    #[test]
    fn a_cache_without_a_limit_misses_each_page_once() {
        let mut cache = cache(0.0);
        let mut round = || (0..5000).map(|page| cache.touch(1, page * 4096, 1)).sum::<u64>();
        assert_eq!([round(), round()], [5000, 0]);
    }

    #[test]
    fn a_range_touches_the_pages_it_lies_on() {
        let mut cache = cache(100.0);
        assert_eq!(cache.touch(1, 4095, 2), 2);
        assert_eq!(cache.touch(1, 0, 8192), 0);
        assert_eq!(cache.touch(2, 0, 4096), 1, "another region has other pages");
        assert_eq!(cache.touch(3, 0, 0), 0);
    }
}
