//! Sampling without I/O: what to time next, when to stop, and what may be said of the result.
//!
//! Nothing here reads a clock. [`Sampler`] hands out rounds of work and takes back their durations, so both sides of
//! a ping-pong know the number of operations in advance, and every rule is tested in synthetic time.

mod assemble;
mod clock;
mod noise;
mod order;
mod sampled;
mod sampler;

pub use assemble::{CellFloor, CellHead, Detail, measurement};
pub use clock::{Calibration, calibrate, choose_batch};
pub use noise::{aa_noise, noise_summary};
pub use order::{interleaved, shuffled};
pub use sampled::Sampled;
pub use sampler::{Plan, PushError, Round, RoundKind, Sampler, drive};
