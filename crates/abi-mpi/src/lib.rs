//! `libmpi_abi.so.1`: the C ABI of MPI 5. Programs that were built against the standard ABI, by any compiler wrapper, run on all of our
//! devices.
//!
//! `NICETY_DEVICE` names the device (`shm` if it is not set). The launcher describes the job over PMI, as its variables specify. No crate
//! below this one reads the environment.
//!
//! Each function checks its handles and addresses, calls `mpi`, and translates the result into the standard's numbers. No panic leaves
//! it. Unsupported functions report `MPI_ERR_UNSUPPORTED_OPERATION` to the error handler.
//!
//! | file | what it holds |
//! |---|---|
//! | `functions.txt`, `constants.txt` | the ABI as tables, with the state of each function; build.rs generates code from them |
//! | `exports` | the exported functions |
//! | `types`, `constants` | the types of arguments, and constants |
//! | `answer`, `handler`, `firewall` | results of calls; error handlers; the end of every call |
//! | `state`, `launch`, `pmix` | the process's state; its job, over PMI or PMIx |
//! | `bridge`, `port` | sockets to processes of other jobs; ports that they connect to |
//! | `kinds`, `objects` | the objects behind handles; the table of handles |
//! | `strict` | extensions that other implementations share, and `NICETY_STRICT` |
//! | `profile`, `long_waits` | time and traffic of calls, for `nicety mpirun --profile`; calls that wait for long, for `--timeout` |
//! | `callback`, `memory`, `heap` | a program's functions and memory; the library's own memory |
//! | `clock` | the host, with its clock |
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
mod long_waits;
mod memory;
mod objects;
mod pmix;
mod port;
mod profile;
mod state;
mod strict;
mod types;
