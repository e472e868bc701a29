//! [`Ended`] and [`Failure`]: what became of a world.

use std::fmt;

use crate::Time;

/// How a world ended in which every rank came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When the last rank ended.
    pub time: Time,
    /// Events that were handled.
    pub events: u64,
    /// A hash of all events in their order: equal for equal runs.
    pub trace: u64,
}

/// Why a world did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing can happen any more, and ranks still wait.
    Stuck {
        /// When.
        time: Time,
        /// Each waiting rank, with the call it waits in and since when.
        waiting: Vec<Waiting>,
    },
    /// A rank panicked.
    Panicked {
        /// Its name.
        rank: String,
        /// What it said.
        message: String,
    },
    /// It handled [`Config::max_events`](super::Config::max_events) events.
    Endless {
        /// When.
        time: Time,
        /// Each rank that had not ended.
        waiting: Vec<Waiting>,
    },
    /// Another rank cannot be had: too little memory, or too many mappings.
    NoRank {
        /// How many there are.
        ranks: usize,
        /// Why, and what to do.
        why: String,
    },
}

/// A rank that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub rank: String,
    /// The call that it waits in.
    pub call: &'static str,
    /// Since when.
    pub since: Time,
}

/// Waiting ranks that a message names.
const NAMED: usize = 16;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, waiting: &[Waiting]| {
            for w in waiting.iter().take(NAMED) {
                write!(f, "\n  {} in {} since {}", w.rank, w.call, w.since.since(Time::ZERO))?;
            }
            let more = waiting.len().saturating_sub(NAMED);
            if more > 0 { write!(f, "\n  and {more} more") } else { Ok(()) }
        };
        match self {
            Self::Stuck { time, waiting } => {
                write!(
                    f,
                    "deadlock at {}: nothing can happen any more, and these wait:",
                    time.since(Time::ZERO)
                )?;
                list(f, waiting)
            }
            Self::Endless { time, waiting } => {
                write!(f, "no end in sight at {}; these have not ended:", time.since(Time::ZERO))?;
                list(f, waiting)
            }
            Self::Panicked { rank, message } => write!(f, "{rank} panicked: {message}"),
            Self::NoRank { ranks, why } => write!(f, "no rank number {}: {why}", ranks + 1),
        }
    }
}

impl std::error::Error for Failure {}
