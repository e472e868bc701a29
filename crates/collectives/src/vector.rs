//! A vector that is reduced from an input into an accumulator, and copies the input first only if necessary.

use crate::schedule::{Schedule, Span, Step, receive, reduce_left, reduce_right};

/// The operands of a reduction. The first operand is received into the accumulator, and the input reduced into that. Later
/// operands, and all of them for an in-place call, are received into a separate buffer.
pub(crate) struct Vector {
    input: Span,
    /// The accumulator.
    pub(crate) sum: Span,
    /// The receive buffer used once the accumulator holds a value.
    beside: Option<Span>,
    /// Whether the accumulator holds no value yet.
    fresh: bool,
}

impl Vector {
    pub(crate) fn new(input: Span, sum: Span) -> Self {
        Self { input, sum, beside: None, fresh: input != sum }
    }

    /// The span that holds the operand of this rank now.
    pub(crate) fn now(&self) -> Span {
        if self.fresh { self.input } else { self.sum }
    }

    /// The steps that receive elements from a rank below or above this one, and then reduce them.
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

    /// Records that the accumulator holds a value from now on.
    pub(crate) fn taken(&mut self) {
        self.fresh = false;
    }
}

/// The start of part `i` of `parts` of a vector, in elements: as equal as possible.
pub(crate) fn cut(count: i64, i: usize, parts: usize) -> i64 {
    (i128::from(count) * i as i128 / parts as i128) as i64
}

/// The start of part `i` of `parts`, in bytes.
pub(crate) fn cut_bytes(bytes: u64, i: usize, parts: usize) -> u64 {
    (u128::from(bytes) * i as u128 / parts as u128) as u64
}
