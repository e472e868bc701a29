//! [`Config`]: a card before it is opened, and the options by which it is named.

use crate::machine::{Machine, MachineError, Wrong};

/// How data move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// All of them.
    #[default]
    Bytes,
    /// The first and the last 64 bytes of each message only, for runs with more data than there is memory traffic to
    /// spare. Times are the same.
    Hole,
}

/// The options of a card, as they are written, each with its meaning; [`Config::new`] reads them.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "SECTION.KEY=VALUE",
        "another value than the machine file's, as bus.clock_mhz=266 or faults.loss_ppm=100",
    ),
    ("payload=bytes|hole", "hole: only the ends of messages really move, for very large runs (bytes)"),
];

/// A modelled card, before it is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The name that opens it, for messages.
    pub name: String,
    /// What it is made of.
    pub machine: Machine,
    /// Which rail of the machine it is: a single port of one of its cards, those of the first card coming first. `None`: all
    /// ports of the first card.
    pub rail: Option<usize>,
    /// How data move.
    pub payload: Payload,
}

impl Config {
    /// The machine of this name or file, perhaps with a rail of it (`connectx-multihca@1`), with options:
    /// `payload=bytes|hole`, and values by `section.key=value`: a number, `true` or `false`, or a name.
    ///
    /// # Errors
    /// [`MachineError`] for what is unknown, missing or beyond its range.
    pub fn new(machine: &str, options: &[(&str, &str)]) -> Result<Self, MachineError> {
        let (file, rail) = match machine.rsplit_once('@') {
            Some((file, rail)) if !rail.is_empty() && rail.bytes().all(|b| b.is_ascii_digit()) => {
                (file, Some(rail.parse().unwrap_or(usize::MAX)))
            }
            _ => (machine, None),
        };
        let name = format!("model:{machine}");
        let mut config = Self { name, machine: Machine::load(file)?, rail, payload: Payload::Bytes };
        for &(key, value) in options {
            match (key, value) {
                ("payload", "bytes") => config.payload = Payload::Bytes,
                ("payload", "hole") => config.payload = Payload::Hole,
                ("payload", _) => {
                    return Err(Wrong::Payload.at(format!("option {key}={value}")));
                }
                _ => config.machine.set(key, value)?,
            }
        }
        let rails = config.machine.rails();
        if rail.is_some_and(|rail| rail >= rails) {
            return Err(Wrong::Rail(rails).at(format!("machine '{machine}'")));
        }
        if !options.is_empty() {
            let list: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
            config.name = format!("{}({})", config.name, list.join(","));
        }
        Ok(config)
    }

    /// What a device says of where its values come from, and of how it moves data.
    pub(crate) fn notes(&self) -> Vec<String> {
        let classes = self.machine.parameters().into_iter().map(|p| p.source.class());
        let count = |class: &str| classes.clone().filter(|other| *other == class).count();
        let mut notes = vec![format!(
            "of its values {} are published, {} derived or from data sheets, {} fitted, {} assumed, {} given",
            count("published"),
            count("derived") + count("datasheet"),
            count("fitted"),
            count("assumed"),
            count("given"),
        )];
        if self.payload == Payload::Hole {
            notes.push("payload=hole: only the first and last 64 bytes of a message really move".to_owned());
        }
        notes
    }
}
