//! From the launches of a cell to its result.

use super::sampled::{Sampled, ascending};
use results::schema::{Floor, Launch, Measurement, Quantile};
use results::stats::{iqr, needed, over_launches, quantile_interval, quantile_ranks, sort, spread};
use results::variant::Variant;

/// What a result is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellHead {
    /// Experiment.
    pub experiment: String,
    /// Device.
    pub device: String,
    /// Factors other than size.
    pub variant: Variant,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Metric.
    pub metric: String,
    /// Unit.
    pub unit: String,
}

/// The floor of a cell: what the machine itself does for the same work, in the unit of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct CellFloor {
    /// The value; unless it is above 0 the result has no floor.
    pub value: f64,
    /// What it is.
    pub what: String,
}

/// How much goes into the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Detail {
    /// Quantiles asked for; default 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999.
    pub quantiles: Vec<f64>,
    /// Samples stored of each launch; default 500.
    pub samples: usize,
}

impl Default for Detail {
    fn default() -> Self {
        Self { quantiles: vec![0.5, 0.9, 0.95, 0.99, 0.999, 0.9999], samples: 500 }
    }
}

/// The result of a cell; `None` without launches, or if a median is no finite number in the result's unit (the rate of
/// an operation that the clock cannot see).
///
/// `map` takes ns for one operation to the result's unit and is monotone: proportional for times, inversely
/// proportional for rates, so that the map of the mean time is the arithmetic mean of times and the harmonic one of rates.
/// Quantiles are those of the result: p99 of a bandwidth comes from the first percent of the times.
#[must_use]
pub fn measurement(
    head: CellHead,
    launches: &[Sampled],
    map: impl Fn(f64) -> f64,
    floor: Option<CellFloor>,
    detail: &Detail,
) -> Option<Measurement> {
    let first = launches.first()?;
    let entries: Vec<Launch> = launches.iter().map(|l| l.launch(&map, detail.samples)).collect();
    let medians: Vec<f64> = entries.iter().map(|l| l.median).collect();
    let over = over_launches(&medians).filter(|_| medians.iter().all(|m| m.is_finite()))?;
    let iqrs = launches
        .iter()
        .filter_map(|l| Some(iqr(&l.sorted.iter().map(|v| map(*v)).collect::<Vec<_>>())?.abs()));
    let spread = spread(&medians, &iqrs.collect::<Vec<_>>());
    let n: u64 = launches.iter().map(|l| l.n).sum();
    let sum: f64 = launches.iter().map(|l| l.sum_ns).sum();
    let least = launches.iter().map(|l| l.min_ns).fold(f64::INFINITY, f64::min);
    let most = launches.iter().map(|l| l.max_ns).fold(0.0, f64::max);
    let (least, most) = (map(least), map(most));
    let mut histogram = first.histogram.clone();
    let merged = launches[1..].iter().all(|l| histogram.merge(&l.histogram));
    // A time below the clock's sight is 0 and its rate infinite: no number, so none is given.
    let finite = |v: f64| v.is_finite().then_some(v);
    let mut binned = histogram.to_schema(&map);
    binned.bins.retain(|bin| bin.0.is_finite() && bin.1.is_finite());
    Some(Measurement {
        experiment: head.experiment,
        device: head.device,
        variant: head.variant,
        size_bytes: head.size_bytes,
        metric: head.metric,
        clock: first.clock.kind,
        n,
        median: over.median,
        ci95: over.interval.map(|i| [i.low, i.high]),
        ci95_reason: over.reason,
        floor: floor.filter(|f| f.value.is_normal()).map(|f| Floor {
            value: f.value,
            unit: head.unit.clone(),
            what: f.what,
            ratio: over.median / f.value,
        }),
        unit: head.unit,
        mean: finite(map(sum / n as f64)),
        min: finite(least.min(most)),
        max: finite(least.max(most)),
        quantiles: quantiles(launches, n, &map, &detail.quantiles),
        first: entries[0].first,
        batch: launches.iter().map(|l| l.batch).max().unwrap_or(1),
        histogram: Some(binned).filter(|_| merged),
        between_launch: spread.between,
        within_launch: spread.within,
        launches: entries,
        note: None,
    })
}

fn quantiles(launches: &[Sampled], n: u64, map: &impl Fn(f64) -> f64, asked: &[f64]) -> Vec<Quantile> {
    let refused = |p: f64, why: String, needs: Option<u64>| Quantile {
        p,
        refused: Some(why),
        needs,
        ..Quantile::default()
    };
    if let Some(batched) = launches.iter().find(|l| l.batch > 1) {
        let why = format!("each sample is the mean of {} operations", batched.batch);
        return asked.iter().map(|p| refused(*p, why.clone(), None)).collect();
    }
    let mut pooled = Vec::new();
    let complete = launches.iter().all(|l| l.complete);
    if complete {
        launches.iter().for_each(|l| pooled.extend_from_slice(&l.sorted));
        sort(&mut pooled);
    }
    // A map that falls turns the order round.
    let falling = map(1.0) > map(2.0);
    let one = |p: &f64| {
        let of_time = if falling { 1.0 - *p } else { *p };
        let found = if complete {
            quantile_interval(&pooled, of_time).ok().map(|i| (i.value, i.low, i.high))
        } else {
            from_bins(launches, n, of_time)
        };
        match found {
            Some((value, low, high)) if map(value).is_finite() => Quantile {
                p: *p,
                value: Some(map(value)),
                ci95: ascending(map(low), map(high)),
                ..Quantile::default()
            },
            Some(_) => refused(*p, "below what the clock can see".to_owned(), None),
            None => match needed(*p) {
                Some(needs) => refused(*p, format!("{n} samples cannot bound it, {needs} can"), Some(needs)),
                None => refused(*p, "not between 0 and 1".to_owned(), None),
            },
        }
    };
    asked.iter().map(one).collect()
}

/// Value and interval from the merged histogram, within 1 %.
fn from_bins(launches: &[Sampled], n: u64, p: f64) -> Option<(f64, f64, f64)> {
    let ranks = quantile_ranks(n, p).ok()?;
    let mut all = launches.first()?.histogram.clone();
    if !launches[1..].iter().all(|l| all.merge(&l.histogram)) {
        return None;
    }
    let value = all.at_rank(results::stats::rank(n, p))?;
    Some((value, all.at_rank(ranks.low)?, all.at_rank(ranks.high)?))
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
