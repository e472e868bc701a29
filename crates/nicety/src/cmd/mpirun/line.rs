//! The command line of mpirun: `-np`, and programs that colons separate.

use std::ffi::OsString;

use clap::{ArgAction, Parser as _};

use crate::args::{NextProgram, ProgramArgs};
use crate::error::Failure;
use crate::usage;

/// The command line with `-n` for the `-np` of other launchers, as long as it is mpirun's own.
pub(crate) fn modern(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_one = args.get(1).is_some_and(|command| command == "mpirun");
    if is_one && args.iter().any(|word| word == "-np") {
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
        replace(&mut args[2..], takes_value);
    }
    args
}

/// Replaces `-np` among the options that come first.
fn replace(words: &mut [OsString], takes_value: impl Fn(&str) -> bool) {
    let mut is_value = false;
    for word in words {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if *word == "-np" {
            *word = "-n".into();
        }
        match word.to_str() {
            Some(option) if option.starts_with('-') && option != "--" => is_value = takes_value(option),
            _ => return,
        }
    }
}

/// The programs of a command line: the first with its options, and those behind colons.
///
/// # Errors
/// If one has options that it cannot have, or none has a name.
pub(super) fn programs(first: &ProgramArgs) -> Result<Vec<ProgramArgs>, Failure> {
    let mut parts = first.command.split(|word| word == ":");
    let command = parts.next().unwrap_or_default().to_vec();
    let own = ProgramArgs { command, variables: first.variables.clone(), wdir: first.wdir.clone(), ..*first };
    let mut programs = vec![own];
    for part in parts {
        let mut words = part.to_vec();
        replace(&mut words, |option| ["-n", "-x", "--wdir"].contains(&option));
        let next =
            NextProgram::try_parse_from(words).map_err(|wrong| usage::explain(&wrong, "nicety mpirun"))?;
        programs.push(next.program);
    }
    if programs.iter().any(|program| program.command.is_empty()) {
        let place = if programs.len() > 1 { " before or behind a colon" } else { "" };
        return Err(Failure::usage(format!("no program is given{place}; see `nicety mpirun --help`")));
    }
    Ok(programs)
}

#[cfg(test)]
pub(super) fn parsed(words: &[&str]) -> crate::args::MpirunArgs {
    use clap::FromArgMatches as _;
    let words = ["nicety", "mpirun"].iter().chain(words).map(OsString::from);
    let matches = usage::command().try_get_matches_from(modern(words)).expect("a command line");
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
    fn programs_behind_colons() {
        let one = |n, words: &[&str]| (n, words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(shown(&["./a"]), [one(None, &["./a"])]);
        assert_eq!(
            shown(&["-np", "2", "--tag", "./a", "-np", "x", ":", "-np", "3", "./b", "-n", ":", "c"]),
            [one(Some(2), &["./a", "-np", "x"]), one(Some(3), &["./b", "-n"]), one(None, &["c"])]
        );
        assert_eq!(shown(&["--wdir", "x", "-np", "2", "--", "-a"]), [one(Some(2), &["-a"])]);
    }

    #[test]
    fn what_is_no_program_is_said() {
        for (words, hint) in [
            (&["-n", "2"][..], "no program is given; see `nicety mpirun --help`"),
            (&["a", ":"], "no program is given before or behind a colon"),
            (&["a", ":", "--tag", "b"], "see `nicety mpirun --help`"),
            (&["a", ":", "-n", "0", "b"], "0"),
        ] {
            let failure = programs(&parsed(words).program).expect_err(hint);
            assert!(failure.lines[0].contains(hint), "{failure:?}");
        }
    }
}
