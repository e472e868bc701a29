//! The Process Management Interface: how the ranks of a parallel program find each other through whoever started them.
//!
//! Bytes in, bytes out. There is no socket, no environment, no clock, no thread and no unsafe code here: the caller owns the
//! descriptor, reads the variables and keeps deadlines. Whatever the other side sends is parsed once and bounded, and none of it
//! panics.
//!
//! | module | what it holds |
//! |---|---|
//! | [`client`] | a rank's side: [`client::Client`] speaks PMI-1 or PMI-2 |
//! | [`server`] | a launcher's side: [`server::Server`] serves PMI-1 to the ranks of many jobs |
//! | [`mapping`] | `PMI_process_mapping`: which rank is on which node, read and written |
//! | [`spawn`] | programs that a rank wants started |
//! | [`profile`] | what a rank did, as text that it leaves for its launcher |
//! | [`value`] | which keys and values every server carries, and bytes as such a value |
//! | [`wire`] | messages on the wire: lines and packets |
//! | `fuzzing` | what the fuzz targets call; it does not ship |
//!
//! # Who speaks what
//!
//! Of a launcher's variables, the first that is set decides: `PMI_FD` (a descriptor; `PMI_RANK` and `PMI_SIZE` stand beside it),
//! then `PMI_PORT` (a TCP address; `PMI_ID` is the rank). Without either, a program is alone: rank 0 of 1.
//!
//! | launcher | PMI-1 | PMI-2 | remark |
//! |---|---|---|---|
//! | Hydra (MPICH's mpiexec) | 1.2, by either variable | yes | drops backslashes from what is spawned |
//! | mpiexec.gforker | 1.1 | no | no process mapping; no answer at all to name publishing |
//! | Slurm, `--mpi=pmi2` | 1.1 | yes | takes each read for one command |
//! | Slurm `--mpi=pmix`, prterun | no | no | PMIx, which is a library's interface and no wire to be spoken from outside; `abi-mpi` loads it |
//! | [`server::Server`] | 1.2 | refused, on which a client may fall back | |
//!
//! The client announces 1.1, since older servers end the job of one that announces more, and takes what the server answers.
//!
//! # What is implemented
//!
//! | what | state | remark |
//! |---|---|---|
//! | PMI 1.1 and 1.2, both sides; PMI-2, a rank's side | done | |
//! | Put, get, fence; barriers of nodes and lists of ranks | done | the latter are PMI 1.2's; a server of less refuses them |
//! | Publishing names; spawning, several programs at once; abort | done | who starts programs is the server's owner |
//! | Escapes in values | never | servers disagree on them; [`value`] says what is sent instead |
//! | `PMI_PORT` | a rank's side | a port is open to every user of the machine, so the server has none |
//! | PMI-2's node attributes, threads, connecting of jobs | never | nothing here needs them |
//! | Spawning from a program that nobody launched | never | there is nobody to ask |

#![forbid(unsafe_code)]

pub mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod mapping;
pub mod profile;
pub mod server;
pub mod spawn;
pub mod value;
pub mod wire;

/// The status of a program, or of the job, that ends by aborting with `code`: its low byte, which is all that a shell sees. It says that all is
/// well only if the code does, as with MPICH and Open MPI, and for OpenSHMEM's `shmem_global_exit`; 1 stands for codes that would look so.
pub fn abort_status(code: i32) -> u8 {
    match code.to_le_bytes()[0] {
        0 if code != 0 => 1,
        low => low,
    }
}
