//! The operations: alone and together, waiting and with a request, and in two halves.

use crate::error::{Class, Error, Result};
use crate::io::object::File;
use crate::io::place::{Access, Direction, Position, Split};
use crate::memory::Buffer;
use crate::p2p::engine::Begun;
use crate::req::request::Request;
use crate::status::Status;

impl File {
    /// Reads into a buffer, as far as the file has it; the status says how much.
    ///
    /// # Errors
    /// [`Class::ACCESS`] for a file that is only written; [`Class::ARG`] for a negative offset, and bytes that are no whole etypes;
    /// [`Class::UNSUPPORTED_OPERATION`] for a sequential file without the shared pointer; the file system's; a conversion's.
    pub fn read(&self, buffer: &Buffer, place: Position) -> Result<Status> {
        let access = self.access(Direction::Read, buffer, place)?;
        let status = self.read_here(&access, buffer)?;
        self.passed(&access, place, buffer, status.bytes)?;
        Ok(status)
    }

    /// Writes a buffer.
    ///
    /// # Errors
    /// [`Class::READ_ONLY`] for a file that is only read; the others of [`File::read`].
    pub fn write(&self, buffer: &Buffer, place: Position) -> Result<Status> {
        let access = self.access(Direction::Write, buffer, place)?;
        let status = self.write_here(&access, buffer)?;
        self.passed(&access, place, buffer, status.bytes)?;
        Ok(status)
    }

    /// As [`File::read`], with a request. The work is done in the call, which waits for no other process.
    ///
    /// # Errors
    /// As [`File::read`].
    pub fn iread(&self, buffer: &Buffer, place: Position) -> Result<Request> {
        self.read(buffer, place).map(|status| self.over(status))
    }

    /// As [`File::write`], with a request; likewise.
    ///
    /// # Errors
    /// As [`File::write`].
    pub fn iwrite(&self, buffer: &Buffer, place: Position) -> Result<Request> {
        self.write(buffer, place).map(|status| self.over(status))
    }

    fn over(&self, status: Status) -> Request {
        Request::of_process(self.core(), Begun::Over(status))
    }

    /// As [`File::read`], together with all who have the file open.
    ///
    /// # Errors
    /// As [`File::read`]; the file system's, at all.
    pub fn read_all(&self, buffer: &Buffer, place: Position) -> Result<Status> {
        self.together(Direction::Read, buffer, place)
    }

    /// As [`File::write`], together with all who have the file open.
    ///
    /// # Errors
    /// As [`File::write`]; the file system's, at all.
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
        // The others wait for this process whatever is wrong here.
        let (access, status) = self.exchange(way, access, buffer)?;
        self.passed(&access, place, buffer, status.bytes)?;
        Ok(status)
    }

    /// Begins what [`File::read_all_end`] ends. Only one such operation may be under way.
    ///
    /// # Errors
    /// As [`File::read_all`]; [`Class::IO`] when one is under way already.
    pub fn read_all_begin(&self, buffer: &Buffer, place: Position) -> Result<()> {
        self.begin(Direction::Read, buffer, place)
    }

    /// Begins what [`File::write_all_end`] ends; likewise.
    ///
    /// # Errors
    /// As [`File::write_all`]; [`Class::IO`] when one is under way already.
    pub fn write_all_begin(&self, buffer: &Buffer, place: Position) -> Result<()> {
        self.begin(Direction::Write, buffer, place)
    }

    fn begin(&self, way: Direction, buffer: &Buffer, place: Position) -> Result<()> {
        let status = self.together(way, buffer, place)?;
        self.with(|state| state.split = Some(Split { way, place, status }));
        Ok(())
    }

    /// Ends a read that has begun; `place` is of the kind that it began with.
    ///
    /// # Errors
    /// [`Class::IO`] unless such an operation has begun.
    pub fn read_all_end(&self, place: Position) -> Result<Status> {
        self.finish(Direction::Read, place)
    }

    /// Ends a write that has begun; likewise.
    ///
    /// # Errors
    /// [`Class::IO`] unless such an operation has begun.
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

    /// Checks an access, and finds where it begins. A pointer that is shared has gone on then.
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

    /// The individual pointer goes on behind what was read or written.
    fn passed(&self, access: &Access, place: Position, buffer: &Buffer, bytes: u64) -> Result<()> {
        if place == Position::Individual {
            let all = access.view.representation().len_in_file(buffer)?;
            // Elements may have other sizes in the file.
            let passed = u128::from(all) * u128::from(bytes) / u128::from(buffer.len().max(1));
            let to = (access.from + passed as u64) / access.view.unit();
            self.with(|state| state.position = to as i64);
        }
        Ok(())
    }
}
