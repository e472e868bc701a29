//! `cargo xtask`: the checks of the workspace, the same for developers and in CI.
//!
//! Each check is a module that returns `Err` with the fault and its remedy; `ci` runs them all in order.

#![forbid(unsafe_code)]

mod arm64;
mod ci;
mod corpora;
mod deb;
mod instructions;
mod interop;
mod licences;
mod loom;
mod miri;
mod peers;
mod publish;
mod rows;
mod ships;
mod siege;
mod silent;
mod suite;
mod support;
mod targets;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask::workspace::Workspace;

/// Checks of the workspace, as CI runs them.
///
/// Examples:
///   cargo xtask ci
///   cargo xtask ci --only tidy
///   cargo xtask siege --minutes 10
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", verbatim_doc_comment)]
struct Options {
    #[command(subcommand)]
    check: Check,
}

/// The commands of `cargo xtask`, with their options.
#[derive(Subcommand)]
enum Check {
    /// Run the steps of CI in order, up to the first failure.
    Ci {
        /// Run only this step, such as tidy; may be repeated.
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// Also run the long steps: ten minutes of siege with time limits, all loom models, and third-party programs.
        #[arg(long, conflicts_with = "only")]
        wide: bool,
        /// Print the steps and their commands.
        #[arg(long)]
        list: bool,
    },
    /// Install what CI needs and this machine lacks (Debian's packages, targets of Rust).
    Setup,
    /// Check that each crate uses crates of lower rows only.
    Rows,
    /// Check that every dependency has an accepted licence.
    Licences,
    /// Check style: banned calls, lengths, unsafe code, first lines, unfinished marks, phrases, links.
    Tidy {
        /// Rewrite the limits in `xtask/unsafe-count.toml` and `xtask/limits.toml` to the current numbers.
        #[arg(long)]
        bless: bool,
    },
    /// Write the lists of functions in docs/reference/support.md from the tables of the C interfaces.
    Support,
    /// Check that a test replays every fuzz corpus.
    Corpora,
    /// Build for aarch64, and run tests and Debian's programs there under emulation; minutes, not in CI, which only compiles.
    Arm64,
    /// Build the Debian package.
    Deb {
        /// Install, try and remove the package in a minimal root file system; needs root.
        #[arg(long = "try")]
        tried: bool,
    },
    /// Package the crates that are meant for others, under names that are free on the registry, and build the packages.
    Publish,
    /// Count the instructions of posting and polling in the verbs library, and compare them with their limits.
    Instructions {
        /// Lower the limits in `xtask/instructions/limits.toml` to the current numbers.
        #[arg(long)]
        bless: bool,
    },
    /// Run the loom models of the crates that have them.
    Loom,
    /// Run tests of `iwarp`, `ffi` and `portals` under Miri.
    Miri,
    /// Test against third-party programs (docs/results/interop.md), such as Linux's iWARP in a guest and Debian's programs for verbs;
    /// takes minutes, and is not part of CI.
    #[command(disable_help_flag = true)]
    Interop {
        /// Arguments of `interop`: cases, --only CASE, --list, or a party with its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Compare our MPI with MPICH and Open MPI, alternating; takes minutes, and is not part of CI.
    Peers(peers::Options),
    /// Inject faults into the stack: killed, hostile and lying peers, cut connections, small limits. `cargo xtask siege --help` lists
    /// options.
    #[command(disable_help_flag = true)]
    Siege {
        /// Attack the debug build of the tests instead of a release build.
        #[arg(long)]
        quick: bool,
        /// Arguments of `siege`, such as --minutes N, --only NAME or --list.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn run(check: Check) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match check {
        Check::Ci { list: true, .. } => ci::list(),
        Check::Ci { only, wide, list: false } => return ci::run(&workspace, &only, wide),
        Check::Setup => println!("{}", ci::setup()?),
        Check::Rows => println!("{}", rows::check(&workspace)?),
        Check::Licences => println!("{}", licences::check(&workspace)?),
        Check::Tidy { bless: true } => println!("{}", tidy::bless(&workspace)?),
        Check::Tidy { bless: false } => println!("{}", tidy::check(&workspace)?),
        Check::Support => println!("{}", support::write(&workspace)?),
        Check::Arm64 => println!("{}", arm64::run(&workspace)?),
        Check::Corpora => println!("{}", corpora::check(&workspace)?),
        Check::Deb { tried } => println!("{}", deb::check(&workspace, tried)?),
        Check::Publish => println!("{}", publish::check(&workspace)?),
        Check::Instructions { bless } => println!("{}", instructions::check(&workspace, bless)?),
        Check::Loom => println!("{}", loom::check(&workspace)?),
        Check::Miri => println!("{}", miri::check(&workspace)?),
        Check::Interop { arguments } => interop::check(&workspace, &arguments)?,
        Check::Peers(options) => peers::run(&workspace, &options)?,
        Check::Siege { quick, arguments } => siege::check(&workspace, &arguments, quick)?,
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(Options::parse().check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
