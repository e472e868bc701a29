//! [`Disk`]: a file's descriptor, which does all input and output, and maps errors of the file system to error classes.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::{Errno, preadv, pwritev};

use crate::error::{Class, Error, Result};
use crate::io::mode::FileMode;
use crate::io::view::FileRange;

/// A kind of lock on the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileLock {
    /// Several openers can hold it, to read.
    Shared,
    /// One opener holds it, to write.
    Exclusive,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Disk {
    file: fs::File,
    path: PathBuf,
}

/// Maximum number of memory pieces per call (`IOV_MAX`).
const SLICES: usize = 1024;

/// An error of the file system, with the attempted action.
fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(class_of(error), format_args!("{what} {}: {error}", path.display()))
}

fn class_of(error: &io::Error) -> Class {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => Class::NO_SUCH_FILE,
        Some(Errno::ACCESS | Errno::PERM) => Class::ACCESS,
        Some(Errno::ROFS) => Class::READ_ONLY,
        Some(Errno::EXIST) => Class::FILE_EXISTS,
        Some(Errno::NOSPC | Errno::FBIG) => Class::NO_SPACE,
        Some(Errno::DQUOT) => Class::QUOTA,
        Some(Errno::NAMETOOLONG | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP | Errno::INVAL) => {
            Class::BAD_FILE
        }
        Some(Errno::TXTBSY | Errno::BUSY) => Class::FILE_IN_USE,
        Some(Errno::NOMEM) => Class::NO_MEM,
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => Class::UNSUPPORTED_OPERATION,
        _ => Class::IO,
    }
}

/// Deletes a file, which need not be open.
///
/// # Errors
/// The file system's.
pub(crate) fn delete(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|error| failed("deleting", path, &error))
}

impl Disk {
    /// Opens a file, and creates it if `mode` says so.
    pub(crate) fn open(path: &Path, mode: FileMode) -> Result<Self> {
        let (is_read, is_written) = (!mode.has(FileMode::WRONLY), !mode.has(FileMode::RDONLY));
        let mut options = OpenOptions::new();
        options.read(is_read).write(is_written);
        if mode.has(FileMode::EXCL) && mode.has(FileMode::CREATE) {
            options.create_new(true);
        } else if mode.has(FileMode::CREATE) {
            options.create(true);
        }
        let error = |error| failed("opening", path, &error);
        let file = options.open(path).map_err(error)?;
        // A directory can be opened for reading, but is no file.
        if file.metadata().map_err(error)?.is_dir() {
            return Err(failed("opening", path, &Errno::ISDIR.into()));
        }
        Ok(Self { file, path: path.to_owned() })
    }

    fn map_error<T>(&self, what: &str, done: io::Result<T>) -> Result<T> {
        done.map_err(|error| {
            let error = failed(what, &self.path, &error);
            // The name was valid when the file was opened.
            if error.class == Class::BAD_FILE { Error { class: Class::IO, ..error } } else { error }
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's size in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        self.map_error("asking the size of", self.file.metadata()).map(|about| about.len())
    }

    pub(crate) fn set_size(&self, size: u64) -> Result<()> {
        self.map_error("setting the size of", self.file.set_len(size))
    }

    /// Reserves space for a file of at least `size` bytes.
    pub(crate) fn preallocate(&self, size: u64) -> Result<()> {
        let done = match fallocate(&self.file, FallocateFlags::empty(), 0, size) {
            // A file system that cannot reserve space still extends the file.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.size()? < size => self.file.set_len(size),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => done.map_err(io::Error::from),
        };
        self.map_error("preallocating", done)
    }

    /// Waits until all of this process's writes are on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        self.map_error("synchronising", self.file.sync_all())
    }

    /// Runs `act` under a lock on the file, which excludes other openers on this host and others.
    pub(crate) fn with_lock<T>(&self, kind: FileLock, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let operation = match kind {
            FileLock::Shared => FlockOperation::LockShared,
            FileLock::Exclusive => FlockOperation::LockExclusive,
        };
        self.map_error("locking", retry_interrupted(|| flock(&self.file, operation)))?;
        let done = act();
        let unlocked =
            self.map_error("unlocking", retry_interrupted(|| flock(&self.file, FlockOperation::Unlock)));
        let done = done?;
        unlocked.map(|()| done)
    }

    /// Writes bytes to these pieces of the file.
    pub(crate) fn write(&self, pieces: impl Iterator<Item = FileRange>, mut bytes: &[u8]) -> Result<()> {
        for piece in pieces {
            let (now, later) = bytes.split_at(piece.len as usize);
            self.map_error("writing", self.file.write_all_at(now, piece.offset))?;
            bytes = later;
        }
        Ok(())
    }

    /// Reads these pieces, which are in ascending order, up to the end of the file. Returns the size read. Nearby pieces are read
    /// by one call.
    pub(crate) fn read(&self, pieces: impl Iterator<Item = FileRange>, into: &mut [u8]) -> Result<usize> {
        let (mut pieces, mut done, mut scratch) = (pieces.peekable(), 0, Vec::new());
        while let Some(first) = pieces.next() {
            let mut merged = vec![first];
            let reaches = |end: u64, next: &FileRange| {
                next.offset <= end + GAP && next.end() <= first.offset + MERGED_MAX
            };
            while let Some(next) = pieces.next_if(|next| reaches(merged[merged.len() - 1].end(), next)) {
                merged.push(next);
            }
            if let [only] = merged[..] {
                let len = only.len as usize;
                let count = self.fill(only.offset, &mut into[done..done + len])?;
                done += count;
                if count < len {
                    return Ok(done);
                }
                continue;
            }
            let span = (merged[merged.len() - 1].end() - first.offset) as usize;
            scratch.resize(span.max(scratch.len()), 0);
            let count = self.fill(first.offset, &mut scratch[..span])?;
            for piece in &merged {
                let at = (piece.offset - first.offset) as usize;
                let len = count.saturating_sub(at).min(piece.len as usize);
                into[done..done + len].copy_from_slice(&scratch[at..at + len]);
                done += len;
            }
            if count < span {
                return Ok(done);
            }
        }
        Ok(done)
    }

    fn fill(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.map_error("reading", Err(error)),
            }
        }
        Ok(done)
    }

    /// Writes pieces of memory contiguously into the file.
    pub(crate) fn write_vectored(&self, mut offset: u64, slices: &[&[u8]]) -> Result<()> {
        let mut slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let most = rest.len().min(SLICES);
            let count =
                self.map_error("writing", retry_interrupted(|| pwritev(&self.file, &rest[..most], offset)))?;
            if count == 0 {
                return self.map_error("writing", Err(ErrorKind::WriteZero.into()));
            }
            offset += count as u64;
            IoSlice::advance_slices(&mut rest, count);
        }
        Ok(())
    }

    /// Reads contiguous bytes into pieces of memory, up to the end of the file. Returns the size read.
    pub(crate) fn read_vectored(&self, offset: u64, slices: Vec<&mut [u8]>) -> Result<usize> {
        let mut slices: Vec<IoSliceMut<'_>> = slices.into_iter().map(IoSliceMut::new).collect();
        let (mut rest, mut done) = (&mut slices[..], 0);
        while !rest.is_empty() {
            let (most, at) = (rest.len().min(SLICES), offset + done as u64);
            let count =
                self.map_error("reading", retry_interrupted(|| preadv(&self.file, &mut rest[..most], at)))?;
            if count == 0 {
                break;
            }
            done += count;
            IoSliceMut::advance_slices(&mut rest, count);
        }
        Ok(done)
    }
}

/// Gap between two pieces up to which reading it is cheaper than another call; and maximum size of a merged read.
const GAP: u64 = 4096;
const MERGED_MAX: u64 = 1 << 20;

fn retry_interrupted<T>(mut act: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match act() {
            Err(Errno::INTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}
