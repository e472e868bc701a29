//! The functions of the ABI, each under its name without `MPI_` and in small letters; forms for large counts are the same function.
//!
//! | file | what it holds |
//! |---|---|
//! | `environment` | versions, time, memory, names |
//! | `integers` | handles as integers |
//! | `status` | what a status holds |
//! | `tool` | the tool interface, which has nothing to show |

mod environment;
mod integers;
mod status;
mod tool;

pub(crate) use environment::*;
pub(crate) use integers::*;
pub(crate) use status::*;
pub(crate) use tool::*;
