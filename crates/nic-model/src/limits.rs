//! Limits of modelled cards that no machine file sets: those of the tables of a card of that time, or what the API
//! allows.

/// Queue pairs.
pub(crate) const PAIRS: u32 = 1 << 16;
/// Work requests in one queue.
pub(crate) const REQUESTS: u32 = 1 << 14;
/// Pieces in one request.
pub(crate) const PIECES: u32 = 28;
/// Bytes of inline data in one request.
pub(crate) const INLINE_BYTES: u32 = 256;
/// Completion queues.
pub(crate) const QUEUES: u32 = 1 << 16;
/// Entries of one completion queue.
pub(crate) const ENTRIES: u32 = 1 << 17;
/// Memory regions.
pub(crate) const REGIONS: u32 = 1 << 20;
/// Bytes in one memory region.
pub(crate) const REGION_BYTES: u64 = 1 << 40;
/// Bytes in one message (IBA 9.7.1).
pub(crate) const MESSAGE_BYTES: u64 = 1 << 31;
/// Shared receive queues.
pub(crate) const SHARED: u32 = 1 << 10;
/// Bytes of private data in a connect, accept or reject (IBA 12.6).
pub(crate) const PRIVATE_BYTES: u32 = 56;
