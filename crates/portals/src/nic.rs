//! [`Nic`]: the device with what all links share: queues, a listener, and memory for messages.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use transport::Inbox;
use verbs::{
    Access, Buf, Cm, Cq, Device, ImplicitMr, Listener, Mr, Pd, QpCap, QpInit, RemoteAddr, Result, Screen, Sge,
};

use crate::memory::{all_memory, register};

/// Messages of each way that a peer may send before it hears that some were taken.
pub(crate) const SLOTS: u32 = 16;
/// Bytes of a message with its data.
pub(crate) const SLOT_BYTES: usize = 8 << 10;
/// Slots of both ways.
pub(crate) const ALL_SLOTS: u32 = 2 * SLOTS;
/// Receives beyond the slots, for messages that need no credit: two grants of credits for each way, and one for good measure.
pub(crate) const SPARE: u32 = 5;
/// Reads and writes of the peer's memory that a link may have under way.
const MOVES: u32 = 16;
/// Bytes that go inline.
pub(crate) const INLINE: usize = 112;
/// Bytes of a ring that a peer stores messages in.
const RING_BYTES: usize = 64 << 10;
/// Entries of the completion queue, where the device has as many.
const CQE: u32 = 32 << 10;

/// Work requests in the send queue: every slot's message and every grant may be under way, and moves.
pub(crate) const SEND_DEPTH: u32 = 2 * ALL_SLOTS + SPARE + MOVES;
/// Work requests in the receive queue.
pub(crate) const RECEIVE_DEPTH: u32 = ALL_SLOTS + SPARE;

/// Memory that an operation has made reachable; unreachable again when dropped.
#[derive(Debug)]
pub(crate) enum Reach {
    /// By the region of all memory.
    Implicit {
        /// Its local key.
        lkey: u32,
        /// Its key for peers.
        rkey: u32,
    },
    /// By a region of its own.
    Own(Mr),
}

impl Reach {
    /// For a local work request.
    pub(crate) fn sge(&self, addr: u64, length: u32) -> Sge {
        match self {
            Self::Implicit { lkey, .. } => Sge { addr, length, lkey: *lkey },
            Self::Own(mr) => Sge { addr, length, lkey: mr.lkey() },
        }
    }

    /// For a peer's work request.
    pub(crate) fn remote(&self, addr: u64) -> RemoteAddr {
        match self {
            Self::Implicit { rkey, .. } => RemoteAddr { addr, rkey: *rkey },
            Self::Own(mr) => RemoteAddr { addr, rkey: mr.rkey() },
        }
    }
}

/// An opened device and what its links share.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) cq: Cq,
    pub(crate) cm: Cm,
    pd: Pd,
    listener: Listener,
    all: Option<ImplicitMr>,
    /// Whether peers may store messages here.
    pub(crate) maps_peers: bool,
    /// Links there may still be.
    room: u32,
    /// Memory of links that have gone. Whoever was at the other end may not know of that yet, and store there: nobody gets it again.
    retired: Vec<Inbox>,
}

impl Nic {
    /// Sets a device up, and listens at a port for requests that pass the screen; at any with port 0.
    pub(crate) fn open(
        device: &Device,
        (address, port): (IpAddr, u16),
        screen: Arc<dyn Screen>,
    ) -> Result<Self> {
        let attr = device.attr();
        let cqe = CQE.min(attr.max_cqe);
        let (pd, cq, cm) = (device.alloc_pd()?, device.create_cq(cqe)?, device.create_cm()?);
        let listener = cm.listen_screened(SocketAddr::new(address, port), 256, screen)?;
        let all = all_memory(&pd)?;
        let room = cqe / (SEND_DEPTH + RECEIVE_DEPTH);
        Ok(Self { cq, cm, pd, listener, all, maps_peers: attr.maps_peers, room, retired: Vec::new() })
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// A queue pair for a new link, and memory for its messages: slots to receive into, then slots to send from.
    pub(crate) fn create_qp(&mut self) -> Result<(verbs::Qp, Mr)> {
        if self.room == 0 {
            return Err(verbs::Error::Invalid("the completion queue has no room for another link".into()));
        }
        let cap = QpCap {
            max_send_wr: SEND_DEPTH,
            max_recv_wr: RECEIVE_DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: INLINE.min(self.pd.device().attr().max_inline as usize) as u32,
        };
        let qp = self.pd.create_qp(&QpInit::new(&self.cq).cap(cap))?;
        let buf = Buf::alloc((RECEIVE_DEPTH + ALL_SLOTS) as usize * SLOT_BYTES)?;
        let slots = self.pd.reg_mr(&buf, Access::LOCAL_WRITE)?;
        self.room -= 1;
        Ok((qp, slots))
    }

    /// Memory for a new link's peer to store messages of each way in; `None` where it cannot, or there is no more. Then it sends them.
    pub(crate) fn inboxes(&self) -> Option<[Inbox; 2]> {
        if !self.maps_peers {
            return None;
        }
        let inbox = || Inbox::new(&self.pd, RING_BYTES).ok();
        Some([inbox()?, inbox()?])
    }

    /// A link has gone.
    pub(crate) fn give_back(&mut self, inboxes: impl IntoIterator<Item = Inbox>) {
        self.room += 1;
        self.retired.extend(inboxes);
    }

    /// Bytes that a queue pair takes inline.
    pub(crate) fn inline_max(&self) -> usize {
        INLINE.min(self.pd.device().attr().max_inline as usize)
    }

    /// Makes memory of the user's reachable.
    pub(crate) fn reach(&self, address: u64, len: u64, access: Access) -> Result<Reach> {
        match &self.all {
            Some(all) if all.access().contains(access) => {
                Ok(Reach::Implicit { lkey: all.lkey(), rkey: all.rkey() })
            }
            _ => Ok(Reach::Own(register(&self.pd, address, len, access)?)),
        }
    }

    /// Makes memory of this library's reachable.
    pub(crate) fn reach_buf(&self, buf: &Buf, access: Access) -> Result<Reach> {
        Ok(Reach::Own(self.pd.reg_mr(buf, access)?))
    }

    /// Bytes of the longest read or write.
    pub(crate) fn move_max(&self) -> u64 {
        self.pd.device().attr().max_msg_size.min(1 << 30)
    }
}
