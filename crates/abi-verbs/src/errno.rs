//! [`Errno`]: C error numbers with their reasons, and the conversion from `verbs` errors.

use std::borrow::Cow;
use std::fmt;

use ffi::log;
use host::real::remark;
use verbs::Error;

/// The meaning of two errors.
pub(crate) const NOT_SUPPORTED: &str =
    "this library does not have the function or the feature; docs/reference/support.md lists what it has";

/// An error number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    pub(crate) const NOMEM: Self = Self(libc::ENOMEM);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const NODATA: Self = Self(libc::ENODATA);
    pub(crate) const NODEV: Self = Self(libc::ENODEV);
    pub(crate) const NOSYS: Self = Self(libc::ENOSYS);
    pub(crate) const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// An internal error of this library.
    pub(crate) const IO: Self = Self(libc::EIO);

    /// Attaches the reason, for the log of failed calls: the argument or object, what is wrong with it, and what to do.
    #[cold]
    pub(crate) fn because(self, reason: fmt::Arguments<'_>) -> Self {
        log::explain(self.0, reason);
        self
    }

    /// Cleans up after this error; its reason stays, whatever errors that meets.
    #[cold]
    pub(crate) fn after(self, cleanup: impl FnOnce()) -> Self {
        let reason = log::take_reason(self.0);
        cleanup();
        reason.into_iter().for_each(|reason| log::explain(self.0, reason));
        self
    }

    /// As [`Errno::because`]; the reason goes to standard error even if failed calls are not logged.
    #[cold]
    pub(crate) fn remarked(self, reason: fmt::Arguments<'_>) -> Self {
        if !log::reports_errors() {
            remark(reason);
        }
        self.because(reason)
    }

    /// Its name and, for the log, its meaning.
    fn text(self) -> (Cow<'static, str>, Cow<'static, str>) {
        let (name, meaning) = match self.0 {
            libc::EINVAL => ("EINVAL", "an argument is invalid"),
            libc::ENOMEM => ("ENOMEM", "memory or the room for such objects is exhausted"),
            libc::EBUSY => ("EBUSY", "the object is in use"),
            libc::ENODEV => ("ENODEV", "there is no such device"),
            libc::ENOSYS => ("ENOSYS", NOT_SUPPORTED),
            libc::EOPNOTSUPP => ("EOPNOTSUPP", NOT_SUPPORTED),
            libc::EIO => ("EIO", "an internal error of this library, described above"),
            libc::EFAULT => ("EFAULT", "memory of the program is not accessible"),
            libc::ETIMEDOUT => ("ETIMEDOUT", "it took too long"),
            libc::EADDRINUSE => ("EADDRINUSE", "the address is in use"),
            libc::EADDRNOTAVAIL => ("EADDRNOTAVAIL", "the address is not one of this host"),
            libc::ECONNREFUSED => ("ECONNREFUSED", "the peer has rejected the connection"),
            libc::ECONNRESET => ("ECONNRESET", "the connection broke"),
            libc::ENETUNREACH => ("ENETUNREACH", "no device reaches the address"),
            libc::EHOSTUNREACH => ("EHOSTUNREACH", "no device reaches the address"),
            libc::ENOENT => ("ENOENT", "there is none"),
            libc::EACCES => ("EACCES", "the system denies access"),
            other => {
                let meaning = std::io::Error::from_raw_os_error(other).to_string();
                return (format!("errno {other}").into(), meaning.into());
            }
        };
        (name.into(), meaning.into())
    }

    /// Reports a failed call with its reason. Errors that a program expects are not reported: a nonblocking call that finds nothing or goes
    /// on in the background, and a signal.
    #[cold]
    pub(crate) fn report(self, call: &str) {
        if !log::reports_errors() || self.0 == libc::EINTR {
            return;
        }
        let reason = log::take_reason(self.0);
        if matches!(self.0, libc::EAGAIN | libc::EINPROGRESS | libc::EAFNOSUPPORT) && reason.is_none() {
            return;
        }
        let (name, meaning) = self.text();
        let reason = reason.map_or(meaning, Cow::Owned);
        log::failure(call, &format!("{reason} ({name})"));
    }

    /// Stores the number in errno(3).
    pub(crate) fn store(self) {
        // SAFETY: the address of this thread's errno. Test: `nonsense_is_answered` in tests/programs.rs.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// An error number with its reason, as by [`Errno::because`].
macro_rules! errno {
    ($name:ident, $($reason:tt)+) => {
        $crate::errno::Errno::$name.because(format_args!($($reason)+))
    };
}

pub(crate) use errno;

/// The error of a NULL address of an argument.
#[cold]
pub(crate) fn missing(argument: &str) -> Errno {
    Errno::INVAL.because(format_args!("{argument} is NULL; pass the address of one"))
}

/// The argument of C for a quantity that a device limits, as the beginning of a sentence.
fn argument(what: &str) -> &'static str {
    match what {
        "send requests" => "cap.max_send_wr: ",
        "receives" => "cap.max_recv_wr: ",
        "pieces of a send request" => "cap.max_send_sge: ",
        "pieces of a receive" => "cap.max_recv_sge: ",
        "inline bytes" => "cap.max_inline_data: ",
        "the number of SGEs" => "wr.num_sge: ",
        "bytes in the message" => "wr.sg_list: ",
        "entries of the completion queue" => "cqe: ",
        _ => "",
    }
}

impl From<Error> for Errno {
    #[cold]
    fn from(error: Error) -> Self {
        let number = match &error {
            Error::Unsupported { .. } => Self::OPNOTSUPP,
            Error::QueueFull { .. } => Self::NOMEM,
            Error::Busy { .. } => Self::BUSY,
            Error::Memory { .. } => Self(libc::EFAULT),
            Error::TimedOut { .. } => Self(libc::ETIMEDOUT),
            Error::Address { .. } => Self(libc::EADDRNOTAVAIL),
            Error::DeviceGone { .. } | Error::Forked => Self::NODEV,
            Error::System { errno, .. } => Self(errno.unwrap_or(libc::EIO)),
            _ => Self::INVAL,
        };
        match error {
            Error::Limit { what, given, limit } => {
                let argument = argument(what);
                number.because(format_args!(
                    "{argument}{what} is {given}, but at most {limit} is possible; pass less"
                ))
            }
            error => number.because(format_args!("{error}")),
        }
    }
}

impl From<rustix::io::Errno> for Errno {
    #[cold]
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
            .because(format_args!("the system refuses a descriptor, memory or a thread: {error}"))
    }
}
