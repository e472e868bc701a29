//! [`Position`], and what else an operation on a file is told or keeps.

use crate::io::view::View;
use crate::status::Status;

/// From the file, or into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// Where an operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At this etype of the view.
    At(i64),
    /// At this process's pointer, which goes on.
    Individual,
    /// At the pointer that all share, which goes on. Of those who call together, one comes behind the other by rank.
    Shared,
}

/// What an offset counts from (`MPI_SEEK_SET` and its like).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The beginning of the view.
    Set,
    /// The pointer.
    Current,
    /// The end of the file.
    End,
}

/// A collective operation between its halves. It was carried out by the first.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) way: Direction,
    pub(super) place: Position,
    pub(super) status: Status,
}

/// An access that is about to be: what is seen, and from which of its bytes on.
pub(super) struct Access {
    pub(super) view: View,
    pub(super) from: u64,
}
