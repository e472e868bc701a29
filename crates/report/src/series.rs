//! Results as curves over size: the common ground of findings, plots and terminal tables.

use results::variant::{Variant, factor};
use std::collections::BTreeMap;

use super::names::name_of;
use super::number::sig;
use results::schema::{ClockKind, Measurement, Run};
use results::stats::LAUNCHES_FOR_95;

/// All sizes of one metric of one variant.
#[derive(Clone, Debug)]
pub(super) struct Series<'a> {
    /// Index of the run.
    pub(super) run: usize,
    /// The name of the run, if any.
    pub(super) run_name: Option<&'a str>,
    pub(super) experiment: &'a str,
    pub(super) metric: &'a str,
    pub(super) unit: &'a str,
    pub(super) device: &'a str,
    pub(super) variant: &'a Variant,
    /// Sorted by size.
    pub(super) points: Vec<&'a Measurement>,
}

/// The curves of all runs, in a fixed order whatever the order of measuring was.
pub(super) fn series(runs: &[Run]) -> Vec<Series<'_>> {
    let mut map: BTreeMap<_, Series<'_>> = BTreeMap::new();
    for (run, one) in runs.iter().enumerate() {
        let run_name = name_of(one);
        for r in &one.results {
            let order =
                (rank(EXPERIMENTS, &r.experiment), r.experiment.as_str(), r.metric.as_str(), r.unit.as_str());
            let op = r.variant.get(factor::OP).unwrap_or("");
            let levels = natural(&r.variant);
            let key = (order, run, (rank(OPS, op), op), place_rank(&r.variant), levels, r.device.as_str());
            let new = || Series { run, run_name, points: Vec::new(), ..alone(r) };
            map.entry(key).or_insert_with(new).points.push(r);
        }
    }
    let mut all: Vec<_> = map.into_values().collect();
    for s in &mut all {
        s.points.sort_by_key(|r| r.size_bytes);
    }
    all
}

/// Experiments in order of presentation.
pub(super) const EXPERIMENTS: &[&str] = &[
    "latency",
    "bilat",
    "bandwidth",
    "bibw",
    "rate",
    "park",
    "memory",
    "nicmem",
    "hotspot",
    "pack",
    "chain",
    "reg",
    "post",
    "poll",
    "connect",
    "overhead",
    "availability",
    "notify",
    "blocking",
    "reuse",
    "connections",
    "scaling",
    "maxsge",
    "segments",
    "mtu",
    "mpi-latency",
    "mpi-bandwidth",
    "mpi-bibw",
    "mpi-rate",
    "mpi-overlap",
    "mpi-connect",
    "mpi-put-latency",
    "mpi-get-latency",
    "mpi-put-bandwidth",
    "mpi-get-bandwidth",
    "mpi-barrier",
    "mpi-bcast",
    "mpi-gather",
    "mpi-scatter",
    "mpi-allgather",
    "mpi-alltoall",
    "mpi-reduce",
    "mpi-allreduce",
    "mpi-reduce-scatter",
    "mpi-scan",
    "mpi-exscan",
    "nas-is",
    "nas-cg",
];
const OPS: &[&str] = &[
    "send",
    "write",
    "write_imm",
    "write-imm",
    "read",
    "cas",
    "fadd",
    "copy",
    "memcpy",
    "host-pack",
    "nic-pack",
    "gather",
    "reg",
    "dereg",
    "recv",
];

/// Position in a list of known names; unknown ones after them.
pub(super) fn rank(known: &[&str], name: &str) -> usize {
    match name {
        "floor" => known.len() + 1,
        _ => known.iter().position(|k| *k == name).unwrap_or(known.len()),
    }
}

/// A sort key of factors and levels that puts 9 before 10: each text as pairs of a number and the text after it.
type Natural<'a> = Vec<(&'a str, Vec<(u64, &'a str)>, &'a str)>;

fn natural(variant: &Variant) -> Natural<'_> {
    variant.iter().map(|(key, level)| (key, chunks(level), level)).collect()
}

fn chunks(mut text: &str) -> Vec<(u64, &str)> {
    let mut out = Vec::new();
    while !text.is_empty() {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = text.split_at(digits);
        let (between, rest) = rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        out.push((number.parse().unwrap_or(if digits > 0 { u64::MAX } else { 0 }), between));
        text = rest;
    }
    out
}

/// NIC memory before host memory.
fn place_rank(variant: &Variant) -> usize {
    let host = |factor| usize::from(variant.get(factor).is_some_and(|place| place != "nic"));
    2 * host(factor::SOURCE) + host(factor::SINK)
}

impl Series<'_> {
    /// `nic → host`, if the variant has both ends.
    pub(super) fn placement(&self) -> Option<String> {
        let (source, sink) = (self.variant.get(factor::SOURCE)?, self.variant.get(factor::SINK)?);
        Some(format!("{source} → {sink}"))
    }

    /// The operation, or the empty text.
    pub(super) fn op(&self) -> &str {
        self.variant.get(factor::OP).unwrap_or("")
    }

    /// The factors that distinguish this curve from others of its experiment and metric: `(factor, level)`.
    pub(super) fn factors(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut add = |name: &str, level: &str| out.push((name.to_owned(), level.to_owned()));
        if let Some(op) = self.variant.get(factor::OP) {
            add("op", op);
        }
        let placement = self.placement();
        if let Some(text) = &placement {
            add("placement", text);
        }
        for (key, level) in self.variant.iter() {
            let shown = key == "op" || (placement.is_some() && (key == "source" || key == "sink"));
            if !shown {
                add(key, level);
            }
        }
        add("device", self.device);
        add("run", &self.of_run());
        out
    }

    /// The name of its run, as a suffix.
    pub(super) fn of_run(&self) -> String {
        self.run_name.map_or_else(|| format!("run {}", self.run + 1), str::to_owned)
    }

    /// Op and whatever else the variant has, e.g. `write (nic → host)`; the device if it has nothing.
    pub(super) fn name(&self) -> String {
        let levels: Vec<String> = self
            .factors()
            .into_iter()
            .filter(|(name, _)| name != "run" && name != "device")
            .map(|(name, level)| named_level(&name, &level))
            .collect();
        match levels.as_slice() {
            [] => self.device.to_owned(),
            [one] => one.clone(),
            [first, rest @ ..] => format!("{first} ({})", rest.join(", ")),
        }
    }

    /// The measured quantity, e.g. `one-way latency` or `bandwidth: message rate`.
    pub(super) fn what(&self) -> String {
        let (experiment, metric) = (words(self.experiment), words(self.metric));
        match self.experiment {
            "bilat" | "bibw" if self.metric != "message_rate" => experiment,
            "floor" => format!("the machine's own floor: {metric}"),
            _ if metric.contains(&experiment) => metric,
            _ => format!("{experiment}: {metric}"),
        }
    }

    /// The point of a size.
    pub(super) fn at(&self, size_bytes: u64) -> Option<&Measurement> {
        let first = self.points.partition_point(|r| r.size_bytes < size_bytes);
        self.points.get(first).copied().filter(|r| r.size_bytes == size_bytes)
    }

    /// Whether its time is virtual.
    pub(super) fn is_virtual(&self) -> bool {
        self.points.first().is_some_and(|r| r.clock == ClockKind::Virtual)
    }

    /// Whether values are times.
    pub(super) fn is_time(&self) -> bool {
        self.unit == "us"
    }

    /// Whether the machine itself was measured rather than a device.
    pub(super) fn is_floor(&self) -> bool {
        self.experiment == "floor"
    }
}

/// A single result as a curve.
pub(super) fn alone(r: &Measurement) -> Series<'_> {
    Series {
        run: 0,
        run_name: None,
        experiment: &r.experiment,
        metric: &r.metric,
        unit: &r.unit,
        device: &r.device,
        variant: &r.variant,
        points: vec![r],
    }
}

/// Self-explanatory levels are shown alone, others with their factor.
pub(super) fn named_level(name: &str, level: &str) -> String {
    match name {
        "op" | "placement" | "device" | "run" | "what" => level.to_owned(),
        _ => format!("{name} {level}"),
    }
}

/// `one_way_latency` as words.
pub(super) fn words(name: &str) -> String {
    match name {
        "one_way_latency" => "one-way latency".to_owned(),
        "bilat" => "bi-directional latency".to_owned(),
        "bibw" => "bi-directional bandwidth".to_owned(),
        "nicmem" => "copies within one machine".to_owned(),
        "hotspot" => "hot spot".to_owned(),
        "pack" => "blocks with gaps".to_owned(),
        "chain" => "forwarding chain".to_owned(),
        "reg" => "memory registration".to_owned(),
        "post" => "posting".to_owned(),
        "poll" => "polling".to_owned(),
        "connect" => "connecting".to_owned(),
        "overhead" => "host overhead".to_owned(),
        "availability" => "computing during communication".to_owned(),
        "notify" => "notification".to_owned(),
        "blocking" => "sleeping instead of polling".to_owned(),
        "reuse" => "buffer reuse".to_owned(),
        "connections" => "many connections".to_owned(),
        "scaling" => "one connection among many".to_owned(),
        "maxsge" => "room for pieces".to_owned(),
        "segments" => "messages in pieces".to_owned(),
        "mtu" => "packet size (MTU)".to_owned(),
        _ => match name.strip_prefix("mpi-") {
            Some(what) => format!("MPI {what}"),
            None => name.replace('_', " "),
        },
    }
}

/// Upper-case first letter.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// How sampling ended within the launches of a result.
pub(super) struct Precision {
    /// Launches that missed the wanted precision.
    pub(super) missed: usize,
    /// The worst `not reached` state's half-width.
    pub(super) worst: Option<f64>,
}

/// Counts launches with too wide an interval.
pub(super) fn precision(r: &Measurement) -> Precision {
    let missed: Vec<_> = r.launches.iter().filter(|l| !l.stop.reached()).collect();
    let worst = missed.iter().filter_map(|l| l.stop.half_width).reduce(f64::max);
    Precision { missed: missed.len(), worst }
}

/// An interval wider than this to either side is marked: it is the threshold of a comparison.
pub(super) const WIDE: f64 = 0.05;

/// The 95 % interval over launches; `None` for fewer than six, even if an older file has one.
pub(super) fn interval(r: &Measurement) -> Option<[f64; 2]> {
    let carried =
        r.clock == ClockKind::Virtual || r.launches.is_empty() || r.launches.len() >= LAUNCHES_FOR_95;
    r.ci95.filter(|_| carried)
}

/// Half of the interval, as a fraction of the median.
pub(super) fn half_width(r: &Measurement) -> Option<f64> {
    let [low, high] = interval(r)?;
    (r.median > 0.0).then(|| (high - low) / 2.0 / r.median)
}

/// Whether the half-width that is shown is large.
pub(super) fn is_wide(r: &Measurement) -> bool {
    half_width(r).is_some_and(|half| half > WIDE)
}

/// The interval as it is shown everywhere, in the unit of `scale`: `0.928..0.946`, `0.83..1.31!` if it is wide, `?` without one.
pub(super) fn spread(r: &Measurement, scale: f64) -> String {
    let mark = if is_wide(r) { "!" } else { "" };
    interval(r).map_or_else(|| "?".to_owned(), |ends| low_high(ends.map(|end| end * scale)) + mark)
}

/// A range of values: `0.928..0.946`.
pub(super) fn low_high([low, high]: [f64; 2]) -> String {
    format!("{}..{}", sig(low, 3), sig(high, 3))
}

/// The bound of a result: a time cannot be below it, a rate not above it.
pub(super) fn bound(r: &Measurement) -> &'static str {
    if r.higher_is_better() { "ceiling" } else { "floor" }
}

/// Flags of all launches, without duplicates, in order.
pub(super) fn flags(r: &Measurement) -> Vec<&str> {
    let mut all: Vec<&str> = r.launches.iter().flat_map(|l| l.flags.iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether two intervals share no value; `None` if either is absent.
pub(super) fn apart(a: &Measurement, b: &Measurement) -> Option<bool> {
    let (a, b) = (interval(a)?, interval(b)?);
    Some(a[1] < b[0] || b[1] < a[0])
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{point, run};
    use super::*;

    /// Goal: a mark agrees with the number that it marks. Method: a skewed interval, on either side of the limit;
    /// whether launches reached their own precision changes nothing.
    #[test]
    fn what_is_marked_is_what_is_shown() {
        let mut r = point("latency", "op=write", 8, 1.0);
        for (ends, shown) in [
            ([0.99, 1.01], "0.990..1.01"),
            ([1.0, 1.08], "1.00..1.08"),
            ([0.96, 1.08], "0.960..1.08!"),
            ([0.4, 28.4], "0.400..28.4!"),
        ] {
            r.ci95 = Some(ends);
            r.launches[0].stop.state = "reached".to_owned();
            assert_eq!(spread(&r, 1.0), shown);
            r.launches[0].stop.state = "not reached".to_owned();
            assert_eq!(spread(&r, 1.0), shown);
        }
        r.launches.truncate(5);
        assert_eq!((spread(&r, 1.0).as_str(), apart(&r, &r)), ("?", None), "five launches carry no interval");
    }

    /// Goal: numeric levels are in numeric order. Method: levels that text order would sort otherwise, also with
    /// units.
    #[test]
    fn levels_are_in_natural_order() {
        for (levels, sorted) in [
            (["100", "25", "0", "75"], ["0", "25", "75", "100"]),
            (["w16", "w4", "a", "w8"], ["a", "w4", "w8", "w16"]),
            (
                ["99999999999999999999", "2 of 10", "2 of 9", "x"],
                ["x", "2 of 9", "2 of 10", "99999999999999999999"],
            ),
        ] {
            let all = levels.map(|level| point("reuse", &format!("op=write,reuse={level}"), 8, 1.0));
            let runs = [run(all.to_vec())];
            let found: Vec<&str> =
                series(&runs).iter().map(|s| s.variant.get(factor::REUSE).expect("a level")).collect();
            assert_eq!(found, sorted);
        }
    }
}
