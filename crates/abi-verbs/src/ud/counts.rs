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

/// How many datagrams had each fate.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; Fate::NoRoom as usize + 1]);

impl Counts {
    pub(super) fn count(&self, fate: Fate) {
        self.0[fate as usize].fetch_add(1, Ordering::Relaxed);
    }
}
