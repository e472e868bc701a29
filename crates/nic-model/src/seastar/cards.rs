//! [`Cards`]: all cards of one world and their events. [`Fabric`] is the world's event handler: processors
//! run firmware or continue its steps; messages leave, arrive, and become visible.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::world::{EventHandler, HandlerId, Node, Timeline};
use host::{Span, Time};
use verbs::{Error, Firmware, Message, Result};

use super::card::{Card, HostWrites, LoadedFirmware};
use super::costs::Costs;
use super::mesh::Mesh;
use super::recorder::Recorder;
use super::transfer_time::{Component, Profile, TransferTime};
use super::work::{
    Address, ControlMessage, Event, FirmwareMessage, HostWrite, PendingSteps, Step, Task, Work,
};
use crate::config::{Config, Payload};
use crate::machine::{FlowKind, MatchKind, Params};
use crate::net::protection::{Extent, Protection};
use crate::net::slab::Slab;

/// All cards of one world with the same values.
pub(super) struct Fabric {
    params: Params,
    payload: Payload,
    cards: Mutex<Cards>,
}

/// All fabrics of a world.
#[derive(Default)]
struct Fabrics(Mutex<Vec<Arc<Fabric>>>);

/// The fabrics of the world with this timeline.
fn fabrics(timeline: &Timeline) -> Arc<Fabrics> {
    timeline.shared_object("SeaStar", || Arc::new(Fabrics::default()))
}

impl Fabric {
    /// The fabric of this node's card.
    pub(super) fn of_node(node: &Node, config: &Config) -> Arc<Self> {
        let (timeline, params, payload) = (node.timeline(), config.machine.params, config.payload);
        let all = fabrics(&timeline);
        let mut all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|fabric| fabric.params == params && fabric.payload == payload);
        if let Some(fabric) = known {
            return fabric.clone();
        }
        let cards = Mutex::new(Cards::new(&params, payload, timeline.clone()));
        let fabric = Arc::new(Self { params, payload, cards });
        fabric.lock().handler = Some(timeline.add_handler(fabric.clone()));
        all.push(fabric.clone());
        fabric
    }

    /// Locks the state of all cards.
    pub(super) fn lock(&self) -> MutexGuard<'_, Cards> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the kernel of a node has spent in interrupts that have begun until now.
    pub(super) fn interrupted(node: &Node) -> Span {
        node.sync();
        let all = fabrics(&node.timeline());
        let all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|fabric| fabric.lock().interrupted(node.index())).fold(Span::ZERO, |a, b| a + b)
    }

    /// The profile of the last record that a node's programs have written.
    pub(super) fn profile(node: &Node) -> Option<Profile> {
        let all = fabrics(&node.timeline());
        let all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let timings = all.iter().filter_map(|fabric| fabric.lock().last_timing(node.index()));
        timings.max_by_key(|timing| timing.at).map(Profile::from)
    }
}

impl EventHandler for Fabric {
    fn on_event(&self, now: Time, token: u64) {
        self.lock().handle_event(now, token as u32);
    }
}

/// The cards, and everything in flight.
pub(super) struct Cards {
    pub(super) costs: Costs,
    pub(super) protection: Protection,
    mesh: Mesh,
    cards: Vec<Option<Card>>,
    chains: Slab<PendingSteps>,
    events: Slab<Event>,
    timeline: Timeline,
    handler: Option<HandlerId>,
}

impl Cards {
    fn new(params: &Params, payload: Payload, timeline: Timeline) -> Self {
        Self {
            costs: Costs::new(params),
            protection: Protection::new(0, payload),
            mesh: Mesh::new(&params.router),
            cards: Vec::new(),
            chains: Slab::default(),
            events: Slab::default(),
            timeline,
            handler: None,
        }
    }

    /// The clock of the running rank or event handler.
    pub(super) fn now(&self) -> Time {
        self.timeline.now()
    }

    /// Adds a card to a node, if it has none yet.
    pub(super) fn add_card(&mut self, node: &Node) -> Result<()> {
        let (index, room) = (node.index(), self.mesh.len());
        Error::check_limit("nodes of the mesh", index as u64 + 1, room as u64)?;
        if self.cards.len() <= index {
            self.cards.resize_with(index + 1, || None);
        }
        self.cards[index].get_or_insert_with(|| Card::new(node.clone()));
        Ok(())
    }

    /// The card of a node, which has one.
    fn card(&mut self, node: usize) -> &mut Card {
        self.cards[node].as_mut().expect("events are of nodes with a card")
    }

    /// Whether a program is loaded at an address.
    fn has(&self, at: Address) -> bool {
        let card = self.cards.get(at.node).and_then(Option::as_ref);
        card.is_some_and(|card| card.programs.contains_key(&at.pid))
    }

    /// How long the kernel of a node has spent in interrupts.
    fn interrupted(&self, node: usize) -> Span {
        let card = self.cards.get(node).and_then(Option::as_ref);
        card.map_or(Span::ZERO, |card| card.interrupted)
    }

    /// The timing of the last record that the host of a node could see.
    fn last_timing(&self, node: usize) -> Option<TransferTime> {
        let card = self.cards.get(node)?.as_ref()?;
        card.programs.values().filter_map(|program| program.last_timing).max_by_key(|timing| timing.at)
    }

    /// Loads a firmware program.
    pub(super) fn load(&mut self, at: Address, domain: u32, firmware: Box<dyn Firmware>) -> Result<Address> {
        let most = self.costs.programs;
        let programs = &mut self.card(at.node).programs;
        Error::check_limit("programs in the card's memory", programs.len() as u64 + 1, most as u64)?;
        let free = || (1..=u16::MAX).find(|pid| !programs.contains_key(pid));
        let pid = if at.pid == 0 { free().unwrap_or(0) } else { at.pid };
        let at = Address { pid, ..at };
        if pid == 0 || programs.contains_key(&pid) {
            let why = "a program is loaded there; choose another port".to_owned();
            return Err(Error::Address { addr: at.socket(), why });
        }
        let (wakeup, effects) = (Arc::default(), HostWrites::default());
        let firmware = Some(firmware);
        programs.insert(
            pid,
            LoadedFirmware { domain, firmware, wakeup, effects, wants_turn: false, last_timing: None },
        );
        Ok(at)
    }

    /// What wakes a thread that waits for a program.
    pub(super) fn wakeup(&mut self, at: Address) -> Arc<host::EventCount> {
        self.card(at.node).programs[&at.pid].wakeup.clone()
    }

    /// Removes a program; drop it after releasing the lock of the cards.
    pub(super) fn unload(&mut self, at: Address) -> Option<LoadedFirmware> {
        self.card(at.node).programs.remove(&at.pid)
    }

    /// Schedules an event.
    fn schedule(&mut self, at: Time, event: Event) {
        let key = self.events.insert(event);
        if let Some(handler) = self.handler {
            self.timeline.schedule(at, handler, key.into());
        }
    }

    /// Handles an event that is due.
    fn handle_event(&mut self, now: Time, key: u32) {
        match self.events.remove(key) {
            Some(Event::Card { node, task, timing }) => self.run_card_task(now, node, task, timing),
            Some(Event::Kernel { at, work, timing }) => self.run_kernel_work(now, at, work, timing),
            Some(Event::Departure(message)) => self.on_departure(now, message),
            Some(Event::Arrival(message)) => self.on_arrival(now, message),
            Some(Event::Visible { at, effect }) => self.on_visible(now, at, effect),
            None => {}
        }
    }

    /// A command from the host to its program, issued at `now`; returns when the caller may continue.
    pub(super) fn command(&mut self, now: Time, at: Address, command: &[u8]) -> Time {
        let work = Work::Command(command.to_vec());
        let mut timing = TransferTime::new(now);
        match self.costs.place {
            MatchKind::Nic => {
                let given = now + self.costs.post;
                timing.advance_to(given + self.costs.write, Component::HyperTransport);
                let (node, task) = (at.node, Task::Program(at.pid, work));
                self.schedule(timing.at, Event::Card { node, task, timing });
                given
            }
            MatchKind::Host => {
                let begins = now.max(self.card(at.node).kernel);
                timing.advance_to(begins, Component::Waiting);
                timing.advance_to(begins + self.costs.trap, Component::Portals);
                let ends = self.run(at, work, timing);
                self.card(at.node).kernel = ends;
                ends
            }
        }
    }

    /// The card's loop reaches a task.
    fn run_card_task(&mut self, now: Time, node: usize, task: Task, mut timing: TransferTime) {
        let (turn, busy) = (self.costs.turn, self.card(node).processor);
        // An idle processor is half way through its loop on average; a busy one starts a turn when it has
        // finished.
        let begins = if busy > now { busy + turn } else { now + Span::from_ps(turn.as_ps() / 2) };
        timing.advance_to(busy.min(begins), Component::Waiting);
        timing.advance_to(begins, Component::Polling);
        let ends = match task {
            Task::Program(pid, work) => self.run(Address { node, pid }, work, timing),
            Task::Header(message) => self.on_header(message, timing),
            Task::Transmit(message, chain) => {
                timing.advance_to(timing.at + self.costs.card_transmit, Component::Transmit);
                self.transmit(FirmwareMessage { timing, ..*message }, chain);
                timing.at
            }
            Task::Deposit(chain) => {
                timing.advance_to(timing.at + self.costs.card_deposit, Component::Receive);
                self.deposit(chain, timing);
                timing.at
            }
            Task::Done(chain) => {
                timing.advance_to(timing.at + self.costs.complete, Component::Receive);
                self.interrupt_kernel(chain, timing)
            }
            Task::Control(control) => self.on_control(node, control, timing),
            Task::Retransmit(control) => self.retransmit(node, &control, timing),
            Task::SendControl(control) => {
                timing.advance_to(timing.at + self.costs.card_transmit, Component::Transmit);
                self.send_control(node, control, timing);
                timing.at
            }
        };
        self.card(node).processor = ends;
    }

    /// A message for a program that runs in the kernel.
    fn on_header(&mut self, message: Box<FirmwareMessage>, mut timing: TransferTime) -> Time {
        let costs = self.costs;
        timing.advance_to(timing.at + costs.card_receive, Component::Receive);
        timing.advance_to(timing.at + costs.card_event, Component::Notify);
        let (at, mut ends) = (message.to, timing.at);
        if costs.flow == FlowKind::Corpse {
            let control = ControlMessage::accepted(&message);
            ends = ends + costs.card_protocol;
            self.send_control(at.node, control, TransferTime::new(ends));
        }
        timing.advance_to(timing.at + costs.write, Component::Notify);
        self.schedule(timing.at, Event::Kernel { at, work: Work::Message(message), timing });
        ends
    }

    /// Interrupts the kernel, because a transfer has completed.
    fn interrupt_kernel(&mut self, chain: u32, mut timing: TransferTime) -> Time {
        timing.advance_to(timing.at + self.costs.card_event, Component::Notify);
        let ends = timing.at;
        timing.advance_to(ends + self.costs.write, Component::Notify);
        if let Some(waiting) = self.chains.get(chain) {
            let at = waiting.at;
            self.schedule(timing.at, Event::Kernel { at, work: Work::Resume(chain), timing });
        }
        ends
    }

    /// A control message from another card about messages sent from here.
    fn on_control(&mut self, node: usize, control: ControlMessage, mut timing: TransferTime) -> Time {
        if self.costs.flow == FlowKind::Cop {
            timing.advance_to(timing.at + self.costs.card_receive, Component::Receive);
            timing.advance_to(timing.at + self.costs.card_event, Component::Notify);
            let ends = timing.at;
            timing.advance_to(ends + self.costs.write, Component::Notify);
            self.schedule(
                timing.at,
                Event::Kernel { at: control.from, work: Work::Control(control), timing },
            );
            return ends;
        }
        timing.advance_to(timing.at + self.costs.card_protocol, Component::Receive);
        self.process_control(node, control, timing);
        timing.at
    }

    /// Processes a control message.
    fn process_control(&mut self, node: usize, control: ControlMessage, timing: TransferTime) {
        if control.refused {
            let at = timing.at + self.costs.backoff;
            self.schedule(
                at,
                Event::Card { node, task: Task::Retransmit(control), timing: TransferTime::new(at) },
            );
        }
        for chain in self.card(node).flow.acknowledge(&control) {
            self.on_transfer_done(node, chain, timing);
        }
    }

    /// A transfer that a chain waits for has completed: the processor that runs programs continues the chain
    /// when the card's loop gets there.
    fn on_transfer_done(&mut self, node: usize, chain: u32, timing: TransferTime) {
        let Some(at) = self.chains.get(chain).map(|chain| chain.at) else { return };
        let task = match self.costs.place {
            MatchKind::Nic => Task::Program(at.pid, Work::Resume(chain)),
            MatchKind::Host => Task::Done(chain),
        };
        self.schedule(timing.at, Event::Card { node, task, timing });
    }

    /// Retransmits messages from the refused one on.
    fn retransmit(&mut self, node: usize, control: &ControlMessage, mut timing: TransferTime) -> Time {
        for message in self.card(node).flow.unacked_from(control) {
            timing.advance_to(timing.at + self.costs.card_transmit, Component::Transmit);
            self.depart(FirmwareMessage { timing, ..message });
        }
        timing.at
    }

    /// Sends a control message to the card that sent messages.
    fn send_control(&mut self, node: usize, control: ControlMessage, mut timing: TransferTime) {
        // Like everything that a card sends, it is read from host memory.
        timing.advance_to(timing.at + self.costs.read, Component::HyperTransport);
        let (bytes, to) = (self.costs.packet_bytes, control.from.node);
        let arrives = self.mesh.transport(node, to, timing.at, bytes) + self.mesh.time(bytes);
        timing.advance_to(arrives, Component::Router);
        self.schedule(arrives, Event::Card { node: to, task: Task::Control(control), timing });
    }

    /// Interrupts a kernel, which then does this work.
    fn run_kernel_work(&mut self, now: Time, at: Address, work: Work, mut timing: TransferTime) {
        let interrupt = self.costs.interrupt;
        let busy = self.card(at.node).kernel;
        let begins = busy.max(now);
        timing.advance_to(begins, Component::Waiting);
        timing.advance_to(timing.at + interrupt, Component::Interrupt);
        timing.interrupted();
        let ends = match work {
            Work::Control(control) => {
                timing.advance_to(timing.at + self.costs.running.protocol, Component::Portals);
                self.process_control(at.node, control, timing);
                timing.at
            }
            work => self.run(at, work, timing),
        };
        let card = self.card(at.node);
        card.kernel = ends;
        card.interrupted += ends.since(begins);
    }

    /// Does work for a program, on the processor that runs programs; returns when it has finished.
    fn run(&mut self, at: Address, work: Work, mut timing: TransferTime) -> Time {
        let (costs, is_nic) = (self.costs, self.costs.place == MatchKind::Nic);
        let own = |inbound| match (is_nic, inbound) {
            (false, _) => Component::Portals,
            (true, true) => Component::Receive,
            (true, false) => Component::Transmit,
        };
        // The card acknowledges messages for which it has run the program or notified the kernel; with the
        // other protocol the kernels do this.
        let acknowledges = costs.flow == if is_nic { FlowKind::Corpse } else { FlowKind::Cop };
        let control = match &work {
            Work::Message(message) if acknowledges => Some(ControlMessage::accepted(message)),
            _ => None,
        };
        let chain = match work {
            Work::Resume(chain) => {
                let Some(chain) = self.chains.remove(chain) else { return timing.at };
                if is_nic {
                    timing.advance_to(timing.at + costs.complete, Component::Receive);
                }
                PendingSteps { timing, ..chain }
            }
            Work::Command(command) => {
                timing.advance_to(timing.at + costs.running.command, own(false));
                self.call_program(at, timing, None, |program, nic, _| program.on_command(nic, &command))
            }
            Work::Message(message) => {
                timing.advance_to(timing.at + costs.running.receive, own(true));
                self.call_program(at, timing, Some(message), |program, nic, message| {
                    if let Some(FirmwareMessage { from, header, len, .. }) = message {
                        let message = Message { from: from.socket(), header, payload_len: *len };
                        program.on_message(nic, &message);
                    }
                })
            }
            Work::Turn => {
                if let Some(loaded) = self.card(at.node).programs.get_mut(&at.pid) {
                    loaded.wants_turn = false;
                }
                self.call_program(at, timing, None, |program, nic, _| program.on_turn(nic))
            }
            Work::Control(_) => return timing.at,
        };
        let is_inbound = chain.message.is_some();
        let mut ends = self.run_steps(chain, own(is_inbound));
        if let Some(control) = control {
            ends = ends + costs.running.protocol;
            if is_nic {
                self.send_control(at.node, control, TransferTime::new(ends));
            } else {
                let (node, at) = (at.node, ends + costs.write);
                self.schedule(
                    at,
                    Event::Card { node, task: Task::SendControl(control), timing: TransferTime::new(at) },
                );
            }
        }
        ends
    }

    /// Calls a program once, and records the steps to execute.
    fn call_program(
        &mut self,
        at: Address,
        timing: TransferTime,
        message: Option<Box<FirmwareMessage>>,
        act: impl FnOnce(&mut dyn Firmware, &mut Recorder<'_>, Option<&FirmwareMessage>),
    ) -> PendingSteps {
        let each_match = self.costs.running.each_match;
        let Self { protection, cards, .. } = self;
        let loaded = cards[at.node].as_mut().and_then(|card| card.programs.get_mut(&at.pid));
        let mut steps = VecDeque::new();
        if let Some(loaded) = loaded
            && let Some(mut firmware) = loaded.firmware.take()
        {
            let mut recorder = Recorder {
                protection,
                effects: &mut loaded.effects,
                at,
                domain: loaded.domain,
                each_match,
                wakeup: &loaded.wakeup,
                payload_len: message.as_ref().map_or(0, |message| message.len),
                timing,
                steps,
                wants_turn: false,
            };
            act(&mut *firmware, &mut recorder, message.as_deref());
            let wants_turn = recorder.wants_turn;
            steps = recorder.steps;
            loaded.firmware = Some(firmware);
            if wants_turn && !std::mem::replace(&mut loaded.wants_turn, true) {
                self.schedule_turn(at, timing.at);
            }
        }
        PendingSteps { at, steps, message, timing }
    }

    /// Schedules a turn of a program, after all queued work.
    fn schedule_turn(&mut self, at: Address, now: Time) {
        let (work, timing) = (Work::Turn, TransferTime::new(now));
        let event = match self.costs.place {
            MatchKind::Nic => Event::Card { node: at.node, task: Task::Program(at.pid, work), timing },
            MatchKind::Host => Event::Kernel { at, work, timing },
        };
        self.schedule(now + self.costs.turn, event);
    }

    /// Executes a program's steps until one has to wait for a transfer; returns when the processor is free
    /// again.
    fn run_steps(&mut self, mut chain: PendingSteps, own: Component) -> Time {
        self.close_stream(&mut chain);
        let (costs, node) = (self.costs, chain.at.node);
        let is_nic = costs.place == MatchKind::Nic;
        // What a kernel writes becomes visible when it returns from the interrupt.
        let mut late = Vec::new();
        let mut waits = false;
        while let Some(step) = chain.steps.pop_front() {
            match step {
                Step::Charge(span) => chain.timing.advance_to(chain.timing.at + span, own),
                Step::Send(message) => {
                    let setting_up = if is_nic { Component::Transmit } else { Component::Portals };
                    chain.timing.advance_to(chain.timing.at + costs.running.transmit, setting_up);
                    waits = !costs.is_short(message.len);
                    let timing = chain.timing;
                    let key = waits.then(|| self.suspend(&mut chain));
                    self.post(FirmwareMessage { timing, ..*message }, key);
                }
                Step::Deposit { offset, extents, len, ticket } => {
                    if chain.message.as_ref().is_none_or(|message| costs.is_short(message.len)) {
                        let span = if is_nic { costs.running.deposit } else { costs.copy_time(len) };
                        chain.timing.advance_to(chain.timing.at + span, own);
                        let effect = self.data(&chain, offset, &extents, len);
                        late.push((ticket, chain.timing.at, effect));
                    } else {
                        waits = true;
                        chain.steps.push_front(Step::Deposit { offset, extents, len, ticket });
                        chain.timing.advance_to(chain.timing.at + costs.running.deposit, own);
                        let mut timing = chain.timing;
                        let key = self.suspend(&mut chain);
                        if is_nic {
                            self.deposit(key, timing);
                        } else {
                            timing.advance_to(timing.at + costs.write, Component::HyperTransport);
                            self.schedule(timing.at, Event::Card { node, task: Task::Deposit(key), timing });
                        }
                    }
                }
                Step::Event { extents, record, ticket } => {
                    let charged_to = if is_nic { Component::Notify } else { Component::Portals };
                    chain
                        .timing
                        .advance_to(chain.timing.at + costs.running.record_cost(record.len()), charged_to);
                    let timing = chain.timing;
                    late.push((ticket, timing.at, HostWrite::Record { extents, record, timing }));
                }
                Step::Interrupt { wakeup, ticket } => {
                    let at = chain.timing.at + if is_nic { costs.interrupt } else { Span::ZERO };
                    late.push((ticket, at, HostWrite::Notify(wakeup)));
                }
            }
            if waits {
                break;
            }
        }
        let ends = chain.timing.at;
        for (ticket, at, effect) in late {
            let at = if is_nic { at + costs.write } else { ends };
            self.schedule_visible(chain.at, ticket, at, effect);
        }
        ends
    }

    /// Suspends a chain until the transfer that it waits for has completed.
    fn suspend(&mut self, chain: &mut PendingSteps) -> u32 {
        let nothing =
            PendingSteps { at: chain.at, steps: VecDeque::new(), message: None, timing: chain.timing };
        self.chains.insert(std::mem::replace(chain, nothing))
    }

    /// Closes the stream of a message from which no more data are deposited.
    fn close_stream(&mut self, chain: &mut PendingSteps) {
        let wants_more = chain.steps.iter().any(|step| matches!(step, Step::Deposit { .. }));
        let Some(message) = chain.message.take_if(|_| !wants_more) else { return };
        if !self.costs.is_short(message.len) {
            self.card(chain.at.node).close_stream(message.from.node);
        }
    }

    /// A part of the message of a chain, as it will become visible.
    fn data(&self, chain: &PendingSteps, offset: u64, extents: &Arc<[Extent]>, len: u64) -> HostWrite {
        let message = chain.message.as_deref();
        let all = message.map_or(&[][..], |message| &message.data);
        let is_whole = message.is_some_and(|message| offset == 0 && len == message.len);
        // A message with a hole only has its ends.
        let part = all.get(offset as usize..(offset + len) as usize).unwrap_or_default();
        let data = if is_whole { all.to_vec() } else { part.to_vec() };
        HostWrite::Data { extents: extents.clone(), total: len, data }
    }

    /// Sends a message; a chain may wait for it.
    fn post(&mut self, message: FirmwareMessage, chain: Option<u32>) {
        match self.costs.place {
            MatchKind::Nic => self.transmit(message, chain),
            MatchKind::Host => {
                let (node, mut timing) = (message.from.node, message.timing);
                timing.advance_to(timing.at + self.costs.write, Component::HyperTransport);
                let task = Task::Transmit(Box::new(message), chain);
                self.schedule(timing.at, Event::Card { node, task, timing });
            }
        }
    }

    /// The card sends a message, and keeps it if it may have to be retransmitted.
    fn transmit(&mut self, mut message: FirmwareMessage, chain: Option<u32>) {
        let costs = self.costs;
        if costs.is_short(message.len) {
            // Nothing waits for it to be read: its bytes are copied now.
            self.protection.gather(&message.extents, 0, message.len, &mut message.data);
        }
        let (node, timing) = (message.from.node, message.timing);
        let keeps = costs.flow != FlowKind::None;
        if keeps {
            self.card(node).flow.track(&mut message, chain);
        }
        let mut done = timing;
        done.advance_to(self.depart(message), Component::HyperTransport);
        if let Some(chain) = chain.filter(|_| !keeps) {
            self.on_transfer_done(node, chain, done);
        }
    }

    /// The card reads a message from memory, after all earlier ones; returns when it has been read
    /// completely.
    fn depart(&mut self, mut message: FirmwareMessage) -> Time {
        let costs = self.costs;
        let card = self.card(message.from.node);
        let begins = message.timing.at.max(card.transmitter);
        let data = if costs.is_short(message.len) { 0 } else { message.len };
        card.transmitter = begins + costs.read_time(costs.packet_bytes + data);
        let ends = card.transmitter + costs.read;
        message.timing.advance_to(begins, Component::Waiting);
        self.schedule(begins, Event::Departure(Box::new(message)));
        ends
    }

    /// A message leaves its card: reads the data that it carries, and sends them through the mesh.
    fn on_departure(&mut self, now: Time, mut message: Box<FirmwareMessage>) {
        let costs = self.costs;
        let data = if costs.is_short(message.len) { 0 } else { message.len };
        if data > 0 && message.data.is_empty() {
            self.protection.gather(&message.extents, 0, message.len, &mut message.data);
        }
        message.timing.advance_to(now + costs.read, Component::HyperTransport);
        let (from, to, packet) = (message.from.node, message.to.node, costs.packet_bytes);
        let head = self.mesh.transport(from, to, message.timing.at, packet + data);
        let arrives = head + self.mesh.time(packet);
        message.timing.advance_to(arrives, Component::Router);
        message.tail = arrives + costs.read_time(data).max(self.mesh.time(data));
        self.schedule(arrives, Event::Arrival(message));
    }

    /// A message's header has arrived. It is lost if no program has its address, or if there is no room for
    /// it, unless flow control refuses it.
    fn on_arrival(&mut self, now: Time, message: Box<FirmwareMessage>) {
        let (costs, at, timing) = (self.costs, message.to, message.timing);
        if !self.has(at) {
            return;
        }
        let is_long = !costs.is_short(message.len);
        let card = self.card(at.node);
        let has_flow = costs.flow != FlowKind::None;
        // Messages after a refused one are retransmitted with it.
        if has_flow && !card.flow.is_next(&message) {
            return;
        }
        if is_long && !card.open_stream(message.from.node, costs.streams) {
            if has_flow {
                let control =
                    ControlMessage { refused: true, next: message.number, from: message.from, to: at };
                self.send_control(at.node, control, timing);
            }
            return;
        }
        if has_flow {
            card.flow.accept(&message);
        }
        let task = match costs.place {
            MatchKind::Nic => Task::Program(at.pid, Work::Message(message)),
            MatchKind::Host => Task::Header(message),
        };
        self.run_card_task(now, at.node, task, timing);
    }

    /// The card writes the data of a chain's message to the destination in the chain's next step.
    fn deposit(&mut self, key: u32, mut timing: TransferTime) {
        let costs = self.costs;
        let Some(chain) = self.chains.get_mut(key) else { return };
        let (at, tail) = (chain.at, chain.message.as_ref().map_or(timing.at, |message| message.tail));
        let Some(Step::Deposit { offset, extents, len, ticket }) = chain.steps.pop_front() else { return };
        let card = self.card(at.node);
        let begins = timing.at.max(card.receiver);
        timing.advance_to(begins, Component::Waiting);
        // Until now the data have waited in the network, and before that in the sender's memory: they arrive
        // as fast as they are read.
        card.receiver = (begins + costs.write_time(len).max(costs.read_time(len))).max(tail);
        timing.advance_to(card.receiver + costs.write, Component::HyperTransport);
        let effect = self.chains.get(key).map(|chain| self.data(chain, offset, &extents, len));
        if let Some(effect) = effect {
            self.schedule_visible(at, ticket, timing.at, effect);
        }
        self.on_transfer_done(at.node, key, timing);
    }

    /// A write becomes visible in a host's memory at `at`, after all earlier ones.
    fn schedule_visible(&mut self, whose: Address, ticket: u64, at: Time, effect: HostWrite) {
        let Some(loaded) = self.card(whose.node).programs.get_mut(&whose.pid) else { return };
        for (at, effect) in loaded.effects.ready(ticket, at, effect) {
            self.schedule(at, Event::Visible { at: whose, effect });
        }
    }

    /// A write to host memory becomes visible now: copies the data or the record, or wakes the waiter, and lets the node poll.
    fn on_visible(&mut self, now: Time, at: Address, effect: HostWrite) {
        match effect {
            HostWrite::Data { extents, total, data } => self.protection.scatter(&extents, 0, total, &data),
            HostWrite::Record { extents, record, mut timing } => {
                self.protection.scatter(&extents, 0, record.len() as u64, &record);
                let charged_to = match self.costs.place {
                    MatchKind::Nic => Component::Notify,
                    MatchKind::Host => Component::Portals,
                };
                timing.advance_to(now, charged_to);
                if let Some(loaded) = self.card(at.node).programs.get_mut(&at.pid) {
                    loaded.last_timing = Some(timing);
                }
            }
            HostWrite::Notify(wakeup) => wakeup.notify(),
        }
        self.card(at.node).node.signal();
    }
}
