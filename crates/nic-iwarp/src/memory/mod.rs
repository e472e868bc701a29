//! Memory regions, NIC memory, and all accesses to user memory.

pub(crate) mod nic_memory;
pub(crate) mod place;
pub(crate) mod regions;
