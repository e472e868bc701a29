//! `interop`, which `cargo xtask interop` builds and runs, tests Nicety against third-party programs: the device
//! `iwarp` against Linux's, in a guest that is made for this; uDAPL and verbs under Debian's programs; and PMI with
//! MPICH's launchers and programs. `docs/results/interop.md` lists what is tested against what.
//!
//! | file | what it holds |
//! |---|---|
//! | `parties` | all cases by party, and how they are run |
//! | `case` | `Case`: one interoperability test |
//! | `tools` | the third-party programs that are needed, and where they come from |
//! | `guest/` | against Linux's iWARP, in the guest |
//! | `verbs/` | libibverbs and librdmacm under third-party programs |
//! | `dat` | programs built against DAT |
//! | `portals/` | Portals under third-party tests and libraries |
//! | `mpi/` | MPI against third-party programs, libraries and launchers |
//! | `makefile` | parses makefiles of checkouts |
//!
//! A party in the guest needs its packages in `guest/image.rs`, and its cases in a file next to `guest/cases.rs`; one
//! outside needs its packages in `tools`, and a variant of `Against` in `parties`.

#![forbid(unsafe_code)]

mod case;
mod dat;
mod guest;
mod makefile;
mod mpi;
mod parties;
mod portals;
mod tools;
mod verbs;

use clap::Parser;
use std::process::ExitCode;
use xtask::workspace::Workspace;

/// Try ours against programs of others (docs/results/interop.md): Linux's iWARP in a guest, Debian's for uDAPL and verbs, MPICH's launchers;
/// minutes, not in CI.
#[derive(Parser)]
#[command(name = "interop", bin_name = "cargo xtask interop", args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    party: Option<parties::Party>,
    /// Run only these cases, or those whose names begin so, as `verbs`.
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// As the above; may be given more than once.
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// Print the cases and what each one shows.
    #[arg(long)]
    list: bool,
}

fn run(options: &Options) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match options {
        Options { party: Some(party), .. } => parties::try_party(&workspace, party),
        Options { list: true, .. } => {
            parties::list();
            Ok(())
        }
        Options { cases, only, .. } => parties::run(&workspace, &[cases.as_slice(), only].concat()),
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error:#}");
            ExitCode::FAILURE
        }
    }
}
