//! The traits of `verbs::provider` over the network: each object has its key and what it keeps alive.
//!
//! A call costs its caller what the machine says. Calls that look at what events change first let the world come to the
//! caller's clock; posting does not have to, because it only adds events.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | the device: completion queues, channels, NIC memory |
//! | `domain` | protection domains and memory regions |
//! | `queues` | completion queues and channels, queue pairs, shared receive queues |
//! | `manager` | connection channels, listeners, requests |
//! | `opened` | [`Opened`]: what all of these keep |

mod device;
mod domain;
mod manager;
mod opened;
mod queues;

pub(crate) use device::{DeviceObject, attr_of};
pub(crate) use opened::Opened;
