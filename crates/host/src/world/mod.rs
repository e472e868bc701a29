//! Virtual time: a world of simulated machines in one thread, with one event queue.
//!
//! A [`World`] has [`Node`]s (simulated machines) and ranks (code that runs on them, each as a coroutine with its own
//! stack). Ranks are ordinary blocking code that uses the [`Host`](crate::Host) of [`Node::host`]. Devices are
//! [`Actor`]s: they put events into the queue and are called when these are due.
//!
//! A rank has its own clock, which [`Host::charge`](crate::Host::charge) advances ahead of the world's. It waits for
//! the world only when it reads something that others change ([`Node::sync`], and every turn of a wait): lazy
//! synchronisation. Waiting ranks cost no events: a polling rank is resumed at the first instant at which its polling
//! would have seen the change.
//!
//! The same seed gives the same events in the same order and the same [`Ended::trace`], also with a thread for each
//! rank ([`Factory::Thread`]). When no event is left and a rank still waits, [`World::run`] reports which rank waits in
//! which call since when ([`Failure::Stuck`]).
//!
//! | file | contents |
//! |---|---|
//! | `config`, `outcome` | [`Config`], the settings of a world; [`Ended`] and [`Failure`], its outcome |
//! | `timeline`, `actor` | [`Timeline`], [`Actor`]: the interface for devices |
//! | `node`, `costs` | [`Node`], and how its [`Host`](crate::Host) waits; [`HostCosts`], costs of its processor |
//! | `shared` | state shared by the world, its nodes and its devices: the lock, and suspending a rank without holding it |
//! | `state` | ranks, nodes and clocks behind the lock |
//! | `queue` | the event queue |
//! | `factory` | coroutine or thread: how the world resumes a rank |
//! | `suspend` | how a rank returns control to the world |

mod actor;
mod config;
mod costs;
mod factory;
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
pub use actor::{Actor, ActorId};
pub use config::{Config, Factory};
pub use costs::HostCosts;
use factory::RankContext;
pub use node::Node;
pub use outcome::{Ended, Failure, Waiting};
use queue::Event;
use shared::Shared;
use state::{Phase, State};
use suspend::Body;
pub use timeline::Timeline;

/// With fewer ranks, their data stay in the caches without prefetching.
const PREFETCH_MIN_RANKS: usize = 1_000;
/// How many events before a rank's turn its own data, and then its stack, are prefetched. The data contain the position
/// of the stack.
const RANK_AHEAD: usize = 6;
const STACK_AHEAD: usize = 2;
/// Number of ranks prefetched at a time: the processor walks the page tables of their stacks in parallel.
const PREFETCH_BATCH: usize = 2;
/// Prefetched range of a stack: it starts this many bytes below the position where the rank was suspended.
const STACK_BELOW: usize = 128;
const STACK_LINES: usize = 10;

/// Simulated machines and the ranks on them; stays in one thread.
pub struct World {
    shared: Arc<Shared>,
    config: Config,
    /// The ranks that have not ended, by number.
    contexts: Vec<Option<RankContext>>,
    actors: Vec<Arc<dyn Actor>>,
}

impl World {
    /// An empty world at time zero.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { shared: Arc::new(Shared::new(config.seed)), config, contexts: Vec::new(), actors: Vec::new() }
    }

    /// The world's clock and event queue.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        Timeline(self.shared.clone())
    }

    /// Adds a simulated machine.
    #[must_use]
    pub fn node(&mut self, name: &str) -> Node {
        Node::add(&self.shared, name)
    }

    /// Adds a rank, which starts at time zero. An event on any of `nodes` ends its waits: a rank usually runs on one
    /// node; a test that drives both ends of a connection runs on two.
    ///
    /// # Errors
    /// [`Failure::NoRank`] if its stack cannot be allocated.
    pub fn rank(
        &mut self,
        name: &str,
        nodes: &[&Node],
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), Failure> {
        let number = self.shared.lock().add_rank(name, nodes.iter().map(|n| n.index()), true);
        self.create_context(number, Box::new(body))
    }

    /// Allocates the stack of a rank.
    fn create_context(&mut self, number: usize, body: Body) -> Result<(), Failure> {
        let ranks = self.contexts.len();
        let context = RankContext::new(self.config, &self.shared, number, body)
            .map_err(|why| Failure::NoRank { ranks, why })?;
        self.contexts.resize_with(number + 1, || None);
        self.contexts[number] = Some(context);
        Ok(())
    }

    /// Runs until every rank has ended; ranks that these have spawned are then cut off, as threads of a process are.
    ///
    /// # Errors
    /// [`Failure`]. Ranks that have not ended are unwound in any case.
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
                return Err(Failure::Stuck { time: state.now, waiting: state.waiting() });
            };
            if state.events > self.config.max_events {
                return Err(Failure::Endless { time: state.now, waiting: state.waiting() });
            }
            self.prefetch(&state);
            state = self.handle(&shared, state, event)?;
        }
    }

    /// Prefetches the data of ranks that are resumed soon.
    fn prefetch(&self, state: &State) {
        if state.ranks.len() < PREFETCH_MIN_RANKS || !state.events.is_multiple_of(PREFETCH_BATCH as u64) {
            return;
        }
        let ahead = |others| (others..others + PREFETCH_BATCH).filter_map(|others| state.rank_ahead(others));
        for rank in ahead(RANK_AHEAD) {
            fetch(&state.ranks[rank]);
            self.contexts.get(rank).into_iter().for_each(fetch);
        }
        for rank in ahead(STACK_AHEAD) {
            prefetch(state.ranks[rank].suspended_at.wrapping_sub(STACK_BELOW), STACK_LINES);
        }
    }

    fn handle<'a>(
        &mut self,
        shared: &'a Shared,
        mut state: SpinGuard<'a, State>,
        event: Event,
    ) -> Result<SpinGuard<'a, State>, Failure> {
        match event {
            Event::Resume { rank } => {
                if state.ranks[rank].phase == Phase::Due {
                    return self.resume(shared, state, rank);
                }
            }
            Event::Timer { rank } => state.timer(rank),
            Event::Signal { node } => state.signal(node),
            Event::Act { actor, token } => {
                let now = state.now;
                while self.actors.len() < state.actors.len() {
                    self.actors.push(state.actors[self.actors.len()].clone());
                }
                drop(state);
                self.actors[actor].event(now, token);
                return Ok(shared.lock());
            }
        }
        Ok(state)
    }

    fn resume<'a>(
        &mut self,
        shared: &'a Shared,
        mut state: SpinGuard<'a, State>,
        rank: usize,
    ) -> Result<SpinGuard<'a, State>, Failure> {
        state.begin(rank);
        drop(state);
        let running = self.contexts[rank].as_mut().is_some_and(RankContext::resume);
        let mut state = shared.lock();
        state.current = None;
        if !running {
            self.contexts[rank] = None;
            state.end(rank);
        }
        for (number, body) in std::mem::take(&mut state.spawned) {
            self.create_context(number, body)?;
        }
        match state.panicked.take() {
            Some((rank, message)) => Err(Failure::Panicked { rank, message }),
            None => Ok(state),
        }
    }
}

/// Prefetches all of a value.
fn fetch<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).addr(), size_of::<T>().div_ceil(LINE));
}
