//! Operations on files: independent and collective, blocking, with a request, and split (MPI 5.0, section 14.4).

use crate::error::{Class, Error, Result};
use crate::io::object::File;
use crate::io::position::{Direction, FileAccess, Position, SplitCollective};
use crate::memory::Buffer;
use crate::p2p::engine::Started;
use crate::req::request::Request;
use crate::status::Status;

impl File {
    /// Reads into a buffer, up to the end of the file; the status contains the size.
    ///
    /// # Errors
    /// [`Class::ACCESS`] for a write-only file; [`Class::ARG`] for a negative offset, and a size that is not a whole number of
    /// etypes; [`Class::UNSUPPORTED_OPERATION`] for a sequential file without the shared pointer; errors of the file system and of
    /// conversions.
    pub fn read(&self, buffer: &Buffer, position: Position) -> Result<Status> {
        let access = self.access(Direction::Read, buffer, position)?;
        let status = self.read_independent(&access, buffer)?;
        self.advance_pointer(&access, position, buffer, status.bytes)?;
        Ok(status)
    }

    /// Writes a buffer.
    ///
    /// # Errors
    /// [`Class::READ_ONLY`] for a read-only file; the others of [`File::read`].
    pub fn write(&self, buffer: &Buffer, position: Position) -> Result<Status> {
        let access = self.access(Direction::Write, buffer, position)?;
        let status = self.write_independent(&access, buffer)?;
        self.advance_pointer(&access, position, buffer, status.bytes)?;
        Ok(status)
    }

    /// As [`File::read`], with a request. The call itself does the work; it waits for no other process.
    ///
    /// # Errors
    /// As [`File::read`].
    pub fn iread(&self, buffer: &Buffer, position: Position) -> Result<Request> {
        self.read(buffer, position).map(|status| self.completed_request(status))
    }

    /// As [`File::write`], with a request, like [`File::iread`].
    ///
    /// # Errors
    /// As [`File::write`].
    pub fn iwrite(&self, buffer: &Buffer, position: Position) -> Result<Request> {
        self.write(buffer, position).map(|status| self.completed_request(status))
    }

    fn completed_request(&self, status: Status) -> Request {
        Request::of_process(self.core(), Started::Completed(status))
    }

    /// As [`File::read`], but collective over all processes that opened the file.
    ///
    /// # Errors
    /// As [`File::read`]; an error of the file system fails the call at all processes.
    pub fn read_all(&self, buffer: &Buffer, position: Position) -> Result<Status> {
        self.access_all(Direction::Read, buffer, position)
    }

    /// As [`File::write`], but collective over all processes that opened the file.
    ///
    /// # Errors
    /// As [`File::write`]; an error of the file system fails the call at all processes.
    pub fn write_all(&self, buffer: &Buffer, position: Position) -> Result<Status> {
        self.access_all(Direction::Write, buffer, position)
    }

    fn access_all(&self, direction: Direction, buffer: &Buffer, position: Position) -> Result<Status> {
        self.check_open()?;
        if self.with(|state| state.split.is_some()) {
            return Err(Error::new(Class::IO, "a split collective operation is active; end it first"));
        }
        let access = match position {
            Position::Shared => self.ordered_access(direction, buffer),
            _ => self.access(direction, buffer, position),
        };
        // The others wait for this process even if its arguments are invalid.
        let (access, status) = self.run_all(direction, access, buffer)?;
        self.advance_pointer(&access, position, buffer, status.bytes)?;
        Ok(status)
    }

    /// Starts a read that [`File::read_all_end`] completes. Only one split operation may be active.
    ///
    /// # Errors
    /// As [`File::read_all`]; [`Class::IO`] when a split operation is active already.
    pub fn read_all_begin(&self, buffer: &Buffer, position: Position) -> Result<()> {
        self.begin_split(Direction::Read, buffer, position)
    }

    /// Starts a write that [`File::write_all_end`] completes, like [`File::read_all_begin`].
    ///
    /// # Errors
    /// As [`File::write_all`]; [`Class::IO`] when a split operation is active already.
    pub fn write_all_begin(&self, buffer: &Buffer, position: Position) -> Result<()> {
        self.begin_split(Direction::Write, buffer, position)
    }

    fn begin_split(&self, direction: Direction, buffer: &Buffer, position: Position) -> Result<()> {
        let status = self.access_all(direction, buffer, position)?;
        self.with(|state| state.split = Some(SplitCollective { direction, position, status }));
        Ok(())
    }

    /// Completes a split read; `position` must be of the kind that started it.
    ///
    /// # Errors
    /// [`Class::IO`] unless such an operation is active.
    pub fn read_all_end(&self, position: Position) -> Result<Status> {
        self.end_split(Direction::Read, position)
    }

    /// Completes a split write, like [`File::read_all_end`].
    ///
    /// # Errors
    /// [`Class::IO`] unless such an operation is active.
    pub fn write_all_end(&self, position: Position) -> Result<Status> {
        self.end_split(Direction::Write, position)
    }

    fn end_split(&self, direction: Direction, position: Position) -> Result<Status> {
        self.check_open()?;
        let kind = std::mem::discriminant::<Position>;
        let fits = |split: &mut SplitCollective| {
            split.direction == direction && kind(&split.position) == kind(&position)
        };
        let split = self.with(|state| state.split.take_if(fits));
        let none = || Error::new(Class::IO, "no such split collective operation is active");
        split.map(|split| split.status).ok_or_else(none)
    }

    /// Checks an access, and determines its start. This advances a shared pointer.
    fn access(&self, direction: Direction, buffer: &Buffer, position: Position) -> Result<FileAccess> {
        let (view, etypes) = self.view_and_etypes(direction, buffer)?;
        if position != Position::Shared {
            self.check_random_access()?;
        }
        let first = match position {
            Position::At(offset) => offset,
            Position::Individual => self.with(|state| state.position),
            Position::Shared => self.0.pointer.add(etypes)?,
        };
        self.access_from(view, first, etypes)
    }

    /// Moves the individual pointer past the data that were read or written.
    fn advance_pointer(
        &self,
        access: &FileAccess,
        position: Position,
        buffer: &Buffer,
        bytes: u64,
    ) -> Result<()> {
        if position == Position::Individual {
            let all = access.view.representation().file_len(buffer)?;
            // Elements may have another size in the file.
            let passed = u128::from(all) * u128::from(bytes) / u128::from(buffer.len().max(1));
            let to = (access.from + passed as u64) / access.view.etype_size();
            self.with(|state| state.position = to as i64);
        }
        Ok(())
    }
}
