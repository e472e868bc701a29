//! [`Profiles`]: what ranks leave of their calls, taken when they leave, and shown when the job is over.

use pmi::profile::Profile;
use pmi::server::{RankId, Server};
use report::{JobProfile, profile_page, profile_text};
use results::plain;

use super::plan::{PROFILE_OPTION, Plan};
use crate::args::Target;
use crate::error::Failure;
use crate::output::{self, Wanted};
use crate::term::Stream;

/// The profiles of all jobs, by job and rank.
#[derive(Debug)]
pub(super) struct Profiles {
    program: String,
    page: Target,
    jobs: Vec<JobProfile>,
}

impl Profiles {
    /// None yet, if the command line wants any.
    pub(super) fn of(plan: &Plan) -> Option<Self> {
        let page = plan.profile.clone()?;
        let command = plan.ranks.first().and_then(|rank| rank.start.command.first());
        let program = command.map(|name| plain::line(&name.to_string_lossy())).unwrap_or_default();
        Some(Self { program, page, jobs: Vec::new() })
    }

    /// The next job begins, of so many ranks.
    pub(super) fn begin(&mut self, ranks: usize) {
        self.jobs.push(JobProfile { ranks: vec![None; ranks] });
    }

    /// A rank leaves: takes what it has left.
    pub(super) fn take(&mut self, server: &Server, id: RankId) {
        let Some(job) = self.jobs.get_mut(id.job() as usize) else { return };
        let found = Profile::of_notes(id.rank(), job.ranks.len(), |key| server.value(id, key));
        // What is no profile counts as none.
        job.ranks[id.rank() as usize] = found.and_then(Result::ok);
    }

    /// Tables on standard error, since standard output is the program's; the page.
    ///
    /// # Errors
    /// What cannot be written.
    pub(super) fn show(&self) -> Result<(), Failure> {
        let people = Stream::Err;
        people.print(&profile_text(&self.jobs, people.width(), people.colour()))?;
        let page = profile_page(&self.program, &self.jobs);
        output::write(Wanted { option: PROFILE_OPTION, target: &self.page }, &page)?;
        match &self.page {
            Target::File(path) => people.print(&format!("who sends to whom, drawn: {}\n", path.display())),
            Target::Stdout => Ok(()),
        }
    }
}
