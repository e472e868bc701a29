//! [`Field`]: a field that gets false values, and their results.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// A field that gets false values, and their results.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Field {
    /// Whether the owner copies (service), or the kernel does.
    pub(super) service: bool,
    pub(super) name: String,
    /// Whether the field is in the victim's segment.
    pub(super) of_peer: bool,
    /// The number of its words.
    pub(super) places: usize,
    /// Whether it exists with an own receive queue, and with a shared one.
    pub(super) shared: [bool; 2],
    pub(super) tried: u64,
    /// False values after which all of the victim's requests succeeded.
    pub(super) succeeded: u64,
    /// False values after which a request of the victim failed.
    pub(super) error: u64,
    /// False values with which no connection was established.
    pub(super) refused: u64,
    /// False values at which the injector died or fell silent.
    pub(super) silent: u64,
    /// False values that did forbidden damage.
    pub(super) bad: u64,
    /// Injections that differ from all earlier ones in place or value.
    pub(super) distinct: u64,
    #[serde(skip)]
    pub(super) said: HashSet<String>,
}

impl Field {
    /// Its name, and whether it is the victim's.
    pub(super) fn title(&self) -> String {
        format!("{}{}", if self.of_peer { "the victim's " } else { "" }, self.name)
    }
}
