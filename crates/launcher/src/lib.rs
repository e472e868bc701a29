//! The job launcher: starts the ranks of a parallel program on this host and others, serves PMI, watches the ranks and ends
//! them together.
//!
//! [`Options`] describe a job, [`Plan`] places its ranks, and [`run()`] runs it. The launcher starts the program that it is
//! part of again for its helper processes: `mpirun --agent` on another host is [`agent()`], `mpirun --guard` is [`guard()`],
//! and `mpirun --call HOST:PORT` connects to an agent through a server. The command line of `nicety` handles these, and errors
//! name its options.
//!
//! | file | contents |
//! |---|---|
//! | `options`, `failure` | the description of a job; exit status and errors |
//! | `hosts`, `topology`, `program` | host lists, rank files and the placement of ranks; cores; paths of programs |
//! | `install_paths`, `linked` | files that are installed with this program; the MPI library that a program is linked to, for hints |
//! | `plan` | the placement of all ranks before the start |
//! | `job` | the main loop of mpirun: serves PMI, forwards output, detects failures |
//! | `crew`, `dump`, `guard` | the processes of one host; core dumps in progress; the process that kills them if the crew dies |
//! | `remote`, `agent`, `message` | the crew of another host, seen from both sides, and their protocol |
//! | `network_check` | whether the network between hosts is private |
//! | `profile`, `calls` | the profiles that ranks write; the MPI calls that they wait in |
//! | `printer`, `output`, `input` | output in whole lines; tags and files of output; input |
//! | `event_loop`, `texts`, `quote` | poll and signals; texts of mpirun; shell quoting |

#![forbid(unsafe_code)]

mod agent;
mod calls;
mod crew;
mod dump;
mod event_loop;
mod failure;
mod guard;
mod hosts;
mod input;
pub mod install_paths;
mod job;
mod linked;
mod message;
mod network_check;
mod options;
mod output;
mod plan;
mod printer;
mod profile;
mod program;
pub mod quote;
mod remote;
mod texts;
mod topology;

pub use agent::run as agent;
pub use failure::{Failure, Outcome};
pub use guard::run as guard;
pub use job::{Ended, run};
pub use options::{
    Abi, Bind, Connector, Hosts, MapBy, MpiLibrary, Options, Output, Program, RankBy, Readers, Resource,
    Transport,
};
pub use plan::Plan;
