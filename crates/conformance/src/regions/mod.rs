//! Registered memory.
//!
//! | file | contents |
//! |---|---|
//! | `memory` | registration, keys and rights |
//! | `reg_all` | regions that cover all memory |
//! | `lost_memory` | registered memory that its program unmaps |
//! | `placed` | regions at other addresses, changed regions, and memory that is mapped on demand |
//! | `windows` | memory windows |
//! | `map` | load and store on a peer's NIC memory |

#[allow(unsafe_code, reason = "a program's memory is mapped, protected and unmapped")]
pub(crate) mod lost_memory;
pub(crate) mod map;
pub(crate) mod memory;
#[allow(unsafe_code, reason = "memory of a program may be unmapped")]
pub(crate) mod placed;
#[allow(unsafe_code, reason = "registering all memory makes promises that the compiler cannot check")]
pub(crate) mod reg_all;
pub(crate) mod windows;
