//! [`Reproduction`]: the published rows compared with the model, and [`reproduce`], which computes them with any
//! source of measurements.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::history::criteria::{self, CriterionChange};
use super::history::fits::{FitChange, fit_changes};
use super::output::tables::{PaperTable, tables};
use super::papers::contradictions::{CONTRADICTIONS, Contradiction};
use super::papers::figure::Figure;
use super::papers::figures;
use super::papers::published::{PAPERS, Published, dataset};
use super::papers::rows::{paper_of, table};
use super::probe_results::{Measure, ProbeResults};
use super::real::Real;
use super::verdicts::classes::Classifier;
use super::verdicts::judge::{Row, judge};
use super::verdicts::machine::{Fitted, Machine, Machines};
use super::verdicts::moves::{Moves, Shaken};
use super::verdicts::score::{Assumed, Score, assumed};
use super::verdicts::second_rule::SecondRule;

use bench::launch::Progress;

/// Kind and version of the JSON.
pub const SCHEMA: &str = "nicety-reproduction/2";

/// The selection of rows, and the source of their measurements.
pub struct Request<'a> {
    /// The rows, from [`super::select`].
    pub rows: Vec<Published>,
    /// Whether the papers' figures are requested, too, which takes more measurements.
    pub figures: bool,
    /// The values of the modelled cards.
    pub machines: Vec<Machine>,
    /// Which values move which rows.
    pub moves: Moves,
    /// Values changed in all machines, `key=value`.
    pub changes: Vec<String>,
    /// How a probe is measured.
    pub measure: Measure<'a>,
    /// Threads that measure in parallel.
    pub threads: usize,
}

/// The published rows compared with the model.
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
    /// Whether these are all covered rows: goals apply to the whole set.
    pub complete: bool,
    /// The overall score.
    pub score: Score,
    /// The overall score by the second rule.
    pub second_score: Score,
    /// The score of each paper.
    pub papers: Vec<PaperScore>,
    /// The papers' tables, if all their rows were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<PaperTable>,
    /// The fitted values of the cards in these rows.
    pub fitted: Vec<Fitted>,
    /// The assumed values that move scored rows, and the effect of their ranges on the score.
    pub assumed: Vec<Assumed>,
    /// Criteria of these rows changed since they were frozen.
    pub criteria_changes: Vec<CriterionChange>,
    /// Fit lists that contained a selected row.
    pub fit_changes: Vec<FitChange>,
    /// Contradictions in the papers that concern these rows.
    pub contradictions: Vec<Contradiction>,
    /// The papers' figures, if wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Cells that were measured.
    pub measured: usize,
    /// Measurements of the paper on MPI over iWARP on real devices, if a file with them was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real: Option<Real>,
}

/// The score of one paper's rows.
#[derive(Clone, Debug, Serialize)]
pub struct PaperScore {
    /// Its key.
    pub paper: &'static str,
    /// Whether all its rows were requested.
    pub complete: bool,
    /// The score of its rows, with the fitted values of its cards.
    pub score: Score,
    /// The score of these rows by the second rule.
    pub second_score: Score,
}

/// Computes the rows. `None` if `stop` was set before all was measured.
#[must_use]
pub fn reproduce(
    request: Request<'_>,
    progress: &mut (dyn Progress + Send),
    stop: &AtomicBool,
) -> Option<Reproduction> {
    let Request { rows, figures, machines, moves, changes, measure, threads } = request;
    let table = table();
    let claim = |id: &str| table.iter().find(|claim| claim.rows.contains(&id));
    let plans = if figures { figures::plans(&rows) } else { Vec::new() };
    let mut probes = BTreeSet::new();
    rows.iter().filter_map(|row| claim(&row.id)).for_each(|claim| claim.answer.probes(&mut probes));
    plans.iter().for_each(|plan| plan.probes(&mut probes));
    let measured = probes.len();
    let machines = Machines::new(machines);
    let mut results = ProbeResults::new(machines.clone());
    results.measure(probes, measure, threads, progress, stop);
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    let computed = rows.iter().filter_map(|row| {
        let claim = claim(&row.id)?;
        Some((judge(row, &claim.how, &claim.answer, &results), claim))
    });
    let mut computed: Vec<_> = computed.collect();
    let classifier = Classifier { machines: &machines, moves: &moves, source: &results };
    classifier.classify(&mut computed);
    SecondRule::new(&classifier, &table, &Shaken::stored()).classify(&mut computed);
    let rows: Vec<Row> = computed.into_iter().map(|(row, _)| row).collect();
    let fitted = fitted(&rows, &machines);
    let papers =
        PAPERS.into_iter().filter_map(|paper| paper_score(paper, &rows, &machines, &moves)).collect();
    let asked = |id: &str| rows.iter().any(|row| row.id == id);
    let concerns = |c: &&Contradiction| c.rows.iter().any(|id| asked(id));
    let mut criteria_changes = criteria::changes();
    criteria_changes.retain(|change| asked(&change.row));
    Some(Reproduction {
        schema: SCHEMA,
        nicety_version: env!("CARGO_PKG_VERSION"),
        changes,
        complete: rows.len() == dataset().len(),
        score: Score::new(&rows, &fitted, &moves),
        second_score: Score::by_second_rule(&rows, &fitted, &moves),
        papers,
        tables: tables(&rows),
        fitted,
        assumed: assumed(&rows, &machines, &moves),
        criteria_changes,
        fit_changes: fits_of(&rows),
        contradictions: CONTRADICTIONS.iter().filter(concerns).copied().collect(),
        figures: plans.iter().map(|plan| plan.draw(&results)).collect(),
        rows,
        measured,
        real: None,
    })
}

/// The fit lists from which a selected row was removed.
fn fits_of(rows: &[Row]) -> Vec<FitChange> {
    let concerns = |one: &FitChange| rows.iter().any(|row| one.concerns(&row.id));
    fit_changes().into_iter().filter(concerns).collect()
}

/// The score of one paper, if any of its rows was requested.
fn paper_score(paper: &'static str, rows: &[Row], machines: &Machines, moves: &Moves) -> Option<PaperScore> {
    let own: Vec<Row> = rows.iter().filter(|row| row.paper == paper).cloned().collect();
    if own.is_empty() {
        return None;
    }
    let complete = own.len() == dataset().iter().filter(|row| row.paper == paper).count();
    let fitted = fitted(&own, machines);
    let score = Score::new(&own, &fitted, moves);
    let second_score = Score::by_second_rule(&own, &fitted, moves);
    Some(PaperScore { paper, complete, score, second_score })
}

/// The fitted values of the cards that the rows are about.
fn fitted(rows: &[Row], machines: &Machines) -> Vec<Fitted> {
    let is_about = |paper: &str| rows.iter().any(|row| row.paper == paper);
    let mut all = machines.fitted();
    all.retain(|one| is_about(paper_of(&one.card)));
    all
}
