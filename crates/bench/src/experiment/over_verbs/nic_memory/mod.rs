//! Uses of NIC memory.
//!
//! | file | contents |
//! |---|---|
//! | `nicmem` | transfers between host memory and NIC memory of one device |
//! | `hotspot` | one process that serves several others |
//! | `pack` | non-contiguous data, sent as one message |
//! | `chain` | a message that is forwarded along a chain of processes |

pub(crate) mod chain;
pub(crate) mod hotspot;
pub(crate) mod nicmem;
pub(crate) mod pack;
