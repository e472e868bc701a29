//! The components of a card, each a resource with its times. They know nothing of queue pairs and of each
//! other: `net` decides when to use them.
//!
//! | file | models |
//! |---|---|
//! | `server` | any resource that serves requests in sequence |
//! | `calls` | processor costs of calls |
//! | `doorbell`, `descriptor` | how the card learns of requests |
//! | `bus`, `chipset` | the host bus; the resources that all cards of a machine share |
//! | `dma` | the engine that reads and writes host memory |
//! | `memory` | the card's own memory |
//! | `translation` | the cache of page translations |
//! | `transport` | sending and receiving: costs of each request, piece and packet |
//! | `link`, `switch` | the wires |
//! | `completion`, `interrupt` | how the processor learns of completions |
//! | `kernel` | TCP in the host, for cards without offload |

pub(crate) mod bus;
pub(crate) mod calls;
pub(crate) mod chipset;
pub(crate) mod completion;
pub(crate) mod descriptor;
pub(crate) mod dma;
pub(crate) mod doorbell;
pub(crate) mod interrupt;
pub(crate) mod kernel;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod server;
pub(crate) mod switch;
pub(crate) mod translation;
pub(crate) mod transport;

use host::Span;

/// A span from a value in nanoseconds.
pub(crate) fn ns(value: f64) -> Span {
    Span::from_ps((value * 1e3).round() as u64)
}

/// A span from a value in microseconds.
pub(crate) fn us(value: f64) -> Span {
    ns(value * 1e3)
}

/// How long `bytes` take at a rate in 10^6 bytes per second.
pub(crate) fn at_rate(bytes: u64, mbps: f64) -> Span {
    Span::from_ps((bytes as f64 * 1e6 / mbps).round() as u64)
}

/// The rate in 10^6 bytes per second of `bytes` in `span`, for tests.
#[cfg(test)]
pub(crate) fn rate(bytes: u64, span: Span) -> f64 {
    bytes as f64 / span.as_secs_f64() / 1e6
}
