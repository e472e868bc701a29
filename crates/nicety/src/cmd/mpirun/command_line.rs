//! Parses the command line of mpirun: options of other launchers, and several programs separated by colons.

use std::ffi::{OsStr, OsString};

use clap::{ArgAction, Parser as _};

use crate::args::{NextProgram, ProgramArgs};
use crate::error::Failure;
use crate::usage;

/// Options of other launchers and of the standard (MPI 5.0, section 11.5), with our options for them.
const OTHER_LAUNCHERS: &[(&str, &str)] = &[
    ("-np", "-n"),
    ("--np", "-n"),
    ("-host", "--host"),
    ("-hosts", "--host"),
    ("-hostfile", "--hostfile"),
    ("-machinefile", "--hostfile"),
    ("--machinefile", "--hostfile"),
    ("-wdir", "--wdir"),
    ("-help", "--help"),
];
/// Options that print the version.
const VERSION: [&str; 3] = ["--version", "-version", "-V"];
/// An option that is ignored, as no permission is needed here.
const IGNORED: &str = "--allow-run-as-root";

/// Replaces options of other launchers by ours, up to the program's name; other commands are returned unchanged.
pub(crate) fn translate(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_none_or(|command| command != "mpirun") {
        return args;
    }
    if args.get(2).is_some_and(|word| VERSION.iter().any(|version| word == version)) {
        return vec![args.swap_remove(0), VERSION[0].into()];
    }
    let is_known = |word: &OsString| {
        OTHER_LAUNCHERS.iter().any(|(theirs, _)| word == theirs)
            || word == IGNORED
            || is_help(word.as_os_str())
    };
    if !args.iter().any(is_known) {
        return args;
    }
    let command = usage::command();
    let mpirun = command.get_subcommands().find(|command| command.get_name() == "mpirun");
    let takes_value = |word: &str| {
        let is_it = |arg: &&clap::Arg| {
            let long = arg.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
            long || arg.get_short().is_some_and(|short| word == format!("-{short}"))
        };
        let found = mpirun.and_then(|command| command.get_arguments().find(is_it));
        found.is_some_and(|arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append))
    };
    let own = args.split_off(2);
    args.extend(translate_options(own, takes_value));
    args
}

/// Replaces options of other launchers by ours, up to the first word that is not an option.
fn translate_options(words: Vec<OsString>, takes_value: impl Fn(&str) -> bool) -> Vec<OsString> {
    let (mut is_option, mut is_value) = (true, false);
    let mut ours = Vec::with_capacity(words.len());
    for word in words {
        if !is_option || std::mem::take(&mut is_value) {
            ours.push(word);
            continue;
        }
        let Some(text) = word.to_str().filter(|text| text.starts_with('-') && *text != "--") else {
            is_option = false;
            ours.push(word);
            continue;
        };
        let text = OTHER_LAUNCHERS.iter().find(|(theirs, _)| *theirs == text).map_or(text, |(_, own)| own);
        if text == IGNORED {
            continue;
        }
        is_value = takes_value(text);
        ours.push(if is_help(text.as_ref()) { format!("-{text}").into() } else { text.into() });
    }
    ours
}

/// Whether the parser would read a word as `-h` with a value, such as `-hostlist`.
fn is_help(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.starts_with("-h") && word.len() > 2)
}

/// The programs of a command line: the first with its options, then those after colons.
///
/// # Errors
/// If a program has invalid options, or no name.
pub(super) fn programs(first: &ProgramArgs) -> Result<Vec<ProgramArgs>, Failure> {
    let mut parts = first.command.split(|word| word == ":");
    let command = parts.next().unwrap_or_default().to_vec();
    let own = ProgramArgs { command, variables: first.variables.clone(), wdir: first.wdir.clone(), ..*first };
    let mut programs = vec![own];
    for part in parts {
        let words = translate_options(part.to_vec(), |option| ["-n", "-x", "--wdir"].contains(&option));
        let next =
            NextProgram::try_parse_from(words).map_err(|wrong| usage::explain(&wrong, "nicety mpirun"))?;
        programs.push(next.program);
    }
    if programs.iter().any(|program| program.command.is_empty()) {
        let place = if programs.len() > 1 { " before or after a colon" } else { "" };
        return Err(Failure::usage(format!("no program is given{place}; see `nicety mpirun --help`")));
    }
    Ok(programs)
}

#[cfg(test)]
pub(super) fn parsed(words: &[&str]) -> crate::args::MpirunArgs {
    use clap::FromArgMatches as _;
    let words = ["nicety", "mpirun"].iter().chain(words).map(OsString::from);
    let matches = usage::command().try_get_matches_from(translate(words)).expect("a command line");
    let (_, own) = matches.subcommand().expect("mpirun");
    crate::args::MpirunArgs::from_arg_matches(own).expect("its options")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> Vec<(Option<u32>, Vec<String>)> {
        let text =
            |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let programs = programs(&parsed(words).program).expect("programs");
        programs.iter().map(|program| (program.ranks, text(&program.command))).collect()
    }

    #[test]
    fn programs_are_separated_by_colons() {
        let one = |n, words: &[&str]| (n, words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(shown(&["./a"]), [one(None, &["./a"])]);
        assert_eq!(
            shown(&["-np", "2", "--tag", "./a", "-np", "x", ":", "-np", "3", "./b", "-n", ":", "c"]),
            [one(Some(2), &["./a", "-np", "x"]), one(Some(3), &["./b", "-n"]), one(None, &["c"])]
        );
        assert_eq!(shown(&["--wdir", "x", "-np", "2", "--", "-a"]), [one(Some(2), &["-a"])]);
    }

    #[test]
    fn options_of_other_launchers_are_translated() {
        let line = |words: &[&str]| {
            let words = ["nicety", "mpirun"].iter().chain(words).map(OsString::from);
            let text = translate(words).into_iter().map(|word| word.to_string_lossy().into_owned());
            text.skip(1).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            line(&["--np", "2", "-host", "a", "-wdir", "-np", "--allow-run-as-root", "./a", "-host", "--np"]),
            "mpirun -n 2 --host a --wdir -np ./a -host --np"
        );
        assert_eq!(line(&["-machinefile", "f", "--", "-np"]), "mpirun --hostfile f -- -np");
        assert_eq!(line(&["-hostlist", "a"]), "mpirun --hostlist a");
        assert_eq!(line(&["-h"]), "mpirun -h");
        assert_eq!(line(&["-V"]), "--version");
        let other = ["nicety", "run", "-np"].map(OsString::from);
        assert_eq!(translate(other.clone()), other);
    }

    #[test]
    fn missing_program_is_refused() {
        for (words, hint) in [
            (&["-n", "2"][..], "no program is given; see `nicety mpirun --help`"),
            (&["a", ":"], "no program is given before or after a colon"),
            (&["a", ":", "--tag", "b"], "see `nicety mpirun --help`"),
            (&["a", ":", "-n", "0", "b"], "0"),
        ] {
            let failure = programs(&parsed(words).program).expect_err(hint);
            assert!(failure.lines[0].contains(hint), "{failure:?}");
        }
    }
}
