//! [`CallNotes`]: a file in memory in which a rank's MPI library notes the calls that it waits in for long.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use pmi::calls::{NOTE_LEN, empty_note, parse_note};
use rustix::fs::{MemfdFlags, memfd_create};

pub(super) use pmi::calls::CALLS_FD;

/// The notes of a process.
#[derive(Debug)]
pub(super) struct CallNotes {
    file: File,
    /// The descriptor that the process inherits; it is closed here once it has started.
    for_rank: Option<File>,
}

impl CallNotes {
    /// A file without notes.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("calls", MemfdFlags::CLOEXEC)?);
        file.write_all_at(&empty_note(), 0)?;
        let for_rank = Some(file.try_clone()?);
        Ok(Self { file, for_rank })
    }

    /// The descriptor for the process.
    pub(super) fn for_rank(&self) -> BorrowedFd<'_> {
        self.for_rank.as_ref().unwrap_or(&self.file).as_fd()
    }

    /// Its number in the process.
    pub(super) fn number_for_rank(&self) -> i32 {
        self.for_rank().as_raw_fd()
    }

    /// Closes the descriptor for the process.
    pub(super) fn without_ranks_end(self) -> Self {
        Self { for_rank: None, ..self }
    }

    /// The calls that the process waits in, separated by commas; `None` if its library notes none.
    pub(super) fn read(&self) -> Option<String> {
        let mut bytes = [0; NOTE_LEN];
        self.file.read_exact_at(&mut bytes, 0).ok()?;
        parse_note(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi::calls::note;

    #[test]
    fn notes_of_a_rank_are_read() {
        let notes = CallNotes::new().expect("a file");
        let rank = notes.for_rank.as_ref().expect("the rank's end").try_clone().expect("a descriptor");
        let notes = notes.without_ranks_end();
        assert_eq!(notes.read(), None, "it notes nothing");
        for calls in [&["MPI_Recv", "MPI_Barrier"][..], &["MPI_Wait"], &[]] {
            rank.write_all_at(&note(calls), 0).expect("written");
            assert_eq!(notes.read(), Some(calls.join(", ")));
        }
        rank.write_all_at(b"\xff\x1b[31m", 0).expect("written");
        assert_eq!(notes.read(), None, "no text of a library");
    }
}
