//! `cargo xtask`: the checks of the workspace, the same for developers and in CI.
//!
//! Each check is a module that returns `Err` with the fault and its remedy; `ci` runs them all in order.

#![forbid(unsafe_code)]

mod arm64;
mod ci;
mod corpora;
mod deb;
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

/// The project's own checks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    check: Check,
}

/// What to check.
#[derive(Subcommand)]
enum Check {
    /// Run exactly what CI runs, in order; stop at the first failure.
    Ci {
        /// Run only these steps (in CI's order); may be given more than once.
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// Run the long steps, too: ten minutes of siege in which clocks decide, and the programs of others.
        #[arg(long, conflicts_with = "only")]
        wide: bool,
        /// Print the steps and what each one runs.
        #[arg(long)]
        list: bool,
    },
    /// Install what CI needs and this machine lacks (Debian's packages, targets of Rust).
    Setup,
    /// Hold the row rule: a crate uses crates of lower rows only.
    Rows,
    /// Hold the list of accepted licences, for every dependency.
    Licences,
    /// Check style that can be checked: banned calls, lengths, unsafe code, headers, leftovers.
    Tidy {
        /// Rewrite `xtask/unsafe-count.toml` to what the code has now.
        #[arg(long)]
        bless: bool,
    },
    /// Write the lists of functions in docs/reference/support.md from the tables of the C interfaces.
    Support,
    /// Check that every fuzz corpus is replayed by an ordinary test.
    Corpora,
    /// Build for aarch64, and run tests and Debian's programs there under emulation; minutes, not in CI, which only compiles.
    Arm64,
    /// Build a Debian package of what ships.
    Deb {
        /// Install it in a minimal root, try it there, and remove it; needs root.
        #[arg(long = "try")]
        tried: bool,
    },
    /// Package the crates that are meant for others, under names that are free on the registry, and build the packages.
    Publish,
    /// Run the loom models of the crates that have them.
    Loom,
    /// Run the tests of the protocol and of what every C face needs under Miri.
    Miri,
    /// Try ours against programs of others (docs/results/interop.md): Linux's iWARP in a guest, Debian's for uDAPL and verbs, MPICH's launchers;
    /// minutes, not in CI.
    #[command(disable_help_flag = true)]
    Interop {
        /// For the laboratory itself: cases, --only CASE, --list, or a party with its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure our MPI beside MPICH and Open MPI, turn by turn; minutes, not in CI.
    Peers(peers::Options),
    /// Attack the stack: killed, lying and hostile peers, cut wires, small limits. `cargo xtask siege --help` has the options.
    #[command(disable_help_flag = true)]
    Siege {
        /// Attack what is built for tests, which is there already, and not what ships.
        #[arg(long)]
        quick: bool,
        /// For the siege itself: --minutes N, --only NAME, --list.
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
