//! A position in the packed form of some elements, for packing and unpacking in steps.

use crate::Basic;
use crate::layout::{Body, Piece, Run};
use std::sync::Arc;

/// A caller's buffer. Offsets are those of [`Run`], within the [`Datatype::span`](crate::Datatype::span) of the packed elements.
pub trait Memory {
    /// Copies from the buffer.
    fn load(&self, offset: i64, into: &mut [u8]);
    /// Copies into the buffer.
    fn store(&mut self, offset: i64, from: &[u8]);
}

/// A position in the packed bytes of some elements. It continues without walking from the start, and owns its data.
#[derive(Clone, Debug)]
pub struct Cursor {
    root: Arc<[Piece]>,
    total: u64,
    position: u64,
    /// The lists from the outermost to the current one; empty at the end.
    frames: Vec<Frame>,
    /// Index of the current run in the current piece.
    run: u64,
    /// Bytes of that run before the position.
    within: u64,
}

/// A list of pieces, and the index of the current one.
#[derive(Clone, Debug)]
struct Frame {
    pieces: Arc<[Piece]>,
    index: usize,
    /// The base of the pieces' offsets.
    base: i64,
    /// Remaining iterations of the list, including the current one.
    left: u64,
    stride: i64,
}

impl Cursor {
    pub(crate) fn new(root: Arc<[Piece]>, total: u64) -> Self {
        let mut cursor = Self { root, total, position: 0, frames: Vec::new(), run: 0, within: 0 };
        cursor.seek(0);
        cursor
    }

    /// Bytes before this position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the whole packed form.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes after this position.
    pub fn remaining(&self) -> u64 {
        self.total - self.position
    }

    /// Moves to a position, in logarithmic time; a position beyond the end becomes the end.
    pub fn seek(&mut self, position: u64) {
        self.position = position.min(self.total);
        (self.run, self.within) = (0, 0);
        self.frames.clear();
        if self.position == self.total {
            return;
        }
        let mut rest = self.position;
        let mut frame = Frame { pieces: Arc::clone(&self.root), index: 0, base: 0, left: 1, stride: 0 };
        loop {
            frame.index = frame.pieces.partition_point(|piece| piece.before <= rest) - 1;
            let piece = &frame.pieces[frame.index];
            rest -= piece.before;
            match &piece.body {
                Body::Runs { length, .. } => {
                    (self.run, self.within) = (rest / length, rest % length);
                    return self.frames.push(frame);
                }
                Body::Loop { count, .. } => {
                    let each = piece.bytes / count;
                    let mut inner = frame.enter();
                    inner.skip(rest / each);
                    rest %= each;
                    self.frames.push(std::mem::replace(&mut frame, inner));
                }
            }
        }
    }

    /// Returns the next run, of at most `at_most` bytes, and moves past it; `None` at the end or if no bytes are requested. It is
    /// not merged with the following run.
    pub fn next_run(&mut self, at_most: u64) -> Option<Run> {
        let mut found = None;
        self.move_to_next_runs();
        if let Some((_, runs)) = self.current()
            && at_most > 0
        {
            let length = at_most.min(runs.length - self.within);
            found = Some(Run { offset: runs.offset(self.run, self.within), length });
            self.advance(length, |_, _, _| {});
        }
        found
    }

    /// Fills `into` as far as bytes remain. Returns the number of bytes written.
    pub fn pack(&mut self, memory: &impl Memory, into: &mut [u8]) -> usize {
        let mut rest = &mut into[..];
        self.advance(rest.len() as u64, |_, offset, length| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(length);
            memory.load(offset, now);
            rest = later;
        }) as usize
    }

    /// Consumes `from` as far as bytes remain to be stored. Returns the number of bytes consumed.
    pub fn unpack(&mut self, from: &[u8], memory: &mut impl Memory) -> usize {
        let mut rest = from;
        self.advance(rest.len() as u64, |_, offset, length| {
            let (now, later) = rest.split_at(length);
            memory.store(offset, now);
            rest = later;
        }) as usize
    }

    /// Calls `each` for the parts of the next `limit` bytes, and moves past them. Returns the number of bytes.
    pub(crate) fn advance(&mut self, limit: u64, mut each: impl FnMut(Basic, i64, usize)) -> u64 {
        let mut left = limit.min(self.remaining());
        let all = left;
        while left > 0 {
            self.move_to_next_runs();
            let Some((basic, runs)) = self.current() else { break };
            while left > 0 && self.run < runs.count {
                let length = left.min(runs.length - self.within);
                each(basic, runs.offset(self.run, self.within), length as usize);
                left -= length;
                self.within += length;
                if self.within == runs.length {
                    (self.run, self.within) = (self.run + 1, 0);
                }
            }
        }
        self.position += all;
        all
    }

    /// Moves to the piece of runs that contains the next byte, unless it is already there.
    fn move_to_next_runs(&mut self) {
        while let Some(frame) = self.frames.last_mut() {
            let Some(piece) = frame.pieces.get(frame.index) else {
                if !frame.skip(1) {
                    self.frames.pop();
                    if let Some(outer) = self.frames.last_mut() {
                        outer.index += 1;
                    }
                }
                continue;
            };
            match piece.body {
                Body::Loop { .. } => {
                    let inner = frame.enter();
                    self.frames.push(inner);
                }
                Body::Runs { count, .. } if self.run == count => {
                    self.run = 0;
                    frame.index += 1;
                }
                Body::Runs { .. } => return,
            }
        }
    }

    fn current(&self) -> Option<(Basic, Current)> {
        let frame = self.frames.last()?;
        let piece = &frame.pieces[frame.index];
        match piece.body {
            Body::Runs { basic, length, count, stride } => {
                Some((basic, Current { first: frame.base + piece.offset, length, count, stride }))
            }
            Body::Loop { .. } => None,
        }
    }
}

impl Frame {
    /// The body of the current piece, which is a loop, in its first iteration.
    fn enter(&self) -> Self {
        let piece = &self.pieces[self.index];
        let Body::Loop { count, stride, pieces } = &piece.body else {
            unreachable!("only loops are entered")
        };
        let base = self.base + piece.offset;
        Self { pieces: Arc::clone(pieces), index: 0, base, left: *count, stride: *stride }
    }

    /// Skips this many iterations. Returns whether one is left.
    fn skip(&mut self, iterations: u64) -> bool {
        self.left -= iterations;
        self.index = 0;
        if self.left > 0 {
            self.base += self.stride * iterations as i64;
        }
        self.left > 0
    }
}

/// The current piece of runs.
#[derive(Clone, Copy)]
struct Current {
    first: i64,
    length: u64,
    count: u64,
    stride: i64,
}

impl Current {
    fn offset(self, run: u64, within: u64) -> i64 {
        self.first + run as i64 * self.stride + within as i64
    }
}

/// Runs in type-map order, merged where they are adjacent.
#[derive(Clone, Debug)]
pub struct Runs {
    cursor: Cursor,
    /// The run under construction, which the next one may extend.
    open: Option<Run>,
}

impl Runs {
    pub(crate) fn new(mut cursor: Cursor) -> Self {
        let open = cursor.next_run(u64::MAX);
        Self { cursor, open }
    }
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut whole = self.open.take()?;
        while let Some(run) = self.cursor.next_run(u64::MAX) {
            if run.offset != whole.offset + whole.length as i64 {
                self.open = Some(run);
                break;
            }
            whole.length += run.length;
        }
        Some(whole)
    }
}
