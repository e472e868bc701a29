//! Machines: what a card and its host are made of, in numbers, and where each number comes from.
//!
//! A machine file is TOML with a section for each component. Every key ends in its unit, in `flag` (true or false) or in
//! `kind` (a name), and every value says where it comes from: `clock_mhz = { value = 133, source = "published", rows = ["NM-003"] }`. The table of keys is in `keys.rs`;
//! `parse.rs` reads files; `error.rs` says what is wrong with them; `source.rs` and `values.rs` hold what was read.

use std::sync::OnceLock;

use host::bounded;

mod error;
mod keys;
mod parse;
mod source;
mod values;

pub use error::{MachineError, Wrong};
pub use keys::{
    Api, Bus, Chipset, Completion, Connection, Descriptor, Dma, Domain, Doorbell, Family, Faults, Firmware,
    FlowKind, Host, HyperTransport, Interrupt, KEYS, Kernel, Key, Link, MatchKind, Mode, NicMemory, Params,
    Processor, ProcessorsKind, Router, Software, Switch, Translation, Transport, Value, WriteImmKind,
};
pub use source::Source;
pub use values::{Machine, Parameter};

/// Bytes of a machine file at most.
const FILE_MAX: u64 = 1 << 20;

/// The machines that come along: name and file.
const BUILT_IN: [(&str, &str); 12] = [
    ("mt23108-nicmem", include_str!("../../machines/mt23108-nicmem.toml")),
    ("mt23108-vapi", include_str!("../../machines/mt23108-vapi.toml")),
    ("mt23108-ibal", include_str!("../../machines/mt23108-ibal.toml")),
    ("myrinet-gm", include_str!("../../machines/myrinet-gm.toml")),
    ("quadrics-elan3", include_str!("../../machines/quadrics-elan3.toml")),
    ("t3b", include_str!("../../machines/t3b.toml")),
    ("t3b-sockets", include_str!("../../machines/t3b-sockets.toml")),
    ("t3b-memory", include_str!("../../machines/t3b-memory.toml")),
    ("connectx-single", include_str!("../../machines/connectx-single.toml")),
    ("connectx-multiport", include_str!("../../machines/connectx-multiport.toml")),
    ("connectx-multihca", include_str!("../../machines/connectx-multihca.toml")),
    ("seastar", include_str!("../../machines/seastar.toml")),
];

/// The machines that come along, with what each is.
///
/// # Panics
/// Never: a test reads each of them.
#[must_use]
pub fn machines() -> Vec<Machine> {
    (0..BUILT_IN.len()).map(built_in).collect()
}

/// One of the machines that come along. It is read once: each of ten thousand ranks has one.
fn built_in(at: usize) -> Machine {
    static READ: [OnceLock<Machine>; BUILT_IN.len()] = [const { OnceLock::new() }; BUILT_IN.len()];
    let (name, text) = BUILT_IN[at];
    let read = || {
        parse::parse(&format!("machines/{name}.toml"), text).expect("the machines that come along are tested")
    };
    READ[at].get_or_init(read).clone()
}

impl Machine {
    /// Reads a machine file's text; `name` stands in errors.
    ///
    /// # Errors
    /// [`MachineError`] for what is missing, unknown, of a wrong unit or beyond its range.
    pub fn parse(name: &str, text: &str) -> Result<Self, MachineError> {
        parse::parse(name, text)
    }

    /// The machine of this name, or of this file if the name ends in `.toml`.
    ///
    /// # Errors
    /// As [`Machine::parse`]; an unknown name, with those that exist; a file that cannot be read.
    pub fn load(name: &str) -> Result<Self, MachineError> {
        if let Some(at) = BUILT_IN.iter().position(|(built_in, _)| *built_in == name) {
            return Ok(built_in(at));
        }
        if !name.ends_with(".toml") {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let near = known.iter().find(|known| strsim::levenshtein(known, name) <= 3);
            let near = near.copied();
            return Err(Wrong::Machine { near, known }.at(format!("machine '{name}'")));
        }
        let text =
            bounded::read_text(name, FILE_MAX).map_err(|e| Wrong::Unreadable(e.to_string()).at(name))?;
        parse::parse(name, &text)
    }
}

#[cfg(test)]
mod tests;
