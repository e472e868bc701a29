//! Code shared by the checks of `cargo xtask` and the laboratory of `interop/`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`workspace`] | the workspace, and calls of cargo and other tools |
//! | [`packages`] | Debian's packages that are needed |
//! | [`python`] | MPI libraries from Python packages |
//! | [`limited`] | programs with a time limit |

#![forbid(unsafe_code)]

pub mod limited;
pub mod packages;
pub mod python;
pub mod workspace;
