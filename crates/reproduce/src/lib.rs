//! The papers beside the model: every published row of what is modelled, computed by running the same experiments on the
//! modelled cards.
//!
//! | file | what it holds |
//! |---|---|
//! | `error` | why a number cannot be computed |
//! | `published` | the dataset, and which rows are covered |
//! | `nicmem/`, `thesis/`, `multirail/` | for each row how it is computed, or why not |
//! | `setup`, `quantity`, `check`, `claim`, `whatif` | the words in which those tables are written |
//! | `machine` | what the machine files say of their values: it decides what is a prediction |
//! | `lab` | measuring, each cell once, on all cores |
//! | `judge`, `score`, `contradictions` | rows with class and ratio; how near predictions come; what no model can meet |
//! | `sensitivity` | which rows move with each fitted value |
//! | `figures` | the papers' figures, as curves of the model with the published points |
//! | `page`, `terminal` | all of it for people |

#![forbid(unsafe_code)]

mod check;
mod claim;
mod contradictions;
mod error;
mod figure;
mod figures;
mod judge;
mod lab;
mod machine;
mod multirail;
mod nicmem;
mod page;
mod published;
mod quantity;
mod score;
mod sensitivity;
mod setup;
mod tables;
mod terminal;
mod thesis;
mod whatif;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

pub use contradictions::{CONTRADICTIONS, Contradiction};
pub use error::{BadCard, NoValue};
pub use figure::{Curve, Figure, Mark};
pub use judge::{Class, NEAR, Row};
pub use lab::Measure;
pub use machine::{Fitted, Machine, Origin, Value};
pub use page::html;
pub use published::{Kind, MULTIRAIL, NICMEM, Published, THESIS, Unknown, dataset, select};
pub use quantity::{Probe, Tuning};
pub use score::{FITTED_SHARE, HOLDING_SHARE, MEDIAN_ERROR, NEAR_SHARE, Score, worst};
pub use sensitivity::{CHANGE, Service};
pub use tables::{Line, PaperTable};
pub use terminal::terminal;

use claim::{Claim, Table};
use lab::Lab;
use machine::Machines;

use bench::launch::{Progress, world};

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
    /// How near those of each paper come.
    pub papers: Vec<PaperScore>,
    /// The papers' tables, where all of their rows were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<PaperTable>,
    /// The fitted values of the cards that these rows are about.
    pub fitted: Vec<Fitted>,
    /// What moves with each fitted value, if wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Contradictions in the papers that concern these rows.
    pub contradictions: Vec<Contradiction>,
    /// The papers' figures, if wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Cells that were measured.
    pub measured: usize,
}

/// How near the rows of one paper come.
#[derive(Clone, Debug, Serialize)]
pub struct PaperScore {
    /// Its key.
    pub paper: &'static str,
    /// Whether all of its rows were asked for.
    pub complete: bool,
    /// Of its rows, with the fitted values of the cards that it is about.
    pub score: Score,
}

/// Everything that says how rows are computed.
fn table() -> Vec<Claim> {
    let mut table = Table::default();
    nicmem::table(&mut table);
    thesis::table(&mut table);
    multirail::table(&mut table);
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
    let all = [NICMEM, THESIS, MULTIRAIL].into_iter();
    let papers = all.filter_map(|paper| paper_score(paper, &rows, &machines)).collect();
    let concerns = |c: &&Contradiction| rows.iter().any(|row| c.rows.contains(&row.id.as_str()));
    Some(Reproduction {
        schema: SCHEMA,
        nicety_version: env!("CARGO_PKG_VERSION"),
        changes,
        complete: rows.len() == dataset().iter().filter(|row| row.is_covered()).count(),
        score: Score::of(&rows, &fitted),
        papers,
        tables: tables::tables(&rows),
        fitted,
        services: Vec::new(),
        contradictions: CONTRADICTIONS.iter().filter(concerns).copied().collect(),
        figures: plans.iter().map(|plan| plan.draw(&lab)).collect(),
        rows,
        measured,
    })
}

/// What is wanted beside the rows, and with which values.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The papers' figures.
    pub figures: bool,
    /// What moves with each fitted value: all numbers again for each of them.
    pub sensitivity: bool,
    /// Values of the machine files to change: key and value.
    pub changes: Vec<(String, String)>,
}

/// Computes the rows on the modelled cards, on all cores. `None` if `stop` said so before all was measured.
///
/// # Errors
/// A machine file that cannot be read, a value that does not exist or is beyond its range.
pub fn run(
    rows: Vec<Published>,
    options: &Options,
    progress: &mut (dyn Progress + Send),
    stop: &AtomicBool,
) -> Result<Option<Reproduction>, BadCard> {
    let of_card = |card| machine::of_card(card, &options.changes);
    let machines: Vec<Machine> = cards().into_iter().map(of_card).collect::<Result<_, _>>()?;
    let changes: Vec<String> = options.changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut measure_all = |rows: Vec<Published>, figures, extra: &(dyn Fn(&str) -> Option<String> + Sync)| {
        let measure = |probe: &Probe| {
            // Times are the same, and there is less to copy.
            let hole = std::iter::once("payload=hole".to_owned());
            let changes: Vec<String> =
                hole.chain(changes.iter().cloned()).chain(extra(probe.card())).collect();
            let measured = world::measure(&probe.changed(&changes.join(",")), &probe.cell, &probe.settings());
            measured.map(|measured| measured.value).map_err(|fault| NoValue::Failed(fault.to_string()))
        };
        let (machines, changes) = (machines.clone(), changes.clone());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        reproduce(Request { rows, figures, machines, changes, measure: &measure, threads }, progress, stop)
    };
    let Some(mut all) = measure_all(rows.clone(), options.figures, &|_| None) else { return Ok(None) };
    if options.sensitivity {
        let movable = sensitivity::movable(&rows, &all.rows);
        let again = |key: &str| {
            let changed = |card: &str| {
                let value =
                    machines.iter().find(|m| m.card == card)?.values.iter().find(|v| v.key == key)?.value;
                let value = value * CHANGE;
                // Some values are whole numbers.
                Some(format!("{key}={}", if value > 10.0 { value.round() } else { value }))
            };
            measure_all(movable.clone(), false, &changed).map(|all| all.rows)
        };
        match sensitivity::services(&all.rows, &all.fitted, stop, again) {
            Some(services) => all.services = services,
            None => return Ok(None),
        }
    }
    Ok(Some(all))
}

/// The score of one paper, if any of its rows was asked for.
fn paper_score(paper: &'static str, rows: &[Row], machines: &Machines) -> Option<PaperScore> {
    let own: Vec<Row> = rows.iter().filter(|row| row.paper == paper).cloned().collect();
    if own.is_empty() {
        return None;
    }
    let complete = own.len() == dataset().iter().filter(|row| row.paper == paper).count();
    Some(PaperScore { paper, complete, score: Score::of(&own, &fitted(&own, machines)) })
}

/// The fitted values of the cards that the rows are about.
fn fitted(rows: &[Row], machines: &Machines) -> Vec<Fitted> {
    let is_about = |paper: &str| rows.iter().any(|row| row.paper == paper);
    let mut all = machines.fitted();
    all.retain(|one| is_about(paper_of(&one.card)));
    all
}

/// The paper that a card belongs to.
fn paper_of(card: &str) -> &'static str {
    let multirail = [multirail::SINGLE, multirail::PORTS, multirail::CARDS];
    match card {
        _ if card == nicmem::SETUP.card => NICMEM,
        _ if multirail.iter().any(|setup| setup.card == card) => MULTIRAIL,
        _ => THESIS,
    }
}

/// The cards that rows are computed with.
#[must_use]
pub fn cards() -> [&'static str; 8] {
    [
        nicmem::SETUP,
        thesis::VAPI,
        thesis::IBAL,
        thesis::MYRINET,
        thesis::QUADRICS,
        multirail::SINGLE,
        multirail::PORTS,
        multirail::CARDS,
    ]
    .map(|setup| setup.card)
}

#[cfg(test)]
mod tests;
