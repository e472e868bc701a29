//! The programs of mpirun's command line, which colons separate.

use clap::Parser as _;

use crate::args::{NextProgram, ProgramArgs};
use crate::error::Failure;
use crate::usage;

/// The programs of a translated command line: the first with its options, then those after colons.
///
/// # Errors
/// If a program has invalid options, or no name.
pub(super) fn programs(first: &ProgramArgs) -> Result<Vec<ProgramArgs>, Failure> {
    let mut parts = first.command.split(|word| word == ":");
    let command = parts.next().unwrap_or_default().to_vec();
    let own = ProgramArgs { command, variables: first.variables.clone(), wdir: first.wdir.clone(), ..*first };
    let mut programs = vec![own];
    for part in parts {
        let next =
            NextProgram::try_parse_from(part).map_err(|wrong| usage::explain(&wrong, "nicety mpirun"))?;
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
    let words = ["nicety", "mpirun"].iter().chain(words).map(std::ffi::OsString::from);
    let line = super::translate::translate(words).expect("a command line");
    let matches = usage::command().try_get_matches_from(line.words).expect("valid options");
    let (_, own) = matches.subcommand().expect("mpirun");
    crate::args::MpirunArgs::from_arg_matches(own).expect("its options")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

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
