//! [`Against`]: another library of MPI's standard ABI, and how the measuring program runs under it and under ours.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The measuring program: to be compiled against MPI's standard ABI.
pub const PROGRAM: &str = include_str!("experiment/over_mpi/program.c");

/// The programs and files needed to measure another library for comparison with our MPI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Against {
    /// `nicety`, whose `mpirun` starts the jobs of both.
    pub launcher: PathBuf,
    /// What [`PROGRAM`] was compiled to.
    pub program: PathBuf,
    /// The other library: a `libmpi_abi.so.1`.
    pub other: PathBuf,
}
