//! `libmpi_abi.so.1`: the C face of MPI, as the standard ABI of MPI 5 has it. Programs that were built against the ABI, by whatever
//! compiler wrapper, run on any of our devices.
//!
//! `NICETY_DEVICE` names the device (`shm` if it is not set); who else is in the job is asked of PMI, as the launcher's variables
//! say. No other crate below reads the environment.
//!
//! Each function checks its handles and addresses, calls `mpi`, and turns what comes back into the standard's numbers. No panic
//! leaves it. What is not there answers `MPI_ERR_UNSUPPORTED_OPERATION` through the error handler.
//!
//! | file | what it holds |
//! |---|---|
//! | `functions.txt`, `constants.txt` | the ABI as tables, and what is there of it; build.rs makes the rest of them |
//! | `exports` | the exported functions |
//! | `types`, `constants` | how things are passed |
//! | `answer`, `handler`, `firewall` | what calls return; errors through error handlers; the end of every call |
//! | `state`, `launch`, `pmix` | the one process; who else is in the job, by PMI or by PMIx |
//! | `bridge`, `port` | sockets to processes of other jobs; places where these connect |
//! | `kinds`, `objects` | what is behind handles; objects by handle |
//! | `strict` | extensions that other implementations share, and `NICETY_STRICT` |
//! | `profile` | what calls take, for `nicety mpirun --profile` |
//! | `callback`, `memory`, `heap` | functions and memory of programs; the library's own memory |
//! | `clock` | the host |
//! | `calls` | the functions, by object |

mod answer;
mod bridge;
mod callback;
mod calls;
mod clock;
mod constants;
mod exports;
mod firewall;
mod handler;
mod heap;
mod kinds;
mod launch;
mod memory;
mod objects;
mod pmix;
mod port;
mod profile;
mod state;
mod strict;
mod types;
