//! Floors of results. A *floor* is what the machine itself does for the same work, without a device: a copy, or a message
//! over plain TCP. A device's *baseline* ([`fabric::Baseline`]) decides which floors its results have. This module decides
//! at which sizes floors are measured, and which floor belongs to which result; [`crate::experiment`]'s `floor` measures
//! them.

mod assign;
mod cells;

pub use crate::experiment::floor::FLOOR;
pub use assign::{Floors, has_floor};
pub(crate) use cells::{cells, every_cell};
