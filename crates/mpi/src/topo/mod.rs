//! Topologies of communicators (MPI 5.0, chapter 8).
//!
//! | file | contents |
//! |---|---|
//! | `topology` | [`Topology`](crate::Topology): the neighbours of each process |
//! | `comm` | communicators with a topology |
//! | `map` | the assignment of processes to places |

pub(crate) mod comm;
pub(crate) mod map;
pub(crate) mod topology;
