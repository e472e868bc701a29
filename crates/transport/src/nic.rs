//! [`Nic`]: an opened device and the resources that its connections share: a completion queue, listeners, registrations, and memory
//! for messages.
//!
//! Slots hold messages that are sent; each connection has a part of a registered slab. Inboxes hold messages that a peer stores.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use verbs::{
    Access, Buf, Cm, Cq, Device, Error, ImplicitMr, Listener, Mr, Pd, Qp, QpCap, QpInit, Result, Screen, Sge,
    Wc,
};

use crate::registration::Registrations;
use crate::ring::Inbox;

/// Sizes of a connection's queues and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Slots of each direction: messages that a peer may send before it receives credits.
    pub slots: u32,
    /// Receives in addition to the slots, for messages that need no credit.
    pub spare: u32,
    /// Accesses to the peer's memory that may be in flight in addition to the messages.
    pub accesses: u32,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// Bytes of a ring into which a peer stores messages, a power of two.
    pub ring_bytes: usize,
}

impl QueueSizes {
    /// Work requests in the send queue: the messages of all slots, as many credit messages, and accesses may be in flight.
    pub const fn send_depth(&self) -> u32 {
        2 * self.slots + self.spare + self.accesses
    }

    /// Work requests in the receive queue.
    pub const fn receive_depth(&self) -> u32 {
        self.slots + self.spare
    }

    /// Completions: one for each work request of both queues, and one for the rest of a message.
    pub const fn completions(&self) -> u32 {
        self.send_depth() + self.receive_depth() + 1
    }

    /// Bytes of a connection's part of a slab: send slots, the last one first, then receive slots.
    pub const fn slab_bytes(&self) -> usize {
        (self.receive_depth() + self.slots) as usize * self.slot_bytes
    }
}

/// How a device is set up.
#[derive(Debug)]
pub struct NicConfig<'a> {
    /// Sizes of each connection's queues and buffers.
    pub sizes: QueueSizes,
    /// The longest inline message in bytes; fewer if the device takes fewer.
    pub inline: u32,
    /// Entries of the completion queue; fewer if the device has fewer.
    pub cqe: u32,
    /// Connections whose slots share one registration, at least 1.
    pub slab_connections: u32,
    /// The addresses to listen at, at least one, and the port; 0 for a port that is free at each address.
    pub listen_at: (&'a [IpAddr], u16),
    /// The backlog of connect requests.
    pub backlog: u32,
    /// Registers all memory, if the device can: a promise about the program's memory, which the transport's user makes.
    pub register_all: fn(&Pd) -> Result<Option<ImplicitMr>>,
    /// Whether [`Registrations`] are cached.
    pub caches: bool,
    /// Whether messages may be longer than a slot ([`verbs::QpInit::split_receives`]).
    pub split_receives: bool,
}

/// An opened device and the resources that its connections share.
#[derive(Debug)]
pub struct Nic {
    /// The completion queue of all connections.
    pub cq: Cq,
    /// The connection manager.
    pub cm: Cm,
    /// The registrations of memory.
    pub registrations: Registrations,
    pd: Pd,
    addr: SocketAddr,
    _listeners: Vec<Listener>,
    sizes: QueueSizes,
    inline: u32,
    /// The slab that has room, and how many connections have a part of it.
    slab: Option<(Arc<Mr>, u32)>,
    slab_connections: u32,
    /// Slots of ended connections, for reuse.
    spare: Vec<Slots>,
    /// Memory in which a lost peer may still store messages; it is never reused.
    retired: Vec<Inbox>,
    /// Connections for which the completion queue still has room.
    room: u32,
    maps_peers: bool,
    split_receives: bool,
    /// A batch of completions, its length, and the number of completions taken from it. Most polls find none and need not clear the
    /// buffer.
    completions: [Wc; BATCH],
    polled: usize,
    taken: usize,
}

/// Completions per poll of the completion queue.
const BATCH: usize = 16;

/// How often to retry with another port number, until one is free at several addresses.
const LISTEN_TRIES: u32 = 16;

/// Listens at each of the addresses, at one port number.
fn listen(
    cm: &Cm,
    (at, port): (&[IpAddr], u16),
    backlog: u32,
    screen: &Arc<dyn Screen>,
) -> Result<Vec<Listener>> {
    let try_all = || {
        let mut listeners: Vec<Listener> = Vec::new();
        for address in at {
            // The first address determines the port number.
            let number = listeners.first().map_or(port, |first| first.addr().port());
            listeners.push(cm.listen_screened(SocketAddr::new(*address, number), backlog, screen.clone())?);
        }
        Ok(listeners)
    };
    let mut tried = try_all();
    for _ in 1..LISTEN_TRIES {
        // The number may be in use at another address.
        if tried.is_ok() || at.len() == 1 || port != 0 {
            break;
        }
        tried = try_all();
    }
    tried
}

impl Nic {
    /// Sets a device up and listens for connect requests that pass the screen.
    ///
    /// # Errors
    /// Those of the device.
    pub fn open(device: &Device, config: &NicConfig<'_>, screen: &Arc<dyn Screen>) -> Result<Self> {
        let attr = device.attr();
        let cqe = config.cqe.min(attr.max_cqe);
        let (pd, cq, cm) = (device.alloc_pd()?, device.create_cq(cqe)?, device.create_cm()?);
        let listeners = listen(&cm, config.listen_at, config.backlog, screen)?;
        let nowhere = || Error::Invalid("there is no address to listen at".into());
        let addr = listeners.first().ok_or_else(nowhere)?.addr();
        let registrations = Registrations::new((config.register_all)(&pd)?, config.caches);
        Ok(Self {
            cq,
            cm,
            registrations,
            pd,
            addr,
            _listeners: listeners,
            sizes: config.sizes,
            inline: config.inline.min(attr.max_inline),
            slab: None,
            slab_connections: config.slab_connections,
            spare: Vec::new(),
            retired: Vec::new(),
            room: cqe / config.sizes.completions(),
            maps_peers: attr.maps_peers,
            split_receives: config.split_receives,
            completions: [Wc::default(); BATCH],
            polled: 0,
            taken: 0,
        })
    }

    /// Takes the next completion. Returns `None` when the queue was found empty.
    ///
    /// # Errors
    /// Those of the device: the queue is lost.
    #[inline]
    pub fn next_completion(&mut self) -> Result<Option<Wc>> {
        if self.taken == self.polled {
            // A poll that has found less than it may is the last one.
            let is_last = self.polled > 0 && self.polled < BATCH;
            (self.taken, self.polled) = (0, if is_last { 0 } else { self.cq.poll(&mut self.completions)? });
            if self.polled == 0 {
                return Ok(None);
            }
        }
        self.taken += 1;
        Ok(Some(self.completions[self.taken - 1]))
    }

    /// The first address that it listens at. All addresses have the same port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The protection domain of its connections.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Sizes of each connection's queues and buffers.
    pub fn sizes(&self) -> QueueSizes {
        self.sizes
    }

    /// The longest inline message in bytes.
    pub fn inline_max(&self) -> usize {
        self.inline as usize
    }

    /// Whether peers may store messages in this NIC's memory, which arrive without a completion.
    #[inline]
    pub fn maps_peers(&self) -> bool {
        self.maps_peers
    }

    /// Whether messages may be longer than a slot, so that a message whose beginning has arrived waits for memory
    /// ([`crate::MessageQueue::post_rest`]).
    #[inline]
    pub fn splits_receives(&self) -> bool {
        self.split_receives
    }

    /// Bytes of the longest access to a peer's memory.
    pub fn access_max(&self) -> u64 {
        self.pd.device().attr().max_msg_size.min(1 << 30)
    }

    /// Creates a queue pair and slots for a new connection, whose messages have up to `send_sges` scatter/gather elements.
    ///
    /// # Errors
    /// Those of the device; [`Error::Invalid`] if the completion queue has no room for another connection.
    pub fn create_qp(&mut self, send_sges: u32) -> Result<(Qp, Slots)> {
        let slots = self.slots()?;
        let cap = QpCap {
            max_send_wr: self.sizes.send_depth(),
            max_recv_wr: self.sizes.receive_depth(),
            max_send_sge: send_sges,
            max_recv_sge: 1,
            max_inline: self.inline,
        };
        let init = QpInit { split_receives: self.split_receives, ..QpInit::new(&self.cq).cap(cap) };
        match self.pd.create_qp(&init) {
            Ok(qp) => Ok((qp, slots)),
            Err(error) => {
                self.give_room_back();
                self.spare.push(slots);
                Err(error)
            }
        }
    }

    /// Allocates memory for a new connection's messages.
    fn slots(&mut self) -> Result<Slots> {
        if self.room == 0 {
            let device = self.pd.device().name();
            let text = format!("{device} has no room for another connection in its completion queue");
            return Err(Error::Invalid(text));
        }
        if let Some(slots) = self.spare.pop() {
            self.room -= 1;
            return Ok(slots);
        }
        let (slab, used) = match self.slab.take() {
            Some((slab, used)) if used < self.slab_connections => (slab, used),
            _ => {
                let buf = Buf::alloc(self.sizes.slab_bytes() * self.slab_connections as usize)?;
                (Arc::new(self.pd.reg_mr(&buf, Access::LOCAL_WRITE)?), 0)
            }
        };
        self.room -= 1;
        self.slab = Some((slab.clone(), used + 1));
        // Work requests name host memory by its address. Slots smaller than a page are interleaved with the slots of the slab's
        // other connections, by their numbers: most connections carry few messages, and these use the first slots.
        let slot = self.sizes.slot_bytes;
        let (own, step) = match slot {
            ..PAGE => (slot, slot * self.slab_connections as usize),
            _ => (self.sizes.slab_bytes(), slot),
        };
        Ok(Slots { slab, base: used as usize * own, step, sending: self.sizes.slots as usize })
    }

    /// Allocates the rings into which a new connection's peer stores messages; `None` if it cannot, or memory is exhausted. The
    /// peer then sends them.
    pub fn inboxes<const N: usize>(&self) -> Option<[Inbox; N]> {
        self.maps_peers().then(|| Inbox::new(&self.pd, self.sizes.ring_bytes).ok()).flatten()
    }

    /// Returns the room of an ended connection, or of an abandoned attempt, in the completion queue.
    pub(crate) fn give_room_back(&mut self) {
        self.room += 1;
    }

    /// Returns the memory of a connection whose queue pair is destroyed. Inboxes are not reused if the peer `may_store` there.
    pub(crate) fn give_memory_back(
        &mut self,
        slots: Slots,
        inboxes: impl IntoIterator<Item = Inbox>,
        may_store: bool,
    ) {
        self.spare.push(slots);
        if may_store {
            self.retired.extend(inboxes);
        }
    }
}

/// Bytes of a page.
const PAGE: usize = 4096;

/// A connection's part of a slab.
#[derive(Clone, Debug)]
pub struct Slots {
    slab: Arc<Mr>,
    /// The offset of the first slot, and the distance between slots.
    base: usize,
    step: usize,
    /// The number of send slots, which come first.
    sending: usize,
}

impl Slots {
    /// The slab's memory.
    #[inline]
    pub fn buf(&self) -> &Buf {
        self.slab.buf()
    }

    /// The offset of a receive slot.
    #[inline]
    pub fn receive(&self, slot: u32) -> usize {
        self.base + (self.sending + slot as usize) * self.step
    }

    /// The offset of a send slot. The first send slots are next to the first receive slots, so that a connection with few messages
    /// touches few pages.
    #[inline]
    pub fn send(&self, slot: u32) -> usize {
        self.base + (self.sending - 1 - slot as usize) * self.step
    }

    /// Bytes of the slab, for a work request.
    #[inline]
    pub fn sge(&self, at: usize, len: usize) -> Sge {
        self.slab.sge(at as u64, len as u32)
    }
}
