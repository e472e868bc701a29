//! Rails: a device made of several devices, its *rails*, over which it spreads messages.
//!
//! A queue pair of rails is one queue pair for each rail, a *lane*, connected to the peer's lane on the same rail. What a
//! NIC does natively stays native: each message or part of one is a request of a lane, places its data without a copy,
//! and fails as the rail's own requests fail.
//!
//! - **Messages** (sends, writes with immediate data, atomics) of one direction go on one lane, the receiver's *receive
//!   lane*, so that receives are the rail's own and order is the rail's. Queue pairs take turns at being given one.
//! - **Writes and reads** from [`RailsConfig::stripe_min`] bytes on are cut into a stripe for each lane. Shorter ones go
//!   whole on the message lane, or on the lane with the least in flight when that is busy.
//! - **Order.** A message starts when everything before it on *other* lanes has completed, so that it is delivered after
//!   all stripes of earlier writes are placed. Writes and reads whose remote ranges overlap on different lanes wait for
//!   each other. Completions come in the order of requests. What may differ from one NIC: stripes are placed in any
//!   order, so that whoever polls memory sees the last byte before the others; and behind a request that fails, later
//!   writes on other lanes may have been placed.
//! - **Keys.** The key of a region names an entry in a table that the peer reads by RDMA when it first meets the key
//!   (`keys`); no processor at the target takes part.
//! - **Progress** is made by whoever polls, or by a thread for each rail ([`Engine`]), and by a service (`service`) for what
//!   nobody polls for.
//!
//! | file | what it holds |
//! |---|---|
//! | `device`, `domain`, `srq`, `cq`, `channel` | the objects of the API |
//! | `known` | queue pairs by their lanes, for whoever takes completions |
//! | `qp`, `receives` | queue pairs; receives, on whichever lane takes messages |
//! | `sends`, `request` | the queue of send requests: when each may start, on which lanes, and how it ends; a request |
//! | `keys` | keys of regions here, and of the peer's |
//! | `cm`, `link`, `hello` | connection channels; connecting all lanes of a queue pair; what the ends tell each other |
//! | `pace` | how fast each lane is, and what it is given |
//! | `mend`, `mail`, `rejoin` | a lane that dies; what the ends write each other then; a lane that comes back |
//! | `stay` | what a queue pair does when its shared receive queue leaves a rail |
//! | `worker` | the threads of the threaded engine |
//! | `service` | the thread (in virtual time, the rank) that makes progress for those who sleep |

mod announced;
mod channel;
mod cm;
mod config;
mod cq;
mod device;
mod domain;
mod hello;
mod keys;
mod known;
mod link;
mod lock;
mod mail;
mod mend;
mod pace;
mod qp;
mod receives;
mod rejoin;
mod request;
mod sends;
mod service;
mod srq;
mod stay;
mod threads;
mod wake;
mod wants;
mod worker;

pub use config::{Engine, RAILS_MAX, RailsConfig};
pub use device::open;
