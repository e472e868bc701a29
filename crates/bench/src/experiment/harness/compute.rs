//! [`Worker`]: pure computation: a known amount of work, independent of other load on the processor.
//!
//! In real time it is a chain of multiplications, whose speed was measured beforehand on the idle core: if the system
//! or the NIC takes the core away, computing ends later, as a program's would. In virtual time it is charged.

use std::hint::black_box;

use serde::{Deserialize, Serialize};
use verbs::host::{Host, Span};

use super::limits::{self, COMPUTING, ITERATIONS};

/// Steps of a trial, and the number of trials; the fastest counts.
const STEPS: u64 = 1 << 16;
const TRIALS: usize = 9;

/// How much one side must do, as instructed by the other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// Computing in each iteration, in ps.
    #[serde(deserialize_with = "limits::within::<COMPUTING, _, _>")]
    pub(crate) computing: u64,
    #[serde(deserialize_with = "limits::within::<ITERATIONS, _, _>")]
    pub(crate) iterations: u64,
}

/// Something that computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    ps_per_step: f64,
}

impl Worker {
    /// Calibrates the speed of this core.
    pub(crate) fn calibrated(host: &Host) -> Self {
        if host.node().is_some() {
            return Self { ps_per_step: 0.0 };
        }
        let trial = || {
            let began = host.now();
            steps(STEPS);
            (host.now() - began).as_ps() as f64
        };
        let fastest = (0..TRIALS).map(|_| trial()).fold(f64::MAX, f64::min);
        Self { ps_per_step: fastest.max(1.0) / STEPS as f64 }
    }

    /// Computes for `span`, as measured on an otherwise idle core.
    #[inline]
    pub(crate) fn compute(&self, host: &Host, span: Span) {
        if host.node().is_some() {
            host.charge(span);
        } else {
            steps((span.as_ps() as f64 / self.ps_per_step) as u64);
        }
    }
}

/// A chain of operations, each dependent on the one before.
fn steps(count: u64) {
    let mut x = black_box(1u64);
    for _ in 0..count {
        x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: computing is never shorter than asked for: only that can be held on a busy machine. A quarter is left for a
    /// core that runs faster now than when it was calibrated.
    #[test]
    fn computing_takes_the_time_that_it_should() {
        let host = verbs::host::real::host();
        let worker = Worker::calibrated(&host);
        assert!(worker.ps_per_step > 0.0);
        let began = host.now();
        worker.compute(&host, Span::from_ms(2));
        assert!(host.now() - began > Span::from_us(500), "{:?}", host.now() - began);
    }
}
