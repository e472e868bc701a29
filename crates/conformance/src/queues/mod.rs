//! Queue pairs and their queues.
//!
//! | file | contents |
//! |---|---|
//! | `objects` | lifetime of objects: limits, zero sizes, orders of dropping |
//! | `states` | allowed calls in each state of a queue pair |
//! | `limits` | full queues and exceeded limits |
//! | `rnr` | messages that arrive before their receive |
//! | `split` | receives that take the beginning of a longer message |
//! | `srq`, `cq` | shared receive queues; completion queues |
//! | `notify` | completion channels |

pub(crate) mod cq;
pub(crate) mod limits;
pub(crate) mod notify;
pub(crate) mod objects;
pub(crate) mod rnr;
pub(crate) mod split;
pub(crate) mod srq;
pub(crate) mod states;
