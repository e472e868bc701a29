//! `nicety`: parses the command line and calls the command's module.
#![forbid(unsafe_code)]

mod args;
mod argv0;
mod cmd;
mod config;
mod doctor;
mod error;
mod output;
mod progress;
mod signals;
mod sizes;
mod start;
mod term;
mod usage;

use std::process::ExitCode;

use args::{Cli, Command};
use error::Failure;
use signals::Signals;

fn main() -> ExitCode {
    let ended = match parse() {
        Ok(Some(cli)) => dispatch(cli),
        Ok(None) => Ok(ExitCode::SUCCESS),
        Err(failure) => Err(failure),
    };
    ended.unwrap_or_else(|Failure { lines, status }| {
        lines.iter().for_each(term::remark);
        ExitCode::from(status)
    })
}

/// Parses the command line, and prints remarks on it.
fn parse() -> Result<Option<Cli>, Failure> {
    let line = cmd::mpirun::translate::translate(argv0::insert_command(std::env::args_os()))?;
    let cli = usage::parse(line.words)?;
    line.remarks.iter().for_each(term::remark);
    Ok(cli)
}

/// Runs the command.
fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let outcome = match cli.command {
        None => start::run(),
        Some(Command::Bench(args)) => cmd::bench::run(&args),
        Some(Command::Survey(args)) => cmd::survey::run(&args),
        Some(Command::Serve(args)) => cmd::serve::run(&args),
        Some(Command::Devices(args)) => cmd::devices::run(&args),
        Some(Command::Compare(args)) => cmd::compare::run(&args),
        Some(Command::Report(args)) => cmd::report::run(&args),
        Some(Command::Reproduce(args)) => cmd::reproduce::run(&args),
        Some(Command::Run(args)) => cmd::run::run(args),
        Some(Command::Fault(args)) => cmd::fault::run(&args),
        Some(Command::Trace(args)) => cmd::trace::run(&args),
        Some(Command::Top(args)) => cmd::top::run(&args),
        Some(Command::Mpirun(args)) => cmd::mpirun::run(&args),
        Some(Command::Mpicc(args)) => cmd::mpicc::run(&args, cmd::mpicc::Language::C),
        Some(Command::Mpicxx(args)) => cmd::mpicc::run(&args, cmd::mpicc::Language::Cxx),
        Some(Command::Mpifort(args)) => cmd::mpicc::run(&args, cmd::mpicc::Language::Fortran),
        Some(Command::Doctor(args)) => cmd::doctor::run(&args),
        Some(Command::Explain(args)) => cmd::explain::run(&args),
        Some(Command::Completions { shell }) => cmd::completions::script(shell),
        Some(Command::Complete { words }) => cmd::completions::complete(&words),
        Some(Command::Man { folder }) => cmd::man::run(&folder),
        Some(Command::Worker) => return worker(),
    };
    outcome.map(ExitCode::from)
}

/// Runs a worker. It ignores the terminal's Ctrl-C, which reaches its parent too: the parent stops it.
fn worker() -> Result<ExitCode, Failure> {
    Signals::ignore_interrupt()?;
    Ok(bench::launch::worker_main())
}
