//! `--fail-if`: thresholds that results must not cross, such as `latency.write@8>5us`.

use std::fmt;
use std::str::FromStr;

use bench::plan::{CheckedPlan, sizes};
use results::schema::{Measurement, Run};
use results::variant::Variant;

use crate::error::Failure;

/// What must not be true of a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    text: String,
    experiment: String,
    /// Levels that a variant has, of whichever factors.
    levels: Vec<String>,
    /// Message size in bytes.
    size: Option<u64>,
    /// Whether values above the limit fail; otherwise those below.
    above: bool,
    limit: f64,
    /// The unit of the results, such as `us`; empty for whichever they have.
    unit: &'static str,
}

/// Units of a limit: the unit of the results that it is for, and how many of these it is.
const UNITS: [(&str, &str, f64); 13] = [
    ("", "", 1.0),
    ("ns", "us", 1e-3),
    ("us", "us", 1.0),
    ("ms", "us", 1e3),
    ("s", "us", 1e6),
    ("kB/s", "MB/s", 1e-3),
    ("MB/s", "MB/s", 1.0),
    ("GB/s", "MB/s", 1e3),
    ("/s", "1/s", 1.0),
    ("k/s", "1/s", 1e3),
    ("M/s", "1/s", 1e6),
    ("B", "B", 1.0),
    ("%", "%", 1.0),
];

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            format!(
                "{why}; write EXPERIMENT[.LEVEL...][@SIZE] > or < VALUE[UNIT], such as latency.write@8>5us"
            )
        };
        let at = text.find(['>', '<']).ok_or_else(|| refused("there is neither > nor <"))?;
        let (what, above, value) = (text[..at].trim(), text[at..].starts_with('>'), text[at + 1..].trim());
        let (what, size) = match what.split_once('@') {
            Some((what, size)) => {
                let sizes = sizes::parse(size.trim()).map_err(|why| refused(&why.to_string()))?;
                let [size] = sizes[..] else { return Err(refused("there is more than one size")) };
                (what, Some(size))
            }
            None => (what, None),
        };
        let mut words = what.split('.').map(|word| word.trim().to_owned());
        let experiment =
            words.next().filter(|word| !word.is_empty()).ok_or_else(|| refused("no experiment is named"))?;
        let digits = value
            .find(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | 'E' | '-' | '+'))
            .unwrap_or(value.len());
        let (number, unit) = (&value[..digits], value[digits..].trim());
        let number: f64 = number.parse().map_err(|_| refused(&format!("'{number}' is not a number")))?;
        let Some((_, unit, factor)) = UNITS.iter().find(|(name, ..)| *name == unit) else {
            let names: Vec<&str> = UNITS.iter().skip(1).map(|(name, ..)| *name).collect();
            return Err(refused(&format!("'{unit}' is not a unit; units are {}", names.join(", "))));
        };
        if !number.is_finite() {
            return Err(refused("the limit is not finite"));
        }
        let levels = words.collect();
        Ok(Self { text: text.to_owned(), experiment, levels, size, above, limit: number * factor, unit })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What became of a condition.
#[derive(Debug, PartialEq)]
enum Verdict {
    Holds,
    /// The interval contains the limit.
    Undecided,
    Fails,
}

impl Condition {
    /// Whether it is about a cell with these values.
    fn matches(&self, experiment: &str, variant: &Variant, size: u64) -> bool {
        let has = |level: &String| variant.iter().any(|(_, known)| known == level);
        self.experiment == experiment
            && self.levels.iter().all(has)
            && self.size.is_none_or(|wanted| wanted == size)
    }

    /// Whether it is about the cell of a result.
    fn is_about(&self, r: &Measurement) -> bool {
        self.matches(&r.experiment, &r.variant, r.size_bytes)
    }

    /// A result fails if its whole 95 % interval is beyond the limit, or, without an interval, its median.
    fn verdict(&self, r: &Measurement) -> Verdict {
        let [low, high] = r.ci95.unwrap_or([r.median; 2]);
        let is_beyond = |value: f64| if self.above { value > self.limit } else { value < self.limit };
        match (is_beyond(low), is_beyond(high)) {
            (true, true) => Verdict::Fails,
            (false, false) => Verdict::Holds,
            _ => Verdict::Undecided,
        }
    }
}

/// Whether every condition is about something that the plan measures.
///
/// # Errors
/// A condition that no cell of the plan meets.
pub(crate) fn check(conditions: &[Condition], plan: &CheckedPlan) -> Result<(), Failure> {
    let is_about = |condition: &Condition| {
        plan.cells.iter().any(|cell| condition.matches(&cell.experiment, &cell.variant, cell.size))
    };
    match conditions.iter().find(|condition| !is_about(condition)) {
        Some(none) => Err(Failure::usage(format!(
            "--fail-if {none}: no measured result has this experiment, these levels and this size; --dry-run and \
             `nicety explain {}` list them",
            none.experiment
        ))),
        None => Ok(()),
    }
}

/// What the results say: lines for conditions that fail, and for those that cannot be decided.
pub(crate) fn judge(conditions: &[Condition], run: &Run) -> (Vec<String>, Vec<String>) {
    let (mut fails, mut undecided) = (Vec::new(), Vec::new());
    for condition in conditions {
        let mut found = false;
        for r in run.results.iter().filter(|r| condition.is_about(r)) {
            if !condition.unit.is_empty() && condition.unit != r.unit {
                fails.push(format!("--fail-if {condition}: {} is measured in {}", r.experiment, r.unit));
                found = true;
                continue;
            }
            found = true;
            let levels: Vec<&str> = r.variant.iter().map(|(_, level)| level).collect();
            let interval =
                r.ci95.map_or_else(String::new, |[low, high]| format!(", 95 % interval {low:.4}..{high:.4}"));
            let what = format!(
                "--fail-if {condition}: {} {} {} B on {} has {:.4} {}{interval}",
                r.experiment,
                levels.join(" "),
                r.size_bytes,
                r.device,
                r.median,
                r.unit
            );
            match condition.verdict(r) {
                Verdict::Fails => fails.push(what),
                Verdict::Undecided => undecided.push(format!("{what}, which contains the limit: undecided")),
                Verdict::Holds => {}
            }
        }
        if !found {
            fails.push(format!(
                "--fail-if {condition}: nothing of that was measured; the remarks above say why"
            ));
        }
    }
    (fails, undecided)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> Condition {
        text.parse().expect(text)
    }

    fn result(median: f64, ci95: Option<[f64; 2]>) -> Run {
        let factors = [("op", "write"), ("source", "host"), ("sink", "host")];
        let variant =
            factors.map(|(factor, level)| (factor.to_owned(), level.to_owned())).into_iter().collect();
        let r = Measurement {
            experiment: "latency".into(),
            device: "shm".into(),
            variant,
            size_bytes: 8,
            unit: "us".into(),
            median,
            ci95,
            ..Measurement::default()
        };
        Run { results: vec![r], ..Run::default() }
    }

    #[test]
    fn condition_is_read_with_levels_size_and_unit() {
        let read = condition("latency.write.host@4K > 1.5ms");
        assert_eq!((read.levels.len(), read.size, read.above), (2, Some(4096), true));
        assert!((read.limit - 1500.0).abs() < 1e-9 && read.unit == "us");
        let read = condition("bandwidth<1GB/s");
        assert!(!read.above && read.limit == 1000.0 && read.unit == "MB/s");
        for bad in [
            "latency",
            "latency>",
            ">5us",
            "latency>5 parsec",
            "latency@8,9>5",
            "latency@x>5",
            "latency>infus",
        ] {
            let why = bad.parse::<Condition>().expect_err(bad);
            assert!(why.contains("such as latency.write@8>5us"), "{bad}: {why}");
        }
    }

    #[test]
    fn result_fails_where_its_whole_interval_is_beyond_the_limit() {
        for (text, ci95, fails, undecided) in [
            ("latency.write>5us", Some([5.1, 6.0]), 1, 0),
            ("latency.write>5us", Some([4.9, 6.0]), 0, 1),
            ("latency.write>5us", Some([4.0, 4.9]), 0, 0),
            ("latency>5", None, 1, 0),
            ("latency<7us", Some([5.0, 6.0]), 1, 0),
            ("latency@8>5000ns", Some([5.1, 6.0]), 1, 0),
        ] {
            let (failed, open) = judge(&[condition(text)], &result(5.5, ci95));
            assert_eq!((failed.len(), open.len()), (fails, undecided), "{text}: {failed:?} {open:?}");
        }
    }

    #[test]
    fn condition_about_nothing_or_another_unit_fails() {
        for text in ["latency.read>5us", "latency@16>5us", "rate>5", "latency>5MB/s"] {
            assert_eq!(judge(&[condition(text)], &result(5.5, None)).0.len(), 1, "{text}");
        }
    }
}
