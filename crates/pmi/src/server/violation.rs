//! [`Violation`]: how a rank violated the protocol.

use crate::spawn::SpawnParseError;
use crate::wire::WireError;
use thiserror::Error;

/// Maximum number of barriers that a rank may wait in at the same time.
pub const BARRIERS_MAX: usize = 16;
/// Maximum number of answers that a rank may leave unread.
pub const UNREAD_MAX: usize = 64;

/// How a rank violated the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// Not a message.
    #[error("its message cannot be read: {0}")]
    Wire(#[from] WireError),
    /// Not a valid spawn request.
    #[error(transparent)]
    Spawn(#[from] SpawnParseError),
    /// An unknown message.
    #[error("it asks for '{0}', which PMI 1.2 does not have")]
    Unknown(String),
    /// A message before `init`, a second `init`, or a message after `finalize`.
    #[error("it says '{0}' where that cannot stand: init comes first and once, finalize last")]
    Order(String),
    /// A request before the last was answered.
    #[error("it says '{0}' before the answer to its last request")]
    OutOfTurn(String),
    /// More than [`UNREAD_MAX`].
    #[error("it leaves more than {UNREAD_MAX} answers unread")]
    Unread,
    /// More than [`BARRIERS_MAX`].
    #[error("it waits in more than {BARRIERS_MAX} barriers at once")]
    TooManyBarriers,
    /// A group that is invalid, does not include the rank, or that the rank already waits for.
    #[error("it cannot wait for the group '{0}'")]
    Group(String),
}
