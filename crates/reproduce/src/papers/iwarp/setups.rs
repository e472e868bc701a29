//! The setups of the paper on MPI over iWARP: machines, libraries, sizes.

use crate::claims::quantity::{Quantity, Tuning};
use crate::claims::setup::{LARGE, Setup};
use results::variant::factor;

/// Windows as in OSU's benchmarks, which are by the same university.
const TUNING: Tuning = Tuning { window: 64, burst_bytes: 8 << 20, signal: 1 };

/// The card, with TCP in it.
pub(crate) const CARD: Setup = Setup { card: "model:t3b", tuning: TUNING, options: "" };
/// The machines of the paper with TCP in their kernel.
pub(crate) const SOCKETS: Setup = Setup { card: "model:t3b-sockets", tuning: TUNING, options: "" };

/// Bytes of a small message.
pub(crate) const SMALL: u64 = 4;
/// Bytes of a large message.
pub(crate) const LARGEST: u64 = 1 << 20;
/// Sizes of Figure 4(a).
pub(crate) const LATENCY_SIZES: [u64; 6] = [4, 16, 64, 256, 1 << 10, 4 << 10];
/// Sizes of Figure 4(b).
pub(crate) const SWEEP: [u64; 10] =
    [4, 64, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// A library of MPI on a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    pub(crate) setup: Setup,
    /// How short messages are transferred: by `send`, or by writes to the `ring` that the receiver polls.
    path: &'static str,
    /// How puts and gets are transferred: as `messages`, or `both`: short ones as messages, long ones by the card.
    sided: &'static str,
    /// The device within a node, if that is not the card.
    inside: &'static str,
}

/// The memory of a node, by which MVAPICH2's processes speak.
const MEMORY: &str = "model:t3b-memory";

/// MVAPICH2 with its RDMA fast path.
pub(crate) const RING: Library = Library { setup: CARD, path: "ring", sided: "messages", inside: MEMORY };
/// MVAPICH2 without it.
pub(crate) const SENDING: Library = Library { path: "send", ..RING };
/// MVAPICH2 with its fast path and one-sided operations of the card.
pub(crate) const RING_ONE_SIDED: Library = Library { sided: "both", ..RING };
/// MPICH2 over sockets.
pub(crate) const MPICH2: Library = Library { setup: SOCKETS, path: "send", sided: "messages", inside: "" };

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

    fn sided(self, experiment: &str, size: u64) -> Quantity {
        let factors = [(factor::PATH.name(), self.path), (factor::SIDED.name(), self.sided)];
        self.setup.cell(experiment, &factors, size)
    }

    /// Microseconds of a put and its epoch.
    pub(crate) fn put_latency(self, size: u64) -> Quantity {
        self.sided("mpi-put-latency", size)
    }

    /// Microseconds of a get and its epoch.
    pub(crate) fn get_latency(self, size: u64) -> Quantity {
        self.sided("mpi-get-latency", size)
    }

    /// 10^6 bytes per second of epochs with a window of puts.
    pub(crate) fn put_bandwidth(self, size: u64) -> Quantity {
        self.sided("mpi-put-bandwidth", size)
    }

    /// 10^6 bytes per second of epochs with a window of gets.
    pub(crate) fn get_bandwidth(self, size: u64) -> Quantity {
        self.sided("mpi-get-bandwidth", size)
    }

    /// The largest bandwidth of puts.
    pub(crate) fn put_peak(self) -> Quantity {
        Quantity::greatest(LARGE.map(|size| self.put_bandwidth(size)))
    }

    /// The largest bandwidth of gets.
    pub(crate) fn get_peak(self) -> Quantity {
        Quantity::greatest(LARGE.map(|size| self.get_bandwidth(size)))
    }

    /// A cell of `ranks` processes on four nodes.
    fn parallel(self, experiment: &str, more: (&str, &str), ranks: u64, size: u64) -> Quantity {
        let (each, ranks) = ((ranks / NODES).to_string(), ranks.to_string());
        let mut factors = vec![(factor::PATH.name(), self.path), (factor::RANKS.name(), &ranks), more];
        if each != "1" {
            factors.push((factor::PER_NODE.name(), &each));
            factors.extend((!self.inside.is_empty()).then_some((factor::INSIDE.name(), self.inside)));
        }
        self.setup.cell(experiment, &factors, size)
    }

    /// Microseconds of one call in a series of collective calls.
    pub(crate) fn collective(self, experiment: &str, ranks: u64, size: u64) -> Quantity {
        self.parallel(experiment, (factor::CALLS.name(), "row"), ranks, size)
    }

    /// A count of connection requests or answers of all processes at the start.
    pub(crate) fn connections(self, of: &str) -> Quantity {
        self.parallel("mpi-connect", (factor::QUANTITY.name(), of), ALL, 0)
    }

    /// Seconds of a kernel of class A.
    pub(crate) fn kernel(self, experiment: &str, ranks: u64) -> Quantity {
        self.parallel(experiment, (factor::CLASS.name(), "A"), ranks, 0)
    }
}

/// Nodes of the paper.
const NODES: u64 = 4;
/// Processes of collective operations: all, and the number in a figure.
pub(crate) const ALL: u64 = 32;
pub(crate) const CROWDS: [u64; 4] = [4, 8, 16, 32];
/// Sizes of Figure 7.
pub(crate) const VECTORS: [u64; 4] = [4, 64, 512, 4 << 10];
