//! Topologies of communicators.
//!
//! | file | what it holds |
//! |---|---|
//! | `topology` | [`Topology`](crate::Topology): the neighbours of each process |
//! | `comm` | communicators with a topology |
//! | `map` | which process takes which place |

pub(crate) mod comm;
pub(crate) mod map;
pub(crate) mod topology;
