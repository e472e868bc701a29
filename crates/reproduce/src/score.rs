//! [`Score`]: how near the predictions come, and how many values were fitted for it.

use report::number::plural;
use serde::Serialize;

use super::judge::{Class, NEAR, Row};
use super::machine::Fitted;

/// How near predictions come. Rows of other classes are only counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Predicted rows with a number.
    pub numeric: usize,
    /// Those of them within 10 %.
    pub near: usize,
    /// Median over them of how far the model is off, as a share.
    pub median_error: Option<f64>,
    /// Predicted rows without a number: claims.
    pub qualitative: usize,
    /// Those of them that hold.
    pub holding: usize,
    /// Rows that a value was fitted to.
    pub fitted_rows: usize,
    /// Rows that are parameters or constants.
    pub input_rows: usize,
    /// Rows that are not computed.
    pub not_modelled_rows: usize,
    /// Fitted values of the machine files.
    pub fitted_values: usize,
}

/// Of the numeric predictions this share shall be near.
pub const NEAR_SHARE: f64 = 0.85;
/// The median error shall be at most this.
pub const MEDIAN_ERROR: f64 = 0.04;
/// Of the claims this share shall hold.
pub const HOLDING_SHARE: f64 = 0.95;
/// Fitted values shall be fewer than this share of the predictions.
pub const FITTED_SHARE: f64 = 0.2;

impl Score {
    /// The score of some rows.
    #[must_use]
    pub fn of(rows: &[Row], fitted: &[Fitted]) -> Self {
        let class = |class| rows.iter().filter(move |row| row.class == class);
        let mut errors: Vec<f64> = class(Class::Predicted).filter_map(Row::error).collect();
        errors.sort_by(f64::total_cmp);
        let claims = || class(Class::Predicted).filter(|row| row.qualitative);
        Self {
            numeric: errors.len(),
            near: errors.iter().filter(|error| **error <= NEAR).count(),
            median_error: bench::stats::median(&errors),
            qualitative: claims().count(),
            holding: claims().filter(|row| row.holds == Some(true)).count(),
            fitted_rows: class(Class::Fitted).count(),
            input_rows: class(Class::Input).count(),
            not_modelled_rows: class(Class::NotModelled).count(),
            fitted_values: distinct(fitted),
        }
    }

    /// All predicted rows.
    #[must_use]
    pub fn predicted(&self) -> usize {
        self.numeric + self.qualitative
    }

    /// What came out for some rows of a paper; goals and fitted values are of all together.
    #[must_use]
    pub fn counts(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.numeric > 0 {
            all.push(format!("{} of {} within 10 %", self.near, plural(self.numeric, "predicted number")));
        }
        if self.qualitative > 0 {
            all.push(format!("{} of {} true", self.holding, plural(self.qualitative, "predicted claim")));
        }
        let others = [
            (self.fitted_rows, "fitted"),
            (self.input_rows, "input"),
            (self.not_modelled_rows, "not modelled"),
        ];
        let others = others.into_iter().filter(|(count, _)| *count > 0);
        all.extend(others.map(|(count, class)| format!("{}: {class}, not scored", plural(count, "row"))));
        all
    }

    /// What the reproduction must reach, and whether it does.
    #[must_use]
    pub fn goals(&self) -> [(String, bool); 4] {
        use report::number::percent;
        let share = |part: usize, whole: usize| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        let near = share(self.near, self.numeric);
        let holding = share(self.holding, self.qualitative);
        let error = self.median_error.unwrap_or(0.0);
        let room = self.predicted() as f64 * FITTED_SHARE;
        [
            (
                format!(
                    "{} of {} predicted numbers within 10 % ({}; goal 85 %)",
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
                    "{} fitted values, fewer than a fifth of {} predictions ({room:.1})",
                    self.fitted_values,
                    self.predicted()
                ),
                (self.fitted_values as f64) < room || self.fitted_values == 0,
            ),
        ]
    }
}

/// Fitted values; one that several machine files of the same card share counts once.
fn distinct(fitted: &[Fitted]) -> usize {
    let mut seen: Vec<(&str, f64)> = Vec::new();
    for one in fitted {
        let this = (one.key.as_str(), one.value);
        if !seen.contains(&this) {
            seen.push(this);
        }
    }
    seen.len()
}

/// Less is no news.
const NOTABLE: f64 = 0.001;

/// The predicted rows that are worst: claims that fail, then numbers by how far they are off.
#[must_use]
pub fn worst(rows: &[Row], count: usize) -> Vec<&Row> {
    let mut all: Vec<(f64, &Row)> = rows
        .iter()
        .filter(|row| row.class == Class::Predicted)
        .filter_map(|row| match row.holds {
            Some(false) if row.qualitative => Some((f64::INFINITY, row)),
            _ => Some((row.error()?, row)),
        })
        .filter(|(error, _)| *error > NOTABLE)
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.into_iter().take(count).map(|(_, row)| row).collect()
}
