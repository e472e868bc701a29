//! [`WorkerCommand`]: how a worker process is started.

use std::ffi::OsString;
use std::path::PathBuf;

use super::error::BenchError;

/// How to start a worker: a program that calls [`worker_main`](super::worker_main).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// Program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl WorkerCommand {
    /// This program with the one argument `worker`.
    ///
    /// # Errors
    /// [`BenchError`] when the system does not say which program this is.
    pub fn own() -> Result<Self, BenchError> {
        let program = std::env::current_exe()
            .map_err(|e| BenchError::new(format!("cannot find this program to start it again: {e}")))?;
        Ok(Self { program, args: vec!["worker".into()] })
    }
}
