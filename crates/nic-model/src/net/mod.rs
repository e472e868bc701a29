//! The network of one world: all cards, what is under way between them, and what happens when.
//!
//! [`Net`] is one actor of the world. Ranks post to it and look at it through the objects of `api`; everything else
//! happens in its events. What there is belongs to parts that own their fields and know nothing above them:
//!
//! | file | what it owns |
//! |---|---|
//! | `queue_pair` | a queue pair: its state, its connection, its two halves |
//! | `requester` | the sending half: requests, their packets, what is acknowledged, retries |
//! | `responder` | the receiving half: the order of packets, receives taken, what is owed to the peer |
//! | `receives` | receive queues, shared ones too |
//! | `completions` | completion queues and their channels |
//! | `connections` | connection managers: listeners, requests, messages |
//! | `protection` | memory regions, NIC memory, copies |
//! | `card` | a card: bus, engines, what waits for them, its number of objects |
//! | `scheduler` | which queue pair of a card sends next |
//! | `wires` | ports, cables, the switch |
//! | `packet`, `context`, `slab` | packets under way, opened devices, tables |
//! | `faults` | what goes wrong on purpose |
//! | `agenda`, `event` | events in the world's queue |
//!
//! `network` holds all of them. On each event, and each call from `api`, it asks one part after the other, and hands what one
//! returns to the next; `outbound` and `inbound` are the two halves of a packet's way. No part calls back.
//!
//! The lock is never held while a rank gives up control: [`host::world::Node::sync`] comes before it.

mod agenda;
mod card;
mod completions;
pub(crate) mod connections;
mod context;
mod event;
mod faults;
mod inbound;
mod network;
mod outbound;
mod packet;
pub(crate) mod protection;
pub(crate) mod queue_pair;
mod receives;
mod requester;
mod responder;
mod scheduler;
pub(crate) mod slab;
mod wires;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::Time;
use host::world::{Actor, Node, Timeline};

use crate::config::Payload;
use crate::machine::{Machine, Params};
use event::Event;
pub(crate) use network::Network;

/// All cards of one world that are of the same machine, and what connects them.
pub(crate) struct Net {
    params: Params,
    payload: Payload,
    network: Mutex<Network>,
    timeline: Timeline,
}

impl Net {
    /// The network that cards of this machine share in this node's world, if their values are the same and their data move in
    /// the same manner.
    pub(crate) fn of(node: &Node, machine: &Machine, payload: Payload) -> Arc<Self> {
        let (timeline, params) = (node.timeline(), machine.params);
        let nets = timeline.shared("modelled networks", || Arc::new(Nets::default()));
        let mut nets = nets.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = nets.iter().find(|net| net.params == params && net.payload == payload);
        if let Some(net) = known {
            return net.clone();
        }
        let network = Mutex::new(Network::new(&params, payload, timeline.clone()));
        let net = Arc::new(Self { params, payload, network, timeline: timeline.clone() });
        net.lock().begin(timeline.add_actor(net.clone()));
        nets.push(net.clone());
        net
    }

    /// The network; a rank that panicked inside has left nothing half done that others would see.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of whoever runs.
    pub(crate) fn now(&self) -> Time {
        self.timeline.now()
    }
}

/// All networks of a world.
#[derive(Default)]
struct Nets(Mutex<Vec<Arc<Net>>>);

impl Actor for Net {
    fn event(&self, now: Time, token: u64) {
        if let Some(event) = Event::of(token) {
            self.lock().event(now, event);
        }
    }
}
