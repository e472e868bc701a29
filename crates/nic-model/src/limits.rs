//! Limits of modelled cards that no machine file sets: table sizes of cards of that time, and limits of the
//! API.

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

/// A kind of object whose number per card is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    QueuePair,
    CompletionQueue,
    SharedReceiveQueue,
    Region,
}

impl ObjectKind {
    /// Number of kinds.
    pub(crate) const COUNT: usize = 4;

    /// The limit per card.
    pub(crate) const fn limit(self) -> u32 {
        match self {
            Self::QueuePair | Self::CompletionQueue => 1 << 16,
            Self::SharedReceiveQueue => 1 << 10,
            Self::Region => 1 << 20,
        }
    }

    /// Their name in errors.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::QueuePair => "queue pairs",
            Self::CompletionQueue => "completion queues",
            Self::SharedReceiveQueue => "shared receive queues",
            Self::Region => "memory regions",
        }
    }
}
