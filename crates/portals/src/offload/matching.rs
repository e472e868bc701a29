//! [`MatchFirmware`]: an interface as firmware on the NIC: the engine, with the NIC as its transport.
//!
//! All data are inline. Events go into the ring in order.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use verbs::host::Step;
use verbs::{Error as NicError, Firmware, Message as Arrived, NicCtx, Sge};

use super::command::{Command, Extent, Triggered};
use super::record::{COUNTER, EVENT, Outcome, REPLY, counter_bytes, event_bytes, reply_bytes};
use crate::engine::initiator::{MemoryDescriptor, Outgoing};
use crate::engine::target::Arrival;
use crate::engine::{Engine, ListId};
use crate::link::wire::Message;
use crate::objects::entry::Entry;
use crate::objects::error::{Error, Result};
use crate::objects::event::Fail;
use crate::objects::handles::{CtHandle, EqHandle};
use crate::objects::limits::Limits;
use crate::objects::message::{Action, Answer, Request};
use crate::objects::process::Process;
use crate::objects::region::Region;

/// The interface number in messages: there is only one interface.
const INTERFACE: u8 = 0;

/// The address of a process: that of its card, with its number as the port.
pub(super) fn address(process: Process) -> SocketAddr {
    (Ipv4Addr::from(process.nid), process.pid as u16).into()
}

/// An entry of Portals 3.3 that accepts no messages yet.
#[derive(Debug)]
struct Draft {
    place: ListId,
    entry: Entry,
    user_ptr: u64,
    has_memory: bool,
}

/// An interface that runs on a NIC.
#[derive(Debug)]
pub(super) struct MatchFirmware {
    engine: Engine,
    eq: EqHandle,
    memory: Vec<Extent>,
    ring: u64,
    slots: u64,
    reply: u64,
    /// Address of the counters' values in the process's memory.
    counters: u64,
    /// Events written into the ring, and events that the process has read.
    written: u64,
    seen: u64,
    /// An event before the next one was lost.
    lost: bool,
    replies: u64,
    /// Requests that the NIC had no room for.
    unsent: VecDeque<Outgoing>,
    drafts: BTreeMap<u64, Draft>,
    last_draft: u64,
}

impl MatchFirmware {
    pub(super) fn new(process: Process, limits: Limits, slots: usize) -> Self {
        let mut engine = Engine::new(process, 0, true, limits);
        let eq = engine.eq_alloc(slots).unwrap_or(EqHandle::from_number(u64::MAX));
        engine.record_changes();
        let (unsent, drafts) = (VecDeque::new(), BTreeMap::new());
        Self {
            engine,
            eq,
            memory: Vec::new(),
            ring: 0,
            slots: 0,
            reply: 0,
            counters: 0,
            written: 0,
            seen: 0,
            lost: false,
            replies: 0,
            unsent,
            drafts,
            last_draft: 0,
        }
    }

    /// A scatter/gather element for the process's memory; `None` for memory that was not registered.
    fn sge(&self, addr: u64, len: u64) -> Option<Sge> {
        let length = u32::try_from(len).ok()?;
        let holds = |extent: &&Extent| {
            addr.checked_sub(extent.addr)
                .and_then(|at| at.checked_add(len))
                .is_some_and(|end| end <= extent.len)
        };
        self.memory.iter().find(holds).map(|extent| Sge { addr, length, lkey: extent.lkey })
    }

    fn sges(&self, region: &Region, offset: u64, len: u64) -> Option<Vec<Sge>> {
        region.part(offset, len).map(|piece| self.sge(piece.addr, piece.len)).collect()
    }

    /// Executes a command; returns the result, if the process waits for it.
    fn execute(&mut self, command: Command) -> Option<Outcome> {
        let done = |result: Result<()>| Some(result.map(|()| Some(0)));
        match command {
            Command::Memory(extent) => {
                self.memory.push(extent);
                None
            }
            Command::Queues { ring, slots, reply } => {
                (self.ring, self.slots, self.reply) = (ring, slots, reply);
                self.counters = reply + REPLY as u64;
                Some(Ok(Some(0)))
            }
            Command::PtEnable { index, is_enabled: true } => done(self.engine.pt_enable(index)),
            Command::PtEnable { index, is_enabled: false } => done(self.engine.pt_disable(index)),
            Command::PtFree(index) => done(self.engine.pt_free(index)),
            Command::PtAlloc { options, index } => {
                Some(self.engine.pt_alloc(options, Some(self.eq), index).map(|index| Some(index.into())))
            }
            Command::Append { place, entry, user_ptr, seen } => {
                Some(self.append(place, entry, user_ptr, seen))
            }
            Command::Unlink(entry) => done(self.engine.unlink(entry)),
            Command::Bind { addr, len, options, counter } => {
                let (region, eq) = (Region::new(addr, len), Some(self.eq));
                let md = self.engine.md_bind(MemoryDescriptor { region, options, eq, counter });
                Some(md.map(|md| Some(md.number())))
            }
            Command::Release(md) => done(self.engine.md_release(md)),
            // A failed transfer is not reported: an initiator's error has no reply, as on a NIC.
            Command::Transfer(transfer) => {
                self.engine.transfer(&transfer).unwrap_or(());
                None
            }
            Command::CtAlloc => Some(self.engine.ct_alloc().map(|ct| Some(ct.number()))),
            Command::CtFree(ct) => done(self.engine.ct_free(ct)),
            Command::CtCancel(ct) => done(self.engine.ct_cancel(ct)),
            Command::CtSet(ct, to) => done(self.engine.ct_set(ct, to)),
            Command::CtInc(ct, by) => done(self.engine.ct_inc(ct, by)),
            Command::Trigger { ct, threshold, triggered } => Some(self.trigger(ct, threshold, triggered)),
            Command::Draft { place, entry } => {
                self.last_draft += 1;
                let draft = Draft { place, entry, user_ptr: 0, has_memory: false };
                self.drafts.insert(self.last_draft, draft);
                Some(Ok(Some(self.last_draft)))
            }
            Command::Attach { draft, addr, len, user_ptr } => {
                let Some(draft) = self.drafts.get_mut(&draft) else { return Some(Err(Error::ArgInvalid)) };
                draft.entry.region = Region::new(addr, len);
                (draft.user_ptr, draft.has_memory) = (user_ptr, true);
                Some(Ok(Some(0)))
            }
            Command::Update { draft, seen } => Some(self.update(draft, seen)),
            Command::Nothing => Some(Ok(Some(0))),
            Command::Seen(count) => {
                self.seen = self.seen.max(count);
                None
            }
        }
    }

    fn trigger(&mut self, ct: CtHandle, threshold: u64, triggered: Triggered) -> Outcome {
        let engine = &mut self.engine;
        match triggered {
            Triggered::Transfer(transfer) => engine.trigger(ct, threshold, &transfer),
            Triggered::Inc(target, increment) => engine.trigger_ct_inc(ct, threshold, target, increment),
            Triggered::Set(target, value) => engine.trigger_ct_set(ct, threshold, target, value),
            Triggered::Append { place, entry, user_ptr } => {
                let entry = engine.trigger_append(ct, threshold, place, entry, user_ptr)?;
                return Ok(Some(entry.number()));
            }
            Triggered::Unlink(entry) => engine.trigger_unlink(ct, threshold, entry),
        }
        .map(|()| Some(0))
    }

    /// Whether the process has read all events, so that its decisions based on them are still valid.
    fn is_current(&self, seen: u32) -> bool {
        self.written as u32 == seen
    }

    fn append(&mut self, place: ListId, entry: Entry, user_ptr: u64, seen: Option<u32>) -> Outcome {
        if seen.is_some_and(|seen| !self.is_current(seen)) {
            return Ok(None);
        }
        self.engine.append(place, entry, user_ptr).map(|entry| Some(entry.number()))
    }

    fn update(&mut self, draft: u64, seen: u32) -> Outcome {
        if self.drafts.get(&draft).is_none_or(|draft| !draft.has_memory) {
            return Err(Error::ArgInvalid);
        }
        if !self.is_current(seen) {
            return Ok(None);
        }
        let Some(Draft { place, entry, user_ptr, .. }) = self.drafts.remove(&draft) else {
            return Err(Error::ArgInvalid);
        };
        self.append(place, entry, user_ptr, None)
    }

    /// Sends the engine's requests and writes its events.
    fn flush(&mut self, nic: &mut dyn NicCtx) {
        while let Some(outgoing) = self.unsent.pop_front().or_else(|| self.engine.next_outgoing()) {
            if !self.send(nic, &outgoing) {
                self.unsent.push_front(outgoing);
                nic.request_turn();
                break;
            }
        }
        self.write_events(nic);
        self.write_counters(nic);
    }

    /// Writes the changed counters to the process's memory.
    fn write_counters(&mut self, nic: &mut dyn NicCtx) {
        while let Some((ct, value)) = self.engine.next_changed() {
            let at = self.counters + u64::from(ct.number() as u32) * COUNTER as u64;
            self.write(nic, at, counter_bytes(value).as_slice());
        }
    }

    /// Sends a request; returns whether it is done with and need not be retried.
    fn send(&mut self, nic: &mut dyn NicCtx, outgoing: &Outgoing) -> bool {
        let Outgoing { target, request, payload, .. } = outgoing;
        let sges = match payload {
            Some((region, offset)) => self.sges(region, *offset, request.length),
            None => Some(Vec::new()),
        };
        let message = Message::Request { interface: INTERFACE, request: *request, exposed: None };
        let sent = sges.map(|sges| nic.send(address(*target), message.bytes().as_slice(), &sges));
        match sent {
            Some(Ok(())) => self.engine.sent(request.operation),
            Some(Err(NicError::QueueFull { .. })) => return false,
            _ => self.engine.undeliverable(request.operation),
        }
        true
    }

    /// Writes events while the ring has room; the rest stay in the engine's queue, where flow control counts
    /// them.
    fn write_events(&mut self, nic: &mut dyn NicCtx) {
        while self.written - self.seen < self.slots {
            let Ok(Some((event, lost))) = self.engine.eq_get(self.eq) else { return };
            self.lost |= lost;
            let slot = self.ring + self.written % self.slots * EVENT as u64;
            let record = event_bytes(&event, self.written + 1, std::mem::take(&mut self.lost));
            // The process registered the ring.
            if self.write(nic, slot, record.as_slice()) {
                self.written += 1;
            }
        }
    }

    fn write(&self, nic: &mut dyn NicCtx, at: u64, record: &[u8]) -> bool {
        self.sge(at, record.len() as u64).is_some_and(|sge| nic.event(sge, record).is_ok())
    }

    fn request(&mut self, nic: &mut dyn NicCtx, from: SocketAddr, payload_len: u64, request: &Request) {
        let is_whole = match request.action {
            Action::Put => payload_len == request.length,
            Action::Get => true,
            // The payload does not pass through firmware, which can therefore not combine it.
            Action::Atomic(..) | Action::FetchAtomic(..) | Action::Swap(..) => false,
        };
        if !is_whole {
            return;
        }
        nic.charge_step(Step::Match, self.engine.walk_length(request));
        let (answer, data) = match self.engine.arrive(request) {
            Arrival::Refused(answer) => (answer, Vec::new()),
            // This interface is not patient: the NIC has flow control of its own below it.
            Arrival::Wait => return,
            Arrival::Deliver(delivery) => {
                let (region, offset, len) = delivery.place();
                let sges = self.sges(region, offset, len);
                let moved = sges.filter(|sges| request.action == Action::Get || deposit(nic, sges));
                let fail = if moved.is_some() { Fail::Ok } else { Fail::Segv };
                let data = moved.filter(|_| request.action == Action::Get).unwrap_or_default();
                (self.engine.deliver(delivery, fail), data)
            }
        };
        if let Some(answer) = answer {
            let message = Message::Answer { interface: INTERFACE, answer, is_asked: true };
            // If the answer cannot be sent, the initiator waits as for a target that is gone.
            nic.send(from, message.bytes().as_slice(), &data).unwrap_or(());
        }
    }

    fn answer(&mut self, nic: &mut dyn NicCtx, payload_len: u64, answer: &Answer) {
        if let Some((region, offset, most)) = self.engine.reply_to(answer.operation) {
            let sges = self.sges(&region, offset, payload_len.min(most));
            if sges.is_none_or(|sges| !deposit(nic, &sges)) {
                self.engine.answered(&Answer { fail: Fail::Segv, ..*answer });
                return;
            }
        }
        self.engine.answered(answer);
    }
}

/// Writes a message's payload into memory, piece by piece.
fn deposit(nic: &mut dyn NicCtx, sges: &[Sge]) -> bool {
    let mut offset = 0;
    sges.iter().all(|sge| {
        let done = nic.deposit(offset, *sge).is_ok();
        offset += u64::from(sge.length);
        done
    })
}

impl Firmware for MatchFirmware {
    fn on_command(&mut self, nic: &mut dyn NicCtx, command: &[u8]) {
        let Some(command) = Command::parse(command) else { return };
        let outcome = self.execute(command);
        // The caller that receives a counter's handle must find its value in memory.
        self.write_counters(nic);
        if let Some(outcome) = outcome {
            self.replies += 1;
            let record = reply_bytes(outcome, self.replies);
            self.write(nic, self.reply, record.as_slice());
        }
        self.flush(nic);
    }

    fn on_message(&mut self, nic: &mut dyn NicCtx, message: &Arrived<'_>) {
        match Message::parse(message.header, message.header.len()) {
            Some((Message::Request { request, .. }, ..)) => {
                self.request(nic, message.from, message.payload_len, &request);
            }
            Some((Message::Answer { answer, .. }, ..)) => self.answer(nic, message.payload_len, &answer),
            Some((Message::Credit, ..)) | None => return,
        }
        self.flush(nic);
    }

    fn on_turn(&mut self, nic: &mut dyn NicCtx) {
        self.flush(nic);
    }
}
