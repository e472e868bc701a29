//! The command line: every option with its help, and an example for each thing one does with it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// RDMA on any machine, measured so that one can believe the numbers.
#[derive(Debug, Parser)]
#[command(name = "nicety", version, disable_help_subcommand = true, after_help = MORE)]
pub(crate) struct Cli {
    /// What to do; without one, where to start.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const MORE: &str = "`nicety COMMAND --help` explains a command and shows examples.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check this machine: what would spoil numbers, why, and the remedy
    #[command(after_long_help = DOCTOR)]
    Doctor(DoctorArgs),
    /// Say whether run B is worse than run A, with an exit status for CI
    #[command(after_long_help = COMPARE)]
    Compare(CompareArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `nicety doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR: &str = "\
EXAMPLES
  nicety doctor                   every check, and what to do about those that are not ok
  nicety doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .remedy'

EXIT STATUS
  0  nothing is bad (a warning weakens numbers; measuring works)
  1  something is bad: some measurement would fail";

/// `nicety compare`
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Result file of the old run
    #[arg(value_name = "A.json")]
    pub(crate) old: PathBuf,
    /// Result file of the new run
    #[arg(value_name = "B.json")]
    pub(crate) new: PathBuf,
    /// Effects within this are no difference (5% or 0.05)
    ///
    /// A run's own noise (the same thing measured twice) raises it, and the output says so.
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share)]
    pub(crate) threshold: f64,
    /// Exit with 3 if something cannot be told
    #[arg(long)]
    pub(crate) strict: bool,
    /// Also write the comparison as JSON; - for standard output, which then carries nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
}

const COMPARE: &str = "\
A cell is one experiment, device, variant, size and metric. The effect in each cell is the \
ratio of the launch medians with its 95 % interval, corrected for the number of cells \
(Benjamini-Hochberg):
  worse, better   the whole interval is beyond the threshold
  same            the whole interval is within it
  cannot tell     anything else: more launches would tell (--launches of `nicety bench`)

EXAMPLES
  nicety compare before.json after.json
  nicety compare before.json after.json --threshold 10%
  nicety compare main.json branch.json --strict --json -     in CI

EXIT STATUS
  0  no cell is worse
  1  some cell is worse
  2  the files cannot be compared
  3  with --strict: none is worse, but some cannot be told";

const COMPLETIONS: &str = "\
EXAMPLES
  nicety completions bash > ~/.local/share/bash-completion/completions/nicety
  nicety completions zsh > ~/.zfunc/_nicety
  nicety completions fish > ~/.config/fish/completions/nicety.fish";

/// A file, or `-` for standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output.
    Stdout,
    /// A file, replaced as a whole.
    File(PathBuf),
}

impl From<std::ffi::OsString> for Target {
    fn from(text: std::ffi::OsString) -> Self {
        if text == "-" { Self::Stdout } else { Self::File(text.into()) }
    }
}

/// A share: `5%`, `5 %` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    const HOW: &str = "write a share such as 5% or 0.05";
    let number =
        |text: &str| text.trim().parse::<f64>().map_err(|_| format!("{text:?} is not a share; {HOW}"));
    let value = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    match value {
        _ if !value.is_finite() || value < 0.0 => Err(format!("{text} is not a share; {HOW}")),
        _ if value >= 1.0 && !text.ends_with('%') => {
            Err(format!("{text} is 100 % or more; for {text} %, write {text}%"))
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Goal: help teaches. Method: every visible command has an EXAMPLES section that begins with its own name.
    #[test]
    fn every_command_has_examples() {
        let cli = Cli::command();
        for command in cli.get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = command.get_name();
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("EXAMPLES\n  nicety {name}")), "{name}: {help}");
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && !about.contains('\n'), "{name}: {about}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("5 %"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        assert_eq!(share("0"), Ok(0.0));
        assert_eq!(share("150%"), Ok(1.5));
        assert!(share("5").expect_err("ambiguous").contains("write 5%"));
        for text in ["", "x", "%", "-1%", "nan", "inf"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
