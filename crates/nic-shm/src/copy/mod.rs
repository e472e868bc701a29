//! Copies and atomics on user memory, and the choice of the way to private memory.

pub(crate) mod atomic;
mod bounce;
pub(crate) mod copy_path;
pub(crate) mod place;
