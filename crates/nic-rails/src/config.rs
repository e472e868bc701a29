//! Settings of a device of rails.

/// Maximum number of rails of one device.
pub const RAILS_MAX: usize = 8;

/// The threads that serve the rails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The program's threads: each post and poll serves all rails.
    #[default]
    Callers,
    /// A thread for each rail, pinned to a core, posts to it and polls it.
    Threads,
}

/// Settings of a device of rails.
#[derive(Clone, Debug, PartialEq)]
pub struct RailsConfig {
    /// Writes and reads of at least this many bytes are divided into stripes.
    pub stripe_min: u64,
    /// The part of a striped message that each rail carries, relative to the others; empty to use measured rates.
    pub weights: Vec<f64>,
    /// The threads that serve the rails.
    pub engine: Engine,
}

impl Default for RailsConfig {
    /// Stripes from 16 KiB on, of equal length at first and then in proportion to the measured rate of each rail.
    fn default() -> Self {
        Self { stripe_min: 16 << 10, weights: Vec::new(), engine: Engine::Callers }
    }
}
