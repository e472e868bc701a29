//! The setups of the paper on MPI over iWARP: machines, libraries, sizes.

use super::super::quantity::{Quantity, Tuning};
use super::super::setup::{LARGE, Setup};
use bench::variant::factor;

/// Windows as those of OSU's benchmarks, which are this university's.
const TUNING: Tuning = Tuning { window: 64, burst_bytes: 8 << 20, signal: 1 };

/// The card, with TCP in it.
pub(crate) const CARD: Setup = Setup { card: "model:t3b", tuning: TUNING, options: "" };
/// The machines of the paper with TCP in their kernel.
pub(crate) const SOCKETS: Setup = Setup { card: "model:t3b-sockets", tuning: TUNING, options: "" };

/// Bytes of a small message.
pub(crate) const SMALL: u64 = 4;
/// Bytes of a large one.
pub(crate) const LARGEST: u64 = 1 << 20;
/// Sizes of Figure 4(a).
pub(crate) const LATENCIES: [u64; 6] = [4, 16, 64, 256, 1 << 10, 4 << 10];
/// Sizes of Figure 4(b).
pub(crate) const SWEEP: [u64; 10] =
    [4, 64, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// A library of MPI on a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    pub(crate) setup: Setup,
    /// How short messages go: `send`, or by writes to the `ring` that the receiver looks at.
    path: &'static str,
}

/// MVAPICH2 with its RDMA fast path.
pub(crate) const RING: Library = Library { setup: CARD, path: "ring" };
/// MVAPICH2 without it.
pub(crate) const SENDING: Library = Library { setup: CARD, path: "send" };
/// MPICH2 over sockets.
pub(crate) const MPICH2: Library = Library { setup: SOCKETS, path: "send" };

impl Library {
    /// This library on a machine with values changed, for a what-if.
    pub(crate) const fn with(self, options: &'static str) -> Self {
        Self { setup: self.setup.with(options), ..self }
    }

    fn cell(self, experiment: &str, size: u64) -> Quantity {
        let factors = [(factor::LAYER.name(), "mpi"), (factor::PATH.name(), self.path)];
        self.setup.cell(experiment, &factors, size)
    }

    /// Microseconds one way.
    pub(crate) fn latency(self, size: u64) -> Quantity {
        self.cell("mpi-latency", size)
    }

    /// 10^6 bytes per second of windows one way.
    pub(crate) fn bandwidth(self, size: u64) -> Quantity {
        self.cell("mpi-bandwidth", size)
    }

    /// The largest bandwidth.
    pub(crate) fn peak(self) -> Quantity {
        Quantity::greatest(LARGE.map(|size| self.bandwidth(size)))
    }
}
