//! `nicety`: the one command. Here the command line is read and handed to the command's own file.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod doctor;
mod error;
mod output;
mod start;
mod term;
mod usage;

use std::process::ExitCode;

use args::{Cli, Command};
use error::{Failure, OK, Outcome};
use term::Stream;

fn main() -> ExitCode {
    let ended = match usage::parse(std::env::args_os()) {
        Ok(Some(cli)) => dispatch(cli),
        Ok(None) => Ok(OK),
        Err(failure) => Err(failure),
    };
    ExitCode::from(match ended {
        Ok(status) => status,
        Err(Failure { lines, status }) => {
            lines.iter().for_each(term::remark);
            status
        }
    })
}

fn dispatch(cli: Cli) -> Outcome {
    match cli.command {
        None => start::run(),
        Some(Command::Doctor(args)) => cmd::doctor::run(&args),
        Some(Command::Compare(args)) => cmd::compare::run(&args),
        Some(Command::Completions { shell }) => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut usage::command(), "nicety", &mut script);
    Stream::Out.print(&String::from_utf8_lossy(&script))?;
    Ok(OK)
}
