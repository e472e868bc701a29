//! The criteria, frozen: for each row the paper's words, how they are read, and a hash of the computation and
//! comparison.
//!
//! `data/criteria.csv`, and for a later paper a separate table, is unchanged since it was frozen, and is not edited.
//! A criterion changed since has its entries in `data/changes.csv`, each from one hash to the next, with the old and
//! new requirement, and the reason; the page shows them. A test checks both against the tables of the papers.

use serde::{Deserialize, Serialize};

use crate::papers::published::{Published, dataset};
use crate::papers::rows::table;

/// The frozen criteria, first of three papers, then of each further one.
const FROZEN: [&str; 2] =
    [include_str!("../../data/criteria.csv"), include_str!("../../data/criteria-mpi-iwarp.csv")];
/// The changes since.
const CHANGES: &str = include_str!("../../data/changes.csv");

/// How a row is judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criterion {
    /// Id of the row.
    pub row: String,
    /// The paper's words.
    pub quote: String,
    /// How they are read: the computation, and the published value that it is compared with.
    pub reading: String,
    /// Hash of how the computation and the comparison are spelled.
    pub print: String,
}

/// A change of a criterion after the freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriterionChange {
    /// Id of the row.
    pub row: String,
    /// Hash before.
    pub from: String,
    /// Hash after.
    pub to: String,
    /// The old requirement.
    pub before: String,
    /// The new requirement.
    pub after: String,
    /// Why.
    pub why: String,
}

/// The criteria as they were frozen.
fn frozen_criteria() -> Vec<Criterion> {
    FROZEN.into_iter().flat_map(read).collect()
}

/// Reads a built-in table.
fn read<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|line| line.expect("the built-in tables are valid")).collect()
}

/// The log of changes, oldest first.
///
/// # Panics
/// Never: a test reads the table, which is part of the program.
#[must_use]
pub fn changes() -> Vec<CriterionChange> {
    read(CHANGES)
}

/// The criteria of today, for the rows in the dataset's order.
#[must_use]
pub fn criteria() -> Vec<Criterion> {
    let all = table();
    let of = |row: Published| {
        let claim = all.iter().find(|claim| claim.rows.contains(&row.id.as_str()))?;
        let print = fingerprint(&claim.answer.to_string());
        Some(Criterion { row: row.id, quote: row.quote, reading: claim.how.clone(), print })
    };
    dataset().into_iter().filter_map(of).collect()
}

/// FNV-1a of a text, 64 bits, in hexadecimal.
fn fingerprint(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Criteria that are neither the frozen ones nor explained by the log: row, the known hash, today's.
#[must_use]
pub fn unexplained() -> Vec<(String, String, String)> {
    let (frozen, changes) = (frozen_criteria(), changes());
    let known = |row: &str| {
        let first = frozen.iter().find(|one| one.row == row).map_or(String::new(), |one| one.print.clone());
        let of_row = changes.iter().filter(|change| change.row == row);
        of_row.fold(
            first,
            |now, change| if change.from == now { change.to.clone() } else { format!("not {now}") },
        )
    };
    let today = criteria().into_iter().map(|one| (known(&one.row), one));
    today.filter(|(known, one)| *known != one.print).map(|(known, one)| (one.row, known, one.print)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of the frozen tables themselves.
    const TABLES: [&str; 2] = ["ab93acbad4cd2fb6", "4486b958e6f83310"];

    #[test]
    fn the_frozen_table_is_as_it_was() {
        assert_eq!(FROZEN.map(fingerprint), TABLES, "criteria are frozen: changes go into data/changes.csv");
        let frozen = frozen_criteria();
        let data = dataset();
        for one in &frozen {
            let row = data.iter().find(|row| row.id == one.row).expect("a row of the dataset");
            assert_eq!(one.quote, row.quote, "{}", one.row);
        }
        assert_eq!(frozen.len(), criteria().len());
    }

    #[test]
    fn whatever_has_changed_since_is_in_the_log() {
        let wanting: Vec<_> = unexplained();
        assert!(wanting.is_empty(), "without an entry in data/changes.csv (row, from, to): {wanting:#?}");
        for change in changes() {
            let said = [&change.before, &change.after, &change.why];
            assert!(
                said.iter().all(|text| text.len() > 3) && change.before != change.after,
                "{}",
                change.row
            );
        }
    }

    #[test]
    fn a_hash_is_fnv() {
        assert_eq!(fingerprint(""), "cbf29ce484222325");
        assert_eq!(fingerprint("foobar"), "85944171f73967e8");
    }
}
