//! [`Node`]: a simulated machine, and its [`Host`]: how fibers spend time and wait on it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::costs::HostCosts;
use super::queue::Event;
use super::shared::Shared;
use super::timeline::Timeline;
use crate::ops::WaitLoop;
use crate::{ClockKind, Host, HostOps, Span, Step, Task, Time, Wakes};

/// A simulated machine; cheap to clone.
#[derive(Clone)]
pub struct Node {
    shared: Arc<Shared>,
    index: usize,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.name())
    }
}

impl Node {
    pub(super) fn add(shared: &Arc<Shared>, name: &str) -> Self {
        let index = shared.lock().add_node(name);
        Self { shared: shared.clone(), index }
    }

    /// The number of the node in its world, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name that the node was created with.
    #[must_use]
    pub fn name(&self) -> String {
        self.shared.lock().nodes[self.index].name.to_string()
    }

    /// The host for code that runs on this machine.
    #[must_use]
    pub fn host(&self) -> Host {
        Host::new(Arc::new(self.clone()))
    }

    /// The clock and event queue of the world.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        Timeline(self.shared.clone())
    }

    /// Sets the costs of its processor.
    pub fn set_costs(&self, costs: HostCosts) {
        self.shared.lock().nodes[self.index].costs = costs;
    }

    /// The number of fibers on this node that have not ended: its threads.
    pub fn threads(&self) -> usize {
        self.shared.lock().threads(self.index)
    }

    /// The number of the running fiber; `None` in an event.
    #[must_use]
    pub fn running(&self) -> Option<usize> {
        self.shared.lock().current
    }

    /// Makes the running fiber wait until the world has reached its clock, so that it then sees the state of that time.
    /// A device calls this on behalf of a fiber before it reads state that events change. Does nothing in an event.
    pub fn sync(&self) {
        self.shared.sync();
    }

    /// Wakes fibers that wait on this node: now in an event; otherwise at the running fiber's clock.
    pub fn signal(&self) {
        let mut state = self.shared.lock();
        let at = state.clock();
        if at > state.now {
            state.push(at, Event::Signal { node: self.index });
        } else {
            state.signal(self.index);
        }
    }

    /// Kills the machine: its fibers stop where they are. The model of its network must handle the rest.
    pub fn kill(&self) {
        self.shared.lock().kill(self.index);
    }

    /// Whether the machine has been killed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.shared.lock().nodes[self.index].dead
    }
}

impl Host {
    /// The simulated machine of this host, in virtual time: a modelled NIC attaches to it.
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        self.simulated()?.downcast_ref()
    }
}

impl HostOps for Node {
    fn now(&self) -> Time {
        self.shared.lock().clock()
    }

    fn clock(&self) -> ClockKind {
        ClockKind::Virtual
    }

    fn charge(&self, span: Span) {
        let mut state = self.shared.lock();
        if let Some(fiber) = state.current {
            let ahead = state.clock() + span;
            state.fibers[fiber].local = ahead;
        }
    }

    fn charge_copy(&self, len: u64) {
        let costs = self.shared.lock().nodes[self.index].costs;
        self.charge(costs.copy + Span::from_ps((len as f64 * costs.copy_ps_per_byte) as u64));
    }

    fn charge_fork(&self) {
        let fork = self.shared.lock().nodes[self.index].costs.fork;
        self.charge(fork);
    }

    fn charge_step(&self, step: Step, n: u64) {
        let each = self.shared.lock().nodes[self.index].costs.steps[step as usize];
        self.charge(each * n);
    }

    fn charge_wait(&self, adapter: usize, slept: bool) {
        let mut state = self.shared.lock();
        let Some(fiber) = state.current else { return };
        let last = state.fibers[fiber].last_adapter.replace(adapter);
        drop(state);
        if slept {
            self.charge_step(Step::Wake, 1);
        }
        if last.is_some_and(|last| last != adapter) {
            self.charge_step(Step::Turn, 1);
        }
    }

    /// The first pause measures the cost of a poll. Later ones wait for a signal on the fiber's nodes, and return at
    /// the first instant at which continuous polling would have seen it.
    fn pause(&self, wait: &mut WaitLoop) -> bool {
        let mut state = self.shared.synced();
        let Some(fiber) = state.current else {
            drop(state);
            panic!("{} waits in an event, but only fibers can wait", wait.call);
        };
        let signals = state.signals(fiber);
        let local = state.clock();
        let overdue = wait.deadline.is_some_and(|at| at <= local);
        let last_poll = std::mem::replace(&mut state.fibers[fiber].last_poll, local);
        let has_new_signal = std::mem::replace(&mut state.fibers[fiber].last_signals, signals) != signals;
        if state.ending || overdue || has_new_signal || wait.count == 0 {
            return true;
        }
        let poll_interval = local.since(last_poll).max(state.nodes[self.index].costs.poll);
        state.park(fiber, wait.call, poll_interval, wait.deadline);
        self.shared.suspend(state, fiber);
        let mut state = self.shared.lock();
        let (signals, local) = (state.signals(fiber), state.clock());
        (state.fibers[fiber].last_signals, state.fibers[fiber].last_poll) = (signals, local);
        true
    }

    fn should_sleep(&self, _wait: &WaitLoop) -> bool {
        false
    }

    fn sleep(&self, _wakes: &Wakes<'_>, _wait: &WaitLoop) {}

    fn record_sleep(&self, _slept: Span) {}

    /// Starts a fiber of the same machine, on a processor of its own; it also belongs to all nodes of the fiber that
    /// spawns it.
    fn spawn(
        &self,
        name: &str,
        _core: Option<usize>,
        body: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Task> {
        let ended = Arc::new(AtomicBool::new(false));
        let (mark, shared) = (ended.clone(), self.shared.clone());
        let mut state = self.shared.lock();
        if state.ending {
            return Err(std::io::Error::other("the world is ending"));
        }
        let nodes = state.nodes_for_child(self.index);
        let number = state.add_fiber(name, nodes.into_iter(), false);
        state.spawned.push((
            number,
            Box::new(move || {
                // Sets the flag even if the body unwinds.
                let _ended = SetOnDrop(mark);
                body();
                shared.sync();
            }),
        ));
        drop(state);
        let host = self.host();
        Ok(Task::new(move || {
            host.poll("Task::join", None, || ended.load(Ordering::Acquire).then_some(()));
        }))
    }

    fn charge_poll(&self) {
        let poll = self.shared.lock().nodes[self.index].costs.poll;
        self.charge(poll);
        self.shared.sync();
    }

    fn signal(&self) {
        Self::signal(self);
    }

    fn is_ending(&self) -> bool {
        self.shared.lock().ending
    }

    fn simulated(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
