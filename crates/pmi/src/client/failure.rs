//! [`Failure`] and [`RequestError`]: errors between a rank and its process manager.

use crate::mapping::{MappingError, RANKS_MAX};
use crate::spawn::SpawnRequestError;
use crate::value::TextError;
use crate::wire::{COMMAND_LEN_MAX, WireError};
use thiserror::Error;

/// The longest accepted job name, in bytes; it is part of commands, whose length is limited.
pub const NAME_LEN_MAX: usize = 255;
/// Maximum number of group barriers that a rank may wait for at the same time.
pub const BARRIERS_MAX: usize = 16;
/// Why the connection to the server ended. Each later call returns it again.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The input is no message of the protocol.
    #[error("the process manager's message cannot be read: {0}")]
    Wire(#[from] WireError),
    /// A message of another kind than the awaited one.
    #[error("the process manager sent {got:?} where {} was expected", expected.unwrap_or("nothing"))]
    Unexpected {
        /// The received message.
        got: String,
        /// The expected message.
        expected: Option<&'static str>,
    },
    /// The server refuses this rank.
    #[error("the process manager refused {what}: {why}")]
    Refused {
        /// The step of joining.
        what: &'static str,
        /// The server's reason.
        why: String,
    },
    /// The server uses another version.
    #[error(
        "the process manager uses PMI {0}.{1}, which this rank does not support: try the other of PMI-1 and PMI-2"
    )]
    Version(u32, u32),
    /// An invalid rank, or a job with no ranks or too many.
    #[error(
        "rank {rank} of {size} is invalid: a job has between 1 and {RANKS_MAX} ranks, numbered from 0; see PMI_RANK and PMI_SIZE"
    )]
    Placement {
        /// The rank.
        rank: u32,
        /// The job's size.
        size: u32,
    },
    /// No name, or a name longer than [`NAME_LEN_MAX`].
    #[error("the process manager's name for the job has {0} bytes: between 1 and {NAME_LEN_MAX} can be used")]
    Name(usize),
    /// An invalid process mapping.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The stream ended before [`Event::Finalized`](super::Event::Finalized).
    #[error("the process manager closed the connection: the job is being ended, or the process manager died")]
    Closed,
}

/// Why a request was not sent; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RequestError {
    /// Before [`Event::Joined`](super::Event::Joined).
    #[error("the rank has not joined its job yet: wait for Event::Joined")]
    NotJoined,
    /// Before the answer to the last request.
    #[error("the last request is not answered yet: take its event first")]
    Busy,
    /// After the connection has ended, for any reason.
    #[error("the connection to the process manager has ended")]
    Closed,
    /// A text that not every server can carry.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A spawn that not every server understands.
    #[error(transparent)]
    Spawn(#[from] SpawnRequestError),
    /// A group barrier, which this server does not have.
    #[error("the process manager uses PMI {0}.{1}; barriers of groups need 1.2: use a fence")]
    NoGroups(u32, u32),
    /// An invalid group.
    #[error("this rank must be in the group, all of which must be of the job, and no rank twice")]
    Group,
    /// A tag that is not unique among this rank's barriers.
    #[error("the tag {0} is 0, or that of a barrier which this rank awaits: take another")]
    Tag(u32),
    /// More than [`BARRIERS_MAX`].
    #[error("{BARRIERS_MAX} barriers of groups are awaited already: take their events first")]
    TooManyBarriers,
    /// More than [`COMMAND_LEN_MAX`].
    #[error(
        "the command has {0} bytes, {COMMAND_LEN_MAX} is the most that every server reads: name fewer ranks"
    )]
    TooLong(usize),
}
