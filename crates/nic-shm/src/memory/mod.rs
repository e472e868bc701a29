//! What lies where in shared memory, mapping it, which parts and numbers are taken, and the protection tables.

pub(crate) mod heap;
pub(crate) mod layout;
pub(crate) mod numbers;
pub(crate) mod parts;
pub(crate) mod reserve;
pub(crate) mod segment;
pub(crate) mod table;
pub(crate) mod tlb;
pub(crate) mod turn;
