//! [`Ended`] and [`Failure`]: the outcome of a world.

use std::fmt;

use crate::Time;

/// The outcome of a world in which every rank returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When the last rank ended.
    pub time: Time,
    /// Number of events handled.
    pub events: u64,
    /// A hash of all events in their order: equal for equal runs.
    pub trace: u64,
}

/// Why a world failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// No event is left, and ranks still wait.
    Stuck {
        /// The time of the last event.
        time: Time,
        /// Each waiting rank, with the call it waits in and since when.
        waiting: Vec<Waiting>,
    },
    /// A rank panicked.
    Panicked {
        /// The name of the rank.
        rank: String,
        /// The panic message.
        message: String,
    },
    /// The world handled [`Config::max_events`](super::Config::max_events) events.
    Endless {
        /// The time of the last event.
        time: Time,
        /// Each rank that had not ended.
        waiting: Vec<Waiting>,
    },
    /// A rank could not be created: too little memory, or too many mappings.
    NoRank {
        /// Number of existing ranks.
        ranks: usize,
        /// The reason, and what to do.
        why: String,
    },
}

/// A waiting rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The name of the rank.
    pub rank: String,
    /// The call it waits in.
    pub call: &'static str,
    /// When the wait began.
    pub since: Time,
}

/// Maximum number of waiting ranks that a message lists.
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
                write!(f, "deadlock at {}: no event is left, and these ranks wait:", time.since(Time::ZERO))?;
                list(f, waiting)
            }
            Self::Endless { time, waiting } => {
                write!(f, "too many events at {}; these ranks have not ended:", time.since(Time::ZERO))?;
                list(f, waiting)
            }
            Self::Panicked { rank, message } => write!(f, "{rank} panicked: {message}"),
            Self::NoRank { ranks, why } => write!(f, "no rank number {}: {why}", ranks + 1),
        }
    }
}

impl std::error::Error for Failure {}
