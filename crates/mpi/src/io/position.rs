//! [`Position`], and the other parameters and state of an operation on a file.

use crate::io::view::View;
use crate::status::Status;

/// Read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// The start of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At this etype of the view.
    At(i64),
    /// At this process's pointer, which advances.
    Individual,
    /// At the shared pointer, which advances. In a collective call, processes are served in rank order.
    Shared,
}

/// The origin of an offset (`MPI_SEEK_SET` and others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The beginning of the view.
    Set,
    /// The pointer.
    Current,
    /// The end of the file.
    End,
}

/// A split collective operation. Its first half did the work.
#[derive(Debug)]
pub(super) struct SplitCollective {
    pub(super) direction: Direction,
    pub(super) position: Position,
    pub(super) status: Status,
}

/// A checked access: the view, and the offset of its start in the view's bytes.
pub(super) struct FileAccess {
    pub(super) view: View,
    pub(super) from: u64,
}
