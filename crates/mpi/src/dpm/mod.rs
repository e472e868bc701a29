//! Processes of other jobs (`MPI_Comm_accept`, `MPI_Comm_connect`, `MPI_Comm_join`, `MPI_Comm_spawn`; MPI 5.0, sections 11.8 to
//! 11.10).
//!
//! | file | contents |
//! |---|---|
//! | `connect` | intercommunicators with another job, over a [`Bridge`](crate::Bridge) |
//! | `remote_jobs` | processes of other jobs, and their local numbers |

pub(crate) mod connect;
pub(crate) mod remote_jobs;
