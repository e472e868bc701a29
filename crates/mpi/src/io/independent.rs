//! Independent input and output, done immediately in the calling thread.

use crate::error::{Class, Error, Result};
use crate::io::disk::FileLock;
use crate::io::object::File;
use crate::io::position::{Direction, FileAccess};
use crate::io::view::View;
use crate::memory::Buffer;
use crate::status::Status;

/// Bytes moved per step between scattered memory and the file.
const CHUNK: u64 = 4 << 20;

impl File {
    /// Checks an access. Returns the view and the access's size in etypes.
    pub(super) fn view_and_etypes(&self, direction: Direction, buffer: &Buffer) -> Result<(View, i64)> {
        self.check_open()?;
        match direction {
            Direction::Read => self.check_readable()?,
            Direction::Write => self.check_writable()?,
        }
        let view = self.view();
        let len = view.representation().file_len(buffer)?;
        if !len.is_multiple_of(view.etype_size()) {
            let text = format!("{len} bytes are not a multiple of the etype size, {}", view.etype_size());
            return Err(Error::new(Class::ARG, text));
        }
        let etypes = (len / view.etype_size()) as i64;
        Ok((view, etypes))
    }

    pub(super) fn access_from(&self, view: View, first: i64, etypes: i64) -> Result<FileAccess> {
        let from = view.view_bytes_before(first)?;
        view.check_range(from, etypes as u64 * view.etype_size())?;
        Ok(FileAccess { view, from })
    }

    /// Reads without the other processes.
    pub(super) fn read_independent(&self, access: &FileAccess, buffer: &Buffer) -> Result<Status> {
        let representation = access.view.representation();
        let bytes = match representation.file_buffer(buffer)? {
            None => self.with_atomicity(FileLock::Shared, || self.read_pieces(access, buffer))?,
            Some(file_bytes) => {
                let count =
                    self.with_atomicity(FileLock::Shared, || self.read_pieces(access, &file_bytes))?;
                representation.decode(&file_bytes.to_vec()[..count as usize], buffer)?
            }
        };
        Ok(Status { bytes, ..Status::empty() })
    }

    /// Writes without the other processes.
    pub(super) fn write_independent(&self, access: &FileAccess, buffer: &Buffer) -> Result<Status> {
        let file_bytes = access.view.representation().encode(buffer)?;
        self.with_atomicity(FileLock::Exclusive, || {
            self.write_pieces(access, file_bytes.as_ref().unwrap_or(buffer))
        })?;
        Ok(Status { bytes: buffer.len(), ..Status::empty() })
    }

    /// Runs `act`, in atomic mode under the locks of this process and of the file.
    fn with_atomicity<T>(&self, lock: FileLock, act: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.is_atomic() {
            return act();
        }
        let _atomic_lock = self.0.atomic_lock.lock(self.core().host());
        self.0.disk.with_lock(lock, act)
    }

    fn write_pieces(&self, access: &FileAccess, buffer: &Buffer) -> Result<()> {
        for (from, part) in chunks(buffer) {
            let pieces = access.view.pieces(access.from + from, part.len());
            part.with_bytes(|bytes| self.0.disk.write(pieces, bytes))?;
        }
        Ok(())
    }

    fn read_pieces(&self, access: &FileAccess, buffer: &Buffer) -> Result<u64> {
        let mut done = 0;
        for (from, part) in chunks(buffer) {
            let pieces = access.view.pieces(access.from + from, part.len());
            let count = part.with_bytes_mut(|bytes| self.0.disk.read(pieces, bytes))? as u64;
            done += count;
            if count < part.len() {
                break;
            }
        }
        Ok(done)
    }
}

/// The whole buffer if it is contiguous, otherwise chunks; each with its offset.
fn chunks(buffer: &Buffer) -> impl Iterator<Item = (u64, Buffer)> {
    let step = if buffer.contiguous_range().is_some() { buffer.len() } else { CHUNK };
    let starts = (0..buffer.len()).step_by(step.max(1) as usize);
    starts.map(move |from| (from, buffer.clone().packed_range(from, step)))
}
