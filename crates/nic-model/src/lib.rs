//! Modelled cards: NICs in virtual time, each a graph of contended resources, behind the device API.
//!
//! A [`Machine`] describes a card: bus, DMA engine, NIC memory, transport engine, translation cache and
//! links, each time and size with a value and a source. Packets pass through these resources in sequence,
//! contend for them, and carry real data. Programs only use `verbs`; they run as ranks of a
//! [`host::world::World`].
//!
//! | module | contents |
//! |---|---|
//! | `machine` | machine files: the table of values, parsing, errors |
//! | `parts` | the components of a card, with their times |
//! | `net` | the simulation: events of queue pairs, packets, connections |
//! | `api` | the traits of `verbs::provider` on top of it |
//! | `seastar` | a different kind of card: it runs firmware, and routes packets through a mesh |
//! | `stream` | a TCP connection, for protocols on top of TCP |
//! | `config` | options of a card before it is opened |
//! | `limits` | limits that machine files do not set |
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

use api::{DeviceObject, OpenedDevice, attr_of};

pub use config::{Config, OPTIONS, Payload};
pub use machine::{Family, Machine, MachineError, MachineErrorKind, Parameter, Source, Value, machines};
use net::Net;
use parts::calls::CallCosts;
use parts::interrupt::Interrupt;
use parts::kernel::Sockets;
pub use seastar::{COMPONENTS, Profile, interrupted, profile};

/// Opens the card of a simulated machine. Opening it again on that machine, also by another rank, returns the
/// same card; cards of one world that are opened with equal values can reach each other.
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
    let calls = CallCosts::new(&machine.params);
    if is_first(node) {
        node.set_costs(calls.processor());
    }
    let net = Net::of_node(node, machine, config.payload);
    let ports = machine.params.link.port_count as usize;
    let (number, port) = config.rail.map_or((0, None), |rail| (rail / ports, Some(rail % ports)));
    let (context, card) = net.lock().open(node, number, port);
    let opened = OpenedDevice {
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

/// Whether this is the first card opened on a machine: its file determines the machine's processor.
fn is_first(node: &Node) -> bool {
    let known = node
        .timeline()
        .shared_object("machines with a card", || Arc::new(Mutex::<BTreeSet<usize>>::default()));
    known.lock().unwrap_or_else(PoisonError::into_inner).insert(node.index())
}
