//! NICs in software, behind the traits of `verbs`.
//!
//! | module | device |
//! |---|---|
//! | `shm` | between the processes of one host: the initiator's processor is the DMA engine |
//! | `iwarp` | between hosts: iWARP on TCP |

pub mod iwarp;
pub mod shm;
