//! [`Counts`]: what has become of a device's datagrams in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// What becomes of a datagram, each counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has left by the socket, or nobody was there to take it.
    Sent,
    /// It has gone to a receive.
    Received,
    /// Dropped: its queue pair has no receive, or none of its slots is free.
    NoReceive,
    /// Dropped: it is longer than the next receive. The receive stays.
    TooLong,
    /// Dropped: no queue pair has this number and key.
    Unknown,
    /// Dropped: it is none of ours.
    Malformed,
    /// Dropped: another user has sent it.
    Stranger,
    /// Dropped: its receiver's socket has had no room for too long.
    NoRoom,
}

/// In the order of [`Fate`], as the port's hardware counters are called.
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

/// How many datagrams had each fate.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; NAMES.len()]);

impl Counts {
    pub(super) fn count(&self, fate: Fate) {
        self.0[fate as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each with its name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
