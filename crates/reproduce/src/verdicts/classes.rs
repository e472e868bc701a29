//! The class of each row, derived from the flow of data: the machine files' sources of the values that decide it, and
//! which values these are ([`Moves`]). No class is assigned by hand.

use std::collections::BTreeSet;

use super::judge::{Class, Row};
use super::machine::{Machines, Origin};
use super::moves::Moves;
use super::sensitivity::{is_counted, is_tried, times_calls};
use crate::claims::claim::{Answer, Claim};
use crate::claims::quantity::Source;
use crate::papers::rows::GROUPS;

/// Numbers of the model that differ by less are the same.
const SAME: f64 = 0.005;

/// The inputs from which classes are derived.
pub(crate) struct Classifier<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) moves: &'a Moves,
    pub(crate) source: &'a dyn Source,
}

impl Classifier<'_> {
    /// Sets the class of each row and the reason for it. The rows are in the dataset's order, each with the claim that computed it:
    /// a row has the class that its own claim decides; else it repeats an earlier row, or is a prediction.
    pub(crate) fn classify(&self, rows: &mut [(Row, &Claim)]) {
        for i in 0..rows.len() {
            let (before, rest) = rows.split_at_mut(i);
            let Some((row, claim)) = rest.first_mut() else { return };
            if row.class == Class::NotComputed {
                row.because = "it is not computed".to_owned();
                continue;
            }
            let own_class = self.class_by_itself(row, claim);
            let (class, because) = own_class.unwrap_or_else(|| match self.repeated(row, claim, before) {
                Some(first) => (Class::Repeats, format!("the same number as {first}")),
                None => (Class::Predicted, self.dependency_reason(&row.id)),
            });
            (row.class, row.because) = (class, because);
        }
    }

    /// The class that a row has whatever the others are, if it is no prediction.
    pub(super) fn class_by_itself(&self, row: &Row, claim: &Claim) -> Option<(Class, String)> {
        if let Some(named) = self.class_by_source(claim) {
            return Some(named);
        }
        if matches!(claim.answer, Answer::Input(_)) {
            return Some((Class::Input, "a parameter, or a constant of the experiment".to_owned()));
        }
        if is_counted(&claim.answer) {
            return Some((Class::Input, "how our library is built, whatever the machine".to_owned()));
        }
        if claim.answer.is_capped(self.source) {
            return Some((
                Class::Undecided,
                "the largest value that was tried; more is impossible".to_owned(),
            ));
        }
        let movers = self.moves.movers(&row.id);
        let origin = |(card, key): &(&str, &str)| self.machines.find(card, key).map(|value| value.origin);
        let of =
            |all: &[Origin]| movers.iter().all(|mover| origin(mover).is_some_and(|one| all.contains(&one)));
        let is_fitted = || movers.iter().any(|mover| origin(mover) == Some(Origin::Fitted));
        let names = || movers.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(", ");
        match () {
            () if !is_tried(&claim.answer) || !self.has_trials(claim) => None,
            () if movers.is_empty() && row.qualitative => {
                Some((Class::Input, "no value of a machine file changes what it compares".to_owned()))
            }
            () if movers.is_empty() && row.steps.is_none() => {
                Some((Class::Undecided, "no value of a machine file changes it by 2 %".to_owned()))
            }
            () if movers.is_empty() => None,
            () if of(&[Origin::Published, Origin::Derived]) => {
                Some((Class::Input, format!("decided only by inputs: {}", names())))
            }
            // A sum of the file's values for calls, whatever their source: no mechanism is involved.
            () if times_calls(&claim.answer)
                && of(&[Origin::Published, Origin::Derived, Origin::Assumed]) =>
            {
                Some((Class::Input, format!("a sum of call times in a machine file: {}", names())))
            }
            // Data sheets leave no freedom; without a fitted value, a result derived from them is a prediction.
            () if of(&[Origin::Published, Origin::Derived, Origin::Datasheet, Origin::Fitted])
                && is_fitted() =>
            {
                Some((Class::Fitted, format!("decided only by fitted values and inputs: {}", names())))
            }
            () => None,
        }
    }

    /// Whether the values of all cards that a claim is about were tried.
    fn has_trials(&self, claim: &Claim) -> bool {
        let mut probes = BTreeSet::new();
        claim.answer.probes(&mut probes);
        let known = |card: &str| {
            GROUPS
                .iter()
                .find(|group| group.contains(&card))
                .is_some_and(|group| self.moves.has_card(group[0]))
        };
        probes.iter().all(|probe| known(probe.card()))
    }

    /// The class of a row that is named in machine files; the class of one row of a claim applies to all.
    pub(super) fn class_by_source(&self, claim: &Claim) -> Option<(Class, String)> {
        let naming = || claim.rows.iter().flat_map(|row| self.machines.naming(row));
        let is_input = |origin| matches!(origin, Origin::Published | Origin::Derived);
        if let Some((card, value)) = naming().find(|(_, value)| is_input(value.origin)) {
            return Some((Class::Input, format!("{} of {card} was taken from it", value.key)));
        }
        naming()
            .next()
            .map(|(card, value)| (Class::Fitted, format!("{} of {card} was chosen by it", value.key)))
    }

    /// The earlier row that a row repeats: stated by the same claim; or printed and computed equally; or computed
    /// equally whatever is changed.
    pub(super) fn repeated<'a>(
        &self,
        row: &Row,
        claim: &Claim,
        before: &'a [(Row, &Claim)],
    ) -> Option<&'a str> {
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

    /// The values that a prediction depends on, in words.
    pub(super) fn dependency_reason(&self, row: &str) -> String {
        let movers = self.moves.movers(row);
        let names: BTreeSet<&str> = movers.iter().map(|(_, key)| *key).collect();
        match names.len() {
            0 => "no value was taken from it".to_owned(),
            _ => format!("depends on {}", names.into_iter().collect::<Vec<_>>().join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::judge;
    use super::super::machine::{Machine, Value};
    use super::super::moves::{Effect, Move};
    use super::*;
    use crate::claims::claim::ClaimTable;
    use crate::claims::quantity::fakes::FakeSource;
    use crate::claims::quantity::{Probe, Quantity, Tuning};
    use crate::papers::published::dataset;

    const CARD: &str = "model:mt23108-nicmem";

    fn machines() -> Machines {
        let value = |key: &str, origin, source_text: &str| Value::new(key, 1.0, origin, source_text);
        let values = vec![
            value("a.published", Origin::Published, "NM-002"),
            value("a.fitted", Origin::Fitted, "NM-030"),
            value("a.assumed", Origin::Assumed, "nobody says (NM-031)"),
            value("a.sheet", Origin::Datasheet, "a specification"),
        ];
        Machines::new([Machine { card: CARD.to_owned(), values }])
    }

    /// The classes of the given rows: each is one number of this experiment that these keys move.
    fn classes(experiment: &str, rows: &[(&'static str, f64, &[&str])]) -> Vec<Class> {
        let cell = |size| {
            let tuning = Tuning { window: 2, burst_bytes: 1, signal: 1 };
            Quantity::cell(CARD, tuning, experiment, &[("op", "write")], size)
        };
        let mut table = ClaimTable::default();
        for (id, value, _) in rows {
            let ids: &'static [&'static str] = Box::leak(Box::new([*id]));
            table.number(ids, "how", cell((value * 100.0) as u64));
        }
        let source = FakeSource(|probe: &Probe| Ok(probe.cell.size as f64 / 100.0));
        let data = dataset();
        let mut judged: Vec<(Row, &Claim)> = table
            .0
            .iter()
            .map(|claim| {
                let row = data.iter().find(|row| row.id == claim.rows[0]).expect("a row");
                (judge(row, "", &claim.answer, &source), claim)
            })
            .collect();
        let moved = |key: &str| {
            let moved = rows.iter().filter(|(_, _, keys)| keys.contains(&key));
            let rows = moved.map(|(id, ..)| ((*id).to_owned(), Effect::Factor(1.1))).collect();
            Move { card: CARD.to_owned(), key: key.to_owned(), to: 2.0, assumed: false, rows }
        };
        let moves = Moves::new(["a.published", "a.fitted", "a.assumed", "a.sheet"].map(moved).into());
        let classifier = Classifier { machines: &machines(), moves: &moves, source: &source };
        classifier.classify(&mut judged);
        judged.into_iter().map(|(row, _)| row.class).collect()
    }

    /// Goal: the class of a row follows from the sources of the values that name it or move it.
    #[test]
    fn classes_follow_from_the_values_that_name_and_move_a_row() {
        let all = classes(
            "latency",
            &[
                ("NM-030", 900.0, &["a.assumed"]),
                ("NM-031", 901.0, &["a.assumed"]),
                ("NM-043", 902.0, &["a.published"]),
                ("NM-054", 903.0, &["a.published", "a.fitted"]),
                ("NM-055", 904.0, &["a.fitted", "a.assumed"]),
                ("NM-056", 905.0, &[]),
                ("NM-057", 906.0, &["a.sheet", "a.published"]),
                ("NM-067", 907.0, &["a.sheet", "a.fitted"]),
            ],
        );
        use Class::{Fitted, Input, Predicted, Undecided};
        assert_eq!(all, [Fitted, Fitted, Input, Fitted, Predicted, Undecided, Predicted, Fitted]);
    }

    /// Goal: the time of the processor's calls is a sum of the file's values for them, and no prediction, even if a
    /// value is assumed.
    #[test]
    fn sums_of_calls_are_no_predictions() {
        let rows: [(&str, f64, &[&str]); 3] = [
            ("NM-043", 902.0, &["a.published", "a.assumed"]),
            ("NM-056", 903.0, &["a.published"]),
            ("NM-054", 904.0, &["a.published", "a.fitted"]),
        ];
        assert_eq!(classes("post", &rows), [Class::Input, Class::Input, Class::Fitted]);
        assert_eq!(classes("latency", &rows), [Class::Predicted, Class::Input, Class::Fitted]);
    }

    /// Goal: a number printed twice counts once. NM-067 and NM-070 are both 855; NM-056 is not.
    #[test]
    fn a_number_that_is_printed_again_repeats() {
        let (one, two): (&[&str], &[&str]) = (&["a.assumed"], &["a.fitted", "a.assumed"]);
        let all =
            classes("latency", &[("NM-056", 855.0, one), ("NM-067", 855.0, two), ("NM-070", 856.0, one)]);
        assert_eq!(all, [Class::Predicted, Class::Predicted, Class::Repeats]);
        let apart = classes("latency", &[("NM-067", 855.0, two), ("NM-070", 955.0, one)]);
        assert_eq!(apart, [Class::Predicted; 2], "the model does not give the same");
    }
}
