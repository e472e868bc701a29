//! What code may ask of the machine it runs on: what time it is, to wait, to run something beside.
//!
//! Everything above the NICs blocks in [`Host::wait`] and [`Host::poll`] and nowhere else, so that the same
//! code runs in real time (threads, TSC, futex) and in virtual time (one event queue).
//!
//! | file | what it holds |
//! |---|---|
//! | `units` | [`Time`], [`Span`] (picoseconds), [`Bytes`], [`Rate`] |
//! | `bell` | [`Bell`]: what a sleeper waits on and a producer rings; may lie in shared memory |
//! | `source` | [`Source`]: what one can sleep on; [`WaitSet`]: several in one |
//! | `spin`, `biased`, `lock` | [`Spin`] and, for what one thread takes again and again, [`Biased`], for NICs; [`Lock`], for whoever may call something that lets others run while it holds one |
//! | `bounded` | reading of files, streams and lines, with a limit |
//! | `plain` | text from outside without what a terminal acts on |
//! | `ahead` | [`fetch_ahead`]: has the processor fetch what will be used soon |
//! | `random` | [`random()`]: bits that nobody can guess |
//! | `rng` | [`Rng`]: numbers that follow from a seed |
//! | `slots` | [`SlotTable`]: values by number, where the number of a removed value stays invalid for long |
//! | `network` | [`Network`]: ranges of IP addresses |
//! | `ops` | [`HostOps`], the contract of a kind of time, and [`Host`], its handle with the two wait loops |
//! | `real` | real time: the TSC clock, spinning, yielding, sleeping, pinning |
//! | `world` | virtual time: simulated machines, coroutines, one event queue |

mod ahead;
pub mod bell;
mod biased;
pub mod bounded;
mod lock;
mod network;
mod ops;
pub mod plain;
mod random;
pub mod real;
mod rng;
mod slots;
mod source;
mod spin;
mod units;
pub mod world;

pub use ahead::fetch_ahead;
pub use bell::Bell;
pub use biased::{Biased, BiasedGuard};
pub use lock::{Held, Lock};
pub use network::{BadNetwork, Network, is_private, nearest};
pub use ops::{Chore, ClockKind, Host, HostOps, Step, Task, Turn};
pub use random::random;
pub use rng::{Rng, mix};
pub use slots::{SlotKey, SlotTable};
pub use source::{Descriptor, Source, Ticket, WaitSet, Wake, Wakes};
pub use spin::{Spin, SpinGuard};
pub use units::{BadSize, Bytes, Rate, Span, Time};
