//! [`Failure`] and [`RequestError`]: what goes wrong between a rank and its process manager.

use crate::mapping::{MappingError, RANKS_MAX};
use crate::spawn::OwnError;
use crate::value::TextError;
use crate::wire::{COMMAND_LEN_MAX, WireError};
use thiserror::Error;

/// The longest name of a job that is taken, in bytes; it stands in commands, whose length is limited.
pub const NAME_LEN_MAX: usize = 255;
/// The most barriers of groups that may be awaited at once.
pub const BARRIERS_MAX: usize = 16;
/// Why there is no more to be had from the server. Each later call returns it again.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// What came is no message of the protocol.
    #[error("the process manager's message cannot be read: {0}")]
    Wire(#[from] WireError),
    /// A message of another kind than the one awaited.
    #[error("the process manager said {got:?} where {} was due: one of the two is out of step", expected.unwrap_or("nothing"))]
    Unexpected {
        /// What came.
        got: String,
        /// What would have been right.
        expected: Option<&'static str>,
    },
    /// The server will not have this rank.
    #[error("the process manager refused {what}: {why}")]
    Refused {
        /// The step of joining.
        what: &'static str,
        /// Its words.
        why: String,
    },
    /// The server speaks another version.
    #[error(
        "the process manager speaks PMI {0}.{1}, which is not spoken here: try the other of PMI-1 and PMI-2"
    )]
    Version(u32, u32),
    /// A rank beyond its job, or a job without ranks, or of too many.
    #[error(
        "rank {rank} of {size} cannot be: a job has between 1 and {RANKS_MAX} ranks, numbered from 0; see PMI_RANK and PMI_SIZE"
    )]
    Placement {
        /// The rank.
        rank: u32,
        /// The job's size.
        size: u32,
    },
    /// No name, or one longer than [`NAME_LEN_MAX`].
    #[error("the process manager's name for the job has {0} bytes: between 1 and {NAME_LEN_MAX} can be used")]
    Name(usize),
    /// A process mapping that is none.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The stream ended before [`Event::Finalized`](super::Event::Finalized).
    #[error("the process manager closed the connection: the job is being ended, or the process manager died")]
    Closed,
}

/// Why a request was not made; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RequestError {
    /// Before [`Event::Joined`](super::Event::Joined).
    #[error("the rank has not joined its job yet: wait for Event::Joined")]
    NotJoined,
    /// Before the answer to the last.
    #[error("the last request is not answered yet: take its event first")]
    Busy,
    /// After the end, by whatever cause.
    #[error("the connection to the process manager is over")]
    Over,
    /// A text that not every server carries.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A spawn that not every server understands.
    #[error(transparent)]
    Spawn(#[from] OwnError),
    /// A barrier that this server does not have.
    #[error("the process manager speaks PMI {0}.{1}; barriers of groups need 1.2: use a fence")]
    NoGroups(u32, u32),
    /// A barrier that cannot end.
    #[error("this rank must be in the group, all of which must be of the job, and no rank twice")]
    Group,
    /// A tag that cannot tell this barrier from others.
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
