//! [`Violation`]: what a rank did that the protocol does not have.

use crate::spawn::PeerError;
use crate::wire::WireError;
use thiserror::Error;

/// The most barriers that a rank may wait in at once.
pub const BARRIERS_MAX: usize = 16;
/// Answers that a rank may leave unread.
pub const UNREAD_MAX: usize = 64;

/// What a rank did that the protocol does not have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// Not a message.
    #[error("its message cannot be read: {0}")]
    Wire(#[from] WireError),
    /// Not a request to spawn.
    #[error(transparent)]
    Spawn(#[from] PeerError),
    /// A message that is not served.
    #[error("it asks for {0:?}, which PMI 1.2 does not have")]
    Unknown(String),
    /// Something before `init`, a second `init`, or something after `finalize`.
    #[error("it says {0:?} where that cannot stand: init comes first and once, finalize last")]
    Order(String),
    /// A request before the last was answered.
    #[error("it says {0:?} before the answer to its last request")]
    OutOfTurn(String),
    /// More than [`UNREAD_MAX`].
    #[error("it leaves more than {UNREAD_MAX} answers unread")]
    Unread,
    /// More than [`BARRIERS_MAX`].
    #[error("it waits in more than {BARRIERS_MAX} barriers at once")]
    TooManyBarriers,
    /// A group that is none, does not have the rank in it, or is waited for by it already.
    #[error("it cannot wait for the group {0:?}")]
    Group(String),
}
