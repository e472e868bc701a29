//! `nicety reproduce`: compares the papers' published numbers with the modelled cards.

use std::fmt;
use std::path::Path;

use host::bounded;
use report::number::plural;
use reproduce::{self, Options, Real, Reproduction};

use crate::args::{ReproduceArgs, Target};
use crate::error::{Failure, OK, Outcome};
use crate::output::{self, Wanted};
use crate::progress::Display;
use crate::signals::Signals;
use crate::term::{self, Stream};

/// Computes the rows, prints them and writes the files.
///
/// # Errors
/// An unknown name, files that cannot be written, or an interrupt.
pub(crate) fn run(args: &ReproduceArgs) -> Outcome {
    let rows = reproduce::select(args.what.as_deref()).map_err(Failure::usage)?;
    let wanted = requested_outputs(args);
    output::check(&wanted)?;
    let real = args.real.as_deref().map(read_real).transpose()?;
    let signals = Signals::install()?;
    let mut display = Display::new(args.plain, &signals.stop).all_or_nothing();
    let options = Options { figures: args.html.is_some(), changes: args.set.clone() };
    let done = reproduce::run(rows, &options, &mut display, &signals.stop);
    display.clear();
    match done.map_err(Failure::usage)? {
        Some(all) => write_outputs(&Reproduction { real, ..all }, &wanted, args.plain).map(|()| OK),
        None => Err(Failure {
            status: signals.status().unwrap_or(crate::error::FAILED),
            ..Failure::run("interrupted; nothing was written, as a score of some rows would mislead")
        }),
    }
}

/// The largest file of real measurements, in bytes.
const REAL_FILE_MAX: u64 = 4 << 20;

/// Reads a file of real measurements.
fn read_real(path: &Path) -> Result<Real, Failure> {
    let wrong = |why: &dyn fmt::Display| Failure::usage(format!("--real {}: {why}", path.display()));
    let text = bounded::read_text(path, REAL_FILE_MAX)
        .map_err(|error| wrong(&format!("{error}; check its name")))?;
    Real::read(&text).map_err(|error| wrong(&error))
}

/// The files that options request.
fn requested_outputs(args: &ReproduceArgs) -> Vec<Wanted<'_>> {
    [("--json", &args.json), ("--html", &args.html)]
        .into_iter()
        .filter_map(|(option, target)| Some(Wanted { option, target: target.as_ref()? }))
        .collect()
}

/// Prints the table and writes the files; if a file is standard output, the table goes to standard error.
fn write_outputs(all: &Reproduction, wanted: &[Wanted<'_>], plain: bool) -> Result<(), Failure> {
    let taken = wanted.iter().any(|wanted| *wanted.target == Target::Stdout);
    let people = if taken { Stream::Err } else { Stream::Out };
    let mut text = reproduce::terminal(all, people.width(), people.colour() && !plain);
    for wanted in wanted {
        let content = match wanted.option {
            "--json" => term::json(all)?,
            _ => reproduce::html(all).map_err(Failure::run)?,
        };
        output::write(*wanted, &content)?;
        if let Some(path) = wanted.target.file() {
            let (what, how) = match wanted.option {
                "--json" => (plural(all.rows.len(), "row"), ""),
                _ => ("Page".to_owned(), " (open it in a browser)"),
            };
            text += &format!("\n{what}: {}{how}\n", path.display());
        }
    }
    people.print(&text)
}
