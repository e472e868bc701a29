//! The papers compared with the model: every published row of what is modelled, computed by running the same
//! experiments on the modelled cards.
//!
//! | file | contents |
//! |---|---|
//! | `papers/` | the dataset, how each row is computed, the papers' figures and contradictions |
//! | `claims/` | the terms used in those tables |
//! | `history/` | the frozen criteria, and their changes since |
//! | `verdicts/` | whether a row holds, and whether it is a prediction; the score |
//! | `probe_results` | measuring, each cell once, on all cores |
//! | `reproduction`, `run` | all of it together, and how it is measured |
//! | `real` | measurements of real libraries compared with the paper on MPI over iWARP |
//! | `output/` | all of it for people |
//! | `error` | why a number cannot be computed |

#![forbid(unsafe_code)]

mod claims;
mod error;
mod history;
mod output;
mod papers;
mod probe_results;
mod real;
mod reproduction;
mod run;
mod verdicts;

pub use claims::quantity::{Probe, Tuning};
pub use error::{BadCard, NoValue};
pub use history::criteria::{Criterion, CriterionChange, changes, criteria, unexplained};
pub use history::fits::{FitChange, fit_changes};
pub use output::page::html;
pub use output::tables::{PaperTable, TableLine};
pub use output::terminal::terminal;
pub use papers::contradictions::{CONTRADICTIONS, Contradiction};
pub use papers::figure::{Curve, Figure, Mark};
pub use papers::published::{
    ACCEL, IWARP, MULTIRAIL, NICMEM, PAPERS, Published, RowKind, THESIS, Unknown, dataset, select,
};
pub use papers::rows::{GROUPS, cards};
pub use probe_results::Measure;
pub use real::{Comparison, OTHERS, OURS, Real, RealError};
pub use reproduction::{PaperScore, Reproduction, Request, SCHEMA, reproduce};
pub use run::{Options, machines, run};
pub use verdicts::judge::{Class, NEAR, Row};
pub use verdicts::machine::{Fitted, Machine, Origin, Value};
pub use verdicts::moves::{Effect, Move, Moves, Shaken};
pub use verdicts::score::{Assumed, FITTED_SHARE, HOLDING_SHARE, MEDIAN_ERROR, NEAR_SHARE, Score, worst};
pub use verdicts::sensitivity::{Sensitivity, Trial};
pub use verdicts::shake::shaken;

#[cfg(test)]
mod tests;
