//! Rails: a device made of several devices, its *rails*, over which it distributes messages.
//!
//! A queue pair of rails is one queue pair for each rail, a *lane*, connected to the peer's lane on the same rail.
//! Native NIC functions stay native: each message or part of one is a request of a lane, places its data without a
//! copy, and fails as the rail's own requests fail.
//!
//! - **Messages** (sends, writes with immediate data, atomics) of one direction use one lane, the receiver's *receive
//!   lane*, so that receives and their order are the rail's own. Receive lanes are assigned to queue pairs in turn.
//! - **Writes and reads** from [`RailsConfig::stripe_min`] bytes on are divided into a stripe for each lane. Shorter
//!   ones use the message lane, or the lane with the least in flight if that is busy.
//! - **Order.** A message starts when everything before it on *other* lanes has completed, so that it is delivered
//!   after all stripes of earlier writes are placed. Writes and reads whose remote ranges overlap on different lanes
//!   wait for each other. Completions come in the order of requests. Two things may differ from a single NIC: stripes
//!   are placed in any order, so that a poller of memory may see the last byte before the others; and after a request
//!   that fails, later writes on other lanes may have been placed.
//! - **Keys.** The key of a region names an entry in a table that the peer reads by RDMA when it first uses the key
//!   (`keys`); no processor at the target takes part.
//! - **Progress** is made by pollers, or by a thread for each rail ([`Engine`]), and by a service (`service`) for
//!   everything that no thread polls for.
//!
//! Files use each other in one direction, never in a circle.
//!
//! | module | contents |
//! |---|---|
//! | `config`, `state`, `qp_actions`, `lock` | settings; state of a queue pair; actions it requests; mutexes |
//! | `memory` | protection domains and regions; the keys of this side and of the peer |
//! | `shared`, `context` | state shared by all objects; state shared by the halves of a queue pair |
//! | `completion` | delivering completions; taking them from the rails |
//! | `send` | requests, the rate of each lane, when a request may start and on which lanes; the sending half |
//! | `receive` | receives, on the lane that receives messages; shared receive queues; the receiving half |
//! | `qp` | queue pairs: lanes, halves, connection |
//! | `connect` | connecting all lanes of a queue pair; checks of requests; connection events |
//! | `device_inner` | the device's objects by number |
//! | `lanes` | failure and reconnection of lanes |
//! | `progress` | taking completions, then doing what queue pairs request; the threads of the threaded engine; the service, a thread (in virtual time a fiber) that makes progress for sleeping waiters |
//! | `api` | API handles of the objects; `api::cm` also handles the rails' connection events |
//! | `device` | opening a device |

#![forbid(unsafe_code)]

mod api;
mod completion;
mod config;
mod connect;
mod context;
mod device;
mod device_inner;
mod lanes;
mod lock;
mod memory;
mod progress;
mod qp;
mod qp_actions;
mod receive;
mod send;
mod shared;
mod state;

pub use config::{Engine, RAILS_MAX, RailsConfig};
pub use device::open;
