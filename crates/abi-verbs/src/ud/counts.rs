//! [`DatagramCounts`]: counters of a device's datagrams in this process, by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

/// The outcome of a datagram; each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramOutcome {
    /// It was sent by the socket, or no socket accepted it.
    Sent,
    /// It was delivered to a receive.
    Received,
    /// Dropped: its queue pair has no receive, or none of its slots is free.
    NoReceive,
    /// Dropped: it is longer than the next receive. The receive stays.
    TooLong,
    /// Dropped: no queue pair has this number and key.
    Unknown,
    /// Dropped: it is not in our format.
    Malformed,
    /// Dropped: it was sent by another user.
    Stranger,
    /// Dropped: its receiver's socket was full for too long.
    NoRoom,
}

/// Hardware counter names of the port, in the order of [`DatagramOutcome`].
const NAMES: [&str; 8] = [
    "ud_sent",
    "ud_received",
    "ud_dropped_no_receive",
    "ud_dropped_too_long",
    "ud_dropped_unknown",
    "ud_dropped_malformed",
    "ud_dropped_stranger",
    "ud_dropped_no_room",
];

/// Number of datagrams per outcome.
#[derive(Debug, Default)]
pub(crate) struct DatagramCounts([AtomicU64; NAMES.len()]);

impl DatagramCounts {
    pub(super) fn count(&self, fate: DatagramOutcome) {
        self.0[fate as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All counters with their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
