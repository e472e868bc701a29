//! A comparison as JSON.

use results::variant::Variant;
use std::collections::BTreeMap;

use results::schema::Cell;
use results::stats::{CellComparison, Comparison};
use serde::Serialize;

use super::words::VERDICTS;

/// Type and version of the JSON.
const SCHEMA: &str = "nicety-compare/1";

/// The whole comparison.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    /// The threshold, as a fraction.
    threshold: f64,
    /// The number of cells for each verdict.
    counts: BTreeMap<String, usize>,
    /// Other differences between the runs.
    cautions: &'a [String],
    cells: Vec<Compared<'a>>,
    only_old: Vec<Named<'a>>,
    only_new: Vec<Named<'a>>,
}

#[derive(Debug, Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    cell: Named<'a>,
    verdict: String,
    unit: &'a str,
    /// Median of the old run.
    old: f64,
    /// Median of the new run.
    new: f64,
    /// New / old.
    ratio: Option<f64>,
    ratio_ci95: Option<[f64; 2]>,
    /// The drift of either run while the cell was measured, as a fraction.
    drift: f64,
    /// The p-value after the correction for multiple cells.
    q: Option<f64>,
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Named<'a> {
    experiment: &'a str,
    device: &'a str,
    variant: &'a Variant,
    size_bytes: u64,
    metric: &'a str,
}

impl<'a> Document<'a> {
    pub(super) fn new(compared: &'a Comparison, cautions: &'a [String]) -> Self {
        Self {
            schema: SCHEMA,
            threshold: compared.threshold,
            counts: VERDICTS.iter().map(|v| (v.to_string(), compared.count(*v))).collect(),
            cautions,
            cells: compared.cells.iter().map(Compared::new).collect(),
            only_old: compared.only_old.iter().map(Named::new).collect(),
            only_new: compared.only_new.iter().map(Named::new).collect(),
        }
    }
}

impl<'a> Compared<'a> {
    fn new(cell: &'a CellComparison) -> Self {
        let ends = cell.ratio.and_then(|r| r.low.zip(r.high));
        Self {
            cell: Named::new(&cell.cell),
            verdict: cell.verdict.to_string(),
            unit: &cell.unit,
            old: cell.old,
            new: cell.new,
            ratio: cell.ratio.map(|r| r.ratio),
            ratio_ci95: ends.map(|(low, high)| [low, high]),
            drift: cell.drift,
            q: cell.q,
            reason: cell.reason.as_deref(),
        }
    }
}

impl<'a> Named<'a> {
    fn new(cell: &'a Cell) -> Self {
        Self {
            experiment: &cell.experiment,
            device: &cell.device,
            variant: &cell.variant,
            size_bytes: cell.size_bytes,
            metric: &cell.metric,
        }
    }
}
