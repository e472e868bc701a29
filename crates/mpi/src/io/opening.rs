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
use crate::io::object::{File, Inner, State, agreed, bytes};
use crate::io::place::Whence;
use crate::io::pointer::Pointer;

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
            return Err(Error::new(Class::COMM, "a file is opened by an intracommunicator"));
        }
        let comm = comm.copy(Some(comm.agree()?))?;
        let modes = comm.talk()?.told_by_all(comm.rank(), &mode.number().to_le_bytes())?;
        if modes.chunks_exact(4).any(|four| four != mode.number().to_le_bytes()) {
            return Err(Error::new(
                Class::NOT_SAME,
                "amode: the members of the communicator pass different ones",
            ));
        }
        let disk = open_by_all(&comm, path, mode)?;
        let mut hints = Hints::default();
        hints.learn(info);
        let inner = Inner {
            id: comm.core().next_id(),
            mode,
            disk,
            pointer: Pointer::new(&comm)?,
            turn: Lock::default(),
            state: Lock::new(State::new(bytes()?, hints, errhandler)),
            is_closed: AtomicBool::new(false),
            comm,
        };
        let file = Self(Arc::new(inner));
        if mode.has(FileMode::APPEND) {
            let end = file.end()?;
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
            return Err(Error::new(Class::IO, "a split collective operation has begun and not ended"));
        }
        // All processes have completed their operations on it.
        self.barrier()?;
        self.0.is_closed.store(true, Ordering::Relaxed);
        let freed = self.0.pointer.free();
        let is_deleted = self.0.mode.has(FileMode::DELETE_ON_CLOSE) && self.0.comm.rank() == 0;
        let done = if is_deleted { delete(self.0.disk.path()) } else { Ok(()) };
        agreed(&self.0.comm, freed.and(done))?;
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
    let first = agreed(comm, if is_first { Disk::open(path, mode).map(Some) } else { Ok(None) })?;
    let others = mode.without(FileMode::CREATE).without(FileMode::EXCL);
    let disk = match first {
        Some(disk) => Ok(disk),
        None => Disk::open(path, others),
    };
    let is_made = is_first && mode.has(FileMode::CREATE) && mode.has(FileMode::EXCL);
    agreed(comm, disk).inspect_err(|_| {
        if is_made {
            // Removes a file that nobody can use. The first error matters more than a failure of this.
            let _ = delete(path);
        }
    })
}
