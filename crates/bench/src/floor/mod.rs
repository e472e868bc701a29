//! Floors beside results: which floors a device has, in which sizes they are measured, and which of them stands beside
//! which result. What measures them is [`crate::experiment`]'s `floor`.

mod assign;
mod kind;

pub use crate::experiment::floor::FLOOR;
pub use assign::{Floors, has_floor};
pub(crate) use kind::{cells, every_cell};
