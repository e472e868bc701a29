//! The traits of `verbs::provider` over the network: each object holds its key and what it keeps alive.
//!
//! A call charges its caller the time given by the machine file. Calls that read state which events change
//! first let the world advance to the caller's clock; posting need not do that, because it only adds events.
//!
//! | file | contents |
//! |---|---|
//! | `device` | the device: completion queues, channels, NIC memory |
//! | `domain` | protection domains and memory regions |
//! | `queues` | completion queues and channels, queue pairs, shared receive queues |
//! | `manager` | connection channels, listeners, requests |
//! | `opened` | [`OpenedDevice`]: the state that all objects share |

mod device;
mod domain;
mod manager;
mod opened;
mod queues;

pub(crate) use device::{DeviceObject, attr_of};
pub(crate) use opened::OpenedDevice;
