//! Virtual time: a world of simulated machines in one thread, with one event queue.
//!
//! A [`World`] has [`Node`]s (simulated machines) and fibers (code that runs on them, each as a coroutine with its own
//! stack). Fibers are ordinary blocking code that uses the [`Host`](crate::Host) of [`Node::host`]. Devices are
//! [`EventHandler`]s: they put events into the queue and are called when these are due.
//!
//! A fiber has its own clock, which [`Host::charge`](crate::Host::charge) advances ahead of the world's. It waits for
//! the world only when it reads something that others change ([`Node::sync`], and every turn of a wait): lazy
//! synchronisation. Waiting fibers cost no events: a polling fiber is resumed at the first instant at which its polling
//! would have seen the change.
//!
//! The same seed gives the same events in the same order and the same [`Ended::trace`], also with a thread for each
//! fiber ([`FiberKind::Thread`]). When no event is left and a fiber still waits, [`World::run`] reports which fiber
//! waits in which call since when ([`Failure::Deadlock`]).
//!
//! | file | contents |
//! |---|---|
//! | `config`, `outcome` | [`Config`], the settings of a world; [`Ended`] and [`Failure`], its outcome |
//! | `timeline`, `event_handler` | [`Timeline`], [`EventHandler`]: the interface for devices |
//! | `node`, `costs` | [`Node`], and how its [`Host`](crate::Host) waits; [`HostCosts`], costs of its processor |
//! | `shared` | state shared by the world, its nodes and its devices: the lock, and suspending a fiber without holding it |
//! | `state` | fibers, nodes and clocks behind the lock |
//! | `queue` | the event queue |
//! | `fiber` | coroutine or thread: how the world resumes a fiber |
//! | `suspend` | how a fiber returns control to the world |

mod config;
mod costs;
mod event_handler;
mod fiber;
mod node;
mod outcome;
mod queue;
mod shared;
mod state;
mod suspend;
mod timeline;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::prefetch::{LINE, prefetch};
use crate::spin::SpinGuard;
pub use config::{Config, FiberKind};
pub use costs::HostCosts;
pub use event_handler::{EventHandler, HandlerId};
use fiber::FiberContext;
pub use node::Node;
pub use outcome::{Ended, Failure, Waiting};
use queue::Event;
use shared::Shared;
use state::{Phase, State};
use suspend::Body;
pub use timeline::Timeline;

/// With fewer fibers, their data stay in the caches without prefetching.
const PREFETCH_MIN_FIBERS: usize = 1_000;
/// How many events before a fiber's turn its own data, and then its stack, are prefetched. The data contain the
/// position of the stack.
const FIBER_AHEAD: usize = 6;
const STACK_AHEAD: usize = 2;
/// Number of fibers prefetched at a time: the processor walks the page tables of their stacks in parallel.
const PREFETCH_BATCH: usize = 2;
/// Prefetched range of a stack: it starts this many bytes below the position where the fiber was suspended.
const STACK_BELOW: usize = 128;
const STACK_LINES: usize = 10;

/// Simulated machines and the fibers on them; stays in one thread.
pub struct World {
    shared: Arc<Shared>,
    config: Config,
    /// The fibers that have not ended, by number.
    contexts: Vec<Option<FiberContext>>,
    handlers: Vec<Arc<dyn EventHandler>>,
}

impl World {
    /// An empty world at time zero.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            shared: Arc::new(Shared::new(config.seed)),
            config,
            contexts: Vec::new(),
            handlers: Vec::new(),
        }
    }

    /// The world's clock and event queue.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        Timeline(self.shared.clone())
    }

    /// Adds a simulated machine.
    #[must_use]
    pub fn add_node(&mut self, name: &str) -> Node {
        Node::add(&self.shared, name)
    }

    /// Adds a fiber, which starts at time zero. An event on any of `nodes` ends its waits: a fiber usually runs on one
    /// node; a test that drives both ends of a connection runs on two.
    ///
    /// # Errors
    /// [`Failure::NoFiber`] if its stack cannot be allocated.
    pub fn spawn(
        &mut self,
        name: &str,
        nodes: &[&Node],
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), Failure> {
        let number = self.shared.lock().add_fiber(name, nodes.iter().map(|n| n.index()), true);
        self.create_context(number, Box::new(body))
    }

    /// Allocates the stack of a fiber.
    fn create_context(&mut self, number: usize, body: Body) -> Result<(), Failure> {
        let fibers = self.contexts.len();
        let context = FiberContext::new(self.config, &self.shared, number, body)
            .map_err(|why| Failure::NoFiber { fibers, why })?;
        self.contexts.resize_with(number + 1, || None);
        self.contexts[number] = Some(context);
        Ok(())
    }

    /// Runs until every fiber has ended; fibers that these have spawned are then cut off, as threads of a process are.
    ///
    /// # Errors
    /// [`Failure`]. Fibers that have not ended are unwound in any case.
    pub fn run(mut self) -> Result<Ended, Failure> {
        let outcome = self.run_events();
        self.shared.lock().ending = true;
        for number in 0..self.contexts.len() {
            if let Some(context) = self.contexts[number].take() {
                self.shared.lock().current = Some(number);
                context.unwind();
            }
        }
        self.shared.end();
        outcome
    }

    fn run_events(&mut self) -> Result<Ended, Failure> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        loop {
            if state.live == 0 {
                return Ok(Ended { time: state.now, events: state.events, trace: state.trace });
            }
            let Some(event) = state.next_event() else {
                return Err(Failure::Deadlock { time: state.now, waiting: state.waiting() });
            };
            if state.events > self.config.max_events {
                return Err(Failure::EventLimit { time: state.now, waiting: state.waiting() });
            }
            self.prefetch(&state);
            state = self.handle(&shared, state, event)?;
        }
    }

    /// Prefetches the data of fibers that are resumed soon.
    fn prefetch(&self, state: &State) {
        if state.fibers.len() < PREFETCH_MIN_FIBERS || !state.events.is_multiple_of(PREFETCH_BATCH as u64) {
            return;
        }
        let ahead = |others| (others..others + PREFETCH_BATCH).filter_map(|others| state.fiber_ahead(others));
        for fiber in ahead(FIBER_AHEAD) {
            fetch(&state.fibers[fiber]);
            self.contexts.get(fiber).into_iter().for_each(fetch);
        }
        for fiber in ahead(STACK_AHEAD) {
            prefetch(state.fibers[fiber].suspended_at.wrapping_sub(STACK_BELOW), STACK_LINES);
        }
    }

    fn handle<'a>(
        &mut self,
        shared: &'a Shared,
        mut state: SpinGuard<'a, State>,
        event: Event,
    ) -> Result<SpinGuard<'a, State>, Failure> {
        match event {
            Event::Resume { fiber } => {
                if state.fibers[fiber].phase == Phase::Due {
                    return self.resume(shared, state, fiber);
                }
            }
            Event::Timer { fiber } => state.timer(fiber),
            Event::Signal { node } => state.signal(node),
            Event::Handle { handler, token } => {
                let now = state.now;
                while self.handlers.len() < state.handlers.len() {
                    self.handlers.push(state.handlers[self.handlers.len()].clone());
                }
                drop(state);
                self.handlers[handler].on_event(now, token);
                return Ok(shared.lock());
            }
        }
        Ok(state)
    }

    fn resume<'a>(
        &mut self,
        shared: &'a Shared,
        mut state: SpinGuard<'a, State>,
        fiber: usize,
    ) -> Result<SpinGuard<'a, State>, Failure> {
        state.begin(fiber);
        drop(state);
        let running = self.contexts[fiber].as_mut().is_some_and(FiberContext::resume);
        let mut state = shared.lock();
        state.current = None;
        if !running {
            self.contexts[fiber] = None;
            state.end(fiber);
        }
        for (number, body) in std::mem::take(&mut state.spawned) {
            self.create_context(number, body)?;
        }
        match state.panicked.take() {
            Some((fiber, message)) => Err(Failure::Panicked { fiber, message }),
            None => Ok(state),
        }
    }
}

/// Prefetches all of a value.
fn fetch<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).addr(), size_of::<T>().div_ceil(LINE));
}
