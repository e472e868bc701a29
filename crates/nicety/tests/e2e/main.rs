//! End-to-end tests of the built command, as a user runs it.

mod bench_command;
mod common;
mod compare;
mod completions;
mod devices;
mod doctor;
#[path = "../documents/mod.rs"]
mod documents;
mod hostile;
mod hosts;
mod mpicc;
mod mpirun;
mod namespaces;
mod peers;
mod plan_file;
mod report;
mod reproduce;
mod run;
mod serve;
mod stage;
mod suggested;
mod usage;
