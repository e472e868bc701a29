//! Recursive halving and doubling over a power of two of ranks: reduces a vector in parts, and gathers the parts again. Used by
//! Rabenseifner's algorithms and the reduce-scatter by halving. The operator must be commutative.

use crate::accumulator::Accumulator;
use crate::fold::{Fold, FoldRole};
use crate::schedule::{Schedule, Span, receive, send};

/// The start of part `i` of the vector, in elements, by number.
pub(crate) trait Cuts: Fn(usize) -> i64 {}
impl<F: Fn(usize) -> i64> Cuts for F {}

/// Folds the ranks to a power of two. Returns this rank's number, unless it gave its vector away.
pub(crate) fn fold(
    schedule: &mut Schedule,
    accumulator: &mut Accumulator,
    rank: usize,
    size: usize,
) -> Option<usize> {
    let whole = (0, accumulator.sum.count);
    match Fold::new(size).role(rank) {
        FoldRole::Sender(to) => {
            schedule.push_round([send(to, accumulator.operand())]);
            None
        }
        FoldRole::Receiver(number, from) => {
            let (receives, reduces) = accumulator.receive_and_reduce(schedule, (from, true), whole);
            schedule.push_round([receives]);
            schedule.push_round([reduces]);
            accumulator.mark_filled();
            Some(number)
        }
        FoldRole::Unpaired(number) => Some(number),
    }
}

/// Undoes the fold: sends the result to the ranks that gave their vectors.
pub(crate) fn unfold(schedule: &mut Schedule, result: Span, rank: usize, size: usize) {
    match Fold::new(size).role(rank) {
        FoldRole::Sender(to) => schedule.push_round([receive(to, result)]),
        FoldRole::Receiver(_, from) => schedule.push_round([send(from, result)]),
        FoldRole::Unpaired(_) => {}
    }
}

/// Halves each rank's range until number `i` has part `i`, reduced over all ranks.
pub(crate) fn reduce_scatter(
    schedule: &mut Schedule,
    accumulator: &mut Accumulator,
    number: usize,
    fold: Fold,
    cuts: &impl Cuts,
) {
    let (mut first, mut end) = (0, fold.participants);
    while end - first > 1 {
        let (middle, half) = ((first + end) / 2, (end - first) / 2);
        let (peer, from_lower_rank) = (fold.rank_of(number ^ half), number & half != 0);
        let (kept, given) =
            if from_lower_rank { ((middle, end), (first, middle)) } else { ((first, middle), (middle, end)) };
        let sends = accumulator.operand().elements(cuts(given.0), cuts(given.1));
        let (receives, reduces) =
            accumulator.receive_and_reduce(schedule, (peer, from_lower_rank), (cuts(kept.0), cuts(kept.1)));
        schedule.push_round([send(peer, sends), receives]);
        schedule.push_round([reduces]);
        accumulator.mark_filled();
        (first, end) = kept;
    }
}

/// Doubles each rank's range from its own part to all parts.
pub(crate) fn allgather(schedule: &mut Schedule, sum: Span, number: usize, fold: Fold, cuts: &impl Cuts) {
    for distance in (0..fold.participants.ilog2()).map(|round| 1 << round) {
        let peer = number ^ distance;
        let have = |number: usize| {
            let first = number & !(distance - 1);
            sum.elements(cuts(first), cuts(first + distance))
        };
        let rank = fold.rank_of(peer);
        schedule.push_round([send(rank, have(number)), receive(rank, have(peer))]);
    }
}
