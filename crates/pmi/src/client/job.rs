//! [`Job`]: a rank's information about its job.

use super::failure::Failure;
use crate::mapping::RANKS_MAX;
use crate::value::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::wire::COMMAND_LEN_MAX;

/// Bytes that a server may put around a value in its answer, whose length is limited like a command's.
const REPLY_OVERHEAD: usize = 64;

/// A rank's information about its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// This rank.
    pub rank: u32,
    /// Number of ranks in the job, at least one.
    pub size: u32,
    /// The name of the job's key-value space.
    pub name: String,
    /// The index of this rank's program among the job's, if the launcher reports it.
    pub appnum: Option<u32>,
    /// The maximum number of ranks in total, if it is limited.
    pub universe_size: Option<u32>,
    /// The node of each rank, if the launcher reports it.
    pub nodes: Option<Vec<u32>>,
    /// The server's protocol: version and subversion.
    pub version: (u32, u32),
    /// The longest key in bytes.
    pub key_len_max: usize,
    /// The longest value in bytes; see [`Self::value_len_max_for`].
    pub value_len_max: usize,
}

impl Job {
    pub(super) fn new(rank: u32, size: u32) -> Self {
        let (key_len_max, value_len_max) = (KEY_LEN_MAX, VALUE_LEN_MAX);
        let (name, version) = (String::new(), (0, 0));
        let (appnum, universe_size, nodes) = (None, None, None);
        Self { rank, size, name, appnum, universe_size, nodes, version, key_len_max, value_len_max }
    }

    /// The longest value, in bytes, that fits into a put of this key.
    #[must_use]
    pub fn value_len_max_for(&self, key: &str) -> usize {
        let command = "cmd=put kvsname= key= value=\n".len() + self.name.len() + key.len();
        self.value_len_max.min(COMMAND_LEN_MAX.saturating_sub(command.max(REPLY_OVERHEAD)))
    }
}

/// Returns the job if its size is within the limit and its rank below the size.
pub(super) fn check_rank_and_size(job: Job) -> Result<Job, Failure> {
    let Job { rank, size, .. } = job;
    if rank < size && size <= RANKS_MAX { Ok(job) } else { Err(Failure::Placement { rank, size }) }
}
