//! Synthetic results with a known truth.

use results::schema::{Floor, Launch, Measurement, Run, Stop};
use results::variant::Variant;

/// `key=value,key=value`.
pub(crate) fn variant(text: &str) -> Variant {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

/// A result with an interval of ±1 %.
pub(crate) fn point(experiment: &str, variant_text: &str, size_bytes: u64, median: f64) -> Measurement {
    let (metric, unit) = match experiment {
        "latency" | "bilat" => ("one_way_latency", "us"),
        "rate" => ("message_rate", "1/s"),
        _ => ("bandwidth", "MB/s"),
    };
    let stop = Stop { state: "reached".to_owned(), half_width: Some(0.01), target: 0.01, because: None };
    Measurement {
        experiment: experiment.to_owned(),
        device: "shm".to_owned(),
        variant: variant(variant_text),
        size_bytes,
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        n: 6000,
        median,
        ci95: Some([median * 0.99, median * 1.01]),
        launches: vec![Launch { n: 1000, median, stop, ..Launch::default() }; 6],
        ..Measurement::default()
    }
}

/// A made-up result with a floor.
pub(crate) fn floored(mut m: Measurement, value: f64, what: &str) -> Measurement {
    let ratio = m.median / value;
    m.floor = Some(Floor { value, unit: m.unit.clone(), what: what.to_owned(), ratio });
    m
}

/// A curve over the sizes `1 << shift`.
pub(crate) fn curve(
    experiment: &str,
    variant_text: &str,
    shifts: impl IntoIterator<Item = u32>,
    f: impl Fn(f64) -> f64,
) -> Vec<Measurement> {
    let at = |shift| point(experiment, variant_text, 1u64 << shift, f(f64::from(1u32 << shift)));
    shifts.into_iter().map(at).collect()
}

/// A run of some results.
pub(crate) fn run(results: Vec<Measurement>) -> Run {
    Run { results, ..Run::default() }
}
