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
//! | `seastar` | a card of another kind: it runs programs, and routes packets through a mesh |
//! | `stream` | a TCP connection, for what is spoken over one |
//! | `config` | a card before it is opened |
//! | `limits` | what machine files do not set |
#![forbid(unsafe_code)]

mod api;
mod config;
mod limits;
pub mod machine;
mod net;
mod parts;
mod seastar;
pub mod stream;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use host::Host;
use host::world::Node;
use verbs::{Device, Error, Result};

use api::{DeviceObject, Opened, attr_of};

pub use config::{Config, OPTIONS, Payload};
pub use machine::{Family, Machine, MachineError, Parameter, Source, Value, Wrong, machines};
use net::Net;
use parts::calls::Calls;
use parts::interrupt::Interrupt;
use parts::kernel::Sockets;
pub use seastar::{COMPONENTS, Profile, interrupted, profile};

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
    if machine.family == machine::Family::Mesh {
        return seastar::open(host, node, config);
    }
    let calls = Calls::new(&machine.params);
    if is_first(node) {
        node.set_costs(calls.processor());
    }
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
        sockets: Sockets::new(&machine.params, &calls),
        wake_up: Interrupt::new(&machine.params).wake_up,
        attr: attr_of(config, node.index()),
    };
    Ok(Device::new(Arc::new(DeviceObject(Arc::new(opened)))))
}

/// Whether nothing was opened on a machine before: its processor is what the first card's file says.
fn is_first(node: &Node) -> bool {
    let known =
        node.timeline().shared("machines with a card", || Arc::new(Mutex::<BTreeSet<usize>>::default()));
    known.lock().unwrap_or_else(PoisonError::into_inner).insert(node.index())
}
