//! [`Card`]: the parts of one machine's card and what waits before them.

use std::collections::VecDeque;

use host::Time;
use host::world::Node;

use super::packet::PortId;
use crate::machine::Params;
use crate::parts::bus::Bus;
use crate::parts::completion::Completion;
use crate::parts::descriptor::Descriptors;
use crate::parts::dma::Dma;
use crate::parts::doorbell::Doorbell;
use crate::parts::interrupt::Interrupt;
use crate::parts::link::Link;
use crate::parts::memory::NicMemory;
use crate::parts::switch::Output;
use crate::parts::translation::Translation;
use crate::parts::transport::Transport;

/// A card. Its machine may open it several times; it is the same card.
pub(super) struct Card {
    pub(super) node: Node,
    /// Which one it is among the cards of its machine.
    pub(super) number: usize,
    /// The chipset of its machine.
    pub(super) chipset: usize,
    /// Its machine is dead: it is silent.
    pub(super) dead: bool,
    pub(super) doorbell: Doorbell,
    pub(super) descriptors: Descriptors,
    pub(super) bus: Bus,
    pub(super) dma: Dma,
    pub(super) memory: NicMemory,
    pub(super) transport: Transport,
    pub(super) translation: Translation,
    pub(super) completion: Completion,
    pub(super) interrupt: Interrupt,
    /// Its ports; the last one is its way to itself.
    pub(super) ports: Vec<Port>,
    /// The DMA engine is at work.
    pub(super) reading: bool,
    /// When the DMA engine is done with the packet that it writes, and those that wait for it.
    pub(super) written_at: Time,
    pub(super) writes: VecDeque<u32>,
    /// Whose turn it is to send.
    pub(super) turn: usize,
    /// When the packet that was read last is loaded: packets do not overtake.
    pub(super) loaded_at: Time,
}

/// A port of a card, and the switch's output to it.
pub(super) struct Port {
    pub(super) link: Link,
    pub(super) output: Output,
    /// A cable that is cut carries nothing.
    pub(super) cut: bool,
    /// Queue pairs that have something to send, in turn.
    pub(super) flows: VecDeque<u32>,
    /// Packets read, or being read, and not yet on the wire.
    pub(super) loading: usize,
    /// Packets for the wire.
    pub(super) wire: VecDeque<u32>,
    /// Acknowledgements for the wire, which go first.
    pub(super) control: VecDeque<u32>,
    /// The earliest [`super::event::Event::Link`] in the queue.
    pub(super) wake: Option<Time>,
    /// Packets that it can still take.
    pub(super) credits: usize,
    /// Ports whose next packet waits for room here, in turn.
    pub(super) waiters: VecDeque<PortId>,
    /// Whether this port waits for room elsewhere.
    pub(super) waiting: bool,
    /// When the last packet came out of the switch: packets do not overtake.
    pub(super) arrived_at: Time,
}

impl Card {
    pub(super) fn new(node: Node, number: usize, chipset: usize, params: &Params) -> Self {
        let ports = params.link.port_count as usize + 1;
        Self {
            node,
            number,
            chipset,
            dead: false,
            doorbell: Doorbell::new(params),
            descriptors: Descriptors::new(params),
            bus: Bus::new(params),
            dma: Dma::new(params),
            memory: NicMemory::new(params),
            transport: Transport::new(params),
            translation: Translation::new(params),
            completion: Completion::new(params),
            interrupt: Interrupt::new(params),
            ports: (0..ports).map(|_| Port::new(params)).collect(),
            reading: false,
            written_at: Time::ZERO,
            writes: VecDeque::new(),
            turn: 0,
            loaded_at: Time::ZERO,
        }
    }

    /// The port among whose queue pairs one takes its turn: one that leads back to the card belongs to the first.
    pub(super) fn lane_of(&self, port: usize) -> usize {
        if port == self.way_back() { 0 } else { port }
    }

    /// The number of its first port among the rails of its machine.
    pub(super) fn first_rail(&self) -> usize {
        self.number * self.way_back()
    }

    /// The number of the port that leads back to the card.
    pub(super) fn way_back(&self) -> usize {
        self.ports.len() - 1
    }
}

impl Port {
    fn new(params: &Params) -> Self {
        Self {
            link: Link::new(params),
            output: Output::new(params),
            cut: false,
            flows: VecDeque::new(),
            loading: 0,
            wire: VecDeque::new(),
            control: VecDeque::new(),
            wake: None,
            credits: params.link.receive_packets as usize,
            waiters: VecDeque::new(),
            waiting: false,
            arrived_at: Time::ZERO,
        }
    }
}
