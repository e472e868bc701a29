//! A vector that is reduced from an input into an accumulator, without copying the input first where that can be avoided.

use crate::schedule::{Schedule, Span, Step, receive, reduce_left, reduce_right};

/// Where the operands of a reduction are. What is received for the first time is received into the accumulator, and the input
/// reduced into that; in place, and from then on, it is received beside it.
pub(crate) struct Vector {
    input: Span,
    /// What has been reduced.
    pub(crate) sum: Span,
    /// Where operands are received once the accumulator holds something.
    beside: Option<Span>,
    /// Whether the accumulator holds nothing yet.
    fresh: bool,
}

impl Vector {
    pub(crate) fn new(input: Span, sum: Span) -> Self {
        Self { input, sum, beside: None, fresh: input != sum }
    }

    /// Where the operand of this rank is now.
    pub(crate) fn now(&self) -> Span {
        if self.fresh { self.input } else { self.sum }
    }

    /// What receives elements from a rank below or above this one, and what reduces them after that.
    pub(crate) fn take(
        &mut self,
        schedule: &mut Schedule,
        (peer, is_below): (usize, bool),
        (first, end): (i64, i64),
    ) -> (Option<Step>, Option<Step>) {
        let sum = self.sum.elements(first, end);
        if self.fresh {
            let input = self.input.elements(first, end);
            let reduce = if is_below { reduce_right(input, sum) } else { reduce_left(input, sum) };
            return (receive(peer, sum), reduce);
        }
        let beside = *self.beside.get_or_insert_with(|| schedule.like(self.sum));
        let beside = beside.elements(first, end);
        let reduce = if is_below { reduce_left(beside, sum) } else { reduce_right(beside, sum) };
        (receive(peer, beside), reduce)
    }

    /// Says that the accumulator holds what will be asked for from now on.
    pub(crate) fn taken(&mut self) {
        self.fresh = false;
    }
}

/// Where part `i` of `parts` of a vector begins, in elements: equal parts, as far as they can be.
pub(crate) fn cut(count: i64, i: usize, parts: usize) -> i64 {
    (i128::from(count) * i as i128 / parts as i128) as i64
}

/// Where part `i` of `parts` begins, in bytes.
pub(crate) fn cut_bytes(bytes: u64, i: usize, parts: usize) -> u64 {
    (u128::from(bytes) * i as u128 / parts as u128) as u64
}
