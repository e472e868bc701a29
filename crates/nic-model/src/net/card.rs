//! [`Card`]: the components of a machine's card, and the packets that wait for them; and [`Cards`], all cards
//! of a world.

use std::collections::{BTreeMap, VecDeque};

use host::world::Node;
use host::{Span, Time};
use verbs::{Error, MemoryKind, Result};

use super::protection::{Extent, Protection};
use super::scheduler::Scheduler;
use crate::limits::ObjectKind;
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

/// A card. If its machine opens it several times, all handles share it.
pub(super) struct Card {
    pub(super) node: Node,
    /// Its index among the cards of its machine.
    pub(super) number: usize,
    /// Number of ports, without the loopback.
    pub(super) ports: usize,
    /// The chipset of its machine.
    chipset: usize,
    /// Its machine has died, so it sends nothing.
    pub(super) dead: bool,
    pub(super) doorbell: Doorbell,
    pub(super) descriptors: Descriptors,
    pub(super) scheduler: Scheduler,
    pub(super) writer: WriteQueue,
    pub(super) transport: Transport,
    pub(super) interrupt: Interrupt,
    pub(super) kernel: Kernel,
    completion: Completion,
    bus: Bus,
    dma: Dma,
    /// The packet read last continued a message, so the DMA engine streams.
    streams: bool,
    memory: NicMemory,
    translation: Translation,
    /// Number of objects of each kind.
    objects: [u32; ObjectKind::COUNT],
}

/// Packets that wait for the DMA engine to write them to memory, one at a time.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// When it has finished the current packet.
    written_at: Time,
    waiting: VecDeque<u32>,
}

impl WriteQueue {
    /// A packet is ready to be written. Returns true if it can be written now. Otherwise it waits, and if it
    /// is the first to wait, also returns when the caller must try again.
    pub(super) fn begin(&mut self, now: Time, packet: u32) -> (bool, Option<Time>) {
        if self.written_at <= now && self.waiting.is_empty() {
            return (true, None);
        }
        self.waiting.push_back(packet);
        (false, (self.waiting.len() == 1).then_some(self.written_at))
    }

    /// The next waiting packet, if it can be written now.
    pub(super) fn next(&mut self, now: Time) -> Option<u32> {
        if self.written_at <= now { self.waiting.pop_front() } else { None }
    }

    /// When the next waiting packet can be written, if there is one.
    pub(super) fn next_at(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.written_at)
    }
}

/// The first piece of a packet, if it is in host memory.
fn from_host(extents: &[Extent]) -> Option<&Extent> {
    extents.first().filter(|extent| extent.kind == MemoryKind::Host)
}

/// The destination of a packet that is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write<'a> {
    pub(super) extents: &'a [Extent],
    pub(super) port: usize,
    /// The earliest time at which its data could be written, as they came in.
    pub(super) from: Time,
    /// The old contents are read first, as for an atomic.
    pub(super) reads: bool,
    /// A completion directly follows it.
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
            writer: WriteQueue::default(),
            transport: Transport::new(params),
            interrupt: Interrupt::new(params),
            kernel: Kernel::new(params),
            completion: Completion::new(params),
            bus: Bus::new(params),
            streams: false,
            dma: Dma::new(params),
            memory: NicMemory::new(params),
            translation: Translation::new(params),
            objects: [0; ObjectKind::COUNT],
        }
    }

    /// The index of its first port among the rails of its machine.
    pub(super) fn first_rail(&self) -> usize {
        self.number * self.ports
    }

    /// The loopback port, which follows the last real one.
    pub(super) fn loopback(&self) -> usize {
        self.ports
    }

    /// Adds an object of a kind.
    ///
    /// # Errors
    /// [`Error::Limit`] if the card has the maximum number.
    pub(super) fn add(&mut self, kind: ObjectKind) -> Result<()> {
        let count = &mut self.objects[kind as usize];
        Error::check_limit(kind.plural(), u64::from(*count) + 1, kind.limit().into())?;
        *count += 1;
        Ok(())
    }

    /// Removes an object of a kind.
    pub(super) fn remove(&mut self, kind: ObjectKind) {
        self.objects[kind as usize] -= 1;
    }

    /// A doorbell is rung at `now`; returns when the card knows.
    pub(super) fn ring(&mut self, now: Time) -> Time {
        self.doorbell.ring(now, &mut self.bus)
    }

    /// Whether the engine reads packets back to back, so that descriptors which are not needed immediately
    /// have to wait.
    pub(super) fn is_streaming(&self) -> bool {
        self.descriptors.idle && self.streams && !self.scheduler.is_free()
    }

    /// How long an incoming message occupies its queue pair.
    pub(super) fn message_turn(&self) -> Span {
        self.dma.message_turn()
    }

    /// Fetches a descriptor of `bytes` bytes; returns when it has arrived.
    pub(super) fn fetch(&mut self, now: Time, bytes: u64) -> Time {
        if self.descriptors.pushed { now } else { self.bus.read(now, bytes) + self.dma.read_latency }
    }

    /// Writes a completion entry; returns when the processor sees it.
    pub(super) fn complete(&mut self, now: Time, follows_data: bool) -> Time {
        self.completion.write(now, follows_data, &mut self.bus, &self.dma)
    }

    /// When the processing of an arrived data packet begins.
    pub(super) fn works_from(&self, now: Time, head_at: Time) -> Time {
        if self.transport.whole { now } else { head_at }
    }

    /// Writes a packet, which occupies the bus or the NIC memory. Returns when its last byte is written, and
    /// the delay until it is visible. An idle engine has written data while they arrived; then only the part
    /// after the last boundary is left.
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
            let shared = chipset.write(end, (extent.region_offset(), extent.len), slowness);
            end = self.bus.write(end, extent.len).max(now + rest).max(shared);
            latency = self.dma.write_latency;
        }
        if write.completes {
            // The completion directly follows the data, whatever memory these were written to.
            latency = self.completion.latency(&self.dma);
        }
        self.writer.written_at = end;
        (end, latency)
    }

    /// Reads these extents, which occupies the bus, the DMA engine and the NIC memory. Returns when the
    /// engine can continue reading, and when the data have arrived. Within a message reads are pipelined; the
    /// `first` read of a message has a startup time.
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
                        at = at + self.dma.switch_port(port);
                    }
                    let offset = protection.offset_in_pages(extent);
                    let missing = self.translation.touch(extent.region, offset, extent.len);
                    for _ in 0..missing {
                        at = self.bus.read(at, self.translation.entry_bytes) + self.translation.miss;
                    }
                    let shared = chipset.read(at, (extent.region_offset(), extent.len), slowness);
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
        let begins =
            if first && from_host(extents).is_some() { self.dma.first_read_gap() } else { Span::ZERO };
        (at + begins, at + latency.max(begins))
    }
}

/// All cards of a world, and the chipsets that cards of a machine share.
#[derive(Default)]
pub(super) struct Cards {
    cards: Vec<Card>,
    chipsets: Vec<Chipset>,
    /// The cards of each node, by node and by index in the node.
    nodes: BTreeMap<(usize, usize), usize>,
}

impl Cards {
    /// The card with this index in a node.
    pub(super) fn find(&self, node: usize, number: usize) -> Option<usize> {
        self.nodes.get(&(node, number)).copied()
    }

    /// All cards of a node.
    pub(super) fn of_node(&self, node: usize) -> Vec<usize> {
        self.nodes.range((node, 0)..(node + 1, 0)).map(|(_, card)| *card).collect()
    }

    /// Adds a card with this index to a node.
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

    /// Updates and returns the current slowdown of a card's accesses to its machine.
    pub(super) fn update_slowness(&mut self, card: usize) -> f64 {
        let c = &mut self.cards[card];
        let chipset = &self.chipsets[c.chipset];
        if chipset.may_sleep() {
            c.bus.slowness = chipset.slowness(c.node.threads());
        }
        c.bus.slowness
    }

    /// A card reads a packet's data for a port. Returns when it can continue reading, and when the data have
    /// arrived.
    pub(super) fn read(
        &mut self,
        now: Time,
        card: usize,
        what: (&[Extent], usize, bool),
        protection: &Protection,
    ) -> (Time, Time) {
        self.update_slowness(card);
        let c = &mut self.cards[card];
        c.read(now, what, protection, &mut self.chipsets[c.chipset])
    }

    /// The least time from the start of a message, whose first packet is read from these extents, to the
    /// start of the next message of its queue pair.
    pub(super) fn message_gap(&mut self, card: usize, extents: &[Extent]) -> Span {
        self.update_slowness(card);
        let c = &self.cards[card];
        c.dma.message_gap(from_host(extents).map_or(0, |extent| extent.len), &c.bus)
    }

    /// A card writes a packet's data. Returns when the last byte is written, and the delay until it is
    /// visible.
    pub(super) fn write(
        &mut self,
        now: Time,
        card: usize,
        write: Write<'_>,
        protection: &Protection,
    ) -> (Time, Span) {
        self.update_slowness(card);
        let c = &mut self.cards[card];
        c.write(now, write, protection, &mut self.chipsets[c.chipset])
    }

    /// Wakes the waiters on a card's machine.
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
