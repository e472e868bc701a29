//! [`Sample`]: what one cell gave in one launch, as it is collected and kept.

use serde::{Deserialize, Serialize};

use super::job::Sampling;
use crate::experiment::driver::Record;
use results::schema::ClockInfo;

/// One cell in one launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) clock: ClockInfo,
    pub(super) sampling: Sampling,
    pub(super) record: Record,
    pub(super) switches: u64,
}
