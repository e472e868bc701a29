//! [`Score`]: the accuracy of the predictions, the number of fitted values, and the influence of assumed values.

use std::collections::BTreeMap;

use report::number::{percent, plural};
use serde::Serialize;

use super::judge::{Class, NEAR, Row};
use super::machine::{Fitted, Machines, Origin, Value};
use super::moves::{Effect, Move, Moves};

/// The accuracy of predictions. Rows of other classes are only counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Predicted rows with a number.
    pub numeric: usize,
    /// Number of predicted rows within 10 %.
    pub near: usize,
    /// The fewest and the most rows within 10 % if each assumed value is moved to the ends of its range, one at a
    /// time.
    pub near_range: [usize; 2],
    /// Median over them of how far the model is off, as a share.
    pub median_error: Option<f64>,
    /// Predicted rows without a number: claims.
    pub qualitative: usize,
    /// Number of rows that hold.
    pub holding: usize,
    /// Predicted rows in which the paper contradicts itself, and how many of these are met: not counted above.
    pub apart: [usize; 2],
    /// How many rows there are of each class.
    pub rows: BTreeMap<&'static str, usize>,
    /// Fitted values of the machine files.
    pub fitted_values: usize,
}

/// Required share of numeric predictions that are near.
pub const NEAR_SHARE: f64 = 0.85;
/// Maximum of the median error.
pub const MEDIAN_ERROR: f64 = 0.04;
/// Required share of claims that hold.
pub const HOLDING_SHARE: f64 = 0.95;
/// Fitted values shall be fewer than this share of the predicted numbers.
pub const FITTED_SHARE: f64 = 0.2;

/// A difference below this is that of floating point.
const ROUNDING: f64 = 1e-9;

/// Whether a number counts as near the published one.
fn is_near(error: f64) -> bool {
    error <= NEAR + ROUNDING
}

/// What makes a number near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearness {
    /// It is within 10 %.
    Share,
    /// It is within 10 %, or within the interval that the print allows.
    SharePrint,
}

/// Predicted numbers that are near, with a value changed or as they are.
fn near(rows: &[Row], change: Option<&Move>, nearness: Nearness) -> usize {
    let is_near = |row: &&Row| {
        let factor = match change.and_then(|change| change.effect(&row.id)) {
            Some(Effect::Factor(factor)) => factor,
            _ => 1.0,
        };
        let changed = row.ratio.map(|ratio| ratio * factor);
        let error = changed.map_or_else(|| row.error(), |ratio| row.with_ratio(ratio).error());
        let print = nearness == Nearness::SharePrint;
        error.is_some_and(is_near) || print && changed.is_some_and(|ratio| row.is_within_print(ratio))
    };
    rows.iter().filter(|row| row.is_scored()).filter(is_near).count()
}

impl Score {
    /// The score of some rows.
    #[must_use]
    pub fn new(rows: &[Row], fitted: &[Fitted], moves: &Moves) -> Self {
        Self::of(rows, fitted, moves, Nearness::Share)
    }

    /// The score of some rows by the second rule.
    #[must_use]
    pub fn by_second_rule(rows: &[Row], fitted: &[Fitted], moves: &Moves) -> Self {
        let rows: Vec<Row> = rows.iter().map(Row::by_second_rule).collect();
        Self::of(&rows, fitted, moves, Nearness::SharePrint)
    }

    fn of(rows: &[Row], fitted: &[Fitted], moves: &Moves, nearness: Nearness) -> Self {
        let scored = || rows.iter().filter(|row| row.is_scored());
        let mut errors: Vec<f64> = scored().filter_map(Row::error).collect();
        errors.sort_by(f64::total_cmp);
        let claims = || scored().filter(|row| row.qualitative);
        let apart = || rows.iter().filter(|row| row.class == Class::Predicted && row.apart);
        let met = |row: &&Row| row.error().map_or(row.holds == Some(true), is_near);
        let changed = moves.iter().filter(|one| one.assumed).map(|one| near(rows, Some(one), nearness));
        let now = near(rows, None, nearness);
        let (least, most) = changed.fold((now, now), |(least, most), n| (least.min(n), most.max(n)));
        let count = |class| rows.iter().filter(|row| row.class == class).count();
        Self {
            numeric: errors.len(),
            near: now,
            near_range: [least, most],
            median_error: results::stats::median(&errors),
            qualitative: claims().count(),
            holding: claims().filter(|row| row.holds == Some(true)).count(),
            apart: [apart().filter(met).count(), apart().count()],
            rows: Class::ALL.into_iter().map(|class| (class.name(), count(class))).collect(),
            fitted_values: count_distinct(fitted),
        }
    }

    /// Rows of a class.
    #[must_use]
    pub fn count(&self, class: Class) -> usize {
        self.rows.get(class.name()).copied().unwrap_or(0)
    }

    /// The number of unscored rows of each class, such as `4 rows are model inputs`.
    #[must_use]
    pub fn others(&self) -> Vec<String> {
        let texts = [
            (Class::Fitted, "is fitted", "are fitted"),
            (Class::Input, "is a model input", "are model inputs"),
            (Class::Repeats, "repeats another", "repeat others"),
            (
                Class::Undecided,
                "is decided by a bound that every result meets",
                "are decided by bounds that every result meets",
            ),
            (Class::NotComputed, "is not computed", "are not computed"),
        ];
        let texts = texts.into_iter().map(|(class, one, more)| (self.count(class), one, more));
        let texts = texts.filter(|(count, ..)| *count > 0);
        let mut all: Vec<String> = texts
            .map(|(count, one, more)| {
                format!("{} {}", plural(count, "row"), if count == 1 { one } else { more })
            })
            .collect();
        let [met, apart] = self.apart;
        if apart > 0 {
            all.push(format!(
                "the model meets {met} of {} in which the paper contradicts itself",
                plural(apart, "row")
            ));
        }
        all
    }

    /// The outcome for some rows of a paper; goals and fitted values apply to all rows together.
    #[must_use]
    pub fn counts(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.numeric > 0 {
            all.push(format!("{} of {} within 10 %", self.near, plural(self.numeric, "predicted number")));
        }
        if self.qualitative > 0 {
            all.push(format!("{} of {} true", self.holding, plural(self.qualitative, "predicted claim")));
        }
        all.extend(self.others().into_iter().map(|other| format!("not scored: {other}")));
        all
    }

    /// Numbers, their median error, and claims in a line.
    #[must_use]
    pub fn counts_and_median(&self) -> String {
        let mut all = Vec::new();
        if let Some(error) = self.median_error {
            let numbers = plural(self.numeric, "predicted number");
            all.push(format!("{} of {numbers} within 10 %, median error {}", self.near, percent(error)));
        }
        if self.qualitative > 0 {
            all.push(format!("{} of {} true", self.holding, plural(self.qualitative, "predicted claim")));
        }
        if all.is_empty() { "nothing is predicted".to_owned() } else { all.join("; ") }
    }

    /// The goals of the reproduction, and whether they are met.
    #[must_use]
    pub fn goals(&self) -> [(String, bool); 4] {
        let share = |part: usize, whole: usize| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        let near = share(self.near, self.numeric);
        let holding = share(self.holding, self.qualitative);
        let error = self.median_error.unwrap_or(0.0);
        let room = self.numeric as f64 * FITTED_SHARE;
        let [least, most] = self.near_range;
        [
            (
                format!(
                    "{} of {} predicted numbers within 10 % ({}; {least} to {most} by assumed values; goal 85 %)",
                    self.near,
                    self.numeric,
                    percent(near)
                ),
                near >= NEAR_SHARE,
            ),
            (format!("median error {} (goal 4 %)", percent(error)), error <= MEDIAN_ERROR),
            (
                format!(
                    "{} of {} predicted claims hold ({}; goal 95 %)",
                    self.holding,
                    self.qualitative,
                    percent(holding)
                ),
                holding >= HOLDING_SHARE,
            ),
            (
                format!(
                    "{} for {} (goal under a fifth, {room:.1})",
                    plural(self.fitted_values, "fitted value"),
                    plural(self.numeric, "predicted number")
                ),
                (self.fitted_values as f64) < room || self.fitted_values == 0,
            ),
        ]
    }
}

/// Number of fitted values of all machine files; the same key with the same value counts once, because several files describe
/// one card.
fn count_distinct(fitted: &[Fitted]) -> usize {
    let mut seen: Vec<(&str, f64)> = Vec::new();
    for one in fitted {
        let setting = (one.key.as_str(), one.value);
        if !seen.contains(&setting) {
            seen.push(setting);
        }
    }
    seen.len()
}

/// An assumed value that moves scored rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumed {
    /// The device's name.
    pub card: String,
    /// The value's key.
    pub key: String,
    /// The assumed value.
    pub value: f64,
    /// Its possible range.
    pub range: [f64; 2],
    /// The reason for the value.
    pub why: String,
    /// Scored rows that move by 2 % or more within the range.
    pub rows: Vec<String>,
    /// Number of near predictions at this value, and the fewest and the most at the ends of its range.
    pub near: [usize; 3],
}

/// The assumed values that move scored rows, most rows first.
#[must_use]
pub(crate) fn assumed(rows: &[Row], machines: &Machines, moves: &Moves) -> Vec<Assumed> {
    let values = machines.all().flat_map(|machine| machine.values.iter().map(|value| (&machine.card, value)));
    let values = values.filter(|(_, value)| value.origin == Origin::Assumed);
    let mut all: Vec<Assumed> =
        values.filter_map(|(card, value)| one_assumed(rows, (card, value), moves)).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.rows.len()));
    all
}

fn one_assumed(rows: &[Row], (card, value): (&str, &Value), moves: &Moves) -> Option<Assumed> {
    let ends: Vec<&Move> = moves.iter().filter(|one| one.card == card && one.key == value.key).collect();
    let moved = |row: &&Row| row.is_scored() && ends.iter().any(|end| end.effect(&row.id).is_some());
    let moved: Vec<String> = rows.iter().filter(moved).map(|row| row.id.clone()).collect();
    if moved.is_empty() {
        return None;
    }
    let now = near(rows, None, Nearness::Share);
    let at_ends = || ends.iter().map(|end| near(rows, Some(end), Nearness::Share));
    let near = [now, at_ends().fold(now, usize::min), at_ends().fold(now, usize::max)];
    let (card, key, why) = (card.to_owned(), value.key.clone(), value.source_text.clone());
    Some(Assumed { card, key, value: value.value, range: value.range?, why, rows: moved, near })
}

/// The predicted rows that are worst: claims that fail, then numbers by how far they are off.
#[must_use]
pub fn worst(rows: &[Row], count: usize) -> Vec<&Row> {
    let mut all: Vec<(f64, &Row)> = rows
        .iter()
        .filter(|row| row.is_scored())
        .filter_map(|row| match row.holds {
            Some(false) if row.qualitative => Some((f64::INFINITY, row)),
            _ => Some((row.error()?, row)),
        })
        .filter(|(error, _)| !is_near(*error))
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.into_iter().take(count).map(|(_, row)| row).collect()
}
