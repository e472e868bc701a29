//! What programs do with the network: objects made and dropped, requests posted, completions polled. Calls that look at
//! what events change are made when the world has come to the caller's clock.

use std::sync::Arc;

use host::world::Node;
use host::{Span, Time};
use verbs::{
    Access, AsyncEvent, Buf, CmEvent, Data, Error, MemoryKind, QpInit, QpState, RecvWr, Result, SendFlags,
    SendOp, SendWr, SrqInit, Wc,
};

pub(crate) use super::connect::address;
use super::event::Event;
use super::pair::{Pair, ReceiveQueue, Responder, SendQueue, Wqe};
use super::state::State;
use super::tables::{Channel, Context, Manager, Module, Queue, Region, Shared, Slots};
pub(crate) use super::tables::{ListenerKey, Told};
use crate::limits;

/// Where NIC memory begins a piece.
const MODULE_ALIGN: u64 = 4096;

/// The keys of what a queue pair is made of.
pub(crate) struct PairParts {
    pub(crate) context: u32,
    pub(crate) domain: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<u32>,
}

impl State {
    /// Opens a card of a node, perhaps one port of it only; the numbers of the opened device and of the card.
    pub(crate) fn open(&mut self, node: &Node, number: usize, port: Option<usize>) -> (u32, usize) {
        let card = self.card_of(node, number);
        (self.contexts.insert(Context { card, port, events: Default::default() }), card)
    }

    pub(crate) fn close(&mut self, context: u32) {
        self.contexts.remove(context);
    }

    pub(crate) fn poll_async_event(&mut self, context: u32) -> Option<AsyncEvent> {
        self.contexts.get_mut(context)?.events.pop_front()
    }

    /// A new protection domain.
    pub(crate) fn domain(&mut self) -> u32 {
        self.last_domain += 1;
        self.last_domain
    }

    pub(crate) fn alloc_dm(&mut self, context: u32, card: usize, len: usize) -> Result<Buf> {
        self.modules.retain(|_, module| module.owner.strong_count() > 0);
        let own = self.modules.values().filter(|module| module.card == card);
        let used: u64 = own.map(|module| module.len).sum();
        let size = (self.params.nic_memory.size_mib as u64) << 20;
        Error::check_limit("bytes of NIC memory", len as u64, size.saturating_sub(used))?;
        let buf = Buf::alloc_nic(len, used.next_multiple_of(MODULE_ALIGN))?;
        let owner = Arc::downgrade(&buf.owner());
        self.modules.insert(buf.addr(), Module { context, card, len: len as u64, owner });
        Ok(buf)
    }

    /// Registers memory: its key, and its address as requests give it.
    pub(crate) fn register(
        &mut self,
        context: u32,
        domain: u32,
        buf: &Buf,
        access: Access,
    ) -> Result<(u32, u64)> {
        Error::check_limit("memory regions", self.regions.len() as u64 + 1, limits::REGIONS.into())?;
        if buf.kind() == MemoryKind::Nic {
            let below = self.modules.range(..=buf.addr()).next_back();
            let own = below.is_some_and(|(start, module)| {
                module.context == context
                    && buf.addr() - start < module.len
                    && module.owner.strong_count() > 0
            });
            if !own {
                return Err(Error::Foreign { what: "the NIC memory" });
            }
        }
        let base = if buf.kind() == MemoryKind::Nic { 0 } else { buf.addr() };
        let region = Region { domain, buf: buf.clone(), base, access, invalidated: false };
        Ok((self.regions.insert(region), base))
    }

    pub(crate) fn deregister(&mut self, key: u32) {
        self.regions.remove(key);
    }

    pub(crate) fn create_channel(&mut self) -> u32 {
        self.channels.insert(Channel { events: Default::default() })
    }

    pub(crate) fn drop_channel(&mut self, channel: u32) {
        self.channels.remove(channel);
    }

    pub(crate) fn poll_channel(&mut self, channel: u32) -> Option<u32> {
        self.channels.get_mut(channel)?.events.pop_front()
    }

    pub(crate) fn create_queue(
        &mut self,
        context: u32,
        card: usize,
        cqe: u32,
        channel: Option<u32>,
    ) -> Result<u32> {
        Error::check_limit("completion queues", self.queues.len() as u64 + 1, limits::QUEUES.into())?;
        let (written, entries) = Default::default();
        let queue = Queue { context, card, cqe, written, entries, overrun: false, channel, armed: None };
        Ok(self.queues.insert(queue))
    }

    pub(crate) fn drop_queue(&mut self, queue: u32) {
        self.queues.remove(queue);
    }

    /// Arms a completion queue.
    pub(crate) fn arm(&mut self, key: u32, solicited_only: bool) -> Result<()> {
        let Some(queue) = self.queues.get_mut(key).filter(|queue| queue.channel.is_some()) else {
            return Err(Error::Invalid("the completion queue has no channel".into()));
        };
        queue.armed = Some(solicited_only && queue.armed != Some(false));
        Ok(())
    }

    /// How long the processor waits before it can tell a card of another request.
    pub(crate) fn wait_for_doorbell(&mut self, now: Time, card: usize) -> Span {
        let slowness = self.rouse(card);
        self.cards[card].doorbell.wait(now, slowness)
    }

    /// A rank has looked at a queue of this opened device, and found something or not. Whether what it found ended a
    /// sleep, and whether the last that it found was another device's.
    pub(crate) fn looked(&mut self, rank: usize, context: u32, queue: u32, found: bool) -> (bool, bool) {
        let looks = self.looks.entry(rank).or_default();
        if !found {
            looks.in_vain = Some(queue);
            return (false, false);
        }
        let slept = looks.in_vain.take() == Some(queue);
        (slept, looks.context.replace(context).is_some_and(|last| last != context))
    }

    /// Takes completions; how many.
    pub(crate) fn poll(&mut self, key: u32, wcs: &mut [Wc]) -> Result<usize> {
        for (count, place) in wcs.iter_mut().enumerate() {
            let Some(queue) = self.queues.get_mut(key) else { return Ok(count) };
            if queue.overrun {
                return Err(Error::CqOverrun { cqe: queue.cqe });
            }
            let Some(entry) = queue.entries.pop_front() else { return Ok(count) };
            *place = entry.wc;
            match entry.slots {
                Slots::Send(qp, count) => drop(self.pairs.get_mut(qp).map(|pair| pair.send.used -= count)),
                Slots::Receive(qp) => drop(self.pairs.get_mut(qp).map(|pair| pair.receives.used -= 1)),
                Slots::SharedReceive(srq) => drop(self.shared.get_mut(srq).map(|srq| srq.receives.used -= 1)),
            }
        }
        Ok(wcs.len())
    }

    pub(crate) fn create_shared(&mut self, context: u32, domain: u32, init: SrqInit) -> Result<u32> {
        Error::check_limit("shared receive queues", self.shared.len() as u64 + 1, limits::SHARED.into())?;
        let SrqInit { max_wr, max_sge } = init;
        let receives = ReceiveQueue::new(max_wr);
        Ok(self.shared.insert(Shared { context, domain, max_wr, max_sge, limit: 0, receives }))
    }

    pub(crate) fn drop_shared(&mut self, srq: u32) {
        self.shared.remove(srq);
    }

    pub(crate) fn arm_limit(&mut self, srq: u32, limit: u32) {
        if let Some(srq) = self.shared.get_mut(srq) {
            srq.limit = limit;
        }
    }

    pub(crate) fn post_shared(&mut self, now: Time, key: u32, wr: &RecvWr<'_>) -> Result<()> {
        let Some(srq) = self.shared.get_mut(key) else { return Ok(()) };
        Error::check_limit("pieces", wr.sges.len() as u64, srq.max_sge.into())?;
        if srq.receives.used >= srq.max_wr {
            return Err(Error::QueueFull { queue: "shared receive", depth: srq.max_wr });
        }
        srq.receives.push(wr, now);
        Ok(())
    }

    pub(crate) fn create_pair(&mut self, card: usize, parts: PairParts, init: &QpInit) -> Result<u32> {
        Error::check_limit("queue pairs", self.pairs.len() as u64 + 1, limits::PAIRS.into())?;
        let pair = Pair {
            context: parts.context,
            card,
            domain: parts.domain,
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
            srq: parts.srq,
            cap: init.cap,
            sig_all: init.sq_sig_all,
            mtu: init.mtu.map_or(self.mtu, u64::from).min(self.mtu),
            state: QpState::Init,
            established: false,
            peer: None,
            port: 0,
            manager: None,
            request: None,
            rnr_retry: 7,
            reads_max: 1,
            send: SendQueue::default(),
            receives: ReceiveQueue::new(init.cap.max_recv_wr.max(1)),
            responder: Responder::default(),
            flows: false,
            fetches: false,
        };
        Ok(self.pairs.insert(pair))
    }

    pub(crate) fn pair_state(&self, qp: u32) -> QpState {
        self.pairs.get(qp).map_or(QpState::Error, |pair| pair.state)
    }

    /// Moves a queue pair to the error state.
    pub(crate) fn give_up_pair(&mut self, now: Time, qp: u32) {
        self.fail(now, qp);
        self.bury(now);
    }

    /// A queue pair goes away: its own requests complete nowhere.
    pub(crate) fn drop_pair(&mut self, now: Time, qp: u32) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        pair.manager = None;
        let s = &mut pair.send;
        s.head = s.tail;
        pair.responder.taken.clear();
        pair.receives = ReceiveQueue::new(1);
        self.fail(now, qp);
        self.pairs.remove(qp);
    }

    /// Looks whether a send request may be posted.
    pub(crate) fn check_send(&self, qp: u32, wr: &SendWr<'_>) -> Result<()> {
        let Some(pair) = self.pairs.get(qp) else { return Ok(()) };
        let fetches = matches!(wr.op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        match wr.data {
            Data::Inline(_) if fetches => {
                return Err(Error::Invalid("inline data with an operation that returns data".into()));
            }
            _ if !matches!(pair.state, QpState::ReadyToSend | QpState::Error) => {
                return Err(Error::WrongState { call: "post_send", state: pair.state });
            }
            Data::Sges(sges) => {
                Error::check_limit("pieces", sges.len() as u64, pair.cap.max_send_sge.into())?;
                Error::check_limit("bytes of a message", total(sges), limits::MESSAGE_BYTES)?;
            }
            Data::Inline(bytes) => {
                Error::check_limit("inline bytes", bytes.len() as u64, pair.cap.max_inline.into())?;
            }
        }
        if pair.send.used >= pair.cap.max_send_wr {
            return Err(Error::QueueFull { queue: "send", depth: pair.cap.max_send_wr });
        }
        Ok(())
    }

    /// Posts a send request that has been checked.
    pub(crate) fn post_send(&mut self, now: Time, qp: u32, wr: &SendWr<'_>) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let depth = pair.cap.max_send_wr;
        pair.send.used += 1;
        let slot = pair.send.push(depth);
        let (mut sges, mut inline) = (std::mem::take(&mut slot.sges), std::mem::take(&mut slot.inline));
        sges.clear();
        inline.clear();
        let len = match wr.data {
            Data::Sges(pieces) => {
                sges.extend_from_slice(pieces);
                total(pieces)
            }
            Data::Inline(bytes) => {
                inline.extend_from_slice(bytes);
                bytes.len() as u64
            }
        };
        *slot = Wqe {
            wr_id: wr.wr_id,
            op: Some(wr.op),
            sges,
            inline,
            signalled: wr.flags.contains(SendFlags::SIGNALED),
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            fence: wr.flags.contains(SendFlags::FENCE),
            len,
            ..Wqe::default()
        };
        self.at(now, Event::Doorbell(qp));
    }

    /// Looks whether a receive may be posted.
    pub(crate) fn check_receive(&self, qp: u32, wr: &RecvWr<'_>) -> Result<()> {
        let Some(pair) = self.pairs.get(qp) else { return Ok(()) };
        if pair.srq.is_some() {
            return Err(Error::Invalid("receives go to the shared receive queue".into()));
        }
        Error::check_limit("pieces", wr.sges.len() as u64, pair.cap.max_recv_sge.into())?;
        if pair.receives.used >= pair.cap.max_recv_wr {
            return Err(Error::QueueFull { queue: "receive", depth: pair.cap.max_recv_wr });
        }
        Ok(())
    }

    /// Posts a receive that has been checked.
    pub(crate) fn post_receive(&mut self, now: Time, qp: u32, wr: &RecvWr<'_>) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        pair.receives.push(wr, now);
        if pair.state == QpState::Error {
            self.at(now, Event::Flush(qp));
        }
    }

    pub(crate) fn create_manager(&mut self, card: usize) -> u32 {
        self.managers.insert(Manager { card, events: Default::default() })
    }

    /// The next event of a channel; a request as its number, with what the connecting side said.
    pub(crate) fn poll_manager(&mut self, manager: u32) -> Option<Told> {
        self.managers.get_mut(manager)?.events.pop_front()
    }

    /// What a connect request says: private data, the connecting side's address, the listener's.
    pub(crate) fn request(&self, key: u32) -> Option<(Vec<u8>, std::net::SocketAddr, std::net::SocketAddr)> {
        let request = self.requests.get(key)?;
        Some((request.private_data.clone(), request.peer, request.addr))
    }
}

/// An event as programs see it, but for requests.
pub(crate) fn event_of(told: Told) -> std::result::Result<CmEvent, u32> {
    Ok(match told {
        Told::Request(key) => return Err(key),
        Told::Established(qp_num, private_data) => CmEvent::Established { qp_num, private_data },
        Told::Rejected(qp_num, private_data) => CmEvent::Rejected { qp_num, private_data },
        Told::Failed(qp_num, why) => CmEvent::ConnectFailed { qp_num, why },
        Told::Disconnected(qp_num) => CmEvent::Disconnected { qp_num },
    })
}

fn total(sges: &[verbs::Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}
