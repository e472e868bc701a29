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
//! Files use each other one way, never in a circle.
//!
//! | module | what it holds |
//! |---|---|
//! | `config`, `state`, `wants`, `lock` | what is set; how far a queue pair has come; what it asks for; mutexes |
//! | `memory` | protection domains and regions; the keys here and the peer's |
//! | `shared`, `context` | what all objects share; what a queue pair lends its halves |
//! | `completion` | where completions go; who takes them from the rails |
//! | `send` | requests, how fast each lane is, when a request may start and on which lanes; the sending half |
//! | `receive` | receives, on whichever lane takes messages; shared receive queues; the receiving half |
//! | `qp` | queue pairs: lanes, halves, connection |
//! | `connect` | connecting all lanes of a queue pair; checks of requests; what the program is told |
//! | `inner` | the device's objects by number |
//! | `lanes` | a lane that dies, and one that comes back |
//! | `progress` | taking completions, and doing what queue pairs ask for then; the threads of the threaded engine; the service, a thread (in virtual time a fiber) that makes progress for those who sleep |
//! | `api` | the API's holds on the objects; `api::cm` takes the rails' events of connections, too |
//! | `device` | making a device |

#![forbid(unsafe_code)]

mod api;
mod completion;
mod config;
mod connect;
mod context;
mod device;
mod inner;
mod lanes;
mod lock;
mod memory;
mod progress;
mod qp;
mod receive;
mod send;
mod shared;
mod state;
mod wants;

pub use config::{Engine, RAILS_MAX, RailsConfig};
pub use device::open;
