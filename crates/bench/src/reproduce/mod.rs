//! The papers beside the model: every published row of what is modelled, computed by running the same experiments on the
//! modelled cards.
//!
//! | file | what it holds |
//! |---|---|
//! | `published` | the dataset, and which rows are covered |
//! | `nicmem/`, `thesis` | for each row how it is computed, or why not |
//! | `setup`, `quantity`, `check`, `claim`, `whatif` | the words in which those tables are written |
//! | `machine` | what the machine files say of their values: it decides what is a prediction |
//! | `lab` | measuring, each cell once, on all cores |
//! | `judge`, `score`, `contradictions` | rows with class and ratio; how near predictions come; what no model can meet |
//! | `figures` | the papers' figures, as curves of the model with the published points |
//! | `page`, `terminal` | all of it for people |

mod check;
mod claim;
mod contradictions;
mod figures;
mod judge;
mod lab;
mod machine;
mod nicmem;
mod page;
mod published;
mod quantity;
mod score;
mod setup;
mod terminal;
mod thesis;
mod whatif;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

pub use contradictions::{CONTRADICTIONS, Contradiction};
pub use figures::{Curve, Figure, Mark};
pub use judge::{Class, NEAR, Row};
pub use lab::Measure;
pub use machine::{Fitted, Machine, Origin, Value};
pub use page::html;
pub use published::{Kind, NICMEM, Published, THESIS, Unknown, dataset, select};
pub use quantity::{Probe, Tuning};
pub use score::{FITTED_SHARE, HOLDING_SHARE, MEDIAN_ERROR, NEAR_SHARE, Score, worst};
pub use terminal::terminal;

use claim::{Claim, Table};
use lab::Lab;
use machine::Machines;

use crate::launch::{Progress, world};

/// Kind and version of the JSON.
pub const SCHEMA: &str = "nicety-reproduction/1";

/// What is wanted, and with what it is done.
pub struct Request<'a> {
    /// The rows, from [`select`].
    pub rows: Vec<Published>,
    /// Whether the papers' figures are wanted, too, which takes more measurements.
    pub figures: bool,
    /// The values of the modelled cards.
    pub machines: Vec<Machine>,
    /// Values that were changed in all of them, `key=value`.
    pub changes: Vec<String>,
    /// How a probe is measured.
    pub measure: Measure<'a>,
    /// Threads that measure at once.
    pub threads: usize,
}

/// The rows beside the model.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// [`SCHEMA`]
    pub schema: &'static str,
    /// The program's version.
    pub nicety_version: &'static str,
    /// Values of the machine files that were changed, `key=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// All rows that were asked for, in the dataset's order.
    pub rows: Vec<Row>,
    /// Whether these are all rows that are covered: goals are for all of them together.
    pub complete: bool,
    /// How near they come.
    pub score: Score,
    /// The fitted values of the cards that these rows are about.
    pub fitted: Vec<Fitted>,
    /// Contradictions in the papers that concern these rows.
    pub contradictions: Vec<Contradiction>,
    /// The papers' figures, if wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Cells that were measured.
    pub measured: usize,
}

/// Everything that says how rows are computed.
fn table() -> Vec<Claim> {
    let mut table = Table::default();
    nicmem::table(&mut table);
    thesis::table(&mut table);
    table.0
}

/// Computes the rows. `None` if `stop` said so before all was measured.
#[must_use]
pub fn reproduce(
    request: Request<'_>,
    progress: &mut (dyn Progress + Send),
    stop: &AtomicBool,
) -> Option<Reproduction> {
    let Request { rows, figures, machines, changes, measure, threads } = request;
    let table = table();
    let claim = |row: &Published| table.iter().find(|claim| claim.rows.contains(&row.id.as_str()));
    let plans = if figures { figures::plans(&rows) } else { Vec::new() };
    let mut probes = BTreeSet::new();
    rows.iter().filter_map(claim).for_each(|claim| claim.answer.probes(&mut probes));
    plans.iter().for_each(|plan| plan.probes(&mut probes));
    let measured = probes.len();
    let machines = Machines::new(machines);
    let mut lab = Lab::new(machines.clone());
    lab.measure(probes, measure, threads, progress, stop);
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    let rows: Vec<Row> = rows
        .iter()
        .filter_map(|row| {
            let claim = claim(row)?;
            let origin = judge::origin_of(claim.rows, &machines);
            Some(judge::judge(row, &claim.how, &claim.answer, origin, &lab))
        })
        .collect();
    let fitted = fitted(&rows, &machines);
    let concerns = |c: &&Contradiction| rows.iter().any(|row| c.rows.contains(&row.id.as_str()));
    Some(Reproduction {
        schema: SCHEMA,
        nicety_version: env!("CARGO_PKG_VERSION"),
        changes,
        complete: rows.len() == dataset().iter().filter(|row| row.is_covered()).count(),
        score: Score::of(&rows, &fitted),
        fitted,
        contradictions: CONTRADICTIONS.iter().filter(concerns).copied().collect(),
        figures: plans.iter().map(|plan| plan.draw(&lab)).collect(),
        rows,
        measured,
    })
}

/// Computes the rows on the modelled cards, on all cores, with some values of their machine files changed. `None` if
/// `stop` said so before all was measured.
///
/// # Errors
/// A machine file that cannot be read, a value that does not exist or is beyond its range.
pub fn run(
    rows: Vec<Published>,
    figures: bool,
    changes: &[(String, String)],
    progress: &mut (dyn Progress + Send),
    stop: &AtomicBool,
) -> Result<Option<Reproduction>, String> {
    let of_card = |card| machine::of_card(card, changes);
    let machines = cards().into_iter().map(of_card).collect::<Result<_, _>>()?;
    let changes: Vec<String> = changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let all = changes.join(",");
    let measure = |probe: &Probe| {
        let measured = world::measure(&probe.changed(&all), &probe.cell, &probe.settings());
        measured.map(|measured| measured.value).map_err(|fault| fault.to_string())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(reproduce(Request { rows, figures, machines, changes, measure: &measure, threads }, progress, stop))
}

/// The fitted values of the cards that the rows are about.
fn fitted(rows: &[Row], machines: &Machines) -> Vec<Fitted> {
    let is_about = |paper: &str| rows.iter().any(|row| row.paper == paper);
    let (nicmem, thesis) = (is_about(NICMEM), is_about(THESIS));
    let mut all = machines.fitted();
    all.retain(|one| if one.card == nicmem::SETUP.card { nicmem } else { thesis });
    all
}

/// The cards that rows are computed with.
#[must_use]
pub fn cards() -> [&'static str; 3] {
    [nicmem::SETUP.card, thesis::VAPI.card, thesis::IBAL.card]
}

#[cfg(test)]
mod tests;
