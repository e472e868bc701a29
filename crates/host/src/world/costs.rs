//! [`HostCosts`]: what a simulated machine's processor takes for what no device charges.

use crate::{Span, Step};

/// What a simulated machine's processor takes for what no device charges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostCosts {
    /// For one look at memory that finds nothing new.
    pub look: Span,
    /// For a copy, whatever its length.
    pub copy: Span,
    /// For each further byte of a copy, in picoseconds.
    pub copy_ps_per_byte: f64,
    /// For giving work to another thread and joining it.
    pub fork: Span,
    /// For each step of a library, in the order of [`Step::ALL`].
    pub steps: [Span; Step::ALL.len()],
}

impl Default for HostCosts {
    /// A look every 10 ns, and copies for nothing: until a machine says better.
    fn default() -> Self {
        let steps = [Span::ZERO; Step::ALL.len()];
        Self { look: Span::from_ns(10), copy: Span::ZERO, copy_ps_per_byte: 0.0, fork: Span::ZERO, steps }
    }
}
