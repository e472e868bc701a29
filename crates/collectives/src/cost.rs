//! The cost model of algorithms: the time of their critical path, in terms of alpha, gap, beta and gamma, or, where ranks share
//! processor cores, the work of all ranks.

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
    /// The cores that ranks share, if they do.
    pub shared_cores: Option<SharedCores>,
}

/// Costs of ranks that share processor cores. There the work of all ranks decides, and how often a rank waits until it gets a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SharedCores {
    /// Cores of a host.
    pub cores: f64,
    /// Seconds of a round of short messages for each rank that a core has.
    pub turn: f64,
    /// Seconds of such a round in which a rank sends 64 KiB or more, and keeps its core meanwhile. Between, in proportion to the bytes.
    pub long_turn: f64,
    /// Seconds of a core to send and receive a message of any size.
    pub message: f64,
    /// Seconds of a core to send and receive a byte.
    pub byte: f64,
}

impl Costs {
    /// If the ranks of a call share cores: seconds of the call for each round (both turns), and for each message and byte of all ranks.
    pub(crate) fn shared_cores_of(&self, case: &Case) -> Option<SharedCores> {
        let SharedCores { cores, turn, long_turn, message, byte } = self.shared_cores?;
        let cores = cores * case.hosts as f64;
        (case.ranks() > cores).then(|| SharedCores {
            cores,
            turn: turn * case.ranks() / cores,
            long_turn: long_turn * case.ranks() / cores,
            message: message / cores,
            byte: byte / cores,
        })
    }
}

/// Bytes of a round from which on it takes [`SharedCores::long_turn`].
const LONG_ROUND: f64 = 65536.0;

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
    /// The messages and bytes of all ranks together; `None` if each rank sends as many as the critical path has.
    pub of_all_ranks: Option<(f64, f64)>,
}

impl Cost {
    pub(crate) fn new(messages: f64, bytes: f64) -> Self {
        Self::with_reduction(messages, bytes, 0.0)
    }

    pub(crate) fn with_reduction(messages: f64, bytes: f64, reduced: f64) -> Self {
        Self { messages, further: 0.0, bytes, reduced, of_all_ranks: None }
    }

    /// With this number of further messages.
    pub(crate) fn with_further(self, further: f64) -> Self {
        Self { further, ..self }
    }

    /// With these messages and bytes of all ranks together.
    pub(crate) fn with_all(self, messages: f64, bytes: f64) -> Self {
        Self { of_all_ranks: Some((messages, bytes)), ..self }
    }

    /// All messages are those of the critical path: one rank sends or receives them.
    pub(crate) fn of_one_rank(self) -> Self {
        self.with_all(self.messages + self.further, self.bytes)
    }

    /// The messages and bytes of all ranks of a call together.
    pub fn total(self, case: &Case) -> (f64, f64) {
        let each = || (case.ranks() * (self.messages + self.further), case.ranks() * self.bytes);
        self.of_all_ranks.unwrap_or_else(each)
    }

    /// Seconds of a round where ranks share cores.
    pub(crate) fn turn(self, shared: &SharedCores) -> f64 {
        let copied = (self.bytes / (LONG_ROUND * self.messages).max(1.0)).min(1.0);
        shared.turn + copied * (shared.long_turn - shared.turn)
    }

    /// The seconds of a call.
    pub fn seconds(self, case: &Case, costs: Costs) -> f64 {
        if let Some(shared) = costs.shared_cores_of(case) {
            let (messages, bytes) = self.total(case);
            let work = messages * shared.message + bytes * shared.byte + self.reduced * costs.gamma;
            return self.messages * self.turn(&shared) + work;
        }
        let messages = self.messages * costs.alpha + self.further * costs.gap;
        messages + self.bytes * costs.beta + self.reduced * costs.gamma
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, further, bytes, reduced, .. } = self;
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

    /// The blocks that all ranks of a binomial tree send together to gather one block of each rank. A block is sent once for each
    /// one-bit in its rank's number.
    pub(crate) fn blocks_up_a_tree(&self) -> f64 {
        let with_bit = |bit: u32| {
            (self.size >> (bit + 1) << bit) + (self.size & ((2 << bit) - 1)).saturating_sub(1 << bit)
        };
        (0..log2_up(self.size)).map(with_bit).sum::<usize>() as f64
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

    /// The ranks that send their vector to another before the others, a power of two, go on.
    pub(crate) fn folded(&self) -> f64 {
        self.ranks() - self.power()
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
