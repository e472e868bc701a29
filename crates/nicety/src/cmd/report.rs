//! `nicety report`: creates the page, or prints the screen, for runs that were measured before.

use std::path::Path;

use report::number::plural;
use report::{differences, html, name_run, osu};
use results::plain;
use results::schema::{ReadError, Run};

use super::shown::{self, Form};
use crate::args::ReportArgs;
use crate::config::Config;
use crate::error::{Failure, OK, Outcome};
use crate::output::{self, Wanted};
use crate::term::Stream;

/// Writes one page for all given runs, or prints each.
///
/// # Errors
/// If a run cannot be read, or the page cannot be written.
pub(crate) fn run(args: &ReportArgs) -> Outcome {
    let wanted = Wanted { option: "--output", target: &args.output };
    if !args.text {
        output::check(&[wanted])?;
    }
    let read = |path| Run::read(path).map_err(|why: ReadError| Failure::usage(why));
    let mut runs: Vec<Run> = args.runs.iter().map(read).collect::<Result<_, _>>()?;
    if args.text {
        let form = Form::of(&args.shown, &Config::read(None)?);
        if let Some((_, path)) =
            runs.iter().zip(&args.runs).find(|(run, _)| form == Form::Osu && osu(run).is_none())
        {
            return Err(Failure::usage(format!(
                "{} has no result of mpi-... for --osu; measure with `nicety bench mpi-latency --json FILE`",
                path.display()
            )));
        }
        let texts: Vec<String> =
            runs.iter().map(|run| shown::text(run, form, (Stream::Out, false), 0)).collect();
        Stream::Out.print(&texts.join("\n"))?;
        return Ok(OK);
    }
    if runs.len() > 1 {
        runs.iter_mut()
            .zip(&args.runs)
            .for_each(|(run, path)| name_run(run, &plain::line(&name(path, &args.runs))));
    }
    output::write(wanted, &html(&runs).map_err(Failure::run)?)?;
    if let Some(path) = args.output.file() {
        let differences: String = differences(&runs).iter().map(|line| format!("{line}\n")).collect();
        Stream::Out.print(&format!(
            "{differences}Report of {}: {} (open it in a browser)\n",
            plural(runs.len(), "run"),
            path.display()
        ))?;
    }
    Ok(OK)
}

/// A file's name, or its whole path if another file has the same name.
fn name(path: &Path, all: &[std::path::PathBuf]) -> String {
    let short =
        path.file_name().filter(|name| all.iter().filter(|p| p.file_name() == Some(name)).count() == 1);
    short.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
