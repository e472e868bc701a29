//! How a device of rails is made.

/// The most rails of one device.
pub const RAILS_MAX: usize = 8;

/// Who serves the rails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Whoever posts posts to all rails, and whoever polls polls all.
    #[default]
    One,
    /// A thread for each rail, pinned to a core, posts to it and polls it.
    Threads,
}

/// How a device of rails is made.
#[derive(Clone, Debug, PartialEq)]
pub struct RailsConfig {
    /// Writes and reads of at least this many bytes are cut into stripes.
    pub stripe_min: u64,
    /// How much of a striped message each rail carries, relative to the others; empty for what is measured.
    pub weights: Vec<f64>,
    /// Who serves the rails.
    pub engine: Engine,
}

impl Default for RailsConfig {
    /// Stripes from 16 KiB on, at first equal, then as long as each rail is fast.
    fn default() -> Self {
        Self { stripe_min: 16 << 10, weights: Vec::new(), engine: Engine::One }
    }
}
