//! Floors of results: which floors a device has, the sizes at which they are measured, and which floor belongs to
//! which result. [`crate::experiment`]'s `floor` measures them.

mod assign;
mod kind;

pub use crate::experiment::floor::FLOOR;
pub use assign::{Floors, has_floor};
pub(crate) use kind::{cells, every_cell};
