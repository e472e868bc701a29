//! `nicety compare`: is run B worse than run A? The statistics are in `results::stats`; this module prints them for people and
//! CI.

mod baseline;
mod context;
mod json;
mod junit;
mod text;
mod words;

use std::path::{Path, PathBuf};

use results::schema::{ReadError, Run};
use results::stats::{CompareOptions, Comparison, Verdict, compare_runs};

use crate::args::{CompareArgs, Target};
use crate::error::{FAILED, Failure, OK, Outcome, UNSURE};
use crate::output::{self, Wanted};
use crate::term::{self, Stream};

/// Compares two result files.
///
/// # Errors
/// Files that cannot be read, or that have nothing in common.
pub(crate) fn run(args: &CompareArgs) -> Outcome {
    let wanted: Vec<Wanted<'_>> = [("--json", &args.json), ("--junit", &args.junit)]
        .into_iter()
        .filter_map(|(option, target)| Some(Wanted { option, target: target.as_ref()? }))
        .collect();
    output::check(&wanted)?;
    let read = |path: &Path| Run::read(path).map_err(|why: ReadError| Failure::usage(why));
    let (old, new) = match Sides::of(args)? {
        Sides::One(path) => return keep(args, &read(&path)?),
        Sides::Two(old, new) => (old, new),
    };
    let (files, old, new) = ([&old, &new].map(|path| path.display().to_string()), read(&old)?, read(&new)?);
    let options = CompareOptions { threshold: args.threshold, ..CompareOptions::default() };
    let compared = compare_runs(&old, &new, &options);
    if compared.cells.is_empty() {
        return Err(nothing_in_common(files, &old, &new));
    }
    let cautions = context::cautions(&old, &new, args.threshold);
    let taken = wanted.iter().any(|wanted| *wanted.target == Target::Stdout);
    let people = if taken { Stream::Err } else { Stream::Out };
    people.print(&text::render(&compared, &cautions, people))?;
    for wanted in wanted {
        let text = match wanted.option {
            "--junit" => junit::document(&compared, &cautions, args.strict),
            _ => term::json(&json::Document::new(&compared, &cautions))?,
        };
        output::write(wanted, &text)?;
    }
    keep(args, &new)?;
    Ok(status(&compared, args.strict))
}

/// The runs given on the command line.
enum Sides {
    /// A run that is only saved as a baseline.
    One(PathBuf),
    /// The old run and the new one.
    Two(PathBuf, PathBuf),
}

impl Sides {
    /// The runs that the command line names.
    fn of(args: &CompareArgs) -> Result<Self, Failure> {
        match (&args.baseline, args.runs.as_slice()) {
            (None, [old, new]) => Ok(Self::Two(old.clone(), new.clone())),
            (Some(name), [new]) => Ok(Self::Two(baseline::find(name)?, new.clone())),
            (None, [one]) if args.save_baseline.is_some() => Ok(Self::One(one.clone())),
            (None, _) => Err(Failure::usage(
                "there is one run and nothing to compare it with; give two files, or --baseline NAME and one",
            )),
            (Some(_), _) => {
                Err(Failure::usage("the baseline is the old run; with --baseline give one file, the new one"))
            }
        }
    }
}

/// Saves the new run as a baseline, if requested.
fn keep(args: &CompareArgs, run: &Run) -> Outcome {
    if let Some(name) = &args.save_baseline {
        let path = baseline::keep(name, run)?;
        term::remark(format_args!("kept as baseline {name}: {}", path.display()));
    }
    Ok(OK)
}

/// The exit status.
fn status(compared: &Comparison, strict: bool) -> u8 {
    let some = |verdict| compared.count(verdict) > 0;
    match () {
        () if some(Verdict::Worse) => FAILED,
        () if strict && (some(Verdict::CannotTell) || compared.without_counterpart() > 0) => UNSURE,
        () => OK,
    }
}

/// The failure for two runs without a common cell.
fn nothing_in_common([a, b]: [String; 2], old: &Run, new: &Run) -> Failure {
    let why = match (old.results.first(), new.results.first()) {
        (None, _) => format!("{a} has no results"),
        (_, None) => format!("{b} has no results"),
        (Some(old), Some(new)) => {
            format!("one has e.g. {}, the other {}", words::name(&old.cell()), words::name(&new.cell()))
        }
    };
    Failure::usage(format!(
        "cannot compare {a} and {b}: they have no cell in common ({why}); \
         measure both with the same experiments, sizes and device"
    ))
}
