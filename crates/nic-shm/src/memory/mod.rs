//! Layout and mapping of shared memory, allocation of its parts and numbers, and the protection tables.

pub(crate) mod allocator;
pub(crate) mod atomic_lock;
pub(crate) mod heap;
pub(crate) mod layout;
pub(crate) mod numbers;
pub(crate) mod reserved_mapping;
pub(crate) mod segment;
pub(crate) mod table;
pub(crate) mod tlb;
