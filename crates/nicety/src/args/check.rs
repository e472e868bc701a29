//! The options by which `nicety run` and `nicety mpirun` check a program.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How much is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// What is wrong
    Normal,
    /// Also what may go wrong, though nothing has
    Strict,
}

/// How the use of devices is checked.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CheckArgs {
    /// Report wrong uses of verbs: buffers that change too early, stale keys, unsignaled queues, leaks and others
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "normal", value_enum)]
    pub(crate) check: Option<Level>,
    /// Append the findings to a file, instead of standard error
    #[arg(long, value_name = "FILE", requires = "check")]
    pub(crate) check_log: Option<PathBuf>,
    /// Exit status of a process with findings, instead of its own
    #[arg(long, value_name = "N", requires = "check")]
    pub(crate) check_exit: Option<u8>,
    /// Check against the limits of a card (mlx5 or irdma), which ibv_query_device then reports
    #[arg(long = "as", value_name = "CARD", requires = "check")]
    pub(crate) card: Option<String>,
}

/// How the use of MPI is checked.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MpiCheckArgs {
    /// Report wrong uses of MPI: buffers that change too early, types and collectives that do not match, requests and objects that are left
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "normal", value_enum)]
    pub(crate) check: Option<Level>,
    /// Append the findings to a file on each host, instead of standard error
    #[arg(long, value_name = "FILE", requires = "check")]
    pub(crate) check_log: Option<PathBuf>,
    /// Exit status of a rank with findings, instead of its own
    #[arg(long, value_name = "N", requires = "check")]
    pub(crate) check_exit: Option<u8>,
}
