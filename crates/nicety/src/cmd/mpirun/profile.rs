//! [`Page`]: prints the profiles of ranks and writes their page when the job has ended.

use std::path::PathBuf;

use launcher::Program;
use report::{JobProfile, profile_page, profile_text};
use results::plain;

use crate::args::Target;
use crate::error::Failure;
use crate::output::{self, Wanted};
use crate::term::Stream;

/// The option that requests profiles.
const OPTION: &str = "--profile";

/// The requested page.
#[derive(Debug)]
pub(super) struct Page(Target);

impl Page {
    /// A page in this file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn new(path: PathBuf) -> Result<Self, Failure> {
        let page = Self(Target::File(path));
        output::check(&[page.requested_output()])?;
        Ok(page)
    }

    fn requested_output(&self) -> Wanted<'_> {
        Wanted { option: OPTION, target: &self.0 }
    }

    /// Prints tables on standard error, as standard output belongs to the program, and writes the page.
    ///
    /// # Errors
    /// If a table or the page cannot be written.
    pub(super) fn write_and_report(&self, programs: &[Program], jobs: &[JobProfile]) -> Result<(), Failure> {
        let people = Stream::Err;
        people.print(&profile_text(jobs, people.width(), people.colour()))?;
        let command = programs.first().and_then(|program| program.command.first());
        let program = command.map(|name| plain::line(&name.to_string_lossy())).unwrap_or_default();
        output::write(self.requested_output(), &profile_page(&program, jobs))?;
        match &self.0 {
            Target::File(path) => people.print(&format!("Profile: {}\n", path.display())),
            Target::Stdout => Ok(()),
        }
    }
}
