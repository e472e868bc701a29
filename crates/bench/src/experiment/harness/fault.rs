//! [`Fault`]: why a cell could not be measured.

use verbs::WcStatus;

/// Why a cell could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The device refused a call.
    #[error("{0}")]
    Device(#[from] verbs::Error),
    /// Posted work failed.
    #[error("{what} ended with {status:?}")]
    Completion {
        /// The posted request.
        what: &'static str,
        /// How it ended.
        status: WcStatus,
    },
    /// Data arrived that was not sent.
    #[error("wrong data: {0}; do not trust this device, and please report it")]
    Corrupt(String),
    /// The connection could not be made, or was lost.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// A call of MPI failed.
    #[error("MPI: {0}")]
    Mpi(#[from] mpi::Error),
    /// The other side failed, with its own error text.
    #[error("the peer says: {0}")]
    Peer(String),
    /// The control connection failed.
    #[error("the control connection failed: {0}")]
    Control(String),
    /// The other side did not do its part in time.
    #[error("{0} did not finish in time; the peer may hang, or --set patience is too short")]
    TimedOut(&'static str),
    /// The cell makes no sense.
    #[error("cannot measure {0}")]
    Meaningless(String),
    /// Something required does not exist.
    #[error("{0}")]
    Absent(String),
    /// The other side lost this cell, with its own error text.
    #[error("on the peer's side: {0}")]
    LostByPeer(String),
    /// The machine lacks a requirement of the measurement.
    #[error("not possible on this machine: {0}")]
    Machine(String),
    /// A stop was requested.
    #[error("interrupted")]
    Stopped,
}

impl Fault {
    /// Whether only this cell is lost: the next one may work. False if the sides can no longer communicate, and if
    /// data was wrong: all numbers of such a device are meaningless.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !matches!(self, Self::Corrupt(_) | Self::Peer(_) | Self::Control(_) | Self::Stopped)
    }
}
