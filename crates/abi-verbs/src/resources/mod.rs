//! Objects of verbs but for queue pairs: the calls that make, use and destroy them.
//!
//! | file | what it holds |
//! |---|---|
//! | `context` | opened devices |
//! | `pd`, `mr`, `dm` | protection domains, memory regions, memory of the NIC |
//! | `channel`, `cq`, `srq` | completion channels, completion queues, shared receive queues |
//! | `ah` | address handles |
//! | `event` | asynchronous events |

pub(crate) mod ah;
pub(crate) mod channel;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod dm;
pub(crate) mod event;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod srq;
