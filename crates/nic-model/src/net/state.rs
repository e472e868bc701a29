//! [`State`]: everything that the network knows, behind its lock.

use std::collections::{BTreeMap, VecDeque};

use host::world::{ActorId, Node, Timeline};
use host::{Span, Time};
use verbs::{AsyncEvent, Sge};

use super::card::Card;
use super::connect::Envelope;
use super::event::Event;
use super::faults::Chance;
use super::memory::Piece;
use super::packet::{Packets, PortId};
use super::pair::Pair;
use super::slab::Slab;
use super::tables::{
    Channel, Context, Listener, ListenerKey, Looks, Manager, Module, Queue, Region, Request, Shared,
};
use crate::machine::Params;
use crate::parts::chipset::Chipset;
use crate::parts::us;

/// All tables. Objects are named by their keys, cards by their number.
pub(crate) struct State {
    pub(super) params: Params,
    /// Only the ends of messages really move.
    pub(super) hole: bool,
    pub(super) mtu: u64,
    timeline: Timeline,
    pub(super) actor: Option<ActorId>,
    pub(super) cards: Vec<Card>,
    /// The cards of each node, by its number and their number in it.
    pub(super) nodes: BTreeMap<(usize, usize), usize>,
    /// What the cards of a machine share.
    pub(super) chipsets: Vec<Chipset>,
    /// What each rank saw of queues, where that matters.
    pub(super) looks: BTreeMap<usize, Looks>,
    pub(super) contexts: Slab<Context>,
    pub(super) regions: Slab<Region>,
    pub(super) queues: Slab<Queue>,
    pub(super) channels: Slab<Channel>,
    pub(super) shared: Slab<Shared>,
    pub(super) pairs: Slab<Pair>,
    pub(super) managers: Slab<Manager>,
    pub(super) requests: Slab<Request>,
    pub(super) messages: Slab<Envelope>,
    pub(super) listeners: BTreeMap<ListenerKey, Listener>,
    pub(super) last_port: u16,
    pub(super) last_domain: u32,
    /// NIC memory, by its address in this process.
    pub(super) modules: BTreeMap<u64, Module>,
    pub(super) packets: Packets,
    /// Queue pairs whose completion queue overran.
    pub(super) doomed: VecDeque<u32>,
    pub(super) chance: Chance,
    /// Pieces of memory, while a packet is worked on.
    pub(super) pieces: Vec<Piece>,
    /// Lists of pieces that are not needed.
    pub(super) spare: Vec<Vec<Sge>>,
}

impl State {
    /// Data in a packet at most, unless a connection asks for less.
    pub(crate) fn mtu(&self) -> u64 {
        self.mtu
    }

    pub(super) fn new(params: &Params, hole: bool, timeline: Timeline) -> Self {
        let chance = Chance::new(timeline.seed());
        Self {
            params: *params,
            hole,
            mtu: params.link.mtu_bytes as u64,
            timeline,
            actor: None,
            cards: Vec::new(),
            nodes: BTreeMap::new(),
            chipsets: Vec::new(),
            looks: BTreeMap::new(),
            contexts: Slab::default(),
            regions: Slab::default(),
            queues: Slab::default(),
            channels: Slab::default(),
            shared: Slab::default(),
            pairs: Slab::default(),
            managers: Slab::default(),
            requests: Slab::default(),
            messages: Slab::default(),
            listeners: BTreeMap::new(),
            last_port: 0,
            last_domain: 0,
            modules: BTreeMap::new(),
            packets: Packets::default(),
            doomed: VecDeque::new(),
            chance,
            pieces: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The network has become an actor of its world: what is to go wrong at some time is put into the queue.
    pub(super) fn begin(&mut self, actor: ActorId) {
        self.actor = Some(actor);
        let faults = self.params.faults;
        for (at, event) in [(faults.cut_us, Event::Cut), (faults.death_us, Event::Death)] {
            if at > 0.0 {
                self.at(Time::ZERO + us(at), event);
            }
        }
    }

    /// Puts an event into the world's queue.
    pub(super) fn at(&self, at: Time, event: Event) {
        if let Some(actor) = self.actor {
            self.timeline.at(at, actor, event.token());
        }
    }

    /// The same, some time after `now`.
    pub(super) fn after(&self, now: Time, span: Span, event: Event) {
        self.at(now + span, event);
    }

    /// The card of this number in a node; put in if it is not there.
    pub(super) fn card_of(&mut self, node: &Node, number: usize) -> usize {
        let place = (node.index(), number);
        if let Some(&card) = self.nodes.get(&place) {
            return card;
        }
        let of_node = self.nodes.range((node.index(), 0)..(node.index() + 1, 0)).next();
        let chipset = of_node.map_or(self.chipsets.len(), |(_, &card)| self.cards[card].chipset);
        if chipset == self.chipsets.len() {
            self.chipsets.push(Chipset::new(&self.params));
        }
        self.cards.push(Card::new(node.clone(), number, chipset, &self.params));
        self.nodes.insert(place, self.cards.len() - 1);
        self.cards.len() - 1
    }

    /// How much longer than at best a card's accesses to its machine take at the moment.
    pub(super) fn rouse(&mut self, card: usize) -> f64 {
        let c = &mut self.cards[card];
        let chipset = &self.chipsets[c.chipset];
        if chipset.may_sleep() {
            c.bus.slowness = chipset.slowness(c.node.threads());
        }
        c.bus.slowness
    }

    /// The number of a port in an event.
    pub(super) fn number_of(port: PortId) -> u32 {
        (port.card as u32) << 3 | port.port as u32
    }

    /// The port of such a number.
    pub(super) fn port_of(number: u32) -> PortId {
        PortId { card: (number >> 3) as usize, port: (number & 7) as usize }
    }

    /// Tells the user of a device of something.
    pub(super) fn happens(&mut self, context: u32, event: AsyncEvent) {
        let Some(context) = self.contexts.get_mut(context) else { return };
        context.events.push_back(event);
        self.cards[context.card].node.signal();
    }

    /// Wakes whoever waits on the card's machine.
    pub(super) fn signal(&self, card: usize) {
        self.cards[card].node.signal();
    }
}
