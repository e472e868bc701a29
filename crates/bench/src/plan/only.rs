//! `--only FACTOR=LEVEL`: of all variants, those to measure.

use std::collections::{BTreeMap, BTreeSet};

use super::error::PlanError;
use super::levels::{Levels, replaced};
use super::words::{did_you_mean, join};
use crate::experiment::{Experiment, Variant};
use crate::schema::{Origin, Parameter};

/// Levels by factor.
pub(super) type Only = BTreeMap<String, String>;

/// Whether a variant has all these levels.
pub(super) fn has(variant: &Variant, only: &Only) -> bool {
    only.iter().all(|(factor, level)| variant.iter().any(|(f, l)| f == factor && l == level))
}

/// What was asked for, among the parameters of the run.
pub(super) fn parameter(only: &Only) -> Option<Parameter> {
    let value = text(only.iter());
    (!only.is_empty()).then(|| Parameter { key: "only".to_owned(), value, unit: None, origin: Origin::Flag })
}

fn text<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    pairs.map(|(factor, level)| format!("{factor}={level}")).collect::<Vec<_>>().join(",")
}

/// Factors and levels that no variant of these experiments has, or no variant has together.
pub(super) fn mistakes(of: &[&'static dyn Experiment], levels: &Levels, only: &Only) -> Vec<PlanError> {
    let all: Vec<Variant> = of.iter().flat_map(|e| replaced(e.variants(false), levels)).collect();
    // Without experiments there is a mistake already.
    if all.is_empty() || only.is_empty() || all.iter().any(|variant| has(variant, only)) {
        return Vec::new();
    }
    let alone: Vec<PlanError> =
        only.iter().filter_map(|(factor, level)| unknown(&all, factor, level)).collect();
    if !alone.is_empty() {
        return alone;
    }
    let known = "each of these exists, but not together; leave one away".to_owned();
    vec![PlanError::Only { asked: text(only.iter()), hint: String::new(), known }]
}

fn unknown(all: &[Variant], factor: &str, level: &str) -> Option<PlanError> {
    let pairs = || all.iter().flat_map(Variant::iter);
    let levels: BTreeSet<&str> = pairs().filter(|(f, _)| *f == factor).map(|(_, l)| l).collect();
    if levels.contains(level) {
        return None;
    }
    let factors: BTreeSet<&str> = pairs().map(|(f, _)| f).collect();
    let asked = format!("{factor}={level}");
    Some(match levels.is_empty() {
        true => PlanError::Only {
            asked,
            hint: did_you_mean(factor, factors.iter().copied()),
            known: format!("these experiments have the factors {}", join(factors.iter().copied())),
        },
        false => PlanError::Only {
            asked,
            hint: did_you_mean(level, levels.iter().copied()),
            known: format!("{factor} can be {}", join(levels.iter().copied())),
        },
    })
}
