//! Machine files: the components of a card and its host in numbers, and the source of each number.
//!
//! A machine file is TOML with a section for each component. Each key ends in its unit, in `flag` (true or
//! false) or in `kind` (a name), and each value has a source: `clock_mhz = { value = 133, source =
//! "published", rows = ["NM-003"] }`. `keys.rs` has the table of keys, `parse.rs` parses files, `error.rs`
//! describes errors in them, and `source.rs` and `values.rs` hold the results.

use std::sync::OnceLock;

use host::bounded;

mod error;
mod keys;
mod parse;
mod source;
mod values;

pub use error::{MachineError, MachineErrorKind};
pub use keys::{
    Api, Bus, Chipset, Completion, Connection, Descriptor, Dma, Domain, Doorbell, Family, Faults, Firmware,
    FlowKind, Host, HyperTransport, Interrupt, KEYS, Kernel, Key, Link, MatchKind, Mode, NicMemory, Params,
    Processor, ProcessorsKind, Router, Software, Switch, Translation, Transport, Value, WriteImmKind,
};
pub use source::Source;
pub use values::{Machine, Parameter};

/// Maximum bytes of a machine file.
const FILE_MAX: u64 = 1 << 20;

/// The built-in machines: name and file.
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

/// The built-in machines.
///
/// # Panics
/// Never: a test parses each file.
#[must_use]
pub fn machines() -> Vec<Machine> {
    (0..BUILT_IN.len()).map(built_in).collect()
}

/// A built-in machine. It is parsed once: each of ten thousand ranks has one.
fn built_in(at: usize) -> Machine {
    static READ: [OnceLock<Machine>; BUILT_IN.len()] = [const { OnceLock::new() }; BUILT_IN.len()];
    let (name, text) = BUILT_IN[at];
    let read =
        || parse::parse(&format!("machines/{name}.toml"), text).expect("a test parses the built-in machines");
    READ[at].get_or_init(read).clone()
}

impl Machine {
    /// Parses the text of a machine file; `name` appears in errors.
    ///
    /// # Errors
    /// [`MachineError`] for keys that are missing or unknown, and for wrong units and values out of range.
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
            return Err(MachineErrorKind::Machine { near, known }.located_at(format!("machine '{name}'")));
        }
        let text = bounded::read_text(name, FILE_MAX)
            .map_err(|e| MachineErrorKind::Unreadable(e.to_string()).located_at(name))?;
        parse::parse(name, &text)
    }
}

#[cfg(test)]
mod tests;
