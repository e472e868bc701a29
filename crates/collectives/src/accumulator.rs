//! A vector that is reduced from an input into an accumulator, and copies the input first only if necessary.

use crate::schedule::{Schedule, Span, Step, receive, reduce_left, reduce_right};

/// The operands of a reduction. The first operand is received into the accumulator, and the input reduced into that. Later
/// operands, and all of them for an in-place call, are received into a separate buffer.
pub(crate) struct Accumulator {
    input: Span,
    /// The accumulator.
    pub(crate) sum: Span,
    /// The receive buffer used once the accumulator holds a value.
    receive_buffer: Option<Span>,
    /// Whether the accumulator holds no value yet.
    is_empty: bool,
}

impl Accumulator {
    pub(crate) fn new(input: Span, sum: Span) -> Self {
        Self { input, sum, receive_buffer: None, is_empty: input != sum }
    }

    /// The span that holds the operand of this rank now.
    pub(crate) fn operand(&self) -> Span {
        if self.is_empty { self.input } else { self.sum }
    }

    /// The steps that receive elements from a rank below or above this one, and then reduce them.
    pub(crate) fn receive_and_reduce(
        &mut self,
        schedule: &mut Schedule,
        (peer, from_lower_rank): (usize, bool),
        (first, end): (i64, i64),
    ) -> (Option<Step>, Option<Step>) {
        let sum = self.sum.elements(first, end);
        if self.is_empty {
            let input = self.input.elements(first, end);
            let reduce = if from_lower_rank { reduce_right(input, sum) } else { reduce_left(input, sum) };
            return (receive(peer, sum), reduce);
        }
        let receive_buffer = *self.receive_buffer.get_or_insert_with(|| schedule.scratch_like(self.sum));
        let receive_buffer = receive_buffer.elements(first, end);
        let reduce = if from_lower_rank {
            reduce_left(receive_buffer, sum)
        } else {
            reduce_right(receive_buffer, sum)
        };
        (receive(peer, receive_buffer), reduce)
    }

    /// Records that the accumulator holds a value from now on.
    pub(crate) fn mark_filled(&mut self) {
        self.is_empty = false;
    }
}

/// The start of part `i` of `parts` of a vector, in elements: as equal as possible.
pub(crate) fn part_start(count: i64, i: usize, parts: usize) -> i64 {
    (i128::from(count) * i as i128 / parts as i128) as i64
}

/// The start of part `i` of `parts`, in bytes.
pub(crate) fn part_start_bytes(bytes: u64, i: usize, parts: usize) -> u64 {
    (u128::from(bytes) * i as u128 / parts as u128) as u64
}
