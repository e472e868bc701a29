//! The network of one world: all cards, packets in flight, and scheduled events.
//!
//! [`Net`] is one event handler of the world. Ranks post to it and poll it through the objects of `api`;
//! everything else happens in its events. Its state is divided into modules that own their fields and do not
//! know the modules above them:
//!
//! | file | owns |
//! |---|---|
//! | `queue_pair` | a queue pair: its state, its connection, its two halves |
//! | `requester` | the sending half: requests, their packets, acknowledgements, retries |
//! | `responder` | the receiving half: packet order, receives taken, responses owed to the peer |
//! | `receives` | receive queues, including shared ones |
//! | `completions` | completion queues and their channels |
//! | `connections` | connection managers: listeners, requests, messages |
//! | `protection` | memory regions, NIC memory, copies |
//! | `card` | a card: bus, engines, their queues, object counts |
//! | `scheduler` | the order in which a card's queue pairs send |
//! | `ports` | ports, cables, the switch |
//! | `packet`, `context`, `slab` | packets in flight, opened devices, tables |
//! | `faults` | fault injection |
//! | `event_queue`, `event` | events in the world's queue |
//!
//! `network` holds all of them. For each event and each call from `api` it calls one module after the other,
//! and passes the result of one to the next; `outbound` and `inbound` are the two halves of a packet's path.
//! No module calls back.
//!
//! The lock is never held while a rank yields: [`host::world::Node::sync`] comes before it.

mod card;
mod completions;
pub(crate) mod connections;
mod context;
mod event;
mod event_queue;
mod faults;
mod inbound;
mod network;
mod outbound;
mod packet;
mod ports;
pub(crate) mod protection;
pub(crate) mod queue_pair;
mod receives;
mod requester;
mod responder;
mod scheduler;
pub(crate) mod slab;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::Time;
use host::world::{EventHandler, Node, Timeline};

use crate::config::Payload;
use crate::machine::{Machine, Params};
use event::Event;
pub(crate) use network::Network;

/// All cards of one machine file in a world, and the cables between them.
pub(crate) struct Net {
    params: Params,
    payload: Payload,
    network: Mutex<Network>,
    timeline: Timeline,
}

impl Net {
    /// The network shared by the cards of this machine in this node's world, if their values and payload
    /// settings are equal.
    pub(crate) fn of_node(node: &Node, machine: &Machine, payload: Payload) -> Arc<Self> {
        let (timeline, params) = (node.timeline(), machine.params);
        let nets = timeline.shared_object("modelled networks", || Arc::new(Networks::default()));
        let mut nets = nets.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = nets.iter().find(|net| net.params == params && net.payload == payload);
        if let Some(net) = known {
            return net.clone();
        }
        let network = Mutex::new(Network::new(&params, payload, timeline.clone()));
        let net = Arc::new(Self { params, payload, network, timeline: timeline.clone() });
        net.lock().set_handler(timeline.add_handler(net.clone()));
        nets.push(net.clone());
        net
    }

    /// Locks the network. A rank that panicked while it held the lock has left no half-changed state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of the running rank or event handler.
    pub(crate) fn now(&self) -> Time {
        self.timeline.now()
    }
}

/// All networks of a world.
#[derive(Default)]
struct Networks(Mutex<Vec<Arc<Net>>>);

impl EventHandler for Net {
    fn on_event(&self, now: Time, token: u64) {
        if let Some(event) = Event::from_token(token) {
            self.lock().handle_event(now, event);
        }
    }
}
