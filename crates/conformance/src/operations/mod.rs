//! Operations on queue pairs: the bytes that they move, their order, and errors of forbidden operations.
//!
//! | file | contents |
//! |---|---|
//! | `send_recv`, `send_forms` | messages; immediate data, inline data, invalidation, lists, signaling |
//! | `write`, `read`, `atomics` | operations on memory of the peer |
//! | `placement` | every operation between host and NIC memory |
//! | `remote_violations`, `local_violations` | keys, ranges and rights that forbid an operation |
//! | `order` | the order of completions, and flushing |
//! | `large`, `random` | 1 GiB messages; random operations against a model |

pub(crate) mod atomics;
pub(crate) mod large;
pub(crate) mod local_violations;
pub(crate) mod order;
pub(crate) mod placement;
pub(crate) mod random;
pub(crate) mod read;
pub(crate) mod remote_violations;
pub(crate) mod send_forms;
pub(crate) mod send_recv;
pub(crate) mod write;
