//! Operations on files: independent and collective, blocking, with a request, and split (MPI 5.0, section 14.4).

use crate::error::{Class, Error, Result};
use crate::io::object::File;
use crate::io::place::{Access, Direction, Position, Split};
use crate::memory::Buffer;
use crate::p2p::engine::Begun;
use crate::req::request::Request;
use crate::status::Status;

impl File {
    /// Reads into a buffer, up to the end of the file; the status contains the size.
    ///
    /// # Errors
    /// [`Class::ACCESS`] for a write-only file; [`Class::ARG`] for a negative offset, and a size that is not a whole number of
    /// etypes; [`Class::UNSUPPORTED_OPERATION`] for a sequential file without the shared pointer; errors of the file system and of
    /// conversions.
    pub fn read(&self, buffer: &Buffer, place: Position) -> Result<Status> {
        let access = self.access(Direction::Read, buffer, place)?;
        let status = self.read_here(&access, buffer)?;
        self.passed(&access, place, buffer, status.bytes)?;
        Ok(status)
    }

    /// Writes a buffer.
    ///
    /// # Errors
    /// [`Class::READ_ONLY`] for a read-only file; the others of [`File::read`].
    pub fn write(&self, buffer: &Buffer, place: Position) -> Result<Status> {
        let access = self.access(Direction::Write, buffer, place)?;
        let status = self.write_here(&access, buffer)?;
        self.passed(&access, place, buffer, status.bytes)?;
        Ok(status)
    }

    /// As [`File::read`], with a request. The call itself does the work; it waits for no other process.
    ///
    /// # Errors
    /// As [`File::read`].
    pub fn iread(&self, buffer: &Buffer, place: Position) -> Result<Request> {
        self.read(buffer, place).map(|status| self.over(status))
    }

    /// As [`File::write`], with a request, like [`File::iread`].
    ///
    /// # Errors
    /// As [`File::write`].
    pub fn iwrite(&self, buffer: &Buffer, place: Position) -> Result<Request> {
        self.write(buffer, place).map(|status| self.over(status))
    }

    fn over(&self, status: Status) -> Request {
        Request::of_process(self.core(), Begun::Over(status))
    }

    /// As [`File::read`], but collective over all processes that opened the file.
    ///
    /// # Errors
    /// As [`File::read`]; an error of the file system fails the call at all processes.
    pub fn read_all(&self, buffer: &Buffer, place: Position) -> Result<Status> {
        self.together(Direction::Read, buffer, place)
    }

    /// As [`File::write`], but collective over all processes that opened the file.
    ///
    /// # Errors
    /// As [`File::write`]; an error of the file system fails the call at all processes.
    pub fn write_all(&self, buffer: &Buffer, place: Position) -> Result<Status> {
        self.together(Direction::Write, buffer, place)
    }

    fn together(&self, way: Direction, buffer: &Buffer, place: Position) -> Result<Status> {
        self.check_open()?;
        if self.with(|state| state.split.is_some()) {
            return Err(Error::new(Class::IO, "a split collective operation has begun and not ended"));
        }
        let access = match place {
            Position::Shared => self.ordered(way, buffer),
            _ => self.access(way, buffer, place),
        };
        // The others wait for this process even if its arguments are invalid.
        let (access, status) = self.exchange(way, access, buffer)?;
        self.passed(&access, place, buffer, status.bytes)?;
        Ok(status)
    }

    /// Starts a read that [`File::read_all_end`] completes. Only one split operation may be active.
    ///
    /// # Errors
    /// As [`File::read_all`]; [`Class::IO`] when a split operation is active already.
    pub fn read_all_begin(&self, buffer: &Buffer, place: Position) -> Result<()> {
        self.begin(Direction::Read, buffer, place)
    }

    /// Starts a write that [`File::write_all_end`] completes, like [`File::read_all_begin`].
    ///
    /// # Errors
    /// As [`File::write_all`]; [`Class::IO`] when a split operation is active already.
    pub fn write_all_begin(&self, buffer: &Buffer, place: Position) -> Result<()> {
        self.begin(Direction::Write, buffer, place)
    }

    fn begin(&self, way: Direction, buffer: &Buffer, place: Position) -> Result<()> {
        let status = self.together(way, buffer, place)?;
        self.with(|state| state.split = Some(Split { way, place, status }));
        Ok(())
    }

    /// Completes a split read; `place` must be of the kind that started it.
    ///
    /// # Errors
    /// [`Class::IO`] unless such an operation is active.
    pub fn read_all_end(&self, place: Position) -> Result<Status> {
        self.finish(Direction::Read, place)
    }

    /// Completes a split write, like [`File::read_all_end`].
    ///
    /// # Errors
    /// [`Class::IO`] unless such an operation is active.
    pub fn write_all_end(&self, place: Position) -> Result<Status> {
        self.finish(Direction::Write, place)
    }

    fn finish(&self, way: Direction, place: Position) -> Result<Status> {
        self.check_open()?;
        let kind = std::mem::discriminant::<Position>;
        let fits = |split: &mut Split| split.way == way && kind(&split.place) == kind(&place);
        let split = self.with(|state| state.split.take_if(fits));
        let none = || Error::new(Class::IO, "no such split collective operation has begun");
        split.map(|split| split.status).ok_or_else(none)
    }

    /// Checks an access, and determines its start. This advances a shared pointer.
    fn access(&self, way: Direction, buffer: &Buffer, place: Position) -> Result<Access> {
        let (view, etypes) = self.etypes(way, buffer)?;
        if place != Position::Shared {
            self.check_random()?;
        }
        let first = match place {
            Position::At(offset) => offset,
            Position::Individual => self.with(|state| state.position),
            Position::Shared => self.0.pointer.add(etypes)?,
        };
        self.located(view, first, etypes)
    }

    /// Moves the individual pointer past the data that were read or written.
    fn passed(&self, access: &Access, place: Position, buffer: &Buffer, bytes: u64) -> Result<()> {
        if place == Position::Individual {
            let all = access.view.representation().len_in_file(buffer)?;
            // Elements may have another size in the file.
            let passed = u128::from(all) * u128::from(bytes) / u128::from(buffer.len().max(1));
            let to = (access.from + passed as u64) / access.view.unit();
            self.with(|state| state.position = to as i64);
        }
        Ok(())
    }
}
