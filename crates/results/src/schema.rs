//! The result file: versioned JSON that carries a run's numbers with everything needed to defend them.
//!
//! One [`Run`] is one file. `docs/reference/results-schema.md` is the description for readers of the JSON. Invariants: every
//! number is finite; `ratio` is always measured / floor; the environment is an allow-list (no environment variables,
//! user names or paths); readers ignore unknown fields, so adding one is not a new version.

mod read;
mod run;
mod write;

pub use read::{CURVES_MAX, RESULTS_MAX, ReadError};
pub use run::*;
pub use write::{WriteError, replace};

#[cfg(test)]
mod tests;
