//! The options by which `nicety run` and `nicety mpirun` make operations fail on purpose.

use std::path::PathBuf;

use clap::Args;

/// Which operations fail.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FaultsArgs {
    /// Make requests, calls and events fail by the rules of a file
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
    /// Make requests, calls and events fail by rules that the seed chooses; prints them
    #[arg(long, value_name = "SEED")]
    pub(crate) chaos: Option<u64>,
}
