//! The network of one world: all cards, what is under way between them, and what happens when.
//!
//! [`Net`] is one actor of the world. Ranks post to it and look at it through the objects of `api`; everything else
//! happens in its events, each of which asks one part of a card (`parts`) for its turn. A packet passes, in this order:
//!
//! | file | its events |
//! |---|---|
//! | `fetch` | doorbell, descriptor |
//! | `send` | the scheduler of each card, the read of a packet's data, the transport engine |
//! | `wire` | link, switch, arrival |
//! | `respond` | requests at the peer: numbers, receives, placement, answers |
//! | `request` | acknowledgements and answers, retries, completion in order |
//! | `complete` | completion entries, events, flushing, failing |
//! | `connect` | connection managers' messages |
//! | `faults` | what goes wrong on purpose |
//!
//! `state` has everything behind the lock, `tables`, `pair`, `card`, `packet` its parts, `memory` finds and copies
//! bytes, `event` is what the world keeps of an event.
//!
//! The lock is never held while a rank gives up control: [`host::world::Node::sync`] comes before it.

mod card;
mod complete;
mod connect;
mod event;
mod faults;
mod fetch;
mod memory;
pub(crate) mod objects;
mod packet;
mod pair;
mod request;
mod respond;
mod send;
mod slab;
mod state;
mod tables;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::Time;
use host::world::{Actor, Node, Timeline};

use crate::machine::Machine;
use event::Event;
pub(crate) use state::State;

/// All cards of one world that are of the same machine, and what connects them.
pub(crate) struct Net {
    state: Mutex<State>,
    timeline: Timeline,
}

impl Net {
    /// The network that this machine's cards share in this node's world; `hole`: only the ends of messages move.
    pub(crate) fn of(node: &Node, machine: &Machine, hole: bool) -> Arc<Self> {
        let timeline = node.timeline();
        let name = format!("{hole} {:?}", machine.params);
        let net = timeline.shared(&name, || {
            let state = Mutex::new(State::new(&machine.params, hole, timeline.clone()));
            Arc::new(Self { state, timeline: timeline.clone() })
        });
        if net.lock().actor.is_none() {
            let actor = timeline.add_actor(net.clone());
            net.lock().begin(actor);
        }
        net
    }

    /// The state; a rank that panicked inside has left nothing half done that others would see.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of whoever runs.
    pub(crate) fn now(&self) -> Time {
        self.timeline.now()
    }
}

impl Actor for Net {
    fn event(&self, now: Time, token: u64) {
        let mut state = self.lock();
        match Event::of(token) {
            Some(Event::Doorbell(qp)) => state.doorbell(now, qp),
            Some(Event::Rung(qp)) => state.rung(now, qp),
            Some(Event::Fetched(card)) => state.fetched(now, card as usize),
            Some(Event::ReadOn(card)) => state.read_on(now, card as usize),
            Some(Event::WriteOn(card)) => state.write_on(now, card as usize),
            Some(Event::Loaded(packet)) => state.loaded(now, packet),
            Some(Event::Link(port)) => state.link(now, State::port_of(port)),
            Some(Event::Head(packet)) => state.head(now, packet),
            Some(Event::Arrive(packet)) => state.arrive(now, packet),
            Some(Event::Place(packet)) => state.place(now, packet),
            Some(Event::Placed(packet)) => state.placed(now, packet),
            Some(Event::Entry(queue)) => state.entry(now, queue),
            Some(Event::Notify(queue)) => state.notify(queue),
            Some(Event::Ready(qp)) => state.ready(now, qp),
            Some(Event::Overdue(qp)) => state.overdue(now, qp),
            Some(Event::Flush(qp)) => state.flush(now, qp),
            Some(Event::Message(message)) => state.message(now, message),
            Some(Event::Timeout(request)) => state.timeout(now, request),
            Some(Event::Lost(qp)) => state.lost(now, qp),
            Some(Event::Cut) => state.cut(now),
            Some(Event::Whole) => state.whole(),
            Some(Event::Death) => state.death(now),
            None => {}
        }
        state.bury(now);
    }
}
