//! [`State`]: fibers, nodes and clocks of a world, behind its lock. Nothing here suspends a fiber.

use std::sync::Arc;

use super::costs::HostCosts;
use super::event_handler::EventHandler;
use super::outcome::Waiting;
use super::queue::{Event, Queue};
use super::suspend::{Body, Suspender};
use crate::{Span, Time};

/// The phase of a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It runs, or a device called from it runs.
    Running,
    /// An [`Event::Resume`] for it is in the queue.
    Due,
    /// It waits for a signal on one of its nodes; it would poll again every `poll_interval`, counted from its own clock.
    Parked { poll_interval: Span, deadline: Option<Time> },
    /// It returned, or its node died.
    Ended,
}

/// A fiber of the world: its phase, its clock and what it waits for.
pub(super) struct Fiber {
    pub(super) name: Box<str>,
    pub(super) phase: Phase,
    /// Its own clock, at or ahead of the world's while it runs.
    pub(super) local: Time,
    /// Gives control back to the world.
    pub(super) suspender: Option<Suspender>,
    /// Address on its stack at which it was suspended; 0 if it has none.
    pub(super) suspended_at: usize,
    nodes: Box<[usize]>,
    /// Signals of its nodes at its last poll.
    pub(super) last_signals: u64,
    /// When its last poll began.
    pub(super) last_poll: Time,
    /// The adapter of its last wait in a library ([`crate::Host::charge_wait`]).
    pub(super) last_adapter: Option<usize>,
    /// Its earliest timer in the queue.
    timer: Option<Time>,
    call: &'static str,
    since: Time,
    /// Whether the world waits for its end.
    root: bool,
}

/// A simulated machine.
pub(super) struct NodeState {
    pub(super) name: Box<str>,
    pub(super) costs: HostCosts,
    /// Signals so far.
    signals: u64,
    fibers: Vec<usize>,
    pub(super) dead: bool,
}

/// The whole state of a world except the stacks.
pub(super) struct State {
    pub(super) now: Time,
    pub(super) seed: u64,
    queue: Queue,
    pub(super) events: u64,
    pub(super) trace: u64,
    /// The running fiber.
    pub(super) current: Option<usize>,
    pub(super) fibers: Vec<Fiber>,
    pub(super) nodes: Vec<NodeState>,
    pub(super) handlers: Vec<Arc<dyn EventHandler>>,
    /// Number of fibers that the world waits for.
    pub(super) live: usize,
    /// Spawned fibers that do not have a stack yet.
    pub(super) spawned: Vec<(usize, Body)>,
    pub(super) panicked: Option<(String, String)>,
    /// Fibers are being unwound: no call waits any more.
    pub(super) ending: bool,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            seed,
            queue: Queue::default(),
            events: 0,
            trace: seed,
            current: None,
            fibers: Vec::new(),
            nodes: Vec::new(),
            handlers: Vec::new(),
            live: 0,
            spawned: Vec::new(),
            panicked: None,
            ending: false,
        }
    }

    /// Adds a fiber, due at the clock of its creator.
    pub(super) fn add_fiber(&mut self, name: &str, nodes: impl Iterator<Item = usize>, root: bool) -> usize {
        let (number, begins) = (self.fibers.len(), self.clock());
        let nodes: Box<[usize]> = nodes.collect();
        for node in &nodes {
            self.nodes[*node].fibers.push(number);
        }
        self.fibers.push(Fiber {
            name: name.into(),
            phase: Phase::Due,
            local: begins,
            suspender: None,
            suspended_at: 0,
            nodes,
            last_signals: 0,
            last_poll: begins,
            last_adapter: None,
            timer: None,
            call: "its beginning",
            since: begins,
            root,
        });
        self.live += usize::from(root);
        self.queue.push(begins, Event::Resume { fiber: number });
        number
    }

    /// The nodes of a fiber that the running one spawns on `node`: signals on any of its parent's nodes wake it, too.
    pub(super) fn nodes_for_child(&self, node: usize) -> Vec<usize> {
        let mut nodes = vec![node];
        if let Some(parent) = self.current {
            nodes.extend(self.fibers[parent].nodes.iter().filter(|&&other| other != node));
        }
        nodes
    }

    pub(super) fn add_node(&mut self, name: &str) -> usize {
        let (name, costs) = (name.into(), HostCosts::default());
        self.nodes.push(NodeState { name, costs, signals: 0, fibers: Vec::new(), dead: false });
        self.nodes.len() - 1
    }

    /// The current clock: the running fiber's own, or the world's in an event.
    pub(super) fn clock(&self) -> Time {
        match self.current {
            Some(fiber) => self.fibers[fiber].local.max(self.now),
            None => self.now,
        }
    }

    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.queue.push(at.max(self.now), event);
    }

    /// Removes the next event and moves the world's clock to it.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        let (at, event, digest) = self.queue.pop()?;
        self.now = at;
        self.events += 1;
        self.trace = (self.trace.rotate_left(7) ^ digest).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Some(event)
    }

    /// The fiber that is resumed after `others` more events, if known.
    pub(super) fn fiber_ahead(&self, others: usize) -> Option<usize> {
        match self.queue.ahead(others) {
            Some(Event::Resume { fiber }) => Some(fiber),
            _ => None,
        }
    }

    /// Advances the world's clock to the running fiber's, if no event is due before; otherwise the fiber must give up
    /// control.
    pub(super) fn catch_up(&mut self, fiber: usize) -> bool {
        let local = self.fibers[fiber].local;
        if local <= self.now {
            self.fibers[fiber].local = self.now;
            return true;
        }
        if self.queue.next_at().is_none_or(|at| at > local) {
            self.now = local;
            return true;
        }
        self.fibers[fiber].phase = Phase::Due;
        self.queue.push(local, Event::Resume { fiber });
        false
    }

    /// Signals of all nodes of a fiber.
    pub(super) fn signals(&self, fiber: usize) -> u64 {
        self.fibers[fiber].nodes.iter().map(|n| self.nodes[*n].signals).sum()
    }

    /// Marks the fiber as waiting.
    pub(super) fn park(
        &mut self,
        fiber: usize,
        call: &'static str,
        poll_interval: Span,
        deadline: Option<Time>,
    ) {
        let r = &mut self.fibers[fiber];
        r.phase = Phase::Parked { poll_interval, deadline };
        (r.call, r.since) = (call, r.local);
        if let Some(at) = deadline
            && r.timer.is_none_or(|armed| armed > at)
        {
            r.timer = Some(at);
            self.queue.push(at, Event::Timer { fiber });
        }
    }

    /// Handles a timer of `fiber`: its deadline has passed, or has been replaced.
    pub(super) fn timer(&mut self, fiber: usize) {
        let now = self.now;
        let r = &mut self.fibers[fiber];
        if r.timer.is_some_and(|armed| armed <= now) {
            r.timer = None;
        }
        match r.phase {
            Phase::Parked { deadline: Some(at), .. } if at <= now => self.wake(fiber),
            Phase::Parked { deadline: Some(at), .. } if r.timer.is_none() => {
                r.timer = Some(at);
                self.queue.push(at, Event::Timer { fiber });
            }
            _ => {}
        }
    }

    /// Wakes the waiting fibers of `node` so that they poll again.
    pub(super) fn signal(&mut self, node: usize) {
        self.nodes[node].signals += 1;
        for i in 0..self.nodes[node].fibers.len() {
            self.wake(self.nodes[node].fibers[i]);
        }
    }

    /// Ends the wait of a fiber at the first instant at which it would poll.
    fn wake(&mut self, fiber: usize) {
        let now = self.now;
        let r = &mut self.fibers[fiber];
        let Phase::Parked { poll_interval, deadline } = r.phase else { return };
        let late_by = now.since(r.local).as_ps();
        let polls = late_by.div_ceil(poll_interval.as_ps().max(1));
        let mut at = r.local + poll_interval * polls;
        if let Some(deadline) = deadline {
            at = at.min(deadline.max(now));
        }
        r.local = at;
        r.phase = Phase::Due;
        self.queue.push(at, Event::Resume { fiber });
    }

    /// Marks the fiber as running.
    pub(super) fn begin(&mut self, fiber: usize) {
        let r = &mut self.fibers[fiber];
        r.phase = Phase::Running;
        r.local = r.local.max(self.now);
        self.current = Some(fiber);
    }

    /// Marks the fiber as ended; fibers that join it poll again.
    pub(super) fn end(&mut self, fiber: usize) {
        self.retire(fiber);
        for node in self.fibers[fiber].nodes.clone() {
            self.push(self.fibers[fiber].local, Event::Signal { node });
        }
    }

    fn retire(&mut self, fiber: usize) {
        let r = &mut self.fibers[fiber];
        if r.phase != Phase::Ended {
            r.phase = Phase::Ended;
            self.live -= usize::from(r.root);
        }
    }

    /// Number of fibers of a node that have not ended.
    pub(super) fn threads(&self, node: usize) -> usize {
        self.nodes[node].fibers.iter().filter(|&&fiber| self.fibers[fiber].phase != Phase::Ended).count()
    }

    /// Marks the node as dead; its fibers never run again.
    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].dead = true;
        for i in 0..self.nodes[node].fibers.len() {
            self.retire(self.nodes[node].fibers[i]);
        }
    }

    /// Fibers that have not ended.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let left = self.fibers.iter().filter(|r| r.root && r.phase != Phase::Ended);
        left.map(|r| Waiting { fiber: r.name.to_string(), call: r.call, since: r.since }).collect()
    }
}
