//! What algorithms cost, in the terms of alpha, gap, beta and gamma.

use crate::task::Kind;
use std::fmt;

/// What a lane costs. All ranks of a communicator must have the same, or they choose differently; and each run must, or it may
/// reduce in another order, to other bits. So they are constants of a device, or a measurement that was written down.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Seconds for a message, whatever its size.
    pub alpha: f64,
    /// Seconds by which a further message of a rank in one round comes later. Where that is much less than `alpha`, as through
    /// shared memory, flat algorithms are best; where it is not known, `alpha` is safe.
    pub gap: f64,
    /// Seconds for a byte sent.
    pub beta: f64,
    /// Seconds for a byte reduced.
    pub gamma: f64,
}

/// What is known of a call on all ranks alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// Which collective.
    pub kind: Kind,
    /// Ranks.
    pub size: usize,
    /// Bytes of the vector; of one block for gather, scatter, allgather and alltoall, the average where they differ.
    pub bytes: u64,
    /// Whether operands may change places.
    pub commutative: bool,
    /// Whether all blocks are known to have one size on every rank.
    pub even: bool,
    /// Bytes in which a pipeline passes on its data.
    pub segment: u64,
    /// Bytes that each rank can show to all others at a time in memory that they share, above which these read it where it lies; 0
    /// where they share none.
    pub shared: u64,
}

/// The longest way through an algorithm: messages, bytes and reduced bytes that come one after the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Messages.
    pub messages: f64,
    /// Messages besides those, to or from others in the same rounds.
    pub further: f64,
    /// Bytes sent.
    pub bytes: f64,
    /// Bytes reduced.
    pub reduced: f64,
}

impl Cost {
    pub(crate) fn of(messages: f64, bytes: f64) -> Self {
        Self { messages, further: 0.0, bytes, reduced: 0.0 }
    }

    pub(crate) fn reducing(messages: f64, bytes: f64, reduced: f64) -> Self {
        Self { messages, further: 0.0, bytes, reduced }
    }

    /// With so many messages besides.
    pub(crate) fn and_further(self, further: f64) -> Self {
        Self { further, ..self }
    }

    /// What it comes to in seconds.
    pub fn seconds(self, costs: Costs) -> f64 {
        let messages = self.messages * costs.alpha + self.further * costs.gap;
        messages + self.bytes * costs.beta + self.reduced * costs.gamma
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, further, bytes, reduced } = self;
        write!(f, "{messages:.0}+{further:.0} messages, {bytes:.0} B sent, {reduced:.0} B reduced in turn")
    }
}

impl Case {
    /// Ranks, as a number to calculate with.
    pub(crate) fn ranks(&self) -> f64 {
        self.size as f64
    }

    /// What a flat tree's root does besides its first message: a message for each other rank.
    pub(crate) fn others_but_one(&self) -> f64 {
        self.size.saturating_sub(2) as f64
    }

    /// 1 if there is anybody to send to, else 0.
    pub(crate) fn one_round(&self) -> f64 {
        if self.size > 1 { 1.0 } else { 0.0 }
    }

    /// Bytes, as a number to calculate with.
    pub(crate) fn n(&self) -> f64 {
        self.bytes as f64
    }

    /// How often the number of ranks can be halved, rounded up.
    pub(crate) fn log(&self) -> f64 {
        f64::from(log2_up(self.size))
    }

    /// How often the largest power of two among them can be halved.
    pub(crate) fn log_down(&self) -> f64 {
        f64::from(self.size.ilog2())
    }

    /// The largest power of two among the ranks.
    pub(crate) fn power(&self) -> f64 {
        f64::from(1_u32 << self.size.ilog2())
    }

    /// Whether some ranks must be folded away to leave a power of two: 1 or 0.
    pub(crate) fn folds(&self) -> f64 {
        if self.size.is_power_of_two() { 0.0 } else { 1.0 }
    }
}

/// The least number of doublings that reach a size.
pub(crate) fn log2_up(size: usize) -> u32 {
    size.next_power_of_two().ilog2()
}
