//! What NIC memory is good for.
//!
//! | file | what it holds |
//! |---|---|
//! | `nicmem` | transfers between host memory and NIC memory of one device |
//! | `hotspot` | one process that serves several others |
//! | `pack` | data in pieces, sent as one message |
//! | `chain` | a message that is forwarded along a chain of processes |

pub(crate) mod chain;
pub(crate) mod hotspot;
pub(crate) mod nicmem;
pub(crate) mod pack;
