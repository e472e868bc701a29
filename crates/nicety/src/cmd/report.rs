//! `nicety report`: the page for runs that were measured before.

use bench::schema::{ReadError, Run};
use report::html;
use report::number::plural;

use crate::args::ReportArgs;
use crate::error::{Failure, OK, Outcome};
use crate::output::{self, Wanted};
use crate::term::Stream;

/// Writes one page for all the runs given.
///
/// # Errors
/// Runs that cannot be read, a page that cannot be written.
pub(crate) fn run(args: &ReportArgs) -> Outcome {
    let wanted = Wanted { option: "--output", target: &args.output };
    output::check(&[wanted])?;
    let read = |path| Run::read(path).map_err(|why: ReadError| Failure::run(why));
    let runs: Vec<Run> = args.runs.iter().map(read).collect::<Result<_, _>>()?;
    output::write(wanted, &html(&runs).map_err(Failure::run)?)?;
    if let Some(path) = args.output.file() {
        Stream::Out.print(&format!(
            "Report of {}: {} (open it in a browser)\n",
            plural(runs.len(), "run"),
            path.display()
        ))?;
    }
    Ok(OK)
}
