//! Verbs objects except queue pairs: the calls that create, use and destroy them.
//!
//! | file | contents |
//! |---|---|
//! | `context` | opened devices |
//! | `pd`, `mr`, `dm` | protection domains, memory regions, device memory |
//! | `channel`, `cq`, `srq` | completion channels, completion queues, shared receive queues |
//! | `ah` | address handles |
//! | `event` | asynchronous events |

pub(crate) mod advice;
pub(crate) mod ah;
pub(crate) mod channel;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod dm;
pub(crate) mod event;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod srq;
