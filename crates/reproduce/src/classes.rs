//! The class of each row, derived from the flow of data: what the machine files say of the values that decide it, and
//! which values these are ([`Moves`]). Nobody can claim one.

use super::claim::{Answer, Claim};
use super::judge::{Class, Row};
use super::machine::{Machines, Origin};
use super::moves::Moves;
use super::quantity::Source;
use super::sensitivity::is_tried;

/// Numbers of the model that differ by less are the same.
const SAME: f64 = 0.005;

/// What classes are derived from.
pub(super) struct Flow<'a> {
    pub(super) machines: &'a Machines,
    pub(super) moves: &'a Moves,
    pub(super) source: &'a dyn Source,
}

impl Flow<'_> {
    /// Classes of rows in the dataset's order, with the claims that they were computed by.
    pub(super) fn classify(&self, rows: &mut [(Row, &Claim)]) {
        for i in 0..rows.len() {
            let (before, rest) = rows.split_at_mut(i);
            let Some((row, claim)) = rest.first_mut() else { return };
            if row.class == Class::NotComputed {
                row.because = "nothing of it is computed".to_owned();
                continue;
            }
            let alone = self.alone(row, claim);
            let (class, because) = alone.unwrap_or_else(|| match self.repeated(row, claim, before) {
                Some(first) => (Class::Repeats, format!("the same number as {first}")),
                None => (Class::Predicted, self.depends(&row.id)),
            });
            (row.class, row.because) = (class, because);
        }
    }

    /// The class that a row has whatever the others are, if it is no prediction.
    fn alone(&self, row: &Row, claim: &Claim) -> Option<(Class, String)> {
        if let Some(named) = self.named(claim) {
            return Some(named);
        }
        if matches!(claim.answer, Answer::Input(_)) {
            return Some((Class::Input, "a parameter, or a constant of the experiment".to_owned()));
        }
        if claim.answer.is_capped(self.source) {
            return Some((Class::Undecided, "the largest that was tried: it could not be more".to_owned()));
        }
        let movers = self.moves.movers(&row.id);
        let of = |origin: &[Origin]| {
            movers.iter().all(|(card, key)| {
                self.machines.find(card, key).is_some_and(|value| origin.contains(&value.origin))
            })
        };
        let names = || movers.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(", ");
        match () {
            () if self.moves.is_empty() => None,
            () if row.qualitative && !is_tried(&claim.answer) => None,
            () if movers.is_empty() && row.qualitative => {
                Some((Class::Input, "no value of a machine moves what it compares".to_owned()))
            }
            () if movers.is_empty() && row.steps.is_none() => {
                Some((Class::Undecided, "no value of a machine moves it by 2 %".to_owned()))
            }
            () if movers.is_empty() => None,
            () if of(&[Origin::Published, Origin::Derived]) => {
                Some((Class::Input, format!("decided by inputs alone: {}", names())))
            }
            () if of(&[Origin::Published, Origin::Derived, Origin::Fitted]) => {
                Some((Class::Fitted, format!("decided by fitted values and inputs alone: {}", names())))
            }
            () => None,
        }
    }

    /// What a row is by being named in machine files; what holds for one row of a claim holds for all.
    fn named(&self, claim: &Claim) -> Option<(Class, String)> {
        let naming = || claim.rows.iter().flat_map(|row| self.machines.naming(row));
        let is_input = |origin| matches!(origin, Origin::Published | Origin::Derived);
        if let Some((card, value)) = naming().find(|(_, value)| is_input(value.origin)) {
            return Some((Class::Input, format!("{} of {card} was taken from it", value.key)));
        }
        naming()
            .next()
            .map(|(card, value)| (Class::Fitted, format!("{} of {card} was chosen by it", value.key)))
    }

    /// The earlier row whose number a row is again: stated by the same claim; or printed and computed alike; or computed
    /// alike whatever is changed.
    fn repeated<'a>(&self, row: &Row, claim: &Claim, before: &'a [(Row, &Claim)]) -> Option<&'a str> {
        let is_number = |row: &Row| !row.qualitative && row.modelled.is_some();
        let alike = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= SAME * b.abs(),
            _ => false,
        };
        let same = |(other, its): &&(Row, &Claim)| {
            let unit = other.unit == row.unit && other.paper == row.paper && other.steps == row.steps;
            let computed = alike(row.modelled, other.modelled);
            let printed = row.published.is_some() && row.published == other.published && row.steps.is_none();
            std::ptr::eq(*its, claim)
                || is_number(row)
                    && is_number(other)
                    && unit
                    && computed
                    && (printed && row.unit != "%" || self.moves.are_alike(&row.id, &other.id))
        };
        let first = |(other, _): &&(Row, &Claim)| !matches!(other.class, Class::Repeats | Class::NotComputed);
        before.iter().filter(first).find(same).map(|(other, _)| other.id.as_str())
    }

    /// What a prediction depends on, in words.
    fn depends(&self, row: &str) -> String {
        let movers = self.moves.movers(row);
        let names: std::collections::BTreeSet<&str> = movers.iter().map(|(_, key)| *key).collect();
        match names.len() {
            0 => "nothing was taken from it".to_owned(),
            _ => format!("depends on {}", names.into_iter().collect::<Vec<_>>().join(", ")),
        }
    }
}
