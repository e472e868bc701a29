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
//! Each file uses only those in its own row and in rows above it, never in a circle.
//!
//! | file | what it holds |
//! |---|---|
//! | `config`, `state`, `wants`, `lock` | what is set; how far a queue pair has come; what it asks for; mutexes |
//! | `keys`, `request`, `pace` | keys here and the peer's; a send request; how fast each lane is, and what it is given |
//! | `announced`, `wake`, `worker` | queues with a descriptor; what wakes the service; what a rail's thread is to post |
//! | `hello`, `mail` | what the ends tell each other when they connect, and about lanes that died |
//! | `shared` | what all objects share |
//! | `completions` | where completions go: a ring, who is told of them, what is to be expected |
//! | `domain`, `srq`, `cm_events` | domains and regions; shared receive queues; events of connections |
//! | `lent`, `connection` | what a queue pair lends its halves; its connection |
//! | `sends`, `sending` | the queue of send requests: when each may start, on which lanes, and how it ends; the sending half |
//! | `receives`, `receiving` | receives, on whichever lane takes messages; the receiving half |
//! | `qp` | queue pairs: lanes, halves, connection |
//! | `tokens`, `screening` | accepted queue pairs by the tokens of their lanes; checks of connect requests in the rails' NICs |
//! | `known`, `polling` | queue pairs by their lanes; who takes completions from rails for them |
//! | `inner` | the device's objects by number |
//! | `words`, `outcome` | what this side says on a lane; what the program is told of a connection |
//! | `rejoin`, `mend` | a lane that comes back; a lane that dies |
//! | `progress` | taking completions, and doing what queue pairs ask for then |
//! | `stay`, `connect` | a shared receive queue that leaves a rail; connecting all lanes of a queue pair |
//! | `cq`, `channel`, `handle`, `pd`, `cm` | the API's holds on the objects; `cm` takes rails' events of connections, too |
//! | `threads` | the threads of the threaded engine |
//! | `service` | the thread (in virtual time, the rank) that makes progress for those who sleep |
//! | `device` | making a device |

#![forbid(unsafe_code)]

mod announced;
mod channel;
mod cm;
mod cm_events;
mod completions;
mod config;
mod connect;
mod connection;
mod cq;
mod device;
mod domain;
mod handle;
mod hello;
mod inner;
mod keys;
mod known;
mod lent;
mod lock;
mod mail;
mod mend;
mod outcome;
mod pace;
mod pd;
mod polling;
mod progress;
mod qp;
mod receives;
mod receiving;
mod rejoin;
mod request;
mod screening;
mod sending;
mod sends;
mod service;
mod shared;
mod srq;
mod state;
mod stay;
mod threads;
mod tokens;
mod wake;
mod wants;
mod words;
mod worker;

pub use config::{Engine, RAILS_MAX, RailsConfig};
pub use device::open;
