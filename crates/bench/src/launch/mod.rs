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
//! | `wire`, `control_stream` | the control protocol between the two sides |
//! | `job` | lines between orchestrator and workers |
//! | `device` | devices by name: which one a server opens for a client; rails |
//! | `sample` | what one cell gave in one launch |
//! | `progress` | who is told how a run goes |
//! | `command`, `error` | how a worker is started; why a run or a server ended |

mod agents;
mod collect;
mod command;
mod control_stream;
mod crew;
mod device;
mod door;
mod error;
mod guests;
mod job;
mod journal;
mod orchestrator;
mod progress;
mod rendezvous;
mod sample;
mod serve;
mod serving;
mod simulated;
pub mod wire;
mod worker;
pub mod world;

pub use crate::machine::watch_noise;
pub use agents::call_agent;
pub use command::WorkerCommand;
pub use error::BenchError;
pub use journal::{Found, Journal, JournalError};
pub use orchestrator::{run, run_keeping, run_with};
pub use progress::{CellEvent, CellState, Progress};
pub use serve::{OpenServer, Serving, serve, serve_with};
pub use worker::worker_main;
