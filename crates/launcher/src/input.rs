//! Standard input on its way to ranks: a piece at a time, and the next when all have taken the last.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;

use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::tcgetpgrp;

/// The most bytes of a piece; a pipe takes them at once if it is empty.
const PIECE: usize = 32 << 10;

/// Who reads, and how far they are.
#[derive(Debug)]
pub(super) struct Input {
    readers: BTreeSet<u32>,
    /// Those that have not taken the last piece.
    waiting: BTreeSet<u32>,
    is_open: bool,
    is_terminal: bool,
}

impl Input {
    pub(super) fn new(readers: impl IntoIterator<Item = u32>) -> Self {
        Self {
            readers: readers.into_iter().collect(),
            waiting: BTreeSet::new(),
            is_open: true,
            is_terminal: std::io::stdin().is_terminal(),
        }
    }

    /// Whether a piece may be read: a background job that reads its terminal is stopped.
    pub(super) fn is_wanted(&self) -> bool {
        let may_read = || !self.is_terminal || tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        self.is_open && !self.readers.is_empty() && self.waiting.is_empty() && may_read()
    }

    /// Reads a piece, and says for whom it is. No bytes are the end.
    pub(super) fn read(&mut self) -> Option<(Vec<u8>, Vec<u32>)> {
        let mut bytes = vec![0; PIECE];
        let n = match rustix::io::read(stdin(), &mut bytes[..]) {
            Err(Errno::AGAIN | Errno::INTR) => return None,
            // A terminal that has gone away, or a directory.
            Err(_) => 0,
            Ok(n) => n,
        };
        bytes.truncate(n);
        self.is_open = n > 0;
        self.waiting.clone_from(&self.readers);
        Some((bytes, self.readers.iter().copied().collect()))
    }

    /// A reader has taken its piece.
    pub(super) fn taken(&mut self, reader: u32) {
        self.waiting.remove(&reader);
    }

    /// A reader has ended.
    pub(super) fn gone(&mut self, reader: u32) {
        self.waiting.remove(&reader);
        self.readers.remove(&reader);
    }
}
