//! `interop`, which `cargo xtask interop` builds and runs: ours against others' programs: the device `iwarp` against Linux's, in a guest that is made for
//! this and ended after it, uDAPL and verbs under Debian's programs, and PMI with MPICH's launchers and programs. `docs/interop.md` says what is shown against whom.
//!
//! | file | what it holds |
//! |---|---|
//! | `tools`, `image`, `archive` | what is needed; the guest made of Debian's packages |
//! | `parties` | all cases by party, and how they are run |
//! | `guest` | the guest while it runs |
//! | `capture` | what went over the wire, and tshark's verdict on it |
//! | `proxy` | between the two ends: bytes flipped, held back, added |
//! | `case` | `Case`: something to be shown |
//! | `lab`, `cases`, `programs` | what a case in the guest has at hand; those cases, with our programs and with others' |
//! | `dat` | programs built against DAT, on this machine |
//! | `verbs` | programs built for libibverbs and librdmacm, on this machine |
//! | `pyverbs` | rdma-core's tests of those libraries |
//! | `crates` | Rust crates that wrap those libraries |
//! | `launchers` | MPICH's launchers and programs, on this machine |
//! | `mpi`, `mpi4py` | MPI's header against MPICH's; mpi4py, and its tests, on our library |
//! | `mpich` | MPICH's own tests, from a checkout, on our library |
//! | `fabtests` | libfabric's own tests, from a checkout, on our libibverbs |
//! | `openshmem` | Sandia's OpenSHMEM and its tests, from a checkout, on our Portals |
//! | `portals`, `portals_xml` | the basic tests of the reference of Portals 4, and those in XML, from a checkout, on our library |
//! | `makefile` | what makefiles of such checkouts say |
//! | `ring`, `slurm` | a program of our MPI under launchers of others; Slurm on this machine alone |
//! | `hpcc`, `libraries` | programs and libraries of others, compiled for our MPI |
//! | `debian` | their sources |
//!
//! A party in the guest joins with its packages in `image`, and its cases in a file beside `cases`; one outside with its
//! packages in `tools`, and a variant of `Against` in `parties`.

#![forbid(unsafe_code)]

mod archive;
mod capture;
mod case;
mod cases;
mod crates;
mod dat;
mod debian;
mod fabtests;
mod guest;
mod hpcc;
mod image;
mod lab;
mod launchers;
mod libraries;
mod makefile;
mod mpi;
mod mpi4py;
mod mpich;
mod openshmem;
mod parties;
mod portals;
mod portals_xml;
mod programs;
mod proxy;
mod pyverbs;
mod ring;
mod slurm;
mod tools;
mod verbs;

use clap::Parser;
use std::process::ExitCode;
use xtask::workspace::Workspace;

/// Try ours against programs of others (docs/interop.md): Linux's iWARP in a guest, Debian's for uDAPL and verbs, MPICH's launchers;
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
