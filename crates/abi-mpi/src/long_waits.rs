//! [`Notes`]: the calls that wait for long, noted in a file of the launcher, which names them if the job runs out of time.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

use ffi::lock;
use mpi::{LongWaitNotes, LongWaits};
use pmi::calls::{NOTE_LEN, is_note, note};

/// The launcher's file, and the calls in which threads wait for long now.
struct Notes {
    file: File,
    calls: Mutex<Vec<&'static str>>,
}

/// Notes in the file of this descriptor; `None` if it is not the launcher's file, such as in a child of a rank that has closed it.
pub(crate) fn notes_in(file: OwnedFd) -> Option<LongWaitNotes> {
    let file = File::from(file);
    let mut found = [0; NOTE_LEN];
    let length = file.metadata().ok()?.len();
    file.read_exact_at(&mut found, 0).ok()?;
    if length != NOTE_LEN as u64 || !is_note(&found) {
        return None;
    }
    let notes = Notes { file, calls: Mutex::default() };
    notes.write(&[]);
    Some(LongWaitNotes(Arc::new(notes)))
}

impl Notes {
    fn write(&self, calls: &[&str]) {
        // A note is for a message only: nothing depends on it.
        let _ = self.file.write_all_at(&note(calls), 0);
    }
}

impl LongWaits for Notes {
    fn begin(&self, call: &'static str) {
        let mut calls = lock(&self.calls);
        calls.push(call);
        self.write(&calls);
    }

    fn end(&self, call: &'static str) {
        let mut calls = lock(&self.calls);
        if let Some(at) = calls.iter().position(|known| *known == call) {
            calls.remove(at);
        }
        self.write(&calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi::calls::{empty_note, parse_note};

    fn file(content: &[u8]) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(content, 0).expect("written");
        file
    }

    fn notes(of: &File) -> Option<LongWaitNotes> {
        notes_in(of.try_clone().expect("a descriptor").into())
    }

    #[test]
    fn calls_of_all_threads_are_noted_until_they_end() {
        let file = file(&empty_note());
        let notes = notes(&file).expect("the launcher's file").0;
        let noted = || {
            let mut bytes = [0; NOTE_LEN];
            file.read_exact_at(&mut bytes, 0).expect("a note");
            parse_note(&bytes)
        };
        assert_eq!(noted().as_deref(), Some(""));
        notes.begin("MPI_Recv");
        notes.begin("MPI_Recv");
        notes.begin("MPI_Wait");
        assert_eq!(noted().as_deref(), Some("MPI_Recv, MPI_Recv, MPI_Wait"));
        notes.end("MPI_Recv");
        notes.end("MPI_Wait");
        assert_eq!(noted().as_deref(), Some("MPI_Recv"));
        notes.end("MPI_Recv");
        assert_eq!(noted().as_deref(), Some(""));
    }

    #[test]
    fn other_files_are_left_alone() {
        let long = [&empty_note()[..], b"x"].concat();
        for content in [&b"data"[..], &[b'x'; NOTE_LEN], &long] {
            let other = file(content);
            assert!(notes(&other).is_none());
            let mut found = vec![0; content.len()];
            other.read_exact_at(&mut found, 0).expect("as before");
            assert_eq!(found, content);
        }
    }
}
