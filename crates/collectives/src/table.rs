//! The choice over all sizes, as a table for people.

use crate::choose::{Algorithm, choose, reason};
use crate::cost::{Case, Costs};
use crate::task::CollKind;
use std::fmt::Write;

/// A range of sizes with the same algorithm.
#[derive(Clone, Debug)]
pub struct SizeRange {
    /// The first size, in the bytes of [`Case::bytes`].
    pub from: u64,
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// Its cost at the first size.
    pub seconds: f64,
    /// Its saving there over the next best algorithm.
    pub reason: String,
}

/// The chosen algorithms from 1 byte to `most`. The size of the case is ignored.
///
/// Examines powers of two. Between two powers with different choices, it searches for the size from which the second choice
/// applies.
pub fn size_ranges(case: Case, costs: Costs, most: u64) -> Vec<SizeRange> {
    let choice = |bytes| choose(Case { bytes, ..case }, costs);
    let differ = |a, b| !std::ptr::eq(choice(a).algorithm, choice(b).algorithm);
    let sizes: Vec<u64> = std::iter::successors(Some(1_u64), |size| size.checked_mul(2))
        .take_while(|&size| size < most)
        .chain([most])
        .collect();
    let mut starts = vec![1];
    for pair in sizes.windows(2).filter(|pair| differ(pair[0], pair[1])) {
        let (mut before, mut after) = (pair[0], pair[1]);
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            if differ(middle, pair[1]) { before = middle } else { after = middle }
        }
        starts.push(after);
    }
    starts
        .into_iter()
        .map(|from| {
            let choice = choice(from);
            let reason = reason(Case { bytes: from, ..case }, &choice, costs);
            SizeRange { from, algorithm: choice.algorithm, seconds: choice.seconds, reason }
        })
        .collect()
}

/// A line for each collective and range of sizes up to `most` bytes, with the cost of the choice and its reason. Calls with an
/// operator that is not commutative, or with blocks of different sizes, have separate lines where the choice differs. Without
/// shared memory.
pub fn table(size: usize, costs: Costs, most: u64) -> String {
    let Costs { alpha, gap, beta, gamma, .. } = costs;
    let mut text = format!(
        "{size} ranks; a message {:.2} us, one more {:.2} us, a KiB sent {:.3} us, a KiB reduced {:.3} us\n",
        alpha * 1e6,
        gap * 1e6,
        beta * 1024e6,
        gamma * 1024e6
    );
    for kind in CollKind::ALL {
        let case = Case {
            kind,
            size,
            bytes: 0,
            commutative: true,
            equal_blocks: true,
            segment: 0,
            shared: 0,
            hosts: 1,
        };
        let usual = size_ranges(case, costs, most);
        write_lines(&mut text, kind.name(), kind, &usual);
        let other = match kind {
            _ if kind.reduces() => Some(("not commutative", Case { commutative: false, ..case })),
            _ if kind.has_blocks() => Some(("sizes differ", Case { equal_blocks: false, ..case })),
            _ => None,
        };
        let Some((name, case)) = other else { continue };
        let others = size_ranges(case, costs, most);
        let key = |size_ranges: &[SizeRange]| -> Vec<_> {
            size_ranges.iter().map(|s| (s.from, s.algorithm.name)).collect()
        };
        if key(&others) != key(&usual) {
            write_lines(&mut text, &format!("  {name}"), kind, &others);
        }
    }
    text
}

fn write_lines(text: &mut String, name: &str, kind: CollKind, size_ranges: &[SizeRange]) {
    for (at, range) in size_ranges.iter().enumerate() {
        let name = if at == 0 { name } else { "" };
        let from = if kind == CollKind::Barrier { String::new() } else { format!("from {} B", range.from) };
        let SizeRange { algorithm, seconds, reason, .. } = range;
        let us = seconds * 1e6;
        writeln!(text, "{name:<17} {from:>16}  {:<18} {us:>10.2} us  {reason}", algorithm.name)
            .expect("writing to a string cannot fail");
    }
}
