//! Why some or all numbers cannot be computed.

use bench::experiment::Cell;

/// Why a quantity has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoValue {
    /// Its measurement failed, with this error text.
    #[error("{0}")]
    Failed(String),
    /// It was not measured.
    #[error("{0} was not measured")]
    NotMeasured(Box<Cell>),
    /// It is a value of a machine file, and the device has none.
    #[error("{0} has no machine file")]
    NoMachine(String),
    /// The machine file does not contain it.
    #[error("the machine file of {card} has no {key}")]
    NoKey {
        /// The device's name.
        card: String,
        /// The missing key.
        key: String,
    },
    /// It is infinite, or no number.
    #[error("a division by zero")]
    NotFinite,
}

/// Mistakes in a card that rows are computed on.
#[derive(Debug, thiserror::Error)]
pub enum BadCard {
    /// Its machine file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] verbs::Error),
    /// A value of it does not exist, or cannot be changed so.
    #[error(transparent)]
    Value(#[from] fabric::MachineError),
}
