//! [`Space`]: the room for buffered sends, and how much of it is taken.

use crate::error::{Class, Error, Result};

/// Space for buffered sends (`MPI_Buffer_attach`). What the program gives is counted and not written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BsendSpace {
    /// None is attached.
    #[default]
    None,
    /// As much as is needed (`MPI_BUFFER_AUTOMATIC`).
    Automatic,
    /// The program's, so many bytes at an address.
    Given {
        /// Its address.
        address: usize,
        /// Its size in bytes.
        size: u64,
    },
}

/// Bytes that a buffered message takes beside its data (`MPI_BSEND_OVERHEAD`).
pub const BSEND_OVERHEAD: u64 = 512;

/// The space that is attached, and what is taken of it.
#[derive(Debug, Default)]
pub(crate) struct Space {
    attached: BsendSpace,
    taken: u64,
}

impl Space {
    /// Attaches the space that sends are counted in from now on.
    ///
    /// # Errors
    /// [`Class::BUFFER`] when there is some already.
    pub(crate) fn attach(&mut self, space: BsendSpace) -> Result<()> {
        if self.attached != BsendSpace::None {
            return Err(Error::new(Class::BUFFER, "a buffer for sends is attached already; detach it first"));
        }
        self.attached = space;
        Ok(())
    }

    /// Detaches the space, once nothing is in it.
    pub(crate) fn detach(&mut self) -> Option<BsendSpace> {
        self.is_flushed().then(|| std::mem::take(&mut self.attached))
    }

    /// Whether no buffered send is under way.
    pub(crate) fn is_flushed(&self) -> bool {
        self.taken == 0
    }

    /// Bytes of the space that a message of `len` bytes takes.
    ///
    /// # Errors
    /// [`Class::BUFFER`] when there is less.
    pub(crate) fn needed(&self, len: u64) -> Result<u64> {
        let needed = len.saturating_add(BSEND_OVERHEAD);
        let room = match self.attached {
            BsendSpace::None => 0,
            BsendSpace::Automatic => u64::MAX,
            BsendSpace::Given { size, .. } => size,
        };
        if needed > room.saturating_sub(self.taken) {
            let text =
                format!("a buffered send needs {needed} bytes, but {} of {room} are taken", self.taken);
            return Err(Error::new(Class::BUFFER, text + "; attach a larger buffer (MPI_Buffer_attach)"));
        }
        Ok(needed)
    }

    /// So many bytes are taken until [`Space::give_back`].
    pub(crate) fn take(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// So many bytes are free again.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.taken -= bytes;
    }
}
