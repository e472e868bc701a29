//! [`Mistake`]: something wrong in a plan file, with its line.

/// Something wrong in a plan file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Mistake {
    /// Where, from 1 on.
    pub line: usize,
    /// What is wrong, and what there is instead, in one line.
    pub what: String,
}
