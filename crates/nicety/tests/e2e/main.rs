//! End-to-end tests of the built command, as a user runs it.

mod bench_command;
mod common;
mod compare;
mod completions;
mod devices;
mod doctor;
#[path = "../documents/mod.rs"]
mod documents;
#[path = "../../src/cmd/mpirun/habits.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod habits;
mod hostile;
mod hosts;
mod mpicc;
mod mpifort;
mod mpirun;
mod namespaces;
mod other_launchers;
mod peers;
mod plan_file;
mod report;
mod reproduce;
mod run;
mod serve;
mod stage;
mod suggested;
mod trace;
mod usage;
