//! NICs in software, behind the traits of `verbs`.
//!
//! | module | device |
//! |---|---|
//! | `shm` | between the processes of one host: the initiator's processor is the DMA engine |
//! | `iwarp` | between hosts: iWARP on TCP |
//! | `floor` | what the machine itself can do, for a benchmark to stand beside |

#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
pub mod floor;
mod fork;
#[cfg(not(loom))]
pub mod iwarp;
#[cfg(all(feature = "lab", not(loom)))]
pub mod lab;
#[cfg(not(loom))]
mod limits;
#[cfg(not(loom))]
mod sg_list;
#[cfg(not(loom))]
pub mod shm;
#[cfg_attr(loom, allow(dead_code, reason = "only the models of these parts are built"))]
mod sync;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod tide;
