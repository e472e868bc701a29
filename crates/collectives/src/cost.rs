//! The cost model of algorithms, in terms of alpha, gap, beta and gamma.

use crate::task::CollKind;
use std::fmt;

/// Costs of a message transport. All ranks of a communicator must have the same values, or they choose differently; and all runs
/// must, or a reduction may change its order and its bits. The values are therefore constants of a device, or a recorded
/// measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Seconds per message, for any size.
    pub alpha: f64,
    /// Seconds by which each further message of a rank in one round is delayed. Where that is much less than `alpha`, as in shared
    /// memory, flat algorithms are best; where it is unknown, `alpha` is a safe value.
    pub gap: f64,
    /// Seconds per byte sent.
    pub beta: f64,
    /// Seconds per byte reduced.
    pub gamma: f64,
}

/// The properties of a call that are the same on all ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// The collective.
    pub kind: CollKind,
    /// Number of ranks.
    pub size: usize,
    /// Bytes of the vector; for gather, scatter, allgather and alltoall of one block, the average if blocks differ.
    pub bytes: u64,
    /// Whether operands may be swapped.
    pub commutative: bool,
    /// Whether all blocks are known to have one size on every rank.
    pub equal_blocks: bool,
    /// Segment size of a pipeline, in bytes.
    pub segment: u64,
    /// Bytes that each rank can show to all others at a time in shared memory. Longer data are read from the owner's buffer. 0
    /// without shared memory.
    pub shared: u64,
    /// Number of hosts that the ranks are on; 1 if that is not known.
    pub hosts: usize,
}

/// The critical path of an algorithm: its sequential messages, bytes and reduced bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Messages.
    pub messages: f64,
    /// Further messages in the same rounds, to or from other ranks.
    pub further: f64,
    /// Bytes sent.
    pub bytes: f64,
    /// Bytes reduced.
    pub reduced: f64,
}

impl Cost {
    pub(crate) fn new(messages: f64, bytes: f64) -> Self {
        Self { messages, further: 0.0, bytes, reduced: 0.0 }
    }

    pub(crate) fn with_reduction(messages: f64, bytes: f64, reduced: f64) -> Self {
        Self { messages, further: 0.0, bytes, reduced }
    }

    /// With this number of further messages.
    pub(crate) fn with_further(self, further: f64) -> Self {
        Self { further, ..self }
    }

    /// The cost in seconds.
    pub fn seconds(self, costs: Costs) -> f64 {
        let messages = self.messages * costs.alpha + self.further * costs.gap;
        messages + self.bytes * costs.beta + self.reduced * costs.gamma
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, further, bytes, reduced } = self;
        write!(f, "{messages:.0}+{further:.0} messages, {bytes:.0} B sent, {reduced:.0} B reduced")
    }
}

impl Case {
    /// Number of ranks, as a floating-point number.
    pub(crate) fn ranks(&self) -> f64 {
        self.size as f64
    }

    /// A flat root's messages after the first: one for each remaining rank.
    pub(crate) fn others_but_one(&self) -> f64 {
        self.size.saturating_sub(2) as f64
    }

    /// 1 if there is another rank, otherwise 0.
    pub(crate) fn one_round(&self) -> f64 {
        if self.size > 1 { 1.0 } else { 0.0 }
    }

    /// Bytes, as a floating-point number.
    pub(crate) fn n(&self) -> f64 {
        self.bytes as f64
    }

    /// The logarithm of the number of ranks, rounded up.
    pub(crate) fn log(&self) -> f64 {
        f64::from(log2_up(self.size))
    }

    /// The logarithm of the number of ranks, rounded down.
    pub(crate) fn log_down(&self) -> f64 {
        f64::from(self.size.ilog2())
    }

    /// The largest power of two that is not above the number of ranks.
    pub(crate) fn power(&self) -> f64 {
        f64::from(1_u32 << self.size.ilog2())
    }

    /// 1 if a fold is needed to get a power of two, otherwise 0.
    pub(crate) fn folds(&self) -> f64 {
        if self.size.is_power_of_two() { 0.0 } else { 1.0 }
    }
}

/// The least number of doublings that reach a size.
pub(crate) fn log2_up(size: usize) -> u32 {
    size.next_power_of_two().ilog2()
}
