//! From the command line to [`Cli`]; what cannot be read becomes one line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::{BENCH, Cli};
use crate::error::{Failure, one_line};
use crate::term::{Stream, wrap};

/// Where the parser wraps help, however wide the terminal is.
const HELP_WIDTH: usize = 100;

/// The command line's description, with what only the program knows filled in.
pub(crate) fn command() -> clap::Command {
    command_at(Stream::Out.width().min(HELP_WIDTH))
}

/// [`command`], with lists that are as wide as this.
pub(crate) fn command_at(width: usize) -> clap::Command {
    Cli::command().mut_subcommand("bench", |bench| bench.after_long_help(about_bench(width)))
}

/// The experiments and parameters that there are, then examples. From the tables that hold them, so it cannot be stale.
fn about_bench(width: usize) -> String {
    let entry = |name: &str, text: &str| format!("  {name:<12} {}\n", wrap(text, 15, width));
    let mut text = "EXPERIMENTS\n".to_owned();
    for experiment in bench::experiment::all() {
        text += &entry(experiment.name(), experiment.about());
    }
    text += "\nFACTORS WITH NUMBERS (--set FACTOR=LIST, such as 1,8 or 1..64; for the experiments that have them)\n";
    for (experiment, axis) in
        bench::experiment::all().iter().flat_map(|e| e.axes().iter().map(move |a| (e, a)))
    {
        text += &entry(
            axis.factor.name(),
            &format!("{}: {}; {} to {}", experiment.name(), axis.about, axis.low, axis.high),
        );
    }
    text += "\nPARAMETERS (--set KEY=VALUE)\n";
    for key in bench::plan::keys::KEYS {
        let unit = if key.unit.is_empty() { String::new() } else { format!(" {}", key.unit) };
        let quick =
            if key.quick == key.default { String::new() } else { format!(", with --quick {}", key.quick) };
        text += &entry(key.name, key.help);
        text += &entry("", &format!("default {}{unit}{quick}; takes {}", key.default, key.range()));
    }
    text + "\n" + BENCH
}

/// Reads the command line; `None` if it asked for help or the version, which has been printed.
///
/// # Errors
/// In one line what cannot be read, and what to do.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Cli>, Failure> {
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = command().try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => Ok(Some(cli)),
        Err(asked) if matches!(asked.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let text = asked.render();
            let colour = Stream::Out.colour();
            Stream::Out.print(&if colour { text.ansi().to_string() } else { text.to_string() })?;
            Ok(None)
        }
        Err(wrong) => Err(explain(&wrong, &whose(&args))),
    }
}

/// The command whose help explains the arguments.
fn whose(args: &[OsString]) -> String {
    let first = args.get(1).and_then(|arg| arg.to_str()).unwrap_or_default();
    let known =
        command().get_subcommands().any(|command| command.get_name() == first && !command.is_hide_set());
    if known { format!("nicety {first}") } else { "nicety".to_owned() }
}

/// The parser's message without its decoration: what, which one was probably meant, where to read on.
pub(crate) fn explain(wrong: &clap::Error, help: &str) -> Failure {
    let text = wrong.render().to_string();
    let body = text.strip_prefix("error: ").unwrap_or(&text);
    let what = body.split("\n\n").next().unwrap_or(body);
    let what = one_line(what);
    // A list of the possible values stands in brackets on a line of its own.
    let what = match what.split_once(" [possible values:") {
        Some((what, values)) => format!("{what}; possible values:{}", values.trim_end_matches(']')),
        None => what,
    };
    // Our own words about a value quote it already: `--size <LIST>: '8X' is no size`.
    let what = match (wrong.kind(), wrong.get(ContextKind::InvalidArg), what.split_once("': ")) {
        (ErrorKind::ValueValidation, Some(option), Some((_, why))) => format!("{option}: {why}"),
        _ => what,
    };
    let meant = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(|kind| match wrong.get(kind)? {
            ContextValue::String(one) => Some(one.clone()),
            ContextValue::Strings(several) => several.first().cloned(),
            _ => None,
        });
    let meant = meant.map_or_else(String::new, |name| format!(": did you mean '{name}'?"));
    Failure::usage(format!("{what}{meant}; see `{help} --help`"))
}
