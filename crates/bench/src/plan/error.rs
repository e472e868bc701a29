//! [`PlanError`]: what is wrong with a plan.

use super::words::DEFAULT_PORT;
use crate::experiment::{Cell, MAX_SIZE};

/// What is wrong with a plan: one line each, saying what exists instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No such experiment.
    #[error("there is no experiment '{name}'{hint}; there are: {known}")]
    Experiment {
        /// As given.
        name: String,
        /// `, did you mean ...?`
        hint: String,
        /// All names.
        known: String,
    },
    /// No such device, or no such option of it.
    #[error("{why}{hint}")]
    Device {
        /// As it is opened, with its options.
        name: String,
        /// What is wrong, and what there is.
        why: String,
        /// `, did you mean ...?`
        hint: String,
    },
    /// No such parameter.
    #[error("there is no parameter '{name}'{hint}; --set takes: {known}")]
    Key {
        /// As given.
        name: String,
        /// `, did you mean ...?`
        hint: String,
        /// All names.
        known: String,
    },
    /// A parameter does not take that value.
    #[error("{key} cannot be '{value}'; it takes {range}")]
    Value {
        /// Key.
        key: String,
        /// As given.
        value: String,
        /// What it takes.
        range: String,
    },
    /// Levels that no variant has.
    #[error("no variant has {asked}{hint}; {known}")]
    Only {
        /// Factors with their levels.
        asked: String,
        /// `, did you mean ...?`
        hint: String,
        /// What there is.
        known: String,
    },
    /// A size that no message has.
    #[error("a message cannot have {size} bytes; sizes go from 1 to {MAX_SIZE} (1 GiB)")]
    Size {
        /// As given.
        size: u64,
    },
    /// More than a plan may have.
    #[error("{count} {what} are too many, {most} is the most of a plan; measure them in several")]
    TooMany {
        /// Of what, in the plural.
        what: &'static str,
        /// As given.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// A device that is given twice.
    #[error("device '{name}' was given twice; give each once")]
    Twice {
        /// As given.
        name: String,
    },
    /// No sizes at all.
    #[error("no sizes were given; leave --size away for the usual ones")]
    NoSizes,
    /// A peer for a device that has no other side.
    #[error("a modelled card simulates both sides here; leave --peer away")]
    VirtualPeer,
    /// More than this machine has.
    #[error("{why}")]
    Machine {
        /// What was asked for.
        cell: Box<Cell>,
        /// What is needed, what there is, how to have more.
        why: String,
    },
    /// A peer that is given twice.
    #[error(
        "peer '{peer}' was given twice; give each once: several processes of one host are servers at ports of their own"
    )]
    PeerTwice {
        /// As given.
        peer: String,
    },
    /// Fewer peers than processes take part.
    #[error("{experiment}{} needs {needed} with --peer, and there {}; {remedy}", with(.asked), are(*.there))]
    Peers {
        /// The experiment.
        experiment: &'static str,
        /// The factor and its level, if they were asked for.
        asked: Option<(&'static str, String)>,
        /// Peers that it needs, in words.
        needed: String,
        /// Peers that were given.
        there: usize,
        /// What to do.
        remedy: String,
    },
    /// An experiment that a device has not got.
    #[error("{why}; leave {experiment} away, or take a device that can")]
    Impossible {
        /// The experiment.
        experiment: &'static str,
        /// What each device says.
        why: String,
    },
    /// What no MPI library has.
    #[error(
        "--against measures MPI, and {experiment} is no MPI experiment; name mpi-latency, or another one that begins with mpi-"
    )]
    Against {
        /// The experiment.
        experiment: &'static str,
    },
    /// A library for a device that no program can use.
    #[error(
        "no program of another MPI library runs on the modelled card {device}; take --device shm or iwarp"
    )]
    AgainstVirtual {
        /// Its name.
        device: String,
    },
    /// What moves nothing that could be reported over time.
    #[error(
        "--interval reports rates over time, and {experiment} has none; name bandwidth, bibw, rate or mpi-bandwidth"
    )]
    Interval {
        /// The experiment.
        experiment: &'static str,
    },
    /// Rates over time where time is simulated.
    #[error(
        "--interval reports rates over time, and time on {device} is simulated; take --device shm or iwarp"
    )]
    IntervalVirtual {
        /// The device.
        device: String,
    },
    /// Not an address.
    #[error("there is no peer '{peer}'; give --peer as HOST or HOST:PORT, such as 10.0.0.2:{DEFAULT_PORT}")]
    Peer {
        /// As given.
        peer: String,
    },
}

/// ` with slaves 5`.
fn with(asked: &Option<(&'static str, String)>) -> String {
    asked.as_ref().map_or_else(String::new, |(factor, level)| format!(" with {factor} {level}"))
}

/// How many there are, in words.
fn are(peers: usize) -> String {
    if peers == 1 { "is 1".to_owned() } else { format!("are {peers}") }
}
