//! [`File`]: the properties and settings of an open file (MPI 5.0, chapter 14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datatypes::{Basic, Datatype};
use host::Lock;

use crate::coll::collective::Collective;
use crate::comm::communicator::Comm;
use crate::comm::group::Group;
use crate::core::Core;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::io::disk::Disk;
use crate::io::hints::Hints;
use crate::io::mode::FileMode;
use crate::io::pointer::SharedPointer;
use crate::io::position::{SplitCollective, Whence};
use crate::io::representation::Representation;
use crate::io::view::View;

/// The displacement that stands for the current position of a sequential file's shared pointer (`MPI_DISPLACEMENT_CURRENT`).
const DISPLACEMENT_CURRENT: i64 = -1;

/// A file that the processes of a communicator have open together (`MPI_File`); cheap to clone, and clones are the same object.
#[derive(Clone)]
pub struct File(pub(super) Arc<Inner>);

pub(super) struct Inner {
    /// The file's own communicator, with all processes that opened it.
    pub(super) comm: Comm,
    pub(super) id: u64,
    pub(super) mode: FileMode,
    pub(super) disk: Disk,
    pub(super) pointer: SharedPointer,
    /// Held during an atomic access: the file system's lock excludes other openers, but not threads of this process.
    pub(super) atomic_lock: Lock<()>,
    pub(super) state: Lock<FileState>,
    pub(super) is_closed: AtomicBool,
}

pub(super) struct FileState {
    pub(super) view: View,
    /// The individual pointer, in etypes.
    pub(super) position: i64,
    pub(super) is_atomic: bool,
    /// The active split collective operation.
    pub(super) split: Option<SplitCollective>,
    pub(super) hints: Hints,
    pub(super) errhandler: Errhandler,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let comm = &self.0.comm;
        write!(f, "File({}, rank {} of {})", self.0.disk.path().display(), comm.rank(), comm.size())
    }
}

impl FileState {
    pub(super) fn new(view: View, hints: Hints, errhandler: Errhandler) -> Self {
        Self { view, position: 0, is_atomic: false, split: None, hints, errhandler }
    }
}

/// A view of all bytes.
pub(super) fn byte_view() -> Result<View> {
    let byte = || Datatype::from(Basic::Byte);
    View::new(0, byte(), byte(), Representation::Native)
}

impl File {
    pub(super) fn core(&self) -> &Core {
        self.0.comm.core()
    }

    /// Accesses the state under its lock. `act` must not wait.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut FileState) -> T) -> T {
        act(&mut self.0.state.lock(self.core().host()))
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.0.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new(Class::FILE, "the file was closed"));
        }
        Ok(())
    }

    pub(super) fn barrier(&self) -> Result<()> {
        self.0.comm.collective(&Collective::Barrier)
    }

    /// Runs `act` at the first process, and returns its result at all. Collective.
    pub(super) fn at_rank_0(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        self.check_open()?;
        let done = if self.0.comm.rank() == 0 { act() } else { Ok(()) };
        agree_result(&self.0.comm, done)
    }

    /// A number that no other object of this process ever has.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The processes that have it open (MPI 5.0, section 14.2.7).
    pub fn group(&self) -> &Group {
        self.0.comm.group()
    }

    /// Its access mode (MPI 5.0, section 14.2.7).
    pub fn mode(&self) -> FileMode {
        self.0.mode
    }

    /// The hints in use (MPI 5.0, section 14.2.8).
    pub fn info(&self) -> Info {
        self.with(|state| state.hints).info(self.0.comm.size())
    }

    /// Sets hints. Collective (MPI 5.0, section 14.2.8).
    ///
    /// # Errors
    /// [`Class::FILE`] for a file that was closed.
    pub fn set_info(&self, info: &Info) -> Result<()> {
        self.check_open()?;
        self.with(|state| state.hints.update(info));
        Ok(())
    }

    /// The error handler of its operations (MPI 5.0, section 9.3.3).
    pub fn errhandler(&self) -> Errhandler {
        self.with(|state| state.errhandler.clone())
    }

    /// Sets the error handler of its operations (MPI 5.0, section 9.3.3).
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.with(|state| state.errhandler = errhandler);
    }

    /// The file's size in bytes (MPI 5.0, section 14.2.6).
    ///
    /// # Errors
    /// The file system's.
    pub fn size(&self) -> Result<i64> {
        self.check_open()?;
        self.0.disk.size().map(|bytes| bytes as i64)
    }

    /// Truncates or extends the file (`MPI_File_set_size`). Collective (MPI 5.0, section 14.2.4).
    ///
    /// # Errors
    /// [`Class::ARG`] for a negative size; [`Class::READ_ONLY`]; an error of the file system, at all processes.
    pub fn set_size(&self, size: i64) -> Result<()> {
        let size = self.check_new_size(size)?;
        self.at_rank_0(|| self.0.disk.set_size(size))
    }

    /// Reserves space for `size` bytes, and extends a shorter file to that size. Collective (MPI 5.0, section 14.2.5).
    ///
    /// # Errors
    /// As [`File::set_size`].
    pub fn preallocate(&self, size: i64) -> Result<()> {
        let size = self.check_new_size(size)?;
        self.at_rank_0(|| if size == 0 { Ok(()) } else { self.0.disk.preallocate(size) })
    }

    fn check_new_size(&self, size: i64) -> Result<u64> {
        self.check_open()?;
        self.check_writable()?;
        u64::try_from(size).map_err(|_| Error::new(Class::ARG, format_args!("a size of {size} is negative")))
    }

    /// Checks that the file may be written.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.0.mode.has(FileMode::RDONLY) {
            return Err(Error::new(Class::READ_ONLY, "the file was opened with MPI_MODE_RDONLY"));
        }
        Ok(())
    }

    /// Checks that the file may be read.
    pub(super) fn check_readable(&self) -> Result<()> {
        if self.0.mode.has(FileMode::WRONLY) {
            return Err(Error::new(Class::ACCESS, "the file was opened with MPI_MODE_WRONLY"));
        }
        Ok(())
    }

    /// Writes this process's data to the disk, and waits until all processes have done so (`MPI_File_sync`). Collective
    /// (MPI 5.0, section 14.6.1).
    ///
    /// # Errors
    /// The file system's, at all processes.
    pub fn sync(&self) -> Result<()> {
        self.check_open()?;
        let done = if self.0.mode.has(FileMode::RDONLY) { Ok(()) } else { self.0.disk.sync() };
        agree_result(&self.0.comm, done)
    }

    /// Whether the file is in atomic mode (MPI 5.0, section 14.6.1).
    pub fn is_atomic(&self) -> bool {
        self.with(|state| state.is_atomic)
    }

    /// Sets or clears atomic mode. Collective (MPI 5.0, section 14.6.1).
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`].
    pub fn set_atomic(&self, is_atomic: bool) -> Result<()> {
        self.check_open()?;
        self.with(|state| state.is_atomic = is_atomic);
        self.barrier()
    }

    /// This process's view (MPI 5.0, section 14.3).
    pub fn view(&self) -> View {
        self.with(|state| state.view.clone())
    }

    /// Changes this process's view and resets all pointers to 0 (`MPI_File_set_view`). Collective (MPI 5.0, section 14.3).
    ///
    /// # Errors
    /// Errors of [`View::new`]; [`Class::UNSUPPORTED_OPERATION`] for a sequential file with another displacement than
    /// `MPI_DISPLACEMENT_CURRENT`, or a random-access file with it.
    pub fn set_view(
        &self,
        displacement: i64,
        etype: Datatype,
        filetype: Datatype,
        representation: Representation,
        info: &Info,
    ) -> Result<()> {
        self.check_open()?;
        let is_sequential = self.0.mode.has(FileMode::SEQUENTIAL);
        if is_sequential != (displacement == DISPLACEMENT_CURRENT) {
            let text = "sequential files need MPI_DISPLACEMENT_CURRENT, and other files another displacement";
            return Err(Error::new(Class::UNSUPPORTED_OPERATION, text));
        }
        let displacement = match is_sequential {
            true => self.byte_offset(self.0.pointer.get()?)?,
            false => displacement,
        };
        let view = View::new(displacement, etype, filetype, representation);
        let done = view.map(|view| {
            self.with(|state| {
                (state.view, state.position) = (view, 0);
                state.hints.update(info);
            });
        });
        // All processes have passed their last use of the shared pointer before this, and none has started its next.
        agree_result(&self.0.comm, done)?;
        self.at_rank_0(|| self.0.pointer.set(0))
    }

    /// The individual pointer, in etypes (MPI 5.0, section 14.4.3).
    ///
    /// # Errors
    /// [`Class::UNSUPPORTED_OPERATION`] for a sequential file.
    pub fn position(&self) -> Result<i64> {
        self.check_open()?;
        self.check_random_access()?;
        Ok(self.with(|state| state.position))
    }

    /// The shared pointer, in etypes (MPI 5.0, section 14.4.4).
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when the first process is lost.
    pub fn shared_position(&self) -> Result<i64> {
        self.check_open()?;
        self.0.pointer.get()
    }

    /// Checks that individual pointers and explicit offsets are allowed.
    pub(super) fn check_random_access(&self) -> Result<()> {
        if self.0.mode.has(FileMode::SEQUENTIAL) {
            let text = "a file opened with MPI_MODE_SEQUENTIAL has only the shared pointer";
            return Err(Error::new(Class::UNSUPPORTED_OPERATION, text));
        }
        Ok(())
    }

    /// The offset in the file at which an etype of the view begins (MPI 5.0, section 14.4.3).
    ///
    /// # Errors
    /// [`Class::ARG`] for a negative number, or one beyond any file.
    pub fn byte_offset(&self, etypes: i64) -> Result<i64> {
        self.check_open()?;
        self.view().byte_offset_of(etypes).map(|byte| byte as i64)
    }

    /// The extent of a datatype in the view's representation, in bytes (MPI 5.0, section 14.5.1).
    ///
    /// # Errors
    /// A conversion's.
    pub fn type_extent(&self, datatype: &Datatype) -> Result<i64> {
        self.check_open()?;
        self.view().representation().file_type(datatype).map(|found| found.extent())
    }

    /// The new value of a pointer.
    fn seek_target(&self, offset: i64, whence: Whence, current: impl FnOnce() -> Result<i64>) -> Result<i64> {
        let from = match whence {
            Whence::Set => 0,
            Whence::Current => current()?,
            Whence::End => self.end_etype()?,
        };
        let wrong = || {
            Error::new(Class::ARG, format_args!("{offset} from etype {from} is before the file's beginning"))
        };
        from.checked_add(offset).filter(|to| *to >= 0).ok_or_else(wrong)
    }

    /// The first etype of the view past the end of the file.
    pub(super) fn end_etype(&self) -> Result<i64> {
        let (view, size) = (self.view(), self.0.disk.size()?);
        Ok(view.bytes_before(size).div_ceil(view.etype_size()) as i64)
    }

    /// Moves the individual pointer (MPI 5.0, section 14.4.3).
    ///
    /// # Errors
    /// [`Class::ARG`] for a position before the start of the view; [`Class::UNSUPPORTED_OPERATION`] for a sequential file.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<()> {
        self.check_open()?;
        self.check_random_access()?;
        let to = self.seek_target(offset, whence, || Ok(self.with(|state| state.position)))?;
        self.with(|state| state.position = to);
        Ok(())
    }

    /// Moves the shared pointer. Collective (MPI 5.0, section 14.4.4).
    ///
    /// # Errors
    /// As [`File::seek`], at all processes.
    pub fn seek_shared(&self, offset: i64, whence: Whence) -> Result<()> {
        self.check_open()?;
        // All processes have completed their earlier uses of it.
        self.barrier()?;
        self.at_rank_0(|| {
            let to = self.seek_target(offset, whence, || self.0.pointer.get())?;
            self.0.pointer.set(to)
        })
    }
}

/// Tells all members whether one has failed. That member returns its own error, the others an error of the same class.
pub(super) fn agree_result<T>(comm: &Comm, done: Result<T>) -> Result<T> {
    let class = done.as_ref().err().map_or(Class::SUCCESS, |error| error.class);
    let classes = comm.oob()?.allgather(comm.rank(), &class.0.to_le_bytes())?;
    let done = done?;
    let classes = classes.chunks_exact(4).map(|four| four.try_into().map_or(0, i32::from_le_bytes));
    match (0..).zip(classes).find(|(_, class)| *class != Class::SUCCESS.0) {
        None => Ok(done),
        Some((rank, class)) => {
            Err(Error::new(Class(class), format_args!("rank {rank} of the file has failed")))
        }
    }
}
