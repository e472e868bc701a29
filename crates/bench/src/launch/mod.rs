//! Launches: fresh processes for each, what they say to each other, and a run made of what they measured.
//!
//! The launch is the unit of statistics (rule 7), so for each one the orchestrator starts two new workers of its own
//! program, pinned to a core each; `park` adds two helpers. All cells of a run are in every launch, in an order that
//! the seed decides (rule 8). With a peer the second process is a child of `nicety serve` over there.
//!
//! | file | what it holds |
//! |---|---|
//! | `orchestrator`, `crew` | [`run`]: launches one after the other; the processes of one |
//! | `simulated`, `world` | the same plans in virtual time: a world for each cell, no processes |
//! | `collect` | from records to results, floors and noise |
//! | `journal` | what was measured of a plan file, kept for the next time |
//! | `worker`, `serving` | what a worker does, as client and as server |
//! | `serve` | [`serve()`]: a peer that needs no options |
//! | `door`, `guests` | its clients: who they are and what they want; whose turn it is, and their processes |
//! | `agents` | programs that clients may have started |
//! | `rendezvous` | the client finds all others before anything is measured |
//! | `wire`, `way` | the control protocol between the two sides |
//! | `job` | lines between orchestrator and workers |
//! | `device` | devices by name: which one a server opens for a client; rails |
//! | `sample` | what one cell gave in one launch |

mod agents;
mod collect;
mod crew;
mod device;
mod door;
mod guests;
mod job;
mod journal;
mod orchestrator;
mod rendezvous;
mod sample;
mod serve;
mod serving;
mod simulated;
mod way;
pub mod wire;
mod worker;
pub mod world;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::experiment::{Cell, Fault};
use crate::schema::Run;

pub use crate::machine::watch_noise;
pub use agents::call_agent;
pub use journal::{Found, Journal, JournalError};
pub use orchestrator::{run, run_keeping, run_with};
pub use serve::{OpenServer, Serving, serve, serve_with};
pub use worker::worker_main;

/// How to start a worker: a program that calls [`worker_main`].
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

/// Why a run or a server ended; what was measured until then is kept.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what}")]
pub struct BenchError {
    /// What, why, and what to do, in one line.
    pub what: String,
    /// Every cell that was finished at least once.
    pub partial: Option<Box<Run>>,
}

impl From<JournalError> for BenchError {
    fn from(why: JournalError) -> Self {
        Self::new(why.to_string())
    }
}

impl From<Fault> for BenchError {
    fn from(why: Fault) -> Self {
        Self::new(why.to_string())
    }
}

impl BenchError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), partial: None }
    }
}

/// Something that happened to a cell.
#[derive(Clone, Copy, Debug)]
pub struct CellEvent<'a> {
    /// Launch, from 1.
    pub launch: u32,
    /// Launches in all.
    pub launches: u32,
    /// Cells done, over all launches, this one included unless it only begins.
    pub done: u64,
    /// Its device, where the run has several.
    pub device: Option<&'a str>,
    /// The cell.
    pub cell: &'a Cell,
    /// What happened.
    pub state: CellState<'a>,
}

/// What happened to a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellState<'a> {
    /// It is being measured.
    Began,
    /// It was measured in this launch.
    Measured {
        /// About the median of this launch, for a display; the result has the real one.
        value: f64,
        /// Its unit.
        unit: &'static str,
    },
    /// It cannot be measured here.
    Skipped {
        /// Why.
        why: &'a str,
    },
}

/// Who is told how a run goes.
pub trait Progress {
    /// There will be so many cells, over all launches.
    fn plan(&mut self, cells: u64);
    /// Something happened to a cell.
    fn cell(&mut self, what: &CellEvent<'_>);
    /// Shows a remark of a line.
    fn note(&mut self, text: &str);
    /// Shows what a device chose at its start, which the result holds, too.
    fn chosen(&mut self, text: &str) {
        self.note(text);
    }
}

/// Nobody is told.
impl Progress for () {
    fn plan(&mut self, _cells: u64) {}
    fn cell(&mut self, _what: &CellEvent<'_>) {}
    fn note(&mut self, _text: &str) {}
}
