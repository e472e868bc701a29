//! [`Ended`] and [`Failure`]: the outcome of a world.

use std::fmt;

use crate::Time;

/// The outcome of a world in which every fiber returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When the last fiber ended.
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
    /// No event is left, and fibers still wait.
    Deadlock {
        /// The time of the last event.
        time: Time,
        /// Each waiting fiber, with the call it waits in and since when.
        waiting: Vec<Waiting>,
    },
    /// A fiber panicked.
    Panicked {
        /// The name of the fiber.
        fiber: String,
        /// The panic message.
        message: String,
    },
    /// The world handled [`Config::max_events`](super::Config::max_events) events.
    EventLimit {
        /// The time of the last event.
        time: Time,
        /// Each fiber that had not ended.
        waiting: Vec<Waiting>,
    },
    /// A fiber could not be created: too little memory, or too many mappings.
    NoFiber {
        /// Number of existing fibers.
        fibers: usize,
        /// The reason, and what to do.
        why: String,
    },
}

/// A waiting fiber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The name of the fiber.
    pub fiber: String,
    /// The call it waits in.
    pub call: &'static str,
    /// When the wait began.
    pub since: Time,
}

/// Maximum number of waiting fibers that a message lists.
const NAMED: usize = 16;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, waiting: &[Waiting]| {
            for w in waiting.iter().take(NAMED) {
                write!(f, "\n  {} in {} since {}", w.fiber, w.call, w.since.since(Time::ZERO))?;
            }
            let more = waiting.len().saturating_sub(NAMED);
            if more > 0 { write!(f, "\n  and {more} more") } else { Ok(()) }
        };
        match self {
            Self::Deadlock { time, waiting } => {
                write!(f, "deadlock at {}: no event is left, and these ranks wait:", time.since(Time::ZERO))?;
                list(f, waiting)
            }
            Self::EventLimit { time, waiting } => {
                write!(f, "too many events at {}; these ranks have not ended:", time.since(Time::ZERO))?;
                list(f, waiting)
            }
            Self::Panicked { fiber, message } => write!(f, "{fiber} panicked: {message}"),
            Self::NoFiber { fibers, why } => write!(f, "no rank number {}: {why}", fibers + 1),
        }
    }
}

impl std::error::Error for Failure {}
