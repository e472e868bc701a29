//! [`Card`]: the parts of one machine's card, and what waits before them; and [`Cards`], all of a world.

use std::collections::{BTreeMap, VecDeque};

use host::world::Node;
use host::{Span, Time};
use verbs::{Error, MemoryKind, Result};

use super::protection::{Extent, Protection};
use super::scheduler::Scheduler;
use crate::limits::Kind;
use crate::machine::Params;
use crate::parts::bus::Bus;
use crate::parts::chipset::Chipset;
use crate::parts::completion::Completion;
use crate::parts::descriptor::Descriptors;
use crate::parts::dma::Dma;
use crate::parts::doorbell::Doorbell;
use crate::parts::interrupt::Interrupt;
use crate::parts::kernel::Kernel;
use crate::parts::memory::NicMemory;
use crate::parts::translation::Translation;
use crate::parts::transport::Transport;

/// A card. Its machine may open it several times; it is the same card.
pub(super) struct Card {
    pub(super) node: Node,
    /// Which one it is among the cards of its machine.
    pub(super) number: usize,
    /// Its ports, without the loopback.
    pub(super) ports: usize,
    /// The chipset of its machine.
    chipset: usize,
    /// Its machine is dead: it is silent.
    pub(super) dead: bool,
    pub(super) doorbell: Doorbell,
    pub(super) descriptors: Descriptors,
    pub(super) scheduler: Scheduler,
    pub(super) writer: Writer,
    pub(super) transport: Transport,
    pub(super) interrupt: Interrupt,
    pub(super) kernel: Kernel,
    completion: Completion,
    bus: Bus,
    dma: Dma,
    /// The packet that was read last is none of those that the engine waits for.
    streams: bool,
    memory: NicMemory,
    translation: Translation,
    /// How many objects of each kind it has.
    objects: [u32; Kind::COUNT],
}

/// The packets that wait for the DMA engine to write them to memory, one at a time.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// When it is done with the packet that it writes.
    written_at: Time,
    waiting: VecDeque<u32>,
}

impl Writer {
    /// A packet is ready to be written. True: it may be, now. Otherwise it waits, and if it is the first to wait, the engine
    /// is to be looked at then.
    pub(super) fn begin(&mut self, now: Time, packet: u32) -> (bool, Option<Time>) {
        if self.written_at <= now && self.waiting.is_empty() {
            return (true, None);
        }
        self.waiting.push_back(packet);
        (false, (self.waiting.len() == 1).then_some(self.written_at))
    }

    /// The next packet that can be written.
    pub(super) fn next(&mut self, now: Time) -> Option<u32> {
        if self.written_at <= now { self.waiting.pop_front() } else { None }
    }

    /// When the next packet that waits can be written, if one does.
    pub(super) fn next_at(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.written_at)
    }
}

/// The first piece of a packet, if it lies in host memory.
fn from_host(extents: &[Extent]) -> Option<&Extent> {
    extents.first().filter(|extent| extent.kind == MemoryKind::Host)
}

/// Where a packet that is written goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write<'a> {
    pub(super) extents: &'a [Extent],
    pub(super) port: usize,
    /// The time from which on its data could be written, as they came in.
    pub(super) from: Time,
    /// What is there is read before, as an atomic does.
    pub(super) reads: bool,
    /// A completion goes right behind it.
    pub(super) completes: bool,
}

impl Card {
    fn new(node: Node, number: usize, chipset: usize, params: &Params) -> Self {
        let ports = params.link.port_count as usize;
        Self {
            node,
            number,
            ports,
            chipset,
            dead: false,
            doorbell: Doorbell::new(params),
            descriptors: Descriptors::new(params),
            scheduler: Scheduler::new(ports + 1, params.link.send_packets as usize),
            writer: Writer::default(),
            transport: Transport::new(params),
            interrupt: Interrupt::new(params),
            kernel: Kernel::new(params),
            completion: Completion::new(params),
            bus: Bus::new(params),
            streams: false,
            dma: Dma::new(params),
            memory: NicMemory::new(params),
            translation: Translation::new(params),
            objects: [0; Kind::COUNT],
        }
    }

    /// The number of its first port among the rails of its machine.
    pub(super) fn first_rail(&self) -> usize {
        self.number * self.ports
    }

    /// The port that leads back to it, behind the last one.
    pub(super) fn loopback(&self) -> usize {
        self.ports
    }

    /// Has one object more of a kind, if it can.
    ///
    /// # Errors
    /// [`Error::Limit`] when it has as many as it can have.
    pub(super) fn add(&mut self, kind: Kind) -> Result<()> {
        let count = &mut self.objects[kind as usize];
        Error::check_limit(kind.plural(), u64::from(*count) + 1, kind.limit().into())?;
        *count += 1;
        Ok(())
    }

    /// Has one object less of a kind.
    pub(super) fn remove(&mut self, kind: Kind) {
        self.objects[kind as usize] -= 1;
    }

    /// A doorbell is rung `now`; when the card knows.
    pub(super) fn ring(&mut self, now: Time) -> Time {
        self.doorbell.ring(now, &mut self.bus)
    }

    /// Whether the engine reads one packet after the other, so that descriptors which are not needed at once have to wait.
    pub(super) fn streams(&self) -> bool {
        self.descriptors.idle && self.streams && !self.scheduler.is_free()
    }

    /// How long a message that comes in keeps its queue pair.
    pub(super) fn turn(&self) -> Span {
        self.dma.turn()
    }

    /// Fetches a descriptor of so many bytes; when it is there.
    pub(super) fn fetch(&mut self, now: Time, bytes: u64) -> Time {
        if self.descriptors.pushed { now } else { self.bus.read(now, bytes) + self.dma.read_latency }
    }

    /// Writes a completion entry; when the processor sees it.
    pub(super) fn complete(&mut self, now: Time, behind_data: bool) -> Time {
        self.completion.write(now, behind_data, &mut self.bus, &self.dma)
    }

    /// The time from which on a packet with data that has arrived is worked on.
    pub(super) fn works_from(&self, now: Time, head_at: Time) -> Time {
        if self.transport.whole { now } else { head_at }
    }

    /// Writes a packet: takes the bus or the NIC memory; when its last byte is written, and how long until it is seen. What had come in was written meanwhile, if
    /// the engine had nothing else to write: what is behind the last boundary is left.
    fn write(
        &mut self,
        now: Time,
        write: Write<'_>,
        protection: &Protection,
        chipset: &mut Chipset,
    ) -> (Time, Span) {
        let (mut end, mut latency) = (write.from.max(self.writer.written_at).min(now), Span::ZERO);
        let slowness = self.bus.slowness;
        for extent in write.extents {
            if extent.kind == MemoryKind::Nic {
                let rest = self.memory.time(extent.len.min(self.bus.boundary_bytes));
                end = self.memory.access(end, extent.len, write.port).max(now + rest);
                continue;
            }
            let offset = protection.offset_in_pages(extent);
            for _ in 0..self.translation.touch(extent.region, offset, extent.len) {
                end = self.bus.read(end, self.translation.entry_bytes) + self.translation.miss;
            }
            if write.reads {
                end = self.bus.read(end, extent.len) + self.dma.read_latency;
            }
            let rest = self.bus.time_of_write(extent.len.min(self.bus.boundary_bytes));
            let shared = chipset.write(end, (extent.at(), extent.len), slowness);
            end = self.bus.write(end, extent.len).max(now + rest).max(shared);
            latency = self.dma.write_latency;
        }
        if write.completes {
            // The completion goes right behind the data, whatever these were written to.
            latency = self.completion.latency(&self.dma);
        }
        self.writer.written_at = end;
        (end, latency)
    }

    /// Takes the bus, the DMA engine and the NIC memory for these extents: when the engine can read on, and when the
    /// data are there. Within a message it reads on while data are still to come; a message's `first` read takes its time to
    /// get under way.
    fn read(
        &mut self,
        now: Time,
        (extents, port, first): (&[Extent], usize, bool),
        protection: &Protection,
        chipset: &mut Chipset,
    ) -> (Time, Time) {
        let (mut at, mut latency, slowness) = (now, Span::ZERO, self.bus.slowness);
        for (i, extent) in extents.iter().enumerate() {
            match extent.kind {
                MemoryKind::Host => {
                    if i == 0 {
                        at = at + self.dma.turn_to(port);
                    }
                    let offset = protection.offset_in_pages(extent);
                    let missing = self.translation.touch(extent.region, offset, extent.len);
                    for _ in 0..missing {
                        at = self.bus.read(at, self.translation.entry_bytes) + self.translation.miss;
                    }
                    let shared = chipset.read(at, (extent.at(), extent.len), slowness);
                    at = self.dma.read(at, extent.len, &mut self.bus).max(shared);
                    latency = latency.max(self.dma.read_latency);
                }
                MemoryKind::Nic => {
                    at = self.memory.access(at, extent.len, port);
                    latency = latency.max(self.memory.latency);
                }
            }
        }
        self.streams = !first;
        let begins = if first && from_host(extents).is_some() { self.dma.alone() } else { Span::ZERO };
        (at + begins, at + latency.max(begins))
    }
}

/// All cards of a world, and what those of one machine share.
#[derive(Default)]
pub(super) struct Cards {
    cards: Vec<Card>,
    chipsets: Vec<Chipset>,
    /// The cards of each node, by its number and their number in it.
    nodes: BTreeMap<(usize, usize), usize>,
}

impl Cards {
    /// The card of this number in a node.
    pub(super) fn find(&self, node: usize, number: usize) -> Option<usize> {
        self.nodes.get(&(node, number)).copied()
    }

    /// All cards of a node.
    pub(super) fn of_node(&self, node: usize) -> Vec<usize> {
        self.nodes.range((node, 0)..(node + 1, 0)).map(|(_, card)| *card).collect()
    }

    /// Puts a card of this number into a node that does not have it.
    pub(super) fn add(&mut self, node: &Node, number: usize, params: &Params) -> usize {
        let other = self.of_node(node.index()).first().copied();
        let chipset = other.map_or(self.chipsets.len(), |card| self.cards[card].chipset);
        if chipset == self.chipsets.len() {
            self.chipsets.push(Chipset::new(params));
        }
        self.cards.push(Card::new(node.clone(), number, chipset, params));
        self.nodes.insert((node.index(), number), self.cards.len() - 1);
        self.cards.len() - 1
    }

    /// Finds out how much longer than at best a card's accesses to its machine take at the moment.
    pub(super) fn rouse(&mut self, card: usize) -> f64 {
        let c = &mut self.cards[card];
        let chipset = &self.chipsets[c.chipset];
        if chipset.may_sleep() {
            c.bus.slowness = chipset.slowness(c.node.threads());
        }
        c.bus.slowness
    }

    /// A card reads a packet's data for a port: when it can read on, and when the data are there.
    pub(super) fn read(
        &mut self,
        now: Time,
        card: usize,
        what: (&[Extent], usize, bool),
        protection: &Protection,
    ) -> (Time, Time) {
        self.rouse(card);
        let c = &mut self.cards[card];
        c.read(now, what, protection, &mut self.chipsets[c.chipset])
    }

    /// How long after the beginning of a message, the first packet of which is read from these extents, the next one of its
    /// queue pair can begin at the earliest.
    pub(super) fn gap(&mut self, card: usize, extents: &[Extent]) -> Span {
        self.rouse(card);
        let c = &self.cards[card];
        c.dma.gap(from_host(extents).map_or(0, |extent| extent.len), &c.bus)
    }

    /// A card writes a packet's data; when the last byte is written, and how long until it is seen.
    pub(super) fn write(
        &mut self,
        now: Time,
        card: usize,
        write: Write<'_>,
        protection: &Protection,
    ) -> (Time, Span) {
        self.rouse(card);
        let c = &mut self.cards[card];
        c.write(now, write, protection, &mut self.chipsets[c.chipset])
    }

    /// Wakes whoever waits on a card's machine.
    pub(super) fn signal(&self, card: usize) {
        self.cards[card].node.signal();
    }
}

impl std::ops::Index<usize> for Cards {
    type Output = Card;
    fn index(&self, card: usize) -> &Card {
        &self.cards[card]
    }
}

impl std::ops::IndexMut<usize> for Cards {
    fn index_mut(&mut self, card: usize) -> &mut Card {
        &mut self.cards[card]
    }
}
