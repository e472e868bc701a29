//! [`Config`]: a card before it is opened, and its textual options.

use crate::machine::{Machine, MachineError, MachineErrorKind};

/// Which bytes are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// All bytes.
    #[default]
    Bytes,
    /// Only the first and the last 64 bytes of each message, for runs in which copying everything would cost
    /// too much memory bandwidth. Times are the same.
    Hole,
}

/// The syntax of each option with its meaning; [`Config::new`] parses them.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "SECTION.KEY=VALUE",
        "overrides a value of the machine file, as bus.clock_mhz=266 or faults.loss_ppm=100",
    ),
    ("payload=bytes|hole", "hole: only the ends of messages are copied, for very large runs (bytes)"),
];

/// A modelled card, before it is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The name that opens it, for error messages.
    pub name: String,
    /// Its components.
    pub machine: Machine,
    /// The rail of the machine: one port of one of its cards, counted from the first port of the first card.
    /// `None`: all ports of the first card.
    pub rail: Option<usize>,
    /// Which bytes are copied.
    pub payload: Payload,
}

impl Config {
    /// The machine with this name or file, optionally with a rail (`connectx-multihca@1`), and with options:
    /// `payload=bytes|hole`, and values as `section.key=value`: a number, `true` or `false`, or a name.
    ///
    /// # Errors
    /// [`MachineError`] for options that are unknown, missing or out of range.
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
                    return Err(MachineErrorKind::Payload.located_at(format!("option {key}={value}")));
                }
                _ => config.machine.set(key, value)?,
            }
        }
        let rails = config.machine.rails();
        if rail.is_some_and(|rail| rail >= rails) {
            return Err(MachineErrorKind::Rail(rails).located_at(format!("machine '{machine}'")));
        }
        if !options.is_empty() {
            let list: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
            config.name = format!("{}({})", config.name, list.join(","));
        }
        Ok(config)
    }

    /// A device's notes on the sources of its values, and on its payload setting.
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
            notes.push("payload=hole: only the first and last 64 bytes of a message are copied".to_owned());
        }
        notes
    }
}
