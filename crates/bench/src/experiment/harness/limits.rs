//! Bounds of numbers from the other side. A server gets them from a client that may be hostile, and a client from
//! such a server: they are checked against this table when they are read, so that a received value of
//! [`Settings`](crate::experiment::Settings), [`Round`](crate::experiment::Round) or
//! [`Cell`](crate::experiment::Cell) is within it.

use serde::de::{Deserialize, Deserializer, Error};

use super::fault::Fault;
use results::variant::Variant;

/// The largest message, in bytes.
pub const MAX_SIZE: u64 = 1 << 30;

/// A number, and the least and the most that it may be.
struct Limit {
    name: &'static str,
    low: u64,
    high: u64,
}

const fn limit(name: &'static str, low: u64, high: u64) -> Limit {
    Limit { name, low, high }
}

/// The table; the constants below are its rows.
const LIMITS: [Limit; 14] = [
    limit("window", 1, 4096),
    limit("burst", 0, 1 << 20),
    limit("signal", 1, 1024),
    limit("inline", 0, 4096),
    limit("connections", 1, 65_536),
    limit("patience", 10, 3_600_000),
    limit("size", 0, MAX_SIZE),
    limit("rank", 0, 4095),
    limit("lead_in", 0, 64),
    limit("samples", 0, 1 << 18),
    limit("batch", 0, 1 << 20),
    // An hour, in picoseconds: far more than a message of 1 GiB takes.
    limit("computing", 0, 3600 * 1_000_000_000_000),
    limit("iterations", 0, 1024),
    limit("mops", 0, 1_000_000),
];

pub(crate) const WINDOW: usize = 0;
pub(crate) const BURST: usize = 1;
pub(crate) const SIGNAL: usize = 2;
pub(crate) const INLINE: usize = 3;
pub(crate) const CONNECTIONS: usize = 4;
pub(crate) const PATIENCE: usize = 5;
pub(crate) const SIZE: usize = 6;
pub(crate) const RANK: usize = 7;
pub(crate) const LEAD_IN: usize = 8;
pub(crate) const SAMPLES: usize = 9;
pub(crate) const BATCH: usize = 10;
pub(crate) const COMPUTING: usize = 11;
pub(crate) const ITERATIONS: usize = 12;
pub(crate) const MOPS: usize = 13;

/// Maximum factors of a cell, and bytes of a word in one.
const FACTORS_MAX: usize = 16;
const WORD_MAX: usize = 64;

/// Refuses values outside a row of the table.
///
/// # Errors
/// [`Fault::Meaningless`] with the allowed range.
pub(crate) fn check(row: usize, value: u64) -> Result<u64, Fault> {
    let Limit { name, low, high } = LIMITS[row];
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(Fault::Meaningless(format!("{name} = {value}, which is not in {low}..{high}")))
    }
}

/// Reads a number bounded by a row of the table.
///
/// # Errors
/// Not a number, or outside the bounds of the row.
pub(crate) fn within<'de, const ROW: usize, T, D>(input: D) -> Result<T, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let value = check(ROW, u64::deserialize(input)?).map_err(Error::custom)?;
    T::try_from(value).map_err(|_| Error::custom(format!("{value} has too many bits")))
}

/// Reads a word: a name, or the level of a factor.
///
/// # Errors
/// Not a text, or longer than the longest word.
pub(crate) fn word<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let word = String::deserialize(input)?;
    if word.len() <= WORD_MAX { Ok(word) } else { Err(Error::custom("a word is too long")) }
}

/// Reads the factors of a cell.
///
/// # Errors
/// Too many factors, or words that are too long.
pub(crate) fn factors<'de, D: Deserializer<'de>>(input: D) -> Result<Variant, D::Error> {
    let factors = Variant::deserialize(input)?;
    let long = factors.iter().flat_map(|(key, level)| [key, level]).any(|word| word.len() > WORD_MAX);
    if long || factors.iter().count() > FACTORS_MAX {
        return Err(Error::custom("a cell has too many factors, or too long ones"));
    }
    Ok(factors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Cell, Round, Settings, Word};

    /// Goal: every number of every message is bounded. Method: each number of each message in turn is set beyond all
    /// bounds, and just beyond its own.
    #[test]
    fn every_number_of_every_message_is_held_to_the_table() {
        let round = Round { lead_in: 1, samples: 1, batch: 1 };
        let cell = Cell { experiment: "latency".into(), size: 8, ..Cell::default() };
        let begin = Word::Begin { cell, rank: 1 };
        for (text, rows) in [
            (
                serde_json::to_value(Settings::default()),
                [WINDOW, BURST, SIGNAL, INLINE, CONNECTIONS].as_slice(),
            ),
            (serde_json::to_value(round), &[LEAD_IN, SAMPLES, BATCH]),
            (serde_json::to_value(&begin), &[SIZE, RANK]),
        ] {
            let value = text.expect("JSON");
            for row in rows {
                let Limit { name, low, high } = LIMITS[*row];
                for (wrong, right) in [(high + 1, high), (1 << 62, high), (u64::MAX, low)] {
                    assert!(read(&value, name, right).is_ok(), "{name} = {right}");
                    let why = read(&value, name, wrong).expect_err(name);
                    assert!(why.contains(&format!("{name} = {wrong}")), "{why}");
                }
            }
        }
    }

    /// Reads the message that `value` is, with another number.
    fn read(value: &serde_json::Value, name: &str, number: u64) -> Result<(), String> {
        let mut text = value.clone();
        let place = if name == "size" { &mut text["cell"][name] } else { &mut text[name] };
        assert!(place.is_number(), "{name}");
        *place = number.into();
        let read = if text.get("say").is_some() {
            serde_json::from_value::<Word>(text).map(drop)
        } else if text.get("batch").is_some() {
            serde_json::from_value::<Round>(text).map(drop)
        } else {
            serde_json::from_value::<Settings>(text).map(drop)
        };
        read.map_err(|why| why.to_string())
    }

    #[test]
    fn words_and_factors_have_an_end() {
        let cell = |experiment: &str, level: &str, factors: usize| {
            let variant = (0..factors).map(|n| (n.to_string(), level.to_owned())).collect();
            let cell = Cell { experiment: experiment.to_owned(), variant, ..Cell::default() };
            serde_json::from_str::<Cell>(&serde_json::to_string(&cell).expect("JSON"))
        };
        assert!(cell("latency", "host", 3).is_ok());
        let long = "x".repeat(WORD_MAX + 1);
        assert!(cell(&long, "host", 1).is_err() && cell("latency", &long, 1).is_err());
        assert!(cell("latency", "host", FACTORS_MAX + 1).is_err());
    }
}
