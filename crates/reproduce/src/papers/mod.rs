//! The papers: what they printed, and how each row is computed.
//!
//! | file | contents |
//! |---|---|
//! | `published` | the dataset, and which rows are covered |
//! | `rows` | how all rows are computed, and on which cards |
//! | `nicmem/`, `thesis/`, `iwarp/`, `multirail/`, `accel/` | the rows of one paper |
//! | `figure`, `figures` | a figure from the model; the figures of the papers |
//! | `contradictions` | where papers contradict themselves or each other |

mod accel;
pub(crate) mod contradictions;
pub(crate) mod figure;
pub(crate) mod figures;
mod iwarp;
mod multirail;
mod nicmem;
pub(crate) mod published;
pub(crate) mod rows;
mod thesis;
