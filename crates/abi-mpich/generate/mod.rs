//! The generator of the build script: Rust code from the tables of both ABIs.

mod constants;
mod entry;

pub(crate) use constants::Constants;
pub(crate) use entry::{entry_points, functions};
