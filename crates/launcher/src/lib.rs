//! The job launcher: ranks of a parallel program, started on this host and on others, served by PMI, watched and ended together.
//!
//! [`Options`] say what is wanted, [`Plan`] is what would be started where, and [`run()`] does it. The launcher calls the program that it
//! is part of once more, for what other processes have to do: `mpirun --agent` on another host is [`agent()`], and `mpirun --guard` is
//! [`guard()`]; `mpirun --call HOST:PORT` connects with an agent through a server. The command line of `nicety` answers these, and
//! errors name its options.
//!
//! | file | what it holds |
//! |---|---|
//! | `options`, `failure` | what is wanted; why it could not be done |
//! | `hosts`, `topology`, `program` | hosts and who goes where; cores; files of programs |
//! | `beside`, `linked` | files that are installed with this program; the MPI library that a program was linked to, for hints |
//! | `plan` | what is to be started where |
//! | `job` | a job from its first process to its last: PMI is served, output passed on, failures judged |
//! | `crew`, `dump`, `guard` | the processes of one host; those whose core is being written; who ends them if nobody else can |
//! | `remote`, `agent`, `message` | the crew of another host, from both sides, and what they say to each other |
//! | `private` | whether the network between hosts is private |
//! | `profile` | the profiles that ranks leave |
//! | `printer`, `input`, `wake`, `words`, `quote` | output in whole lines; input; what the loops sleep on; sentences; shell words |

#![forbid(unsafe_code)]

mod agent;
pub mod beside;
mod crew;
mod dump;
mod failure;
mod guard;
mod hosts;
mod input;
mod job;
mod linked;
mod message;
mod options;
mod plan;
mod printer;
mod private;
mod profile;
mod program;
pub mod quote;
mod remote;
mod topology;
mod wake;
mod words;

pub use agent::run as agent;
pub use failure::{Failure, Outcome};
pub use guard::run as guard;
pub use job::{Ended, run};
pub use options::{Bind, Hosts, Lane, MapBy, MpiLibrary, Options, Program, Reach, Readers};
pub use plan::Plan;
