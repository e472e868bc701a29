//! The compact layout of a datatype's bytes, in type-map order: runs and loops over them.
//!
//! A vector of vectors is a loop over one piece, for any number of elements. Adjacent runs are merged, and runs of one length at
//! one stride are one piece.

use crate::Basic;
use std::sync::Arc;

/// Bytes at an offset from a buffer's address; from address 0 with `MPI_BOTTOM`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Offset from the buffer's address, in bytes.
    pub offset: i64,
    /// Length in bytes, at least one.
    pub length: u64,
}

/// A regular part of a type map.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Offset of its first run or iteration.
    pub(crate) offset: i64,
    /// Bytes of data in it.
    pub(crate) bytes: u64,
    /// Basic elements in it.
    pub(crate) elements: u64,
    /// Bytes of data in the pieces before it in its list.
    pub(crate) before: u64,
    /// The repeated part.
    pub(crate) body: Body,
}

/// A regular repetition.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// `count` runs of `length` bytes, each `stride` bytes after the one before.
    Runs { basic: Basic, length: u64, count: u64, stride: i64 },
    /// A list of pieces, repeated `count` times at a stride.
    Loop { count: u64, stride: i64, pieces: Arc<[Piece]> },
}

impl Piece {
    /// A run of `count` consecutive basic elements.
    pub(crate) fn run(basic: Basic, offset: i64, count: u64) -> Self {
        let bytes = count * u64::from(basic.size());
        Self {
            offset,
            bytes,
            elements: count,
            before: 0,
            body: Body::Runs { basic, length: bytes, count: 1, stride: 0 },
        }
    }

    /// Merges the next piece into this one, if the result is one piece. Returns whether it did.
    fn try_merge(&mut self, next: &Self) -> bool {
        let Body::Runs { basic, length, count, stride } = &mut self.body else { return false };
        let Body::Runs { basic: next_basic, length: next_length, count: next_count, stride: next_stride } =
            next.body
        else {
            return false;
        };
        if *basic != next_basic {
            return false;
        }
        let distance = next.offset - self.offset;
        if *count == 1 && next_count == 1 && distance == *length as i64 {
            *length += next_length;
        } else if *length == next_length
            && (*count == 1 || stride.checked_mul(*count as i64) == Some(distance))
        {
            let step = if *count == 1 { distance } else { *stride };
            if next_count > 1 && next_stride != step {
                return false;
            }
            *stride = step;
            *count += next_count;
        } else {
            return false;
        }
        self.bytes += next.bytes;
        self.elements += next.elements;
        true
    }
}

/// Collects pieces in type-map order.
#[derive(Default)]
pub(crate) struct Builder {
    pieces: Vec<Piece>,
}

impl Builder {
    pub(crate) fn push(&mut self, piece: Piece) {
        let merged = self.pieces.last_mut().is_some_and(|last| last.try_merge(&piece));
        if !merged && piece.bytes > 0 {
            self.pieces.push(piece);
        }
    }

    /// Appends a list `count` times from an offset on, at a stride.
    pub(crate) fn repeat(&mut self, list: &Arc<[Piece]>, offset: i64, count: u64, stride: i64) {
        if list.is_empty() || count == 0 {
            return;
        }
        if let Some(piece) = repeat_runs(list, offset, count, stride) {
            return self.push(piece);
        }
        if count == 1 {
            for piece in list.iter() {
                self.push(Piece { offset: piece.offset + offset, ..piece.clone() });
            }
            return;
        }
        let bytes = count * list.iter().map(|piece| piece.bytes).sum::<u64>();
        let elements = count * list.iter().map(|piece| piece.elements).sum::<u64>();
        let body = Body::Loop { count, stride, pieces: Arc::clone(list) };
        self.push(Piece { offset, bytes, elements, before: 0, body });
    }

    /// The list, with the bytes before each piece.
    pub(crate) fn finish(mut self) -> Arc<[Piece]> {
        let mut before = 0;
        for piece in &mut self.pieces {
            piece.before = before;
            before += piece.bytes;
        }
        self.pieces.into()
    }
}

/// The repetition of a list as one piece of runs; `None` if it needs a loop.
fn repeat_runs(list: &[Piece], offset: i64, times: u64, by: i64) -> Option<Piece> {
    let [piece] = list else { return None };
    let Body::Runs { basic, length, count, stride } = piece.body else { return None };
    let body = if times == 1 {
        Body::Runs { basic, length, count, stride }
    } else if count == 1 && by == length as i64 {
        Body::Runs { basic, length: length * times, count: 1, stride: 0 }
    } else if count == 1 {
        Body::Runs { basic, length, count: times, stride: by }
    } else if Some(by) == stride.checked_mul(count as i64) {
        Body::Runs { basic, length, count: count * times, stride }
    } else {
        return None;
    };
    let (bytes, elements) = (piece.bytes * times, piece.elements * times);
    Some(Piece { offset: piece.offset + offset, bytes, elements, before: 0, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pieces: impl IntoIterator<Item = Piece>) -> Arc<[Piece]> {
        let mut builder = Builder::default();
        pieces.into_iter().for_each(|piece| builder.push(piece));
        builder.finish()
    }

    fn shape(list: &[Piece]) -> Vec<(i64, u64, u64, i64)> {
        let runs = list.iter().map(|piece| match piece.body {
            Body::Runs { length, count, stride, .. } => (piece.offset, length, count, stride),
            Body::Loop { count, stride, .. } => (piece.offset, 0, count, stride),
        });
        runs.collect()
    }

    #[test]
    fn adjacent_runs_are_merged() {
        let list = list((0..5).map(|i| Piece::run(Basic::Int, 4 * i, 1)));
        assert_eq!(shape(&list), [(0, 20, 1, 0)]);
        assert_eq!((list[0].bytes, list[0].elements), (20, 5));
    }

    #[test]
    fn runs_at_one_stride_are_one_piece() {
        let regular = list((0..5).map(|i| Piece::run(Basic::Int, -12 * i, 1)));
        assert_eq!(shape(&regular), [(0, 4, 5, -12)]);
        let irregular = list([0, 8, 24].map(|offset| Piece::run(Basic::Int, offset, 1)));
        assert_eq!(shape(&irregular), [(0, 4, 2, 8), (24, 4, 1, 0)]);
        assert_eq!(irregular[1].before, 8);
    }

    #[test]
    fn different_types_are_not_merged() {
        let list = list([Piece::run(Basic::Int, 0, 1), Piece::run(Basic::Float, 4, 1)]);
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn a_loop_is_one_piece_for_any_count() {
        let pair = list([Piece::run(Basic::Int, 0, 1), Piece::run(Basic::Float, 8, 2)]);
        let mut builder = Builder::default();
        builder.repeat(&pair, 16, 1 << 40, 64);
        let list = builder.finish();
        assert_eq!(shape(&list), [(16, 0, 1 << 40, 64)]);
        assert_eq!((list[0].bytes, list[0].elements), (12 << 40, 3 << 40));
    }
}
