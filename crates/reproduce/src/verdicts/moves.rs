//! Which values of the machines move which rows: the stored table `data/moves.csv`, made by [`super::sensitivity`].
//!
//! A line is a changed value, its new setting, and each row in which a number moved by 2 % or more: with the factor
//! of its ratio to the paper, or whether it then holds. A value with an assumed source was changed to either end of
//! its range, any other by a tenth either way. [`Shaken`] says which claims move at all.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The stored table, as the program carries it.
const DATA: &str = include_str!("../../data/moves.csv");
/// The table of claims that move if all values of a card change together: a card and its rows in a line.
const SHAKEN: &str = include_str!("../../data/shaken.csv");
/// Effects that differ by less are the same.
const SAME: f64 = 0.005;

/// The effect on a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Its ratio to the paper is multiplied by this.
    Factor(f64),
    /// It is a claim, and holds or does not.
    Holds(bool),
}

/// The effects of one change of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The device's name.
    pub card: String,
    /// The value's key.
    pub key: String,
    /// The new value.
    pub to: f64,
    /// Whether that is an end of an assumed value's range.
    pub assumed: bool,
    /// Rows that moved by 2 % or more, by id.
    pub rows: Vec<(String, Effect)>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct CsvLine {
    card: String,
    key: String,
    to: f64,
    assumed: bool,
    rows: String,
}

/// All moves of the table.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<Move>);

impl Moves {
    /// The stored table.
    ///
    /// # Panics
    /// Never: a test reads the table, which is part of the program.
    #[must_use]
    pub fn stored() -> Self {
        let mut reader = csv::Reader::from_reader(DATA.as_bytes());
        let lines = reader.deserialize::<CsvLine>();
        Self(lines.map(|line| Move::from_line(line.expect("the built-in table is valid"))).collect())
    }

    /// A table with these moves.
    #[cfg(test)]
    pub(crate) fn new(all: Vec<Move>) -> Self {
        Self(all)
    }

    /// Whether a card's values were tried.
    pub(crate) fn has_card(&self, card: &str) -> bool {
        self.0.iter().any(|one| one.card == card)
    }

    /// All changes that moved something, card by card.
    pub fn iter(&self) -> impl Iterator<Item = &Move> {
        self.0.iter()
    }

    /// The values that move a row: card and key.
    pub(crate) fn movers(&self, row: &str) -> BTreeSet<(&str, &str)> {
        let moving = self.0.iter().filter(|one| one.effect(row).is_some());
        moving.map(|one| (one.card.as_str(), one.key.as_str())).collect()
    }

    /// Whether whatever is changed moves two rows alike, and something does.
    pub(crate) fn are_alike(&self, a: &str, b: &str) -> bool {
        let alike = |one: &Move| match (one.effect(a), one.effect(b)) {
            (Some(Effect::Factor(a)), Some(Effect::Factor(b))) => (a - b).abs() <= SAME,
            (a, b) => a == b,
        };
        !self.movers(a).is_empty() && self.0.iter().all(alike)
    }
}

/// Claims that compare a number that moves by 2 % or more if all values of their cards change together.
#[derive(Clone, Debug, Default)]
pub struct Shaken(BTreeMap<String, BTreeSet<String>>);

/// A line of the file of [`Shaken`].
#[derive(Debug, Serialize, Deserialize)]
struct ShakenLine {
    card: String,
    rows: String,
}

impl Shaken {
    /// The stored table.
    ///
    /// # Panics
    /// Never: a test reads the table, which is part of the program.
    #[must_use]
    pub fn stored() -> Self {
        let mut reader = csv::Reader::from_reader(SHAKEN.as_bytes());
        let lines = reader.deserialize::<ShakenLine>().map(|line| line.expect("the built-in table is valid"));
        Self(
            lines
                .map(|line| (line.card, line.rows.split_whitespace().map(str::to_owned).collect()))
                .collect(),
        )
    }

    /// A table of cards and their rows.
    pub(crate) fn from_groups<'a>(groups: impl Iterator<Item = (&'a str, Vec<&'a str>)>) -> Self {
        let owned = |(card, rows): (&str, Vec<&str>)| {
            (card.to_owned(), rows.into_iter().map(str::to_owned).collect::<BTreeSet<_>>())
        };
        Self(groups.map(owned).collect())
    }

    /// Whether a card's values were changed.
    pub(crate) fn has_card(&self, card: &str) -> bool {
        self.0.contains_key(card)
    }

    /// Whether a row moved with any card.
    pub(crate) fn moves(&self, row: &str) -> bool {
        self.0.values().any(|rows| rows.contains(row))
    }

    /// The format of the file.
    ///
    /// # Errors
    /// That of the writer.
    pub fn write<W: std::io::Write>(&self, out: &mut csv::Writer<W>) -> csv::Result<()> {
        let line = |(card, rows): (&String, &BTreeSet<String>)| ShakenLine {
            card: card.clone(),
            rows: rows.iter().map(String::as_str).collect::<Vec<_>>().join(" "),
        };
        self.0.iter().map(line).try_for_each(|line| out.serialize(line))
    }
}

impl Move {
    /// The effect on a row, if it moved.
    pub(crate) fn effect(&self, row: &str) -> Option<Effect> {
        self.rows.iter().find(|(id, _)| id == row).map(|(_, effect)| *effect)
    }

    /// From a line of the stored table.
    fn from_line(line: CsvLine) -> Self {
        let effect = |word: &str| {
            let (row, effect) = word.split_once('=')?;
            let effect = match effect {
                "yes" => Effect::Holds(true),
                "no" => Effect::Holds(false),
                factor => Effect::Factor(factor.parse().ok()?),
            };
            Some((row.to_owned(), effect))
        };
        let rows = line.rows.split_whitespace().filter_map(effect).collect();
        Self { card: line.card, key: line.key, to: line.to, assumed: line.assumed, rows }
    }

    /// The format of the file.
    ///
    /// # Errors
    /// That of the writer.
    pub fn write<W: std::io::Write>(&self, out: &mut csv::Writer<W>) -> csv::Result<()> {
        let word = |(row, effect): &(String, Effect)| match effect {
            Effect::Factor(factor) => format!("{row}={factor:.4}"),
            Effect::Holds(true) => format!("{row}=yes"),
            Effect::Holds(false) => format!("{row}=no"),
        };
        let rows = self.rows.iter().map(word).collect::<Vec<_>>().join(" ");
        let (card, key) = (self.card.clone(), self.key.clone());
        out.serialize(CsvLine { card, key, to: self.to, assumed: self.assumed, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up() -> Moves {
        let one = |key: &str, rows: &str| {
            let (card, key, rows) = ("c".to_owned(), key.to_owned(), rows.to_owned());
            Move::from_line(CsvLine { card, key, to: 1.0, assumed: false, rows })
        };
        Moves(vec![one("a.b", "NM-001=0.9 NM-002=0.901 NM-003=no"), one("a.c", "NM-001=1.2 NM-002=1.2")])
    }

    #[test]
    fn row_is_moved_by_values_that_change_it() {
        let moves = made_up();
        assert_eq!(moves.movers("NM-003"), BTreeSet::from([("c", "a.b")]));
        assert!(moves.are_alike("NM-001", "NM-002") && !moves.are_alike("NM-001", "NM-003"));
        assert!(!moves.are_alike("NM-004", "NM-005"), "nothing moves them");
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let mut out = csv::Writer::from_writer(Vec::new());
        made_up().iter().for_each(|one| one.write(&mut out).expect("a buffer"));
        let text = out.into_inner().expect("a buffer");
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let back: Vec<Move> =
            reader.deserialize().map(|line| Move::from_line(line.expect("a line"))).collect();
        assert_eq!(back, made_up().0);
    }

    #[test]
    fn the_stored_table_is_about_rows_and_values_that_there_are() {
        let data = crate::papers::published::dataset();
        for one in Moves::stored().iter() {
            let machine = fabric::machine(&one.card).expect("a card");
            assert!(machine.parameters().iter().any(|p| p.key.path() == one.key), "{}", one.key);
            assert!(one.rows.iter().all(|(id, _)| data.iter().any(|row| row.id == *id)), "{one:?}");
        }
    }
}
