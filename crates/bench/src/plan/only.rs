//! `--only FACTOR=LEVEL`: of all variants, those to measure.

use std::collections::{BTreeMap, BTreeSet};

use super::error::PlanError;
use super::levels::{Levels, replaced};
use super::words::{did_you_mean, join};
use crate::experiment::Experiment;
use results::schema::{Origin, Parameter};
use results::variant::Variant;

/// Levels by factor; of several of one factor a variant has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only(BTreeMap<String, BTreeSet<String>>);

impl FromIterator<(String, String)> for Only {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        let mut only = Self::default();
        for (factor, level) in pairs {
            only.0.entry(factor).or_default().insert(level);
        }
        only
    }
}

impl Only {
    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether a variant has one of the levels of each factor.
pub(super) fn has(variant: &Variant, only: &Only) -> bool {
    only.0.iter().all(|(factor, levels)| variant.iter().any(|(f, l)| f == factor && levels.contains(l)))
}

/// What was asked for, among the parameters of the run.
pub(super) fn parameter(only: &Only) -> Option<Parameter> {
    let value = text(only);
    (!only.is_empty()).then(|| Parameter { key: "only".to_owned(), value, unit: None, origin: Origin::Flag })
}

/// Each factor with each of its levels.
fn pairs(only: &Only) -> impl Iterator<Item = (&str, &str)> {
    only.0.iter().flat_map(|(factor, levels)| levels.iter().map(|level| (factor.as_str(), level.as_str())))
}

/// The option's text.
fn text(only: &Only) -> String {
    pairs(only).map(|(factor, level)| format!("{factor}={level}")).collect::<Vec<_>>().join(",")
}

/// Factors and levels that no variant of these experiments has, or no variant has together.
pub(super) fn mistakes(of: &[&'static dyn Experiment], levels: &Levels, only: &Only) -> Vec<PlanError> {
    let all: Vec<Variant> = of.iter().flat_map(|e| replaced(*e, e.variants(false), levels)).collect();
    // Without experiments there is a mistake already.
    if all.is_empty() || only.is_empty() {
        return Vec::new();
    }
    let alone: Vec<PlanError> =
        pairs(only).filter_map(|(factor, level)| unknown(&all, factor, level)).collect();
    if !alone.is_empty() || all.iter().any(|variant| has(variant, only)) {
        return alone;
    }
    let known = "each of these exists, but not together; leave one away".to_owned();
    vec![PlanError::Only { asked: text(only), hint: String::new(), known }]
}

/// The mistake of a factor, or of a level that no variant has; `None` if there is none.
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
