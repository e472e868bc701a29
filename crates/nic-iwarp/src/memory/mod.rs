//! Memory regions, NIC memory, and all that touches user memory.

pub(crate) mod nic_memory;
pub(crate) mod place;
pub(crate) mod regions;
