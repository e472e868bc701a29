//! Experiments on one device, over verbs.
//!
//! | file | contents |
//! |---|---|
//! | `latency`, `bilat`, `bandwidth`, `bibw`, `rate` | messages between two processes |
//! | `park`, `memory` | waiting on shared cores; memory of a queue pair |
//! | `nic_memory/` | uses of NIC memory |
//! | `reg`, `post`, `poll`, `connect` | single calls |
//! | `overhead`, `availability`, `notify`, `blocking` | the processor's cost of communication |
//! | `reuse`, `connections`, `scaling`, `maxsge`, `segments`, `mtu` | other influences on latency and bandwidth |

pub(crate) mod availability;
pub(crate) mod bandwidth;
pub(crate) mod bibw;
pub(crate) mod bilat;
pub(crate) mod blocking;
pub(crate) mod connect;
pub(crate) mod connections;
pub(crate) mod latency;
pub(crate) mod maxsge;
pub(crate) mod memory;
pub(crate) mod mtu;
pub(crate) mod nic_memory;
pub(crate) mod notify;
pub(crate) mod overhead;
pub(crate) mod park;
pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod rate;
pub(crate) mod reg;
pub(crate) mod reuse;
pub(crate) mod scaling;
pub(crate) mod segments;
