//! What the checks of `cargo xtask` and the laboratory of `interop/` share.
//!
//! | module | what it holds |
//! |---|---|
//! | [`workspace`] | where the workspace is, and how its tools are called |
//! | [`packages`] | Debian's packages that are needed |
//! | [`python`] | MPI libraries that come as packages of Python |
//! | [`limited`] | programs with a limit of time |

#![forbid(unsafe_code)]

pub mod limited;
pub mod packages;
pub mod python;
pub mod workspace;
