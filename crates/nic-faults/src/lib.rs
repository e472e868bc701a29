//! Faults on purpose: a device over another device, whose requests, calls and events fail as its rules say.
//!
//! A program that is tested with it needs no change: it opens `faults(shm,rules=FILE)` instead of `shm`. What it then
//! sees is what a card does: a request ends with an error, its queue pair goes to the error state, later requests are
//! flushed in order, and the peer sees the end of the connection.
//!
//! - **A rule** ([`Rule`]) says on which operation, by which peer, when and how often a fault happens, and what happens.
//! - **A request that has to fail** is posted with a key of another protection domain. The NIC below refuses it as it
//!   refuses any such request, and flushes the rest; the device replaces the status. No completion is made up, so order,
//!   channels and sleepers need no code here (decision 0023).
//! - **A late request** waits in front of its queue, with all requests behind it. Requests of other queue pairs pass, as
//!   the specification allows.
//! - **The same seed gives the same faults** for the same operations: each rule has random numbers of its own. In
//!   simulated time the whole run repeats.
//!
//! | module | contents |
//! |---|---|
//! | `operation`, `effect` | where a fault can happen, and what it does |
//! | `rule`, `file` | rules: one as words, several as a TOML file, errors with the line |
//! | `chaos` | rules that a seed chooses within what the specification allows |
//! | `engine` | decides for each operation, counts, and records what happened |
//! | `timer` | what happens later |
//! | `event_lane` | events that wait, or that this device adds, with their wake-ups |
//! | `plans` | completions whose status is replaced |
//! | `owned` | requests that wait in front of their queue |
//! | `shared` | the state that all objects of a device share |
//! | `api` | the objects of `verbs` |
//! | `control` | rules that come in at run time, over a socket of the same user |

#![forbid(unsafe_code)]

mod api;
mod chaos;
mod control;
mod effect;
mod engine;
mod event_lane;
mod file;
mod operation;
mod owned;
mod plans;
mod rule;
mod shared;
mod timer;

pub use api::device::{FaultHandle, FaultsConfig, open};
pub use chaos::chaos;
pub use control::{remaining_report, request};
pub use effect::{Effect, Injected, parse_span};
pub use engine::Fired;
pub use file::{RuleFile, parse, read};
pub use operation::Operation;
pub use rule::{BadRule, Rule};
