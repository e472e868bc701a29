//! Recursive halving and doubling over a power of two of ranks: reduces a vector in parts, and gathers the parts again. Used by
//! Rabenseifner's algorithms and the reduce-scatter by halving. The operator must be commutative.

use crate::fold::{Fold, Part};
use crate::schedule::{Schedule, Span, receive, send};
use crate::vector::Vector;

/// The start of part `i` of the vector, in elements, by number.
pub(crate) trait Cuts: Fn(usize) -> i64 {}
impl<F: Fn(usize) -> i64> Cuts for F {}

/// Folds the ranks to a power of two. Returns this rank's number, unless it gave its vector away.
pub(crate) fn fold(schedule: &mut Schedule, vector: &mut Vector, rank: usize, size: usize) -> Option<usize> {
    let whole = (0, vector.sum.count);
    match Fold::of(size).part(rank) {
        Part::Gives(to) => {
            schedule.round([send(to, vector.now())]);
            None
        }
        Part::Takes(number, from) => {
            let (comes, reduces) = vector.take(schedule, (from, true), whole);
            schedule.round([comes]);
            schedule.round([reduces]);
            vector.taken();
            Some(number)
        }
        Part::Alone(number) => Some(number),
    }
}

/// Undoes the fold: sends the result to the ranks that gave their vectors.
pub(crate) fn unfold(schedule: &mut Schedule, result: Span, rank: usize, size: usize) {
    match Fold::of(size).part(rank) {
        Part::Gives(to) => schedule.round([receive(to, result)]),
        Part::Takes(_, from) => schedule.round([send(from, result)]),
        Part::Alone(_) => {}
    }
}

/// Halves each rank's range until number `i` has part `i`, reduced over all ranks.
pub(crate) fn scatter(
    schedule: &mut Schedule,
    vector: &mut Vector,
    number: usize,
    fold: Fold,
    cuts: &impl Cuts,
) {
    let (mut first, mut end) = (0, fold.power);
    while end - first > 1 {
        let (middle, half) = ((first + end) / 2, (end - first) / 2);
        let (peer, is_below) = (fold.rank(number ^ half), number & half != 0);
        let (kept, given) =
            if is_below { ((middle, end), (first, middle)) } else { ((first, middle), (middle, end)) };
        let goes = vector.now().elements(cuts(given.0), cuts(given.1));
        let (comes, reduces) = vector.take(schedule, (peer, is_below), (cuts(kept.0), cuts(kept.1)));
        schedule.round([send(peer, goes), comes]);
        schedule.round([reduces]);
        vector.taken();
        (first, end) = kept;
    }
}

/// Doubles each rank's range from its own part to all parts.
pub(crate) fn gather_all(schedule: &mut Schedule, sum: Span, number: usize, fold: Fold, cuts: &impl Cuts) {
    for distance in (0..fold.power.ilog2()).map(|round| 1 << round) {
        let peer = number ^ distance;
        let have = |number: usize| {
            let first = number & !(distance - 1);
            sum.elements(cuts(first), cuts(first + distance))
        };
        let rank = fold.rank(peer);
        schedule.round([send(rank, have(number)), receive(rank, have(peer))]);
    }
}
