//! Virtual time: a world of simulated machines in one thread, with one queue of events.
//!
//! A [`World`] has [`Node`]s (simulated machines) and ranks (code that runs on them, each as a coroutine with a stack
//! of its own). Ranks are ordinary blocking code that got its [`Host`](crate::Host) from [`Node::host`]. Devices are [`Actor`]s:
//! they put events into the queue and are called when these are due.
//!
//! A rank has a clock of its own, which [`Host::charge`](crate::Host::charge) runs ahead of the world's. It waits for the world only when it
//! looks at something that others change ([`Node::sync`], and every turn of a wait): lazy synchronisation. Waiting ranks
//! cost no events: what polls is resumed at the first instant at which its polling would have seen the change.
//!
//! The same seed gives the same events in the same order, and the same [`Ended::trace`]; with a thread for each rank
//! ([`Factory::Thread`]), too. When nothing can happen any more and a rank still waits, [`World::run`] says which rank
//! waits in which call since when ([`Failure::Stuck`]).
//!
//! | file | what it holds |
//! |---|---|
//! | `timeline` | [`Timeline`], [`Actor`]: what devices do with time |
//! | `node` | [`Node`], and how its [`Host`](crate::Host) waits |
//! | `state` | ranks, nodes and clocks behind the lock |
//! | `queue` | the event queue |
//! | `factory` | coroutine or thread: how a rank gives up control and gets it back |

mod factory;
mod node;
mod queue;
mod state;
mod timeline;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::Time;
use crate::spin::SpinGuard;
use factory::{Body, Vessel};
pub use node::{HostCosts, Node};
use queue::Event;
use state::{Phase, State};
use timeline::Shared;
pub use timeline::{Actor, ActorId, Timeline};

/// How ranks are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Factory {
    /// A coroutine each, all in the thread of the world.
    #[default]
    Coroutine,
    /// A thread each, of which one runs at a time: slower, for debuggers and sanitizers, and to check the other.
    Thread,
}

/// How a world is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Seed of everything random in it.
    pub seed: u64,
    /// How ranks are made.
    pub factory: Factory,
    /// Bytes of a rank's stack; only what is touched takes memory.
    pub stack: usize,
    /// Ends a world that goes on for ever: events after which it fails.
    pub max_events: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { seed: 1, factory: Factory::default(), stack: 256 << 10, max_events: u64::MAX }
    }
}

/// How a world ended in which every rank came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When the last rank ended.
    pub time: Time,
    /// Events that were handled.
    pub events: u64,
    /// A hash of all events in their order: equal for equal runs.
    pub trace: u64,
}

/// Why a world did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing can happen any more, and ranks still wait.
    Stuck {
        /// When.
        time: Time,
        /// Each waiting rank, with the call it waits in and since when.
        waiting: Vec<Waiting>,
    },
    /// A rank panicked.
    Panicked {
        /// Its name.
        rank: String,
        /// What it said.
        message: String,
    },
    /// It handled [`Config::max_events`] events.
    Endless {
        /// When.
        time: Time,
        /// Each rank that had not ended.
        waiting: Vec<Waiting>,
    },
    /// Another rank cannot be had: too little memory, or too many mappings.
    NoRank {
        /// How many there are.
        ranks: usize,
        /// Why, and what to do.
        why: String,
    },
}

/// A rank that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub rank: String,
    /// The call that it waits in.
    pub call: &'static str,
    /// Since when.
    pub since: Time,
}

/// Waiting ranks that a message names.
const NAMED: usize = 16;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, waiting: &[Waiting]| {
            for w in waiting.iter().take(NAMED) {
                write!(f, "\n  {} in {} since {}", w.rank, w.call, w.since.since(Time::ZERO))?;
            }
            let more = waiting.len().saturating_sub(NAMED);
            if more > 0 { write!(f, "\n  and {more} more") } else { Ok(()) }
        };
        match self {
            Self::Stuck { time, waiting } => {
                write!(
                    f,
                    "deadlock at {}: nothing can happen any more, and these wait:",
                    time.since(Time::ZERO)
                )?;
                list(f, waiting)
            }
            Self::Endless { time, waiting } => {
                write!(f, "no end in sight at {}; these have not ended:", time.since(Time::ZERO))?;
                list(f, waiting)
            }
            Self::Panicked { rank, message } => write!(f, "{rank} panicked: {message}"),
            Self::NoRank { ranks, why } => write!(f, "no rank number {}: {why}", ranks + 1),
        }
    }
}

impl std::error::Error for Failure {}

/// Simulated machines and the ranks on them; stays in its thread.
pub struct World {
    shared: Arc<Shared>,
    config: Config,
    /// Of ranks that have not ended, by number.
    vessels: Vec<Option<Vessel>>,
    actors: Vec<Arc<dyn Actor>>,
}

impl World {
    /// An empty world at time zero.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { shared: Arc::new(Shared::new(config.seed)), config, vessels: Vec::new(), actors: Vec::new() }
    }

    /// Its clock and event queue.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        Timeline(self.shared.clone())
    }

    /// Another simulated machine.
    #[must_use]
    pub fn node(&mut self, name: &str) -> Node {
        Node::add(&self.shared, name)
    }

    /// Another rank, which begins at time zero. What happens on any of `nodes` ends its waits: a rank usually sits on
    /// one; a test that drives both ends of a connection sits on two.
    ///
    /// # Errors
    /// [`Failure::NoRank`] when there is no room for its stack.
    pub fn rank(
        &mut self,
        name: &str,
        nodes: &[&Node],
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), Failure> {
        let number = self.shared.lock().add_rank(name, nodes.iter().map(|n| n.index()), true);
        self.outfit(number, Box::new(body))
    }

    /// Gives a rank its stack.
    fn outfit(&mut self, number: usize, body: Body) -> Result<(), Failure> {
        let ranks = self.vessels.len();
        let vessel = Vessel::new(self.config, &self.shared, number, body)
            .map_err(|why| Failure::NoRank { ranks, why })?;
        self.vessels.resize_with(number + 1, || None);
        self.vessels[number] = Some(vessel);
        Ok(())
    }

    /// Runs until every rank has ended; ranks that these have spawned are then cut off, as threads of a process are.
    ///
    /// # Errors
    /// [`Failure`]. Ranks that have not ended are unwound in any case.
    pub fn run(mut self) -> Result<Ended, Failure> {
        let outcome = self.run_events();
        self.shared.lock().ending = true;
        for number in 0..self.vessels.len() {
            if let Some(vessel) = self.vessels[number].take() {
                self.shared.lock().current = Some(number);
                vessel.unwind();
            }
        }
        self.shared.end();
        outcome
    }

    fn run_events(&mut self) -> Result<Ended, Failure> {
        let shared = self.shared.clone();
        loop {
            let mut state = shared.lock();
            if state.live == 0 {
                return Ok(Ended { time: state.now, events: state.events, trace: state.trace });
            }
            let Some(event) = state.next_event() else {
                return Err(Failure::Stuck { time: state.now, waiting: state.waiting() });
            };
            if state.events > self.config.max_events {
                return Err(Failure::Endless { time: state.now, waiting: state.waiting() });
            }
            self.handle(&shared, state, event)?;
        }
    }

    fn handle(
        &mut self,
        shared: &Shared,
        mut state: SpinGuard<'_, State>,
        event: Event,
    ) -> Result<(), Failure> {
        match event {
            Event::Resume { rank } => {
                if state.ranks[rank].phase == Phase::Due {
                    self.resume(shared, state, rank)?;
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
            }
        }
        Ok(())
    }

    fn resume(
        &mut self,
        shared: &Shared,
        mut state: SpinGuard<'_, State>,
        rank: usize,
    ) -> Result<(), Failure> {
        state.begin(rank);
        drop(state);
        let running = self.vessels[rank].as_mut().is_some_and(Vessel::resume);
        let mut state = shared.lock();
        state.current = None;
        if !running {
            self.vessels[rank] = None;
            state.end(rank);
        }
        let panicked = state.panicked.take();
        let newborn = std::mem::take(&mut state.newborn);
        drop(state);
        for (number, body) in newborn {
            self.outfit(number, body)?;
        }
        match panicked {
            Some((rank, message)) => Err(Failure::Panicked { rank, message }),
            None => Ok(()),
        }
    }
}
