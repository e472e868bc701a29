//! The second rule: classes that count rows fitted elsewhere, and not claims and ratios that hold for other reasons.
//! `docs/internals/calibrating-a-model.md` states its five points; the first rule is [`super::classes`].

use std::collections::BTreeSet;

use super::classes::Classifier;
use super::judge::{Class, NEAR, Row};
use super::machine::Origin;
use super::moves::Shaken;
use crate::claims::claim::{Answer, Claim};
use crate::claims::quantity::Probe;
use crate::papers::rows::GROUPS;

/// Units of ratios and gains.
const RATIOS: [&str; 2] = ["%", "x"];

/// A card, an experiment, and the levels of its factors that are no numbers.
type Configuration = (String, String, Vec<String>);

/// The inputs from which classes are derived.
pub(crate) struct SecondRule<'a> {
    first: &'a Classifier<'a>,
    shaken: &'a Shaken,
    /// The claims of rows that fitted values name, also those that were not asked for, and what they measure.
    fitted: Vec<(&'a Claim, BTreeSet<Configuration>)>,
    /// The cells of these claims.
    fitted_cells: BTreeSet<Probe>,
}

impl<'a> SecondRule<'a> {
    /// The rule for rows that `first` has classified; `table` says how all rows are computed.
    pub(crate) fn new(first: &'a Classifier<'a>, table: &'a [Claim], shaken: &'a Shaken) -> Self {
        let is_named = |claim: &&Claim| {
            let mut naming = claim.rows.iter().flat_map(|row| first.machines.naming(row));
            naming.any(|(_, value)| value.origin == Origin::Fitted)
        };
        let fitted: Vec<_> =
            table.iter().filter(is_named).map(|claim| (claim, configurations(claim))).collect();
        let fitted_cells = fitted.iter().flat_map(|(claim, _)| probes(claim)).collect();
        Self { first, shaken, fitted, fitted_cells }
    }

    /// Sets the second class of each row, and the reason for it. The rows have their first classes.
    pub(crate) fn classify(&self, rows: &mut [(Row, &Claim)]) {
        let misses: Vec<(String, BTreeSet<Probe>)> = rows
            .iter()
            .filter(|(row, _)| is_missed(row))
            .map(|(row, claim)| (row.id.clone(), probes(claim)))
            .collect();
        // Repeats are found among rows whose second class is their class.
        let mut classified: Vec<(Row, &Claim)> = rows.to_vec();
        for i in 0..classified.len() {
            let (before, rest) = classified.split_at_mut(i);
            let Some((row, claim)) = rest.first_mut() else { return };
            if row.class == Class::NotComputed {
                continue;
            }
            let own_class = self.class_by_itself(row, claim).or_else(|| two_errors(row, claim, &misses));
            let (class, because) =
                own_class.unwrap_or_else(|| match self.first.repeated(row, claim, before) {
                    Some(first) => (Class::Repeats, format!("the same number as {first}")),
                    None => (Class::Predicted, self.first.dependency_reason(&row.id)),
                });
            (row.class, row.because) = (class, because);
        }
        for ((row, _), (second, _)) in rows.iter_mut().zip(classified) {
            (row.second_class, row.second_because) = (second.class, second.because);
        }
    }

    /// The class that a row has whatever the others are, if it is no prediction.
    fn class_by_itself(&self, row: &Row, claim: &Claim) -> Option<(Class, String)> {
        let first = self.first.class_by_itself(row, claim);
        let is_named = self.first.class_by_source(claim).is_some();
        match first {
            Some((Class::Fitted, _)) if !row.qualitative && !is_named && !self.is_fitted_here(row, claim) => {
            }
            Some(other) => return Some(other),
            None => {}
        }
        if row.qualitative { self.decided_claim(row, claim) } else { without_number(row, claim) }
    }

    /// Whether a fitted value that moves the row was fitted to a row of one of its configurations.
    fn is_fitted_here(&self, row: &Row, claim: &Claim) -> bool {
        let own = configurations(claim);
        let movers = self.first.moves.movers(&row.id);
        let fitted = movers.iter().filter_map(|(card, key)| self.first.machines.find(card, key));
        let mut fitted = fitted.filter(|value| value.origin == Origin::Fitted);
        fitted.any(|value| {
            let names = |claim: &Claim| claim.rows.iter().any(|id| value.rows.iter().any(|row| row == id));
            self.fitted.iter().any(|(claim, measured)| names(claim) && !measured.is_disjoint(&own))
        })
    }

    /// The class of a claim that fitted values or the construction of the model decide.
    fn decided_claim(&self, row: &Row, claim: &Claim) -> Option<(Class, String)> {
        let own = probes(claim);
        if own.is_empty() {
            return Some((Class::Input, "it compares values of machine files".to_owned()));
        }
        if own.is_subset(&self.fitted_cells) {
            return Some((
                Class::Fitted,
                "values were chosen to meet each number that it compares".to_owned(),
            ));
        }
        let groups: BTreeSet<&str> = own.iter().filter_map(|probe| group(probe.card())).collect();
        let is_tried = groups.iter().all(|card| self.shaken.has_card(card));
        if is_tried && row.holds == Some(true) && !self.shaken.moves(&row.id) {
            let why = "it holds by construction: changing all values of its cards together changes no number that it compares";
            return Some((Class::Input, why.to_owned()));
        }
        let movers = self.first.moves.movers(&row.id);
        let is_input = |(card, key): &(&str, &str)| {
            let value = self.first.machines.find(card, key);
            value.is_some_and(|value| matches!(value.origin, Origin::Published | Origin::Derived))
        };
        (!movers.is_empty() && movers.iter().all(is_input))
            .then(|| (Class::Input, "decided only by inputs".to_owned()))
    }
}

/// The first card of the group that a card belongs to.
fn group(card: &str) -> Option<&'static str> {
    GROUPS.iter().find(|group| group.contains(&card)).map(|group| group[0])
}

fn probes(claim: &Claim) -> BTreeSet<Probe> {
    let mut all = BTreeSet::new();
    claim.answer.probes(&mut all);
    all
}

fn configurations(claim: &Claim) -> BTreeSet<Configuration> {
    let of = |probe: Probe| {
        let names = probe.cell.variant.iter().filter(|(_, level)| level.parse::<f64>().is_err());
        let names = names.map(|(factor, level)| format!("{factor}={level}")).collect();
        (probe.card().to_owned(), probe.cell.experiment.clone(), names)
    };
    probes(claim).into_iter().map(of).collect()
}

/// The class of a number of which one limit is printed, or zero.
fn without_number(row: &Row, claim: &Claim) -> Option<(Class, String)> {
    if matches!(claim.answer, Answer::Exactly(_) | Answer::Sizes(..)) {
        return None;
    }
    match (row.published, row.low, row.high) {
        (None, Some(_), None) | (None, None, Some(_)) => {
            Some((Class::Undecided, "the paper prints one limit, and no number".to_owned()))
        }
        (Some(0.0), _, _) => Some((Class::Undecided, "nothing has a ratio to zero".to_owned())),
        _ => None,
    }
}

/// Whether the model misses a number.
fn is_missed(row: &Row) -> bool {
    let is_computed = !row.qualitative && row.class != Class::NotComputed;
    is_computed && row.steps.is_none() && row.error().is_some_and(|error| error > NEAR)
}

/// The class of a ratio or gain that is near although the model misses several rows of its own cells.
fn two_errors(row: &Row, claim: &Claim, misses: &[(String, BTreeSet<Probe>)]) -> Option<(Class, String)> {
    let is_near = !is_missed(row) || row.ratio.is_some_and(|ratio| row.is_within_print(ratio));
    if row.qualitative || !RATIOS.contains(&row.unit.as_str()) || !is_near {
        return None;
    }
    let own = probes(claim);
    let is_part = |(id, cells): &&(String, BTreeSet<Probe>)| {
        *id != row.id && !cells.is_empty() && cells.len() < own.len() && cells.is_subset(&own)
    };
    let parts: Vec<&str> = misses.iter().filter(is_part).map(|(id, _)| id.as_str()).collect();
    (parts.len() >= 2).then(|| {
        (Class::Undecided, format!("near although the model misses its parts: {}", parts.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::judge::judge;
    use super::super::machine::{Machine, Machines, Value};
    use super::super::moves::{Effect, Move, Moves};
    use super::super::score::Score;
    use super::*;
    use crate::claims::check::Check;
    use crate::claims::claim::ClaimTable;
    use crate::claims::quantity::fakes::FakeSource;
    use crate::claims::quantity::{Quantity, Tuning};
    use crate::papers::published::dataset;

    const CARD: &str = "model:mt23108-nicmem";

    fn cell(op: &str, size: u64) -> Quantity {
        let tuning = Tuning { window: 2, burst_bytes: 1, signal: 1 };
        Quantity::cell(CARD, tuning, "latency", &[("op", op), ("qps", "4")], size)
    }

    /// The first and the second class of each row of a table, with one fitted value that names NM-030 and moves `moved`; a
    /// cell gives its size.
    fn classes(table: &ClaimTable, moved: &[&str], shaken: &Shaken) -> Vec<(Class, Class)> {
        let value = Value::new("a.fitted", 1.0, Origin::Fitted, "NM-030");
        let machines = Machines::new([Machine { card: CARD.to_owned(), values: vec![value] }]);
        let rows = moved.iter().map(|id| ((*id).to_owned(), Effect::Factor(1.1))).collect();
        let key = "a.fitted".to_owned();
        let moves = Moves::new(vec![Move { card: CARD.to_owned(), key, to: 2.0, assumed: false, rows }]);
        let source = FakeSource(|probe: &Probe| Ok(probe.cell.size as f64));
        let first = Classifier { machines: &machines, moves: &moves, source: &source };
        let data = dataset();
        let judged = |claim| -> (Row, &Claim) {
            let claim: &Claim = claim;
            let row = data.iter().find(|row| row.id == claim.rows[0]).expect("a row");
            (judge(row, "", &claim.answer, &source), claim)
        };
        let mut all: Vec<(Row, &Claim)> = table.0.iter().map(judged).collect();
        first.classify(&mut all);
        SecondRule::new(&first, &table.0, shaken).classify(&mut all);
        all.into_iter().map(|(row, _)| (row.class, row.second_class)).collect()
    }

    /// Goal: a value that was fitted to one curve predicts another; it predicts no other size of its own.
    #[test]
    fn number_fitted_in_another_configuration_is_a_prediction() {
        let mut table = ClaimTable::default();
        table.number(&["NM-030"], "fitted to", cell("write", 8));
        table.number(&["NM-054"], "the same curve", cell("write", 900));
        table.number(&["NM-055"], "another", cell("send", 950));
        let all = classes(&table, &["NM-054", "NM-055"], &Shaken::default());
        use Class::{Fitted, Predicted};
        assert_eq!(all, [(Fitted, Fitted), (Fitted, Fitted), (Fitted, Predicted)]);
    }

    /// Goal: claims about numbers that values were chosen for are no predictions, and neither are those that nothing
    /// changes.
    #[test]
    fn claims_that_cannot_fail_are_no_predictions() {
        let below = |a, b| Check::below("us", a, b, 0.0);
        let mut table = ClaimTable::default();
        table.number(&["NM-030"], "fitted to", cell("write", 8));
        table.check(&["NM-033"], "of its cell", below(cell("write", 8), 9.0.into()));
        table.check(
            &["NM-037"],
            "of another, that values change",
            below(cell("write", 8), cell("write", 16)),
        );
        table.check(&["NM-041"], "of another, that none changes", below(cell("write", 16), cell("send", 17)));
        table.check(
            &["NM-050"],
            "false, and none changes it: it does not hold",
            below(cell("write", 17), cell("send", 16)),
        );
        let seconds = |shaken: &Shaken| -> Vec<Class> {
            classes(&table, &[], shaken).into_iter().map(|(_, second)| second).collect()
        };
        use Class::{Fitted, Input, Predicted};
        assert_eq!(
            seconds(&Shaken::from_groups([(CARD, vec!["NM-037"])].into_iter())),
            [Fitted, Fitted, Predicted, Input, Predicted]
        );
        assert_eq!(
            seconds(&Shaken::default()),
            [Fitted, Fitted, Predicted, Predicted, Predicted],
            "never shaken"
        );
    }

    /// Goal: what any result meets, and what two errors make near, is no prediction.
    #[test]
    fn numbers_without_a_print_or_by_two_errors_are_undecided() {
        let mut table = ClaimTable::default();
        // Less than 2 is printed; 936; 944; 0.
        table.number(&["MT-099"], "a limit", cell("send", 1));
        table.number(&["MT-199"], "zero", cell("send", 0));
        table.number(&["NM-054"], "missed", cell("write", 1872));
        table.number(&["NM-056"], "missed", cell("send", 400));
        // 855 MB/s, and 80 %, of both cells, which are off by a factor of two.
        let both = |by: f64| (cell("write", 1872) + cell("send", 400)) / by;
        table.number(&["NM-067"], "near by both, and no ratio", both(2.657));
        table.number(&["IW-003"], "a gain that is near by both", both(28.4));
        let rows = ["MT-099", "MT-199", "NM-054", "NM-056", "NM-067", "IW-003"];
        let all = classes(&table, &rows, &Shaken::default());
        let second: Vec<Class> = all.into_iter().map(|(_, second)| second).collect();
        use Class::{Predicted, Undecided};
        assert_eq!(second, [Undecided, Undecided, Predicted, Predicted, Predicted, Undecided]);
    }

    /// Goal: "around 20 %" is 15 to 25, and 16 is near by the second rule alone; its distance from 20 counts all the same.
    #[test]
    fn printed_rounding_makes_a_number_near() {
        let scores = |value: f64| {
            let data = dataset();
            let published = data.iter().find(|row| row.id == "NM-094").expect("a row");
            let source = FakeSource(|_: &Probe| Ok(0.0));
            let rows = [judge(published, "", &Answer::Number(value.into()), &source)];
            let moves = Moves::new(Vec::new());
            [Score::new(&rows, &[], &moves), Score::by_second_rule(&rows, &[], &moves)]
        };
        let near = |value| scores(value).map(|score| score.near);
        assert_eq!([near(16.0), near(26.0), near(19.0)], [[0, 1], [0, 0], [1, 1]]);
        let errors = scores(16.0).map(|score| score.median_error.expect("a number"));
        assert!(errors.iter().all(|error| (error - 0.2).abs() < 1e-9), "{errors:?}");
    }
}
