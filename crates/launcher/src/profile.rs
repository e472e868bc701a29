//! [`Profiles`]: collects the profile that each rank leaves when it finalizes.

use pmi::profile::Profile;
use pmi::server::{RankId, Server};
use report::JobProfile;

/// The profiles of all jobs, by job and rank.
#[derive(Debug, Default)]
pub(super) struct Profiles(Vec<JobProfile>);

impl Profiles {
    /// Adds a job of this many ranks.
    pub(super) fn add_job(&mut self, ranks: usize) {
        self.0.push(JobProfile { ranks: vec![None; ranks] });
    }

    /// Stores the profile of a rank that has finalized.
    pub(super) fn add_rank(&mut self, server: &Server, id: RankId) {
        let Some(job) = self.0.get_mut(id.job() as usize) else { return };
        let found = Profile::from_notes(id.rank(), job.ranks.len(), |key| server.value(id, key));
        // A malformed profile counts as none.
        job.ranks[id.rank() as usize] = found.and_then(Result::ok);
    }

    /// The profiles in the order in which their jobs were started.
    pub(super) fn into_jobs(self) -> Vec<JobProfile> {
        self.0
    }
}
