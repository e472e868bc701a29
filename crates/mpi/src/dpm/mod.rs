//! Processes of other jobs (`MPI_Comm_accept`, `MPI_Comm_connect`, `MPI_Comm_join`, `MPI_Comm_spawn`).
//!
//! | file | what it holds |
//! |---|---|
//! | `connect` | intercommunicators with another job, by a [`Bridge`](crate::Bridge) |
//! | `remote_jobs` | processes of other jobs, and their numbers here |

pub(crate) mod connect;
pub(crate) mod remote_jobs;
