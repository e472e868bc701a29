//! Modelled cards: NICs in virtual time, each a graph of contended resources, behind the device API.
//!
//! A card is what a [`Machine`] says: bus, DMA engine, NIC memory, transport engine, translation cache, links, with a
//! value and a source for each of their times and sizes. Packets take these one after the other, wait for each other, and
//! carry real data. Programs see `verbs` and nothing else; they run as ranks of a [`host::world::World`].
//!
//! | module | what it holds |
//! |---|---|
//! | `machine` | machine files: the table of values, reading, errors |
//! | `parts` | the parts of a card, each with its times |
//! | `net` | what happens between them: events of queue pairs, packets, connections |
//! | `api` | the traits of `verbs::provider` over it |
//! | `stream` | a TCP connection, for what is spoken over one |
//! | `limits` | what machine files do not set |
#![forbid(unsafe_code)]

mod api;
mod limits;
pub mod machine;
mod net;
mod parts;
pub mod stream;

use std::sync::Arc;

use host::Host;
use verbs::{Device, Error, Result};

use api::{DeviceObject, Opened, attr_of};

pub use machine::{Machine, MachineError, Parameter, Source, Value, Wrong, machines};
use net::Net;
use parts::calls::Calls;
use parts::interrupt::Interrupt;

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
}

/// Opens the card of the simulated machine that `host` is. Opened again there, also by other ranks, it is the same card;
/// cards of one world that are opened with the same values reach each other.
///
/// # Errors
/// [`Error::Invalid`] on a host of real time.
pub fn open(host: &Host, config: &Config) -> Result<Device> {
    let Some(node) = host.node() else {
        return Err(Error::Invalid(format!(
            "{} is a model and runs in virtual time only; this host's time is real",
            config.name
        )));
    };
    let machine = &config.machine;
    let calls = Calls::new(&machine.params);
    node.set_costs(calls.processor());
    let net = Net::of(node, machine, config.payload);
    let ports = machine.params.link.port_count as usize;
    let (number, port) = config.rail.map_or((0, None), |rail| (rail / ports, Some(rail % ports)));
    let (context, card) = net.lock().open(node, number, port);
    let opened = Opened {
        name: config.name.clone(),
        host: host.clone(),
        node: node.clone(),
        net,
        context,
        card,
        port,
        calls,
        wake_up: Interrupt::new(&machine.params).wake_up,
        attr: attr_of(machine, node.index(), config.rail, config.payload),
    };
    Ok(Device::new(Arc::new(DeviceObject(Arc::new(opened)))))
}
