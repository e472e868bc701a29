//! [`Field`]: a field to be lied about, and what became of it.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// A field to be lied about, and what became of it.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Field {
    /// Whether the owner copies, or the kernel.
    pub(super) service: bool,
    pub(super) name: String,
    /// Whether it is the victim's.
    pub(super) of_peer: bool,
    /// Words that it has.
    pub(super) places: usize,
    /// Whether it is there with a shared receive queue, and with an own one.
    pub(super) shared: [bool; 2],
    pub(super) tried: u64,
    /// Lies after which everything that the victim had asked for succeeded.
    pub(super) went_on: u64,
    /// Lies after which some of it ended in an error.
    pub(super) error: u64,
    /// Lies with which there was no connection.
    pub(super) refused: u64,
    /// Lies at which the liar died or fell silent.
    pub(super) silent: u64,
    /// Lies that reached what they must not.
    pub(super) bad: u64,
    /// Lies that were not told before: of another place or value.
    pub(super) distinct: u64,
    #[serde(skip)]
    pub(super) said: HashSet<String>,
}

impl Field {
    /// Its name, and whose it is.
    pub(super) fn title(&self) -> String {
        format!("{}{}", if self.of_peer { "the victim's " } else { "" }, self.name)
    }
}
