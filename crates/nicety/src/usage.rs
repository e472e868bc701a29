//! Parses the command line into [`Cli`]; a mistake becomes a one-line error.

use std::error::Error as _;
use std::ffi::OsString;

use bench::plan::did_you_mean;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::{BENCH, Cli};
use crate::cmd::mpirun::habits::{self, Does, HABITS};
use crate::error::{Failure, one_line};
use crate::term::{Stream, wrap};

/// The maximum width of help, on any terminal.
const HELP_WIDTH: usize = 100;

/// The definition of the command line, with the lists of experiments and parameters added.
pub(crate) fn command() -> clap::Command {
    command_at(Stream::Out.width().min(HELP_WIDTH))
}

/// Like [`command`], with lists of this width.
pub(crate) fn command_at(width: usize) -> clap::Command {
    Cli::command()
        .mut_subcommand("bench", |bench| bench.after_long_help(about_bench(width)))
        .mut_subcommand("mpirun", |mpirun| mpirun.after_long_help(about_mpirun(width)))
}

/// The experiments and parameters, then examples; generated from their tables, so that the text cannot be outdated.
fn about_bench(width: usize) -> String {
    let entry = |name: &str, text: &str| format!("  {name:<12} {}\n", wrap(text, 15, width));
    let mut text = "EXPERIMENTS\n".to_owned();
    for experiment in bench::experiment::all() {
        text += &entry(experiment.name(), experiment.about());
    }
    text += "\nFACTORS WITH NUMBERS (--set FACTOR=LIST, such as 1,8 or 1..64; for the experiments that have them)\n";
    for (experiment, axis) in
        bench::experiment::all().iter().flat_map(|e| bench::experiment::all_axes(*e).map(move |a| (e, a)))
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

/// What mpirun does, with examples, and the options of other launchers, generated from their table.
fn about_mpirun(width: usize) -> String {
    let list = |is_ignored: bool| {
        let chosen = HABITS.iter().filter(|habit| (habit.does == Does::Ignored) == is_ignored);
        let names = chosen.map(|habit| habits::written(habit).join(", "));
        format!("  {}\n", wrap(&names.collect::<Vec<_>>().join("; "), 2, width))
    };
    let mut text = crate::args::mpi::MPIRUN.to_owned();
    text += "\n\nOPTIONS OF MPICH AND OPEN MPI that work here, with one dash or two\n";
    text += &list(false);
    text +=
        "\nOPTIONS OF MPICH AND OPEN MPI that are ignored, each with a line about what it would have done\n";
    text + &list(true)
}

/// Parses the command line; `None` if it asked for help or the version, which has been printed.
///
/// # Errors
/// The mistake in one line, and what to do.
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
        Err(wrong) => Err(explain(&wrong, &help_command(&args))),
    }
}

/// The command whose help explains these arguments.
fn help_command(args: &[OsString]) -> String {
    let first = args.get(1).and_then(|arg| arg.to_str()).unwrap_or_default();
    let is = |command: &clap::Command| command.get_name() == first && !command.is_hide_set();
    let known = command().get_subcommands().any(is);
    if known { format!("nicety {first}") } else { "nicety".to_owned() }
}

/// Describes a mistake, with the probable intention and the help to read.
pub(crate) fn explain(wrong: &clap::Error, help: &str) -> Failure {
    let one = |kind| texts(wrong, kind).into_iter().next();
    let what = describe(wrong);
    let meant = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg];
    let meant = match meant.into_iter().find_map(one) {
        Some(name) => format!(", did you mean '{name}'?"),
        // After `help` the parser makes no suggestion.
        None => one(ContextKind::InvalidSubcommand).map_or_else(String::new, |name| {
            let commands = command();
            let shown = commands.get_subcommands().filter(|command| !command.is_hide_set());
            did_you_mean(&name, shown.map(clap::Command::get_name))
        }),
    };
    Failure::usage(format!("{what}{meant}; see `{help} --help`"))
}

/// Describes a mistake. The parser's own text lacks the meaning of the value and a remedy.
fn describe(wrong: &clap::Error) -> String {
    let list = |kind| texts(wrong, kind);
    let one = |kind| list(kind).into_iter().next().unwrap_or_default();
    let (arg, value) = (one(ContextKind::InvalidArg), one(ContextKind::InvalidValue));
    match wrong.kind() {
        ErrorKind::InvalidSubcommand => {
            format!("there is no command '{}'", one(ContextKind::InvalidSubcommand))
        }
        ErrorKind::UnknownArgument if arg.starts_with('-') => format!("there is no option '{arg}' here"),
        ErrorKind::UnknownArgument => format!("'{arg}' is one argument too many"),
        ErrorKind::TooManyValues => format!("'{value}' is one value too many for {arg}"),
        ErrorKind::ValueValidation => {
            let why = wrong.source().map(ToString::to_string).unwrap_or_default();
            format!("{arg}: {why}")
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{arg} needs a value"),
        ErrorKind::InvalidValue => {
            let values = list(ContextKind::ValidValue);
            format!("'{value}' is not a value of {arg}; there are: {}", values.join(", "))
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{} is missing", list(ContextKind::InvalidArg).join(" "))
        }
        ErrorKind::ArgumentConflict => match list(ContextKind::PriorArg).as_slice() {
            [] => format!("{arg} cannot be combined with the other options"),
            [same] if *same == arg => format!("{arg} is given twice; give it once"),
            others => format!("{arg} cannot be combined with {}; leave one out", others.join(" and ")),
        },
        // Our command line cannot cause other errors today; the parser's first sentence is better than nothing.
        _ => {
            let text = wrong.render().to_string();
            one_line(text.trim_start_matches("error: ").split("\n\n").next().unwrap_or(&text))
        }
    }
}

/// The parser's context of this kind.
fn texts(wrong: &clap::Error, kind: ContextKind) -> Vec<String> {
    match wrong.get(kind) {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(all)) => all.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[path = "../tests/documents/mod.rs"]
mod documents;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::mpirun::translate::translate;

    fn refusal(words: &[String]) -> Option<clap::Error> {
        let line = translate(words.iter().map(OsString::from)).unwrap_or_default();
        let parsed = command().try_get_matches_from(line.words);
        let refused = parsed.and_then(|matches| Cli::from_arg_matches(&matches)).err()?;
        let is_help = matches!(refused.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        (!is_help).then_some(refused)
    }

    /// Goal: the documents show no command that the program refuses. Method: the parser reads each of them.
    #[test]
    fn every_documented_command_is_accepted() {
        let commands = documents::commands();
        assert!(commands.len() >= 60, "only {} commands were found", commands.len());
        let refused: Vec<String> = commands
            .iter()
            .filter_map(|command| {
                let why = refusal(&command.words)?;
                Some(format!("{}: {}\n{why}", command.place, command.words.join(" ")))
            })
            .collect();
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }

    #[test]
    fn a_wrong_documented_command_is_refused() {
        let page = "```console\n$ nicety bench --qick && nicety devices\n```\n";
        let commands = documents::of_page("a.md", page);
        let refused: Vec<bool> = commands.iter().map(|command| refusal(&command.words).is_some()).collect();
        assert_eq!(refused, [true, false]);
    }
}
