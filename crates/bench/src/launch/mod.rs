//! Launches: fresh processes for each, what they say to each other, and a run made of what they measured.
//!
//! The launch is the unit of statistics (rule 7), so for each one the orchestrator starts two new workers of its own
//! program, pinned to a core each; `park` adds two helpers. All cells of a run are in every launch, in an order that
//! the seed decides (rule 8). With a peer the second process is a child of `nicety serve` over there
//! (the crate `bench-server`).
//!
//! | file | what it holds |
//! |---|---|
//! | `orchestrator`, `crew` | [`run`]: launches one after the other; the processes of one |
//! | `deadline` | what is dropped where the machine is too busy for all |
//! | `simulated`, `world` | the same plans in virtual time: a world for each cell, no processes |
//! | `collect` | from records to results, floors and noise |
//! | `journal` | what was measured of a plan file, kept for the next time |
//! | `worker`, `serving` | what a worker does, as client and as server |
//! | `admission` | which connections are accepted, and their requests; for a server and for a process of this run |
//! | `guest` | what a server needs to start a worker for a client |
//! | `call` | a client asks a server to start its program |
//! | `rendezvous` | the client finds all others before anything is measured |
//! | `wire`, `control_stream` | the control protocol between the two sides |
//! | `job` | lines between orchestrator and workers |
//! | `device` | the rails of a device |
//! | `sample` | what one cell gave in one launch |
//! | `progress` | reports of how a run proceeds |
//! | `command`, `error` | how a worker is started; why a run or a server ended |

pub mod admission;
mod call;
mod collect;
mod command;
mod control_stream;
mod crew;
mod deadline;
mod device;
mod error;
pub mod guest;
mod job;
mod journal;
mod orchestrator;
mod progress;
mod rendezvous;
mod sample;
mod serving;
mod simulated;
pub mod wire;
mod worker;
pub mod world;

pub use crate::machine::{now, since, watch_noise};
pub use call::call_agent;
pub use command::WorkerCommand;
pub use error::BenchError;
pub use journal::{Found, Journal, JournalError};
pub use orchestrator::{run, run_keeping, run_with};
pub use progress::{CellEvent, CellState, Moved, Progress};
pub use worker::worker_main;
