//! The lock-free parts, small and separate, each checked with loom (`RUSTFLAGS="--cfg loom"`).

mod atomics;
pub(crate) mod fence;
pub(crate) mod guard;
pub(crate) mod knock;
pub(crate) mod ready;
pub(crate) mod ring;
pub(crate) mod shared_queue;
pub(crate) mod stage;

pub(crate) use host::Spin;
