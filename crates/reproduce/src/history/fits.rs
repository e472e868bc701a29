//! The log of fit lists: values that were once fitted to rows and no longer are, or to fewer rows. All changes were
//! made after results had been seen; the page shows them. A list whose rows were restored, as the value was not
//! chosen anew without knowing them, says so.

use serde::{Deserialize, Serialize};

/// The log as the program carries it, a line for each list.
const DATA: &str = include_str!("../../data/fits.csv");

/// A fit list that has become shorter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitChange {
    /// The machine file.
    pub card: String,
    /// The value's key.
    pub key: String,
    /// The rows that it is no longer fitted to.
    pub rows: String,
    /// The old list.
    pub before: String,
    /// The new list, or its replacement.
    pub after: String,
    /// Why.
    pub why: String,
}

impl FitChange {
    /// Whether it is about this row.
    pub(crate) fn concerns(&self, row: &str) -> bool {
        self.rows.split_whitespace().any(|one| one == row)
    }
}

/// All changes, card by card.
///
/// # Panics
/// Never: a test reads the table, which is part of the program.
#[must_use]
pub fn fit_changes() -> Vec<FitChange> {
    let mut reader = csv::Reader::from_reader(DATA.as_bytes());
    let lines = reader.deserialize();
    lines.map(|line| line.expect("the built-in table is valid")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::published::dataset;
    use crate::verdicts::machine::{Origin, Value, read_machine};

    /// Goal: the log agrees with the machine files: no value that it names is still fitted to these rows, except for
    /// restored lists, which name all of the value's rows.
    #[test]
    fn values_freed_by_the_log_are_not_fitted() {
        let data = dataset();
        for change in fit_changes() {
            let rows: Vec<&str> = change.rows.split_whitespace().collect();
            assert!(
                !rows.is_empty() && rows.iter().all(|id| data.iter().any(|row| row.id == *id)),
                "{change:?}"
            );
            assert!(rows.iter().all(|row| change.concerns(row)) && !change.concerns("NM-999"));
            let machine = read_machine(&format!("model:{}", change.card), &[]).expect("a built-in machine");
            let value = machine.values.iter().find(|value| value.key == change.key);
            let chosen = |value: &&Value| matches!(value.origin, Origin::Fitted | Origin::Assumed);
            let named =
                |row: &&str| value.filter(chosen).is_some_and(|value| value.rows.iter().any(|r| r == row));
            let count = rows.iter().copied().filter(|row| named(row)).count();
            let back = change.after.starts_with("fitted again: ");
            assert_eq!(count, if back { rows.len() } else { 0 }, "{change:?}");
            assert!(
                [&change.before, &change.after, &change.why].iter().all(|text| text.len() > 3),
                "{change:?}"
            );
        }
    }
}
