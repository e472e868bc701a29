//! Copies and atomics on user memory, and which way into private memory.

pub(crate) mod atomic;
pub(crate) mod copy_path;
pub(crate) mod place;
