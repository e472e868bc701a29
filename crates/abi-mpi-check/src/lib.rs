//! A sanitizer for MPI programs: finds uses of MPI that work by luck, with the places in the program where they began and where they
//! showed. `nicety mpirun --check` preloads it.
//!
//! Its functions have the names `MPI_...`, and call those of the MPI library by their names `PMPI_...`, as the profiling interface of
//! MPI 5.0 (section 15.2) provides. Programs of the standard ABI need no change, and the MPI library none; without the preload, nothing
//! is in the way of a call.
//!
//! Each communicator has a second one with the same processes, which the program does not see. On it, each message is preceded by one
//! that describes its datatype and its sender's place, and each collective by an exchange of what the ranks call.
//!
//! | file | what it holds |
//! |---|---|
//! | `library`, `entry` | the functions of the MPI library; the macros that export ours |
//! | `active`, `report` | whether calls are checked; kinds of findings |
//! | `memory` | buffers: the addresses they take and what they contained |
//! | `signature` | sequences of basic types, and whether two match |
//! | `messages` | which received message is which sent one |
//! | `requests` | outstanding requests |
//! | `objects` | objects that are left at the end |
//! | `state` | what is known of this process: all of the above |
//! | `completion` | the end of requests |
//! | `collectives` | comparison of the calls of all ranks |
//! | `calls` | the exported functions, by subject |
//!
//! `NICETY_MPI_CHECK` is `on` or `strict`, `NICETY_MPI_CHECK_LOG` a file for the findings, `NICETY_MPI_CHECK_EXIT` the exit status of a
//! process with findings.

mod active;
mod calls;
mod collectives;
mod completion;
mod entry;
mod library;
mod memory;
mod messages;
mod objects;
mod report;
mod requests;
mod signature;
mod state;
