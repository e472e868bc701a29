//! Opens, closes and deletes files (MPI 5.0, section 14.2).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host::Lock;

use crate::comm::communicator::Comm;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::io::disk::{Disk, delete};
use crate::io::hints::Hints;
use crate::io::mode::FileMode;
use crate::io::object::{File, FileState, Inner, agree_result, byte_view};
use crate::io::pointer::SharedPointer;
use crate::io::position::Whence;

impl File {
    /// Opens a file together with all members of a communicator (`MPI_File_open`). Collective (MPI 5.0, section 14.2.1).
    ///
    /// # Errors
    /// [`Class::COMM`] for an intercommunicator; [`Class::NOT_SAME`] for members that pass different modes; an error of the file
    /// system, at all members; [`Class::PROC_ABORTED`].
    pub fn open(
        comm: &Comm,
        path: &Path,
        mode: FileMode,
        info: &Info,
        errhandler: Errhandler,
    ) -> Result<Self> {
        if comm.is_inter() {
            return Err(Error::new(Class::COMM, "MPI_File_open needs an intracommunicator"));
        }
        let comm = comm.copy(Some(comm.agree_context()?))?;
        let modes = comm.oob()?.allgather(comm.rank(), &mode.number().to_le_bytes())?;
        if modes.chunks_exact(4).any(|four| four != mode.number().to_le_bytes()) {
            return Err(Error::new(
                Class::NOT_SAME,
                "amode: the members of the communicator have passed different modes",
            ));
        }
        let disk = open_by_all(&comm, path, mode)?;
        let mut hints = Hints::default();
        hints.update(info);
        let inner = Inner {
            id: comm.core().next_id(),
            mode,
            disk,
            pointer: SharedPointer::new(&comm)?,
            atomic_lock: Lock::default(),
            state: Lock::new(FileState::new(byte_view()?, hints, errhandler)),
            is_closed: AtomicBool::new(false),
            comm,
        };
        let file = Self(Arc::new(inner));
        if mode.has(FileMode::APPEND) {
            let end = file.end_etype()?;
            file.with(|state| state.position = end);
            file.seek_shared(0, Whence::End)?;
        }
        Ok(file)
    }

    /// Closes the file (`MPI_File_close`). Collective (MPI 5.0, section 14.2.2).
    ///
    /// # Errors
    /// The file system's when the file is deleted; [`Class::IO`] while a split operation is active; [`Class::PROC_ABORTED`].
    pub fn close(&self) -> Result<()> {
        self.check_open()?;
        if self.with(|state| state.split.is_some()) {
            return Err(Error::new(Class::IO, "a split collective operation is active; end it first"));
        }
        // All processes have completed their operations on it.
        self.barrier()?;
        self.0.is_closed.store(true, Ordering::Relaxed);
        let freed = self.0.pointer.free();
        let is_deleted = self.0.mode.has(FileMode::DELETE_ON_CLOSE) && self.0.comm.rank() == 0;
        let done = if is_deleted { delete(self.0.disk.path()) } else { Ok(()) };
        agree_result(&self.0.comm, freed.and(done))?;
        self.0.comm.free()
    }

    /// Deletes a file (`MPI_File_delete`; MPI 5.0, section 14.2.3).
    ///
    /// # Errors
    /// The file system's.
    pub fn delete(path: &Path) -> Result<()> {
        delete(path)
    }
}

/// The first member creates the file, and then the others open it.
fn open_by_all(comm: &Comm, path: &Path, mode: FileMode) -> Result<Disk> {
    let is_first = comm.rank() == 0;
    let first = agree_result(comm, if is_first { Disk::open(path, mode).map(Some) } else { Ok(None) })?;
    let others = mode.without(FileMode::CREATE).without(FileMode::EXCL);
    let disk = match first {
        Some(disk) => Ok(disk),
        None => Disk::open(path, others),
    };
    let is_made = is_first && mode.has(FileMode::CREATE) && mode.has(FileMode::EXCL);
    agree_result(comm, disk).inspect_err(|_| {
        if is_made {
            // Removes a file that nobody can use. The first error matters more than a failure of this.
            let _ = delete(path);
        }
    })
}
