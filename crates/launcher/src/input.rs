//! Forwards standard input to ranks in pieces; the next piece is read once all readers have taken the last.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;

use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::tcgetpgrp;

/// Size of a piece in bytes: an empty pipe takes it without blocking.
const PIECE: usize = 32 << 10;

/// The ranks that read standard input, and their progress.
#[derive(Debug)]
pub(super) struct Input {
    readers: BTreeSet<u32>,
    /// Readers that have not taken the last piece yet.
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

    /// Whether the next piece may be read. A background job must not read its terminal, as that would stop it.
    pub(super) fn is_wanted(&self) -> bool {
        let may_read = || !self.is_terminal || tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        self.is_open && !self.readers.is_empty() && self.waiting.is_empty() && may_read()
    }

    /// Reads a piece, and returns it with its readers. An empty piece is the end of the input.
    pub(super) fn read(&mut self) -> Option<(Vec<u8>, Vec<u32>)> {
        let mut bytes = vec![0; PIECE];
        let n = match rustix::io::read(stdin(), &mut bytes[..]) {
            Err(Errno::AGAIN | Errno::INTR) => return None,
            // The terminal has gone, or standard input is a directory.
            Err(_) => 0,
            Ok(n) => n,
        };
        bytes.truncate(n);
        self.is_open = n > 0;
        self.waiting.clone_from(&self.readers);
        Some((bytes, self.readers.iter().copied().collect()))
    }

    /// A reader has taken its piece.
    pub(super) fn mark_written(&mut self, reader: u32) {
        self.waiting.remove(&reader);
    }

    /// A reader has ended.
    pub(super) fn remove_reader(&mut self, reader: u32) {
        self.waiting.remove(&reader);
        self.readers.remove(&reader);
    }
}
