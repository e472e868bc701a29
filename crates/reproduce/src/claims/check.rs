//! [`Check`]: a claim without a number, as comparisons of numbers, so that code decides whether it holds.

use std::collections::BTreeSet;

use super::quantity::{Probe, Quantity, Source};
use crate::error::NoValue;
use report::number::{percent, sig};

/// How two numbers must relate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Relation {
    /// Smaller by this share at least.
    Below(f64),
    /// Larger by this share at least.
    Above(f64),
    /// Not larger than by this share.
    AtMost(f64),
    /// Differ by this share at most.
    Alike(f64),
}

/// A claim of a paper that can hold or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Check {
    /// Two numbers are related like this. The first field describes the comparison, in words.
    Compare(String, Quantity, Relation, Quantity),
    /// Each is at least the previous one minus this share of it, and the last is above the first.
    Rising(String, Vec<Quantity>, f64),
    /// All hold.
    All(Vec<Self>),
}

/// Whether a claim holds, and the numbers that decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) holds: bool,
    pub(crate) evidence: String,
    /// By which share it could still worsen; negative if it fails.
    slack: f64,
}

/// Any difference suffices.
pub(crate) const NO_MARGIN: f64 = 0.0;
/// No deviation is tolerated.
pub(crate) const NO_TOLERANCE: f64 = 0.0;

impl Check {
    /// `a` is below `b` by a share of at least `margin`.
    pub(crate) fn below(what: impl Into<String>, a: Quantity, b: Quantity, margin: f64) -> Self {
        Self::Compare(what.into(), a, Relation::Below(margin), b)
    }

    /// `a` is above `b` by a share of at least `margin`.
    pub(crate) fn above(what: impl Into<String>, a: Quantity, b: Quantity, margin: f64) -> Self {
        Self::Compare(what.into(), a, Relation::Above(margin), b)
    }

    /// `a` is at most `b`, within `tolerance`.
    pub(crate) fn at_most(what: impl Into<String>, a: Quantity, b: Quantity, tolerance: f64) -> Self {
        Self::Compare(what.into(), a, Relation::AtMost(tolerance), b)
    }

    /// `a` is `b`, give or take `tolerance`.
    pub(crate) fn alike(what: impl Into<String>, a: Quantity, b: Quantity, tolerance: f64) -> Self {
        Self::Compare(what.into(), a, Relation::Alike(tolerance), b)
    }

    /// Adds all probes that it needs.
    pub(crate) fn probes(&self, into: &mut BTreeSet<Probe>) {
        match self {
            Self::Compare(_, a, _, b) => [a, b].iter().for_each(|q| q.probes(into)),
            Self::Rising(_, points, _) => points.iter().for_each(|q| q.probes(into)),
            Self::All(parts) => parts.iter().for_each(|part| part.probes(into)),
        }
    }

    /// All numbers that are compared.
    pub(crate) fn values(&self, source: &dyn Source) -> Result<Vec<f64>, NoValue> {
        match self {
            Self::Compare(_, a, _, b) => Ok(vec![a.value(source)?, b.value(source)?]),
            Self::Rising(_, points, _) => points.iter().map(|point| point.value(source)).collect(),
            Self::All(parts) => {
                let parts: Vec<Vec<f64>> =
                    parts.iter().map(|part| part.values(source)).collect::<Result<_, _>>()?;
                Ok(parts.concat())
            }
        }
    }

    /// Whether it holds, or why that is undecided.
    pub(crate) fn verdict(&self, source: &dyn Source) -> Result<Verdict, NoValue> {
        match self {
            Self::Compare(what, a, relation, b) => {
                Ok(relation.verdict(what, a.value(source)?, b.value(source)?))
            }
            Self::Rising(what, points, tolerance) => {
                let points: Vec<f64> =
                    points.iter().map(|point| point.value(source)).collect::<Result<_, _>>()?;
                Ok(rising(what, &points, *tolerance))
            }
            Self::All(parts) => {
                let all = parts.iter().map(|part| part.verdict(source)).collect::<Result<_, _>>()?;
                Ok(all_of(all))
            }
        }
    }
}

impl Relation {
    /// Whether `a` and `b` are related like this.
    fn verdict(self, what: &str, a: f64, b: f64) -> Verdict {
        let scale = b.abs().max(f64::MIN_POSITIVE);
        let (sign, slack) = match self {
            Self::Below(margin) => ("<", (b - a) / scale - margin),
            Self::Above(share) => (">", (a - b) / scale - share),
            Self::AtMost(tolerance) => ("≤", (b - a) / scale + tolerance),
            Self::Alike(tolerance) => ("≈", tolerance - (b - a).abs() / scale),
        };
        let holds = match self {
            Self::Below(_) | Self::Above(_) => slack > 0.0,
            Self::AtMost(_) | Self::Alike(_) => slack >= 0.0,
        };
        let sign = if holds { sign.to_owned() } else { format!("not {sign}") };
        Verdict {
            holds,
            evidence: format!("{what}: {} {sign} {}{}", format_value(a), format_value(b), self.within()),
            slack,
        }
    }

    /// The margin or tolerance in words; empty if there is none.
    fn within(self) -> String {
        match self {
            Self::Below(0.0) | Self::Above(0.0) | Self::AtMost(0.0) => String::new(),
            Self::Below(margin) | Self::Above(margin) => format!(" by {}", percent(margin)),
            Self::AtMost(share) | Self::Alike(share) => format!(" within {}", percent(share)),
        }
    }
}

/// A number as evidence.
fn format_value(value: f64) -> String {
    sig(value, 4)
}

/// Whether points rise: see [`Check::Rising`].
fn rising(what: &str, points: &[f64], tolerance: f64) -> Verdict {
    let shown: Vec<String> = points.iter().map(|v| sig(*v, 3)).collect();
    let steps = points.windows(2).map(|pair| (pair[1] - pair[0]) / pair[0].abs().max(f64::MIN_POSITIVE));
    let steps_slack = steps.fold(f64::INFINITY, f64::min) + tolerance;
    let (first, last) = (points.first().copied().unwrap_or(0.0), points.last().copied().unwrap_or(0.0));
    let whole = (last - first) / first.abs().max(f64::MIN_POSITIVE);
    let holds = steps_slack >= 0.0 && whole > 0.0;
    let text = if holds { "rises" } else { "does not rise" };
    Verdict { holds, evidence: format!("{what} {text}: {}", shown.join(", ")), slack: steps_slack.min(whole) }
}

/// Combines several verdicts: the failing evidence, or the closest that holds.
fn all_of(mut all: Vec<Verdict>) -> Verdict {
    all.sort_by(|a, b| a.slack.total_cmp(&b.slack));
    let holds = all.iter().all(|verdict| verdict.holds);
    let decisive: Vec<&Verdict> =
        all.iter().filter(|v| v.holds == holds).take(if holds { 1 } else { 2 }).collect();
    let mut evidence = decisive.iter().map(|v| v.evidence.clone()).collect::<Vec<_>>().join("; ");
    let failed = all.iter().filter(|v| !v.holds).count();
    if holds && all.len() > 1 {
        evidence = format!("all {} comparisons hold, the closest: {evidence}", all.len());
    } else if failed > decisive.len() {
        evidence = format!("{failed} of {} comparisons fail: {evidence}", all.len());
    }
    Verdict { holds, evidence, slack: all.first().map_or(0.0, |verdict| verdict.slack) }
}

#[cfg(test)]
mod tests {
    use super::super::quantity::fakes::FakeSource;
    use super::*;

    fn verdict_of(check: &Check) -> (bool, String) {
        let source = FakeSource(|_: &Probe| Err(NoValue::Failed("nothing is measured here".to_owned())));
        let verdict = check.verdict(&source).expect("a verdict");
        (verdict.holds, verdict.evidence)
    }

    fn number(value: f64) -> Quantity {
        value.into()
    }

    #[test]
    fn comparisons_have_margins() {
        let compare = |a: f64, relation, b: f64| {
            verdict_of(&Check::Compare("x".to_owned(), number(a), relation, number(b))).0
        };
        assert!(compare(1.0, Relation::Below(0.0), 1.1) && !compare(1.0, Relation::Below(0.0), 1.0));
        assert!(!compare(1.0, Relation::Below(0.2), 1.1) && compare(1.0, Relation::Below(0.2), 1.3));
        assert!(compare(1.06, Relation::Above(0.05), 1.0) && !compare(1.04, Relation::Above(0.05), 1.0));
        assert!(compare(1.0, Relation::AtMost(0.0), 1.0) && compare(1.01, Relation::AtMost(0.02), 1.0));
        assert!(compare(0.97, Relation::Alike(0.05), 1.0) && !compare(1.1, Relation::Alike(0.05), 1.0));
        assert!(compare(-1.0, Relation::Below(0.0), 0.0));
    }

    #[test]
    fn a_rise_may_pause_but_not_fall() {
        let rises = |points: &[f64]| {
            verdict_of(&Check::Rising("it".to_owned(), points.iter().map(|v| number(*v)).collect(), 0.01)).0
        };
        assert!(rises(&[1.0, 1.0, 2.0]) && rises(&[1.0, 0.995, 2.0]) && rises(&[-2.0, -1.0]));
        assert!(!rises(&[1.0, 0.9, 2.0]) && !rises(&[1.0, 1.0]));
    }

    #[test]
    fn evidence_names_what_decided() {
        let near = Check::below("near", number(1.0), number(1.1), 0.0);
        let far = Check::below("far", number(1.0), number(9.0), 0.0);
        let wrong = Check::below("wrong", number(2.0), number(1.0), 0.0);
        assert_eq!(
            verdict_of(&Check::All(vec![far.clone(), near])),
            (true, "all 2 comparisons hold, the closest: near: 1.000 < 1.100".to_owned())
        );
        assert_eq!(verdict_of(&Check::All(vec![far, wrong])), (false, "wrong: 2.000 not < 1.000".to_owned()));
    }
}
