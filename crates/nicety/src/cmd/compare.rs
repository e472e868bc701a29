//! `nicety compare`: is run B worse than run A? The statistics are `bench::stats`; here is what people and CI see.

mod context;
mod json;
mod text;
mod words;

use bench::schema::{ReadError, Run};
use bench::stats::{CompareOptions, Comparison, Verdict, compare_runs};

use crate::args::{CompareArgs, Target};
use crate::error::{FAILED, Failure, OK, Outcome, UNSURE};
use crate::output::{self, Wanted};
use crate::term::{self, Stream};

/// Compares two result files.
///
/// # Errors
/// Files that cannot be read, or that have nothing in common.
pub(crate) fn run(args: &CompareArgs) -> Outcome {
    let wanted = args.json.as_ref().map(|target| Wanted { option: "--json", target });
    output::check(wanted.as_slice())?;
    let read = |path| Run::read(path).map_err(|why: ReadError| Failure::usage(why));
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let options = CompareOptions { threshold: args.threshold, ..CompareOptions::default() };
    let compared = compare_runs(&old, &new, &options);
    if compared.cells.is_empty() {
        return Err(nothing_in_common(args, &old, &new));
    }
    let cautions = context::cautions(&old, &new, args.threshold);
    let people = if args.json == Some(Target::Stdout) { Stream::Err } else { Stream::Out };
    people.print(&text::render(&compared, &cautions, people))?;
    if let Some(wanted) = wanted {
        output::write(wanted, &term::json(&json::Document::new(&compared, &cautions))?)?;
    }
    Ok(status(&compared, args.strict))
}

fn status(compared: &Comparison, strict: bool) -> u8 {
    let some = |verdict| compared.count(verdict) > 0;
    match () {
        () if some(Verdict::Worse) => FAILED,
        () if strict && (some(Verdict::CannotTell) || compared.without_counterpart() > 0) => UNSURE,
        () => OK,
    }
}

fn nothing_in_common(args: &CompareArgs, old: &Run, new: &Run) -> Failure {
    let (a, b) = (args.old.display(), args.new.display());
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
