//! [`Error`]: why a call failed. The result of a posted request is a [`crate::WcStatus`].

use std::net::SocketAddr;

use crate::qp_state::QpState;

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. A call that returns one of these has had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The NIC does not support the operation (EOPNOTSUPP of ibv_*(3)).
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The name of the device.
        device: String,
        /// The operation.
        what: &'static str,
    },
    /// A size, count or value beyond what the device or the object allows.
    #[error("{what} is {given}, but at most {limit} is possible")]
    Limit {
        /// The quantity, with its unit.
        what: &'static str,
        /// The requested value.
        given: u64,
        /// The largest possible value.
        limit: u64,
    },
    /// Memory of the program that is not mapped, or not with the required access (EFAULT of ibv_reg_mr(3)).
    #[error("the {len} bytes of memory at {addr:#x} cannot be used: {why}")]
    Memory {
        /// Its first address.
        addr: u64,
        /// Its length in bytes.
        len: u64,
        /// The reason.
        why: String,
    },
    /// An invalid argument.
    #[error("{0}")]
    Invalid(String),
    /// The send, receive or shared receive queue has no free entry (ENOMEM of ibv_post_send(3)).
    #[error("the {queue} queue is full: {depth} work requests are outstanding; poll its completions first")]
    QueueFull {
        /// `send`, `receive` or `shared receive`.
        queue: &'static str,
        /// Its depth.
        depth: u32,
    },
    /// More completions arrived than the completion queue holds; it and its queue pairs have failed (IBA 11.6.3.1).
    #[error("the completion queue overran its {cqe} entries; make it larger or poll it more often")]
    CqOverrun {
        /// Its size.
        cqe: u32,
    },
    /// The queue pair is in a state that does not allow the call (IBA 10.3.1).
    #[error("{call} is not allowed in state {state:?} of the queue pair")]
    WrongState {
        /// The call.
        call: &'static str,
        /// The state of the queue pair.
        state: QpState,
    },
    /// The caller passed an object of another device, or of another protection domain.
    #[error("{what} belongs to another device or protection domain")]
    Foreign {
        /// The object.
        what: &'static str,
    },
    /// The object is still in use and cannot be removed (EBUSY).
    #[error("{what} is still in use: {why}")]
    Busy {
        /// The object.
        what: &'static str,
        /// The user.
        why: String,
    },
    /// The address cannot be used to listen on or to connect to.
    #[error("{addr}: {why}")]
    Address {
        /// The address.
        addr: SocketAddr,
        /// What is wrong with it and what to do.
        why: String,
    },
    /// The deadline passed first.
    #[error("{call} did not finish in time")]
    TimedOut {
        /// The call that waited.
        call: &'static str,
    },
    /// The device has disappeared, or was closed.
    #[error("{device} is gone: {why}")]
    DeviceGone {
        /// The device.
        device: String,
        /// Why.
        why: String,
    },
    /// The device was opened by the parent, before fork(2); only the parent can use it.
    #[error("the device belongs to the process that opened it; a forked child opens one of its own")]
    Forked,
    /// The operating system refused something that the device needs.
    #[error("{what}: {why}")]
    System {
        /// The operation, and what to do if that is known.
        what: String,
        /// The system's message.
        why: String,
        /// The system's error number (errno(3)), if any.
        errno: Option<i32>,
    },
}

impl Error {
    /// An [`Error::System`] from an error of the operating system.
    pub fn system(what: impl Into<String>, why: impl Into<std::io::Error>) -> Self {
        let why = why.into();
        Self::System { what: what.into(), errno: why.raw_os_error(), why: why.to_string() }
    }

    /// `Ok` if `given <= limit`, else [`Error::Limit`].
    ///
    /// # Errors
    /// [`Error::Limit`] that names `what`.
    pub fn check_limit(what: &'static str, given: u64, limit: u64) -> Result<()> {
        if given <= limit { Ok(()) } else { Err(Self::Limit { what, given, limit }) }
    }

    /// `Ok` if `given` is in `1..=limit`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0, [`Error::Limit`] for more; both name `what`.
    pub(crate) fn check_count(what: &'static str, given: u32, limit: u32) -> Result<()> {
        if given == 0 {
            return Err(Self::Invalid(format!("the number of {what} must be at least 1")));
        }
        Self::check_limit(what, given.into(), limit.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_error_keeps_errno() {
        let denied = std::io::Error::from_raw_os_error(13);
        let error = Error::system("cannot map the segment", denied);
        assert!(matches!(error, Error::System { errno: Some(13), .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot map the segment: Permission denied"), "{error}");
    }
}
