//! Limits of modelled cards that no machine file sets: those of the tables of a card of that time, or what the API
//! allows.

/// Work requests in one queue.
pub(crate) const REQUESTS: u32 = 1 << 14;
/// SGEs in one request.
pub(crate) const SGES: u32 = 28;
/// Bytes of inline data in one request.
pub(crate) const INLINE_BYTES: u32 = 256;
/// Entries of one completion queue.
pub(crate) const ENTRIES: u32 = 1 << 17;
/// Bytes in one memory region.
pub(crate) const REGION_BYTES: u64 = 1 << 40;
/// Bytes in one message (IBA 9.7.1).
pub(crate) const MESSAGE_BYTES: u64 = 1 << 31;
/// Bytes of private data in a connect, accept or reject (IBA 12.6).
pub(crate) const PRIVATE_BYTES: u32 = 56;

/// A kind of objects of which each card has so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    QueuePair,
    CompletionQueue,
    SharedReceiveQueue,
    Region,
}

impl Kind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 4;

    /// How many of them a card has at most.
    pub(crate) const fn limit(self) -> u32 {
        match self {
            Self::QueuePair | Self::CompletionQueue => 1 << 16,
            Self::SharedReceiveQueue => 1 << 10,
            Self::Region => 1 << 20,
        }
    }

    /// What they are called in errors.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::QueuePair => "queue pairs",
            Self::CompletionQueue => "completion queues",
            Self::SharedReceiveQueue => "shared receive queues",
            Self::Region => "memory regions",
        }
    }
}
