//! The papers beside the model: every published row of what is modelled, computed by running the same experiments on the
//! modelled cards.
//!
//! | file | what it holds |
//! |---|---|
//! | `error` | why a number cannot be computed |
//! | `published` | the dataset, and which rows are covered |
//! | `nicmem/`, `thesis/`, `iwarp/`, `multirail/`, `accel/` | for each row how it is computed, or why not; `rows` has all of them |
//! | `setup`, `quantity`, `check`, `claim`, `whatif` | the words in which those tables are written |
//! | `criteria`, `spelling` | the criteria as they were frozen, and what has changed since |
//! | `fits` | which fit lists have become shorter |
//! | `machine`, `moves`, `sensitivity` | where values of the machine files come from, and which rows each of them moves |
//! | `lab` | measuring, each cell once, on all cores |
//! | `judge`, `classes` | rows with their ratio to the paper, and what each is to the model |
//! | `score`, `contradictions` | how near predictions come; what no model can meet |
//! | `figure`, `figures`, `tables` | the papers' figures and tables from the model, with the published numbers |
//! | `reproduction`, `run` | all of it together, and how it is measured |
//! | `page`, `plots`, `terminal` | all of it for people |

#![forbid(unsafe_code)]

mod accel;
mod check;
mod claim;
mod classes;
mod contradictions;
mod criteria;
mod error;
mod figure;
mod figures;
mod fits;
mod iwarp;
mod judge;
mod lab;
mod machine;
mod moves;
mod multirail;
mod nicmem;
mod page;
mod plots;
mod published;
mod quantity;
mod real;
mod reproduction;
mod rows;
mod run;
mod score;
mod sensitivity;
mod setup;
mod spelling;
mod tables;
mod terminal;
mod thesis;
mod whatif;

pub use contradictions::{CONTRADICTIONS, Contradiction};
pub use criteria::{Change, Criterion, changes, criteria, unexplained};
pub use error::{BadCard, NoValue};
pub use figure::{Curve, Figure, Mark};
pub use fits::{FitChange, fit_changes};
pub use judge::{Class, NEAR, Row};
pub use lab::Measure;
pub use machine::{Fitted, Machine, Origin, Value};
pub use moves::{Effect, Move, Moves};
pub use page::html;
pub use published::{ACCEL, IWARP, Kind, MULTIRAIL, NICMEM, Published, THESIS, Unknown, dataset, select};
pub use quantity::{Probe, Tuning};
pub use real::{Comparison, OTHERS, OURS, Real, RealError};
pub use reproduction::{PaperScore, Reproduction, Request, SCHEMA, reproduce};
pub use rows::{GROUPS, cards};
pub use run::{Options, machines, run};
pub use score::{Assumed, FITTED_SHARE, HOLDING_SHARE, MEDIAN_ERROR, NEAR_SHARE, Score, worst};
pub use sensitivity::{Sensitivity, Trial};
pub use tables::{Line, PaperTable};
pub use terminal::terminal;

#[cfg(test)]
mod tests;
