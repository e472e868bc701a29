//! The Process Management Interface, through which the ranks of a parallel program find each other with the help of their launcher.
//!
//! Bytes in, bytes out. There is no socket, no environment, no clock, no thread and no unsafe code here: the caller owns the
//! descriptor, reads the variables and keeps deadlines. All input from the other side is parsed once and bounded, and no input
//! causes a panic.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | a rank's side: [`client::Client`] speaks PMI-1 or PMI-2 |
//! | [`server`] | a launcher's side: [`server::Server`] serves PMI-1 to the ranks of many jobs |
//! | [`mapping`] | `PMI_process_mapping`: reads and writes the node of each rank |
//! | [`spawn`] | requests to start programs |
//! | [`profile`] | a rank's profile, as text for its launcher |
//! | [`calls`] | which MPI calls a rank waits in, as a note for its launcher |
//! | [`value`] | keys and values that every server can carry, and bytes encoded as a value |
//! | [`wire`] | messages on the wire: lines and packets |
//! | `fuzzing` | entry points of the fuzz targets; not shipped |
//!
//! # Launchers and protocols
//!
//! The first variable that is set decides: `PMI_FD` (a descriptor; `PMI_RANK` and `PMI_SIZE` are also set), then `PMI_PORT` (a TCP
//! address; `PMI_ID` is the rank). Without either, the program is rank 0 of 1.
//!
//! | launcher | PMI-1 | PMI-2 | remark |
//! |---|---|---|---|
//! | Hydra (MPICH's mpiexec) | 1.2, by either variable | yes | drops backslashes from spawn requests |
//! | mpiexec.gforker | 1.1 | no | no process mapping; no answer at all to name publishing |
//! | Slurm, `--mpi=pmi2` | 1.1 | yes | takes each read for one command |
//! | Slurm `--mpi=pmix`, prterun | no | no | PMIx, which is a library interface and no wire protocol; `abi-mpi` loads it |
//! | [`server::Server`] | 1.2 | refused, so that a client can fall back | |
//!
//! The client announces 1.1, since older servers end the job of a client that announces a later version, and accepts the version in
//! the answer.
//!
//! # What is implemented
//!
//! | feature | state | remark |
//! |---|---|---|
//! | PMI 1.1 and 1.2, both sides; PMI-2, a rank's side | done | |
//! | Put, get, fence; barriers of nodes and lists of ranks | done | such barriers need PMI 1.2; older servers refuse them |
//! | Publishing names; spawning, several programs per request; abort | done | the server's owner starts the programs |
//! | Escapes in values | never | servers disagree on them; [`value`] describes the encoding used instead |
//! | `PMI_PORT` | a rank's side | a port is open to every user of the machine, so the server does not offer one |
//! | PMI-2's node attributes, threads, connecting of jobs | never | nothing here needs them |
//! | Spawning from a program without a launcher | never | there is no process manager |

#![forbid(unsafe_code)]

pub mod calls;
pub mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod mapping;
pub mod profile;
pub mod server;
pub mod spawn;
pub mod value;
pub mod wire;

/// The exit status of a program, or of a job, that aborts with `code`: the low byte, which is all that a shell sees. It is 0 only
/// if the code is 0, as with MPICH and Open MPI, and for OpenSHMEM's `shmem_global_exit`; codes with a low byte of 0 become 1.
pub fn abort_status(code: i32) -> u8 {
    match code.to_le_bytes()[0] {
        0 if code != 0 => 1,
        low => low,
    }
}
