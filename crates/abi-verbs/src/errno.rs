//! [`Errno`]: C error numbers, and the conversion from `verbs` errors.

use verbs::Error;

/// An error number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    pub(crate) const NOMEM: Self = Self(libc::ENOMEM);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const NODEV: Self = Self(libc::ENODEV);
    pub(crate) const NOSYS: Self = Self(libc::ENOSYS);
    pub(crate) const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// An internal error of this library.
    pub(crate) const IO: Self = Self(libc::EIO);

    /// Stores the number in errno(3).
    pub(crate) fn store(self) {
        // SAFETY: the address of this thread's errno. Test: `nonsense_is_answered` in tests/programs.rs.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        match error {
            Error::Unsupported { .. } => Self::OPNOTSUPP,
            Error::QueueFull { .. } => Self::NOMEM,
            Error::Busy { .. } => Self::BUSY,
            Error::Memory { .. } => Self(libc::EFAULT),
            Error::TimedOut { .. } => Self(libc::ETIMEDOUT),
            Error::Address { .. } => Self(libc::EADDRNOTAVAIL),
            Error::DeviceGone { .. } | Error::Forked => Self::NODEV,
            Error::System { errno, .. } => Self(errno.unwrap_or(libc::EIO)),
            _ => Self::INVAL,
        }
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}
