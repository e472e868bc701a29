//! Who is at the other end: a mapped peer device, how to reach its private memory, and one queue pair of it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{Error, Result};

use super::cq::announce;
use super::device::{Inner, unpoisoned};
use super::doorbell::{is_button, ring};
use super::layout::{
    ChannelShared, CqShared, Header, QpShared, SrqShared, VERSION, channel_at, comp, cq_at, qp_at, recv,
    srq_at, state,
};
use super::place;
use super::segment::{Map, Ref, Slots, identify, map_peer};
use super::table::{Table, of_this_process};
use super::wire::Hello;
use crate::fork::Fd;
use crate::sync::ready::Ready;

/// How private memory of the peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is this very process.
    Direct {
        /// Its number.
        pid: i32,
    },
    /// By process_vm_readv/writev(2).
    Kernel {
        /// The peer's process.
        pid: i32,
    },
    /// Its own NIC thread copies.
    Service,
}

/// A peer device, shared by all connections to it.
pub(super) struct Peer {
    pub(super) table: Arc<Table>,
    pub(super) reach: Reach,
    /// Its process, as the kernel says; 0 if it is in a PID namespace that this one does not see.
    pid: i32,
    /// Who is meant by a kick.
    header: Ref<Header>,
    /// A handle of its process, where the kernel gives one: tells whether it lives.
    life: Option<Fd>,
    /// Wakes its NIC thread.
    kick: Fd,
}

impl Peer {
    /// The device that said hello, mapped once for all its connections. `life` fetches a handle of its process.
    pub(super) fn get(
        device: &Inner,
        hello: &Hello,
        pid: i32,
        life: impl FnOnce() -> Option<OwnedFd>,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Arc<Self>> {
        if fds.len() < 2 {
            return Err(Error::Invalid("the peer sent too few descriptors".into()));
        }
        let (file, kick) = (fds.remove(0), fds.remove(0));
        if !is_button(&kick) || !fds.iter().all(is_button) {
            return Err(Error::Invalid("the peer sent something else than a socket to wake it by".into()));
        }
        let id = identify(&file)?;
        let other = || Error::Invalid("the peer claims to be another process's device".into());
        let mut peers = unpoisoned(&device.peers);
        if let Some(known) = peers.get(&id).and_then(Weak::upgrade) {
            return if known.pid == pid { Ok(known) } else { Err(other()) };
        }
        let table = match of_this_process(id) {
            Some(table) if pid == std::process::id() as i32 => table,
            Some(_) => return Err(other()),
            None => Table::of_peer(map_peer(file)?),
        };
        let header: Ref<Header> = Ref::new(&table.map, 0)?;
        if header.version.load(Ordering::Acquire) != VERSION
            || header.token.load(Ordering::Relaxed) != hello.token
        {
            return Err(Error::Invalid("the peer's segment is of another version; update both sides".into()));
        }
        let reach = device.choose_reach(hello, pid, table.is_own());
        let (life, kick) = (life().map(Fd::from), Fd::from(kick));
        let peer = Arc::new(Self { table, pid, reach, header, life, kick });
        peers.retain(|_, p| p.strong_count() > 0);
        peers.insert(id, Arc::downgrade(&peer));
        Ok(peer)
    }

    /// Who is inside, for the peer to find; see [`super::layout::Header`].
    #[inline]
    pub(super) fn roll(&self) -> &Ready {
        &self.header.visited
    }

    /// Wakes the peer's NIC thread, which then looks at its queue pair `index`.
    fn kick(&self, index: usize) {
        self.header.kicked.add(index);
        ring(self.kick.as_fd());
    }

    /// Whether its process is known to have ended, and so is inside nothing any more.
    pub(super) fn is_gone(&self) -> bool {
        self.life.as_ref().is_some_and(|life| {
            let mut look = [PollFd::new(life, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut look, Some(&now)).is_ok_and(|ready| ready > 0)
        })
    }
}

impl Inner {
    fn choose_reach(&self, hello: &Hello, pid: i32, is_own: bool) -> Reach {
        if is_own && !self.copy.is_forced() {
            return Reach::Direct { pid };
        }
        // A number of another PID namespace means nothing here; whether this one means the peer, the word decides.
        let reads = || place::probe(pid, hello.probe_addr, hello.process);
        if pid > 0 && self.copy.probe(reads) { Reach::Kernel { pid } } else { Reach::Service }
    }
}

/// The peer's queue pair of a connection, as this side uses it.
pub(super) struct Link {
    pub(super) peer: Arc<Peer>,
    pub(super) qp: Ref<QpShared>,
    /// Its index in the peer's device.
    pub(super) index: usize,
    pub(super) generation: u32,
    pub(super) pd: u32,
    /// Where it takes receives from: its own ring...
    pub(super) recvs: Option<Slots>,
    /// ...or a shared queue.
    pub(super) srq: Option<SrqLink>,
    pub(super) comps: Slots,
    pub(super) cq: Ref<CqShared>,
    /// The index of that queue in the peer's device.
    cq_index: usize,
    pub(super) channel: Option<(Ref<ChannelShared>, Fd)>,
    pub(super) rnr_retry: u8,
    /// The status word of the peer's queue pair while all is well.
    ready: u64,
}

/// A peer's shared receive queue.
pub(super) struct SrqLink {
    pub(super) shared: Ref<SrqShared>,
    pub(super) ring: Slots,
    pub(super) store: Slots,
}

impl Link {
    /// The queue pair that said hello, every offset of which is checked here once.
    pub(super) fn new(
        peer: Arc<Peer>,
        hello: &Hello,
        channel: Option<OwnedFd>,
        rnr_retry: u8,
    ) -> Result<Self> {
        let bad = |what: &str| Error::Invalid(format!("the peer's {what} does not exist"));
        let map = &peer.table.map;
        let index = hello.qp_index as usize;
        if index >= super::layout::QP_MAX {
            return Err(bad("queue pair"));
        }
        let qp: Ref<QpShared> = Ref::new(map, qp_at(index))?;
        let cq_index = qp.recv_cq.load(Ordering::Relaxed) as usize;
        if cq_index >= super::layout::CQ_MAX {
            return Err(bad("completion queue"));
        }
        let cq: Ref<CqShared> = Ref::new(map, cq_at(cq_index))?;
        let stride = u64::from(qp.recv_stride.load(Ordering::Relaxed));
        let shift = qp.recv_shift.load(Ordering::Relaxed);
        let (mut recvs, mut srq) = (None, None);
        match qp.srq.load(Ordering::Relaxed) as usize {
            0 if stride < recv::stride(1) => return Err(bad("receive ring")),
            0 => recvs = Some(Slots::new(map, qp.recv_ring.load(Ordering::Relaxed), stride, shift)?),
            n if n <= super::layout::SRQ_MAX => srq = Some(SrqLink::new(map, n - 1)?),
            _ => return Err(bad("shared receive queue")),
        }
        let comp_shift = qp.comp_shift.load(Ordering::Relaxed);
        let comps = Slots::new(map, qp.comp_ring.load(Ordering::Relaxed), comp::STRIDE, comp_shift)?;
        let channel = match (cq.channel.load(Ordering::Relaxed) as usize, channel) {
            (n @ 1..=super::layout::CHANNEL_MAX, Some(fd)) => {
                Some((Ref::new(map, channel_at(n - 1))?, fd.into()))
            }
            _ => None,
        };
        let pd = qp.pd.load(Ordering::Relaxed);
        let generation = hello.generation;
        let ready = state::word(generation, state::RTS);
        Ok(Self {
            qp,
            index,
            generation,
            pd,
            recvs,
            srq,
            comps,
            cq,
            cq_index,
            channel,
            rnr_retry,
            ready,
            peer,
        })
    }

    /// Has the peer's NIC thread look at its queue pair.
    pub(super) fn kick(&self) {
        self.peer.kick(self.index);
    }

    /// After publishing to its queue and a full fence: tells who sleeps there, or has armed it.
    #[inline]
    pub(super) fn announce(&self, solicited: bool) {
        let channel = self.channel.as_ref().map(|(shared, fd)| (&**shared, fd.as_fd()));
        announce(&self.cq, &self.peer.header.reporting, self.cq_index, channel, solicited);
    }

    /// This side waits for a receive: whoever posts one to a shared queue learns whom to wake.
    pub(super) fn name_starving(&self) {
        if let Some(srq) = &self.srq {
            self.peer.header.starving.add(self.index);
            srq.shared.hungry.store(1, Ordering::Release);
        }
    }

    /// Whether the peer's queue pair is (still) fully connected. Look only while inside ([`super::layout::PeerWords`]).
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.qp.status.load(Ordering::Acquire) == self.ready
    }

    /// Whether it accepts operations at all: also while the peer waits for our confirmation.
    #[inline]
    pub(super) fn accepts(&self) -> bool {
        let word = self.qp.status.load(Ordering::Acquire);
        word == self.ready || word == state::word(self.generation, state::RTR)
    }
}

impl SrqLink {
    fn new(map: &Arc<Map>, index: usize) -> Result<Self> {
        let shared: Ref<SrqShared> = Ref::new(map, srq_at(index))?;
        let shift = shared.shift.load(Ordering::Relaxed);
        let stride = u64::from(shared.stride.load(Ordering::Relaxed));
        if stride < recv::stride(1) {
            return Err(Error::Invalid("the peer's shared receives do not exist".into()));
        }
        let ring = Slots::new(map, shared.ring.load(Ordering::Relaxed), 8, shift)?;
        let store = Slots::new(map, shared.store.load(Ordering::Relaxed), stride, shift)?;
        Ok(Self { shared, ring, store })
    }
}
