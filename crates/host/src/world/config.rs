//! [`Config`]: the settings of a world.

/// How the world runs fibers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FiberKind {
    /// Each fiber is a coroutine in the thread of the world.
    #[default]
    Coroutine,
    /// Each fiber is a thread, and one runs at a time: slower; for debuggers and sanitizers, and to check the
    /// coroutines.
    Thread,
}

/// The settings of a world.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Seed of all randomness in the world.
    pub seed: u64,
    /// How the world runs fibers.
    pub fiber_kind: FiberKind,
    /// Bytes of a fiber's stack; only touched pages take memory.
    pub stack: usize,
    /// Number of events after which the world fails, against endless runs.
    pub max_events: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { seed: 1, fiber_kind: FiberKind::default(), stack: 256 << 10, max_events: u64::MAX }
    }
}
