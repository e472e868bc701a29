//! Connections to other processes, over the devices that reach them.
//!
//! | file | purpose |
//! |---|---|
//! | `transport` | ordered messages and RDMA between this process and each other one |
//! | `connection` | a queue pair with its flow control |
//! | `nic` | a device and the resources that its connections share |
//! | `address` | the address that each process publishes |
//! | `trust` | keys that processes share, and the check of connect requests |

pub(crate) mod address;
pub(crate) mod connection;
#[cfg(test)]
pub(crate) mod intruders;
pub(crate) mod nic;
pub(crate) mod transport;
pub(crate) mod trust;
