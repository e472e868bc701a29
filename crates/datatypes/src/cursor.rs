//! A place in the packed form of some elements: packing and unpacking that stops and goes on.

use crate::Basic;
use crate::layout::{Body, Piece, Run};
use std::sync::Arc;

/// A caller's buffer. Offsets are those of [`Run`]; what is asked for lies in [`Datatype::span`](crate::Datatype::span) of what is
/// packed.
pub trait Memory {
    /// Copies from the buffer.
    fn load(&self, offset: i64, into: &mut [u8]);
    /// Copies into the buffer.
    fn store(&mut self, offset: i64, from: &[u8]);
}

/// A place in the packed bytes of some elements. It goes on where it stopped without walking from the start, and owns what it
/// needs.
#[derive(Clone, Debug)]
pub struct Cursor {
    root: Arc<[Piece]>,
    total: u64,
    position: u64,
    /// Lists from the outermost to the one that the place is in; empty at the end.
    frames: Vec<Frame>,
    /// The run of the current piece that the place is in.
    run: u64,
    /// Bytes of that run before the place.
    within: u64,
}

/// A list of pieces, and which of them is current.
#[derive(Clone, Debug)]
struct Frame {
    pieces: Arc<[Piece]>,
    index: usize,
    /// What the offsets of the pieces count from.
    base: i64,
    /// Iterations of the list that are not over.
    left: u64,
    stride: i64,
}

impl Cursor {
    pub(crate) fn new(root: Arc<[Piece]>, total: u64) -> Self {
        let mut cursor = Self { root, total, position: 0, frames: Vec::new(), run: 0, within: 0 };
        cursor.seek(0);
        cursor
    }

    /// Bytes before this place.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes behind this place.
    pub fn remaining(&self) -> u64 {
        self.total - self.position
    }

    /// Goes to a place, in steps logarithmic in the pieces of the type; beyond the end is the end.
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

    /// The next run, of at most so many bytes, and moves behind it; none at the end or if no bytes are asked for. It is not
    /// merged with what follows.
    pub fn next_run(&mut self, at_most: u64) -> Option<Run> {
        let mut found = None;
        self.settle();
        if let Some((_, runs)) = self.current()
            && at_most > 0
        {
            let length = at_most.min(runs.length - self.within);
            found = Some(Run { offset: runs.offset(self.run, self.within), length });
            self.advance(length, |_, _, _| {});
        }
        found
    }

    /// Fills `into` as far as bytes are left; how many it wrote.
    pub fn pack(&mut self, memory: &impl Memory, into: &mut [u8]) -> usize {
        let mut rest = &mut into[..];
        self.advance(rest.len() as u64, |_, offset, length| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(length);
            memory.load(offset, now);
            rest = later;
        }) as usize
    }

    /// Takes from `from` as far as there is room; how many bytes it took.
    pub fn unpack(&mut self, from: &[u8], memory: &mut impl Memory) -> usize {
        let mut rest = from;
        self.advance(rest.len() as u64, |_, offset, length| {
            let (now, later) = rest.split_at(length);
            memory.store(offset, now);
            rest = later;
        }) as usize
    }

    /// Hands out what lies in the next `limit` bytes, and moves behind them; how many bytes there were.
    pub(crate) fn advance(&mut self, limit: u64, mut each: impl FnMut(Basic, i64, usize)) -> u64 {
        let mut left = limit.min(self.remaining());
        let all = left;
        while left > 0 {
            self.settle();
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

    /// Goes to the piece of runs that has the next byte, if it has not been reached yet.
    fn settle(&mut self) {
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

    /// Goes on by so many iterations; whether one is left.
    fn skip(&mut self, iterations: u64) -> bool {
        self.left -= iterations;
        self.index = 0;
        if self.left > 0 {
            self.base += self.stride * iterations as i64;
        }
        self.left > 0
    }
}

/// The piece of runs that a cursor is in.
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

/// Runs in the order of the type map, merged where one begins where the one before ended.
#[derive(Clone, Debug)]
pub struct Runs {
    cursor: Cursor,
    /// The run that the next one may belong to.
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
