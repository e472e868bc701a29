//! [`Claim`]: how a row of the dataset is computed from the model, or why it is not.

use std::collections::BTreeSet;

use super::check::Check;
use super::quantity::{Probe, Quantity, Source};
use crate::error::NoValue;

/// What a published row is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// Ids of the rows; several if the paper repeats a statement.
    pub(crate) rows: &'static [&'static str],
    /// How it is computed, in words.
    pub(crate) how: String,
    pub(crate) answer: Answer,
}

/// How it is computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// One number.
    Number(Quantity),
    /// One number, compared with the only published limit: neither less nor more.
    Exactly(Quantity),
    /// The least and the greatest of these, compared with both ends of a published range.
    Range(Vec<Quantity>),
    /// Several numbers, each of which must be within published limits; the one furthest outside counts.
    Within(Vec<Quantity>),
    /// The least and the greatest size at which the first is below the second by this share.
    Sizes(Vec<(u64, Quantity, Quantity)>, f64),
    /// A claim without a number.
    Check(Check),
    /// A constant of the experiment, or a parameter of the machine, not a result.
    Input(Quantity),
    /// An input without a counterpart in the model, and why.
    Unused(&'static str),
    /// Not computed, and why.
    NotModelled(&'static str),
}

impl Answer {
    /// Adds all probes that it needs.
    pub(crate) fn probes(&self, into: &mut BTreeSet<Probe>) {
        match self {
            Self::Number(q) | Self::Input(q) | Self::Exactly(q) => q.probes(into),
            Self::Range(all) | Self::Within(all) => all.iter().for_each(|q| q.probes(into)),
            Self::Sizes(all, _) => all.iter().for_each(|(_, a, b)| {
                a.probes(into);
                b.probes(into);
            }),
            Self::Check(check) => check.probes(into),
            Self::Unused(_) | Self::NotModelled(_) => {}
        }
    }

    /// The compared numbers: a change of the machine can move these.
    pub(crate) fn values(&self, source: &dyn Source) -> Result<Vec<f64>, NoValue> {
        match self {
            Self::Number(q) | Self::Input(q) | Self::Exactly(q) => Ok(vec![q.value(source)?]),
            Self::Range(all) | Self::Within(all) => Ok(least_and_greatest(all, source)?.into()),
            Self::Sizes(all, margin) => Ok(sizes(all, *margin, source)?.into()),
            Self::Check(check) => check.values(source),
            Self::Unused(_) | Self::NotModelled(_) => Ok(Vec::new()),
        }
    }

    /// Whether its number is at the end of the tried range, so that it could not be larger.
    pub(crate) fn is_capped(&self, source: &dyn Source) -> bool {
        matches!(self, Self::Number(Quantity::Last(points, _))
            if points.last().is_some_and(|(end, _)| self.values(source) == Ok(vec![*end])))
    }
}

/// The least and the greatest of several.
pub(crate) fn least_and_greatest(all: &[Quantity], source: &dyn Source) -> Result<[f64; 2], NoValue> {
    let values: Vec<f64> = all.iter().map(|q| q.value(source)).collect::<Result<_, _>>()?;
    Ok([
        values.iter().copied().fold(f64::INFINITY, f64::min),
        values.into_iter().fold(f64::NEG_INFINITY, f64::max),
    ])
}

/// The least and the greatest size at which the first is below the second by this share; no value if there is none.
pub(crate) fn sizes(
    all: &[(u64, Quantity, Quantity)],
    margin: f64,
    source: &dyn Source,
) -> Result<[f64; 2], NoValue> {
    let mut found = Vec::new();
    for (size, a, b) in all {
        if a.value(source)? < b.value(source)? * (1.0 - margin) {
            found.push(*size as f64);
        }
    }
    match (found.first(), found.last()) {
        (Some(first), Some(last)) => Ok([*first, *last]),
        _ => Ok([0.0, 0.0]),
    }
}

/// A table under construction.
#[derive(Debug, Default)]
pub(crate) struct ClaimTable(pub(crate) Vec<Claim>);

impl ClaimTable {
    /// Adds a claim; `how` describes in words how it is computed.
    fn add(&mut self, rows: &'static [&'static str], how: impl Into<String>, answer: Answer) {
        self.0.push(Claim { rows, how: how.into(), answer });
    }

    /// Adds a claim of one number.
    pub(crate) fn number(&mut self, rows: &'static [&'static str], how: impl Into<String>, q: Quantity) {
        self.add(rows, how, Answer::Number(q));
    }

    /// Adds a claim of one number that should equal the published limit.
    pub(crate) fn exactly(&mut self, rows: &'static [&'static str], how: impl Into<String>, q: Quantity) {
        self.add(rows, how, Answer::Exactly(q));
    }

    /// Adds a claim of a published range; its ends are compared with the least and the greatest of these numbers.
    pub(crate) fn range(
        &mut self,
        rows: &'static [&'static str],
        how: impl Into<String>,
        all: impl IntoIterator<Item = Quantity>,
    ) {
        self.add(rows, how, Answer::Range(all.into_iter().collect()));
    }

    /// Adds a claim that each of these numbers is within the published limits.
    pub(crate) fn within(
        &mut self,
        rows: &'static [&'static str],
        how: impl Into<String>,
        all: impl IntoIterator<Item = Quantity>,
    ) {
        self.add(rows, how, Answer::Within(all.into_iter().collect()));
    }

    /// The ends of a range of sizes.
    pub(crate) fn sizes(
        &mut self,
        rows: &'static [&'static str],
        how: impl Into<String>,
        all: Vec<(u64, Quantity, Quantity)>,
        margin: f64,
    ) {
        self.add(rows, how, Answer::Sizes(all, margin));
    }

    /// A claim without a number.
    pub(crate) fn check(&mut self, rows: &'static [&'static str], how: impl Into<String>, check: Check) {
        self.add(rows, how, Answer::Check(check));
    }

    /// Several claims without a number that must hold together.
    pub(crate) fn checks(
        &mut self,
        rows: &'static [&'static str],
        how: impl Into<String>,
        all: impl IntoIterator<Item = Check>,
    ) {
        self.check(rows, how, Check::All(all.into_iter().collect()));
    }

    /// A parameter of the machine, or computed from some.
    pub(crate) fn input(&mut self, rows: &'static [&'static str], how: impl Into<String>, q: Quantity) {
        self.add(rows, how, Answer::Input(q));
    }

    /// A constant that the experiment is run with.
    pub(crate) fn method(&mut self, rows: &'static [&'static str], how: impl Into<String>, value: f64) {
        self.input(rows, how, value.into());
    }

    /// Something about the machine that nothing of the model depends on.
    pub(crate) fn unused(&mut self, rows: &'static [&'static str], why: &'static str) {
        self.add(rows, "", Answer::Unused(why));
    }

    /// Adds rows that are not computed, with the reason.
    pub(crate) fn not_modelled(&mut self, rows: &'static [&'static str], why: &'static str) {
        self.add(rows, "", Answer::NotModelled(why));
    }
}
