//! [`HostCosts`]: processor costs of a simulated machine that no device charges.

use crate::{Span, Step};

/// Processor costs of a simulated machine that no device charges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostCosts {
    /// One poll of memory that finds nothing new.
    pub poll: Span,
    /// The fixed part of a copy.
    pub copy: Span,
    /// Each byte of a copy, in picoseconds.
    pub copy_ps_per_byte: f64,
    /// Handing work to another thread and joining it.
    pub fork: Span,
    /// Each step of a library, in the order of [`Step::ALL`].
    pub steps: [Span; Step::ALL.len()],
}

impl Default for HostCosts {
    /// Polling every 10 ns, free copies: until the model of a machine sets its own costs.
    fn default() -> Self {
        let steps = [Span::ZERO; Step::ALL.len()];
        Self { poll: Span::from_ns(10), copy: Span::ZERO, copy_ps_per_byte: 0.0, fork: Span::ZERO, steps }
    }
}
