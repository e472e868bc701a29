//! Files (MPI 5.0, chapter 14).
//!
//! | file | what it holds |
//! |---|---|
//! | `file` | files and their views |
//! | `fileio` | reading and writing |

pub(super) mod file;
pub(super) mod fileio;

pub(crate) use file::*;
pub(crate) use fileio::*;
