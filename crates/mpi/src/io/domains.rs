//! [`FileDomains`]: assigns bytes of the file to the processes of a collective operation. No input or output.
//!
//! The accessed range is divided into one domain per aggregator, and each domain into windows. An aggregator reads or writes one
//! window per round.

use std::ops::Range;

use crate::io::view::FileRange;

/// Domains begin at multiples of the page size.
const PAGE: u64 = 4096;

/// The division of a range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileDomains {
    range: Range<u64>,
    /// Ranks of the aggregators.
    ranks: Vec<i32>,
    /// Bytes of a domain, and of a window.
    domain: u64,
    window: u64,
}

impl FileDomains {
    /// Divides a range among `nodes` of `size` ranks.
    pub(crate) fn new(range: Range<u64>, size: i32, nodes: u32, window: u64) -> Self {
        let begin = range.start / PAGE * PAGE;
        let nodes = nodes.clamp(1, size.max(1) as u32);
        let domain = (range.end - begin).div_ceil(u64::from(nodes)).next_multiple_of(PAGE).max(PAGE);
        let ranks = (0..nodes).map(|node| (u64::from(node) * size as u64 / u64::from(nodes)) as i32);
        Self { range: begin..range.end, ranks: ranks.collect(), domain, window: window.clamp(PAGE, domain) }
    }

    /// The aggregators' ranks.
    pub(crate) fn ranks(&self) -> &[i32] {
        &self.ranks
    }

    /// The byte range of an aggregator.
    pub(crate) fn domain(&self, aggregator: usize) -> Range<u64> {
        let start = (self.range.start + aggregator as u64 * self.domain).min(self.range.end);
        start..(start + self.domain).min(self.range.end)
    }

    /// The byte range of an aggregator in a round.
    pub(crate) fn window(&self, aggregator: usize, round: u64) -> Range<u64> {
        let domain = self.domain(aggregator);
        let start = (domain.start + round * self.window).min(domain.end);
        start..(start + self.window).min(domain.end)
    }

    /// Number of rounds that cover all windows.
    pub(crate) fn rounds(&self) -> u64 {
        self.domain.div_ceil(self.window)
    }
}

/// Ascending pieces of a file, each with the total size of the pieces before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PieceList {
    pieces: Vec<FileRange>,
    before: Vec<u64>,
    total: u64,
}

impl FromIterator<FileRange> for PieceList {
    fn from_iter<T: IntoIterator<Item = FileRange>>(pieces: T) -> Self {
        let mut list = Self::default();
        for piece in pieces {
            list.before.push(list.total);
            list.total += piece.len;
            list.pieces.push(piece);
        }
        list
    }
}

impl PieceList {
    /// Total size in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// From the first byte to the end of the last piece; empty without pieces.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.pieces.first().map_or(0, |piece| piece.offset);
        start..self.pieces.last().map_or(start, |piece| piece.end())
    }

    /// The pieces within a range of the file, and the number of listed bytes before it.
    pub(crate) fn intersect(&self, range: &Range<u64>) -> (u64, Vec<FileRange>) {
        let first = self.pieces.partition_point(|piece| piece.end() <= range.start);
        let mut found = Vec::new();
        let mut before = self.before.get(first).copied().unwrap_or(self.total);
        for (at, piece) in self.pieces[first..].iter().enumerate() {
            if piece.offset >= range.end {
                break;
            }
            let offset = piece.offset.max(range.start);
            if at == 0 {
                before += offset - piece.offset;
            }
            found.push(FileRange { offset, len: piece.end().min(range.end) - offset });
        }
        (before, found)
    }

    /// The pieces, truncated at a byte of the file.
    pub(crate) fn truncate(self, end: u64) -> Self {
        self.intersect(&(0..end)).1.into_iter().collect()
    }
}

/// Whether any of these ranges overlap; empty ones do not.
pub(crate) fn interleave(ranges: &[Range<u64>]) -> bool {
    let mut ranges: Vec<&Range<u64>> = ranges.iter().filter(|range| !range.is_empty()).collect();
    ranges.sort_by_key(|range| range.start);
    ranges.windows(2).any(|two| two[1].start < two[0].end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every byte of the range is in exactly one window of one aggregator, and the windows contain nothing else.
        #[test]
        fn windows_cover_the_range_once(start in 0_u64..20_000, len in 1_u64..100_000, size in 1_i32..9, nodes in 1_u32..12, window in 1_u64..30_000) {
            let domains = FileDomains::new(start..start + len, size, nodes, window);
            prop_assert!(domains.ranks().windows(2).all(|two| two[0] < two[1]));
            prop_assert!(domains.ranks().iter().all(|rank| (0..size).contains(rank)));
            let mut next = start / PAGE * PAGE;
            for aggregator in 0..domains.ranks().len() {
                for round in 0..domains.rounds() {
                    let window = domains.window(aggregator, round);
                    prop_assert!(window.is_empty() || window.start == next);
                    next += window.end - window.start;
                }
            }
            prop_assert_eq!(next, start + len);
        }

        /// The pieces within a range contain the list's bytes in it, preceded by the right number of bytes.
        #[test]
        fn intersection_agrees_with_list_of_bytes(pieces in prop::collection::vec((0_u64..5, 1_u64..6), 0..8), from in 0_u64..40, len in 0_u64..40) {
            let mut at = 0;
            let pieces = pieces.into_iter().map(|(gap, len)| {
                let piece = FileRange { offset: at + gap, len };
                at = piece.end();
                piece
            });
            let pieces: Vec<FileRange> = pieces.collect();
            let bytes: Vec<u64> = pieces.iter().flat_map(|piece| piece.offset..piece.end()).collect();
            let list: PieceList = pieces.into_iter().collect();
            prop_assert_eq!(list.total(), bytes.len() as u64);
            let (before, found) = list.intersect(&(from..from + len));
            let found: Vec<u64> = found.iter().flat_map(|piece| piece.offset..piece.end()).collect();
            let want: Vec<u64> = bytes.iter().copied().filter(|byte| (from..from + len).contains(byte)).collect();
            if !want.is_empty() {
                prop_assert_eq!(before, bytes.iter().filter(|byte| **byte < from).count() as u64);
            }
            prop_assert_eq!(found, want);
            let cut = list.truncate(from).total();
            prop_assert_eq!(cut, bytes.iter().filter(|byte| **byte < from).count() as u64);
        }
    }

    #[test]
    fn interleave_is_true_for_overlapping_ranges_only() {
        assert!(!interleave(&[0..4, 4..8, 3..3, 9..10]) && !interleave(&[4..8, 0..4]));
        assert!(interleave(&[0..4, 3..8]) && interleave(&[7..9, 0..4, 2..3]));
        assert!(!interleave(&[]));
    }
}
