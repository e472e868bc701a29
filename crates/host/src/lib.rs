//! The machine that code runs on: its clock, waiting, and starting threads, in real or virtual time.
//!
//! Everything above the NICs blocks in [`Host::wait`] and [`Host::poll`] and nowhere else, so that the same code runs
//! in real time (threads, TSC, futex) and in virtual time (one event queue).
//!
//! | file | contents |
//! |---|---|
//! | `units` | [`Time`], [`Span`] (picoseconds), [`Bytes`], [`Rate`] |
//! | `event_count` | [`EventCount`]: an event count; may be placed in shared memory |
//! | `source` | [`Source`]: something to sleep on; [`WaitSet`]: several sources in one |
//! | `spin`, `biased`, `lock` | [`Spin`] and, for locks that mostly one thread takes, [`BiasedLock`], both for NICs; [`Lock`], for code that may suspend while it holds the lock |
//! | `bounded` | reading of files, streams and lines, with a limit |
//! | `plain` | external text with terminal control characters escaped |
//! | `prefetch` | [`prefetch()`]: prefetches cache lines |
//! | `random` | [`random()`]: unpredictable bits |
//! | `rng` | [`Rng`]: reproducible numbers from a seed |
//! | `slots` | [`SlotTable`]: values by key; the key of a removed value stays invalid for a long time |
//! | `network` | [`Network`]: ranges of IP addresses |
//! | `ops` | [`HostOps`], which each kind of time implements, and [`Host`], its handle with the two wait loops |
//! | `real` | real time: the TSC clock, spinning, yielding, sleeping, pinning |
//! | `world` | virtual time: simulated machines, coroutines, one event queue |

mod biased;
pub mod bounded;
pub mod event_count;
mod lock;
mod network;
mod ops;
pub mod plain;
mod prefetch;
mod random;
pub mod real;
mod rng;
mod slots;
mod source;
mod spin;
mod units;
pub mod world;

pub use biased::{BiasedGuard, BiasedLock};
pub use event_count::EventCount;
pub use lock::{Lock, LockGuard};
pub use network::{BadNetwork, Network, is_private, nearest};
pub use ops::{ClockKind, Host, HostOps, ProgressHook, Step, Task, WaitLoop};
pub use prefetch::prefetch;
pub use random::random;
pub use rng::{Rng, mix};
pub use slots::{SlotKey, SlotTable};
pub use source::{Descriptor, Source, Ticket, WaitSet, Wake, Wakes};
pub use spin::{Spin, SpinGuard};
pub use units::{BadSize, Bytes, Rate, Span, Time};
