//! Queue pairs and the queues that they use.
//!
//! | file | what it holds |
//! |---|---|
//! | `objects` | the life of objects: limits, sizes of nothing, orders of dropping |
//! | `states` | what each state of a queue pair allows |
//! | `limits` | full queues and exceeded limits |
//! | `rnr` | messages that arrive before their receive |
//! | `srq`, `cq` | shared receive queues; completion queues |
//! | `notify` | completion channels |

pub(crate) mod cq;
pub(crate) mod limits;
pub(crate) mod notify;
pub(crate) mod objects;
pub(crate) mod rnr;
pub(crate) mod srq;
pub(crate) mod states;
