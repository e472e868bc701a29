//! Reduce-scatter algorithms.

pub(crate) mod halving;
pub(crate) mod in_order;
pub(crate) mod pairwise;

use crate::schedule::Span;
use crate::task::{Blocks, Task};

/// The whole vector of a task, and the starts of its blocks, in elements.
pub(crate) fn vector_and_starts(task: &Task) -> (Span, Vec<i64>) {
    match &task.input {
        Blocks::Equal { first, count } => {
            let whole = first.elements(0, first.count * *count as i64);
            (whole, (0..=*count as i64).map(|block| block * first.count).collect())
        }
        Blocks::Split { whole, cuts } => (*whole, cuts.to_vec()),
        Blocks::Separate(_) => unreachable!("the blocks of a vector that is reduced follow each other"),
    }
}
