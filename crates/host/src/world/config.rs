//! [`Config`]: how a world is made.

/// How ranks are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Factory {
    /// A coroutine each, all in the thread of the world.
    #[default]
    Coroutine,
    /// A thread each, of which one runs at a time: slower, for debuggers and sanitizers, and to check the other.
    Thread,
}

/// How a world is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Seed of everything random in it.
    pub seed: u64,
    /// How ranks are made.
    pub factory: Factory,
    /// Bytes of a rank's stack; only what is touched takes memory.
    pub stack: usize,
    /// Ends a world that goes on for ever: events after which it fails.
    pub max_events: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { seed: 1, factory: Factory::default(), stack: 256 << 10, max_events: u64::MAX }
    }
}
