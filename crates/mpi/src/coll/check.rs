//! [`CallHistory`]: detects mismatched collectives, which would deadlock (MPI 5.0, section 6.14). Message sizes decide the algorithm,
//! and thereby the communication pattern. A member that waits long queries the peers it waits for. A peer that has called another
//! operation, or has given up, replies so, and the operation fails at both.

use collectives::{CollKind, Root};
use host::Span;

use crate::error::{Class, Error};
use crate::p2p::wire::{CollCall, MatchKey};

/// Waits before the first and each further query. After the last one, a member waits without limit.
pub(crate) const CHECK_INTERVALS: [Span; 6] = [
    Span::from_ms(500),
    Span::from_ms(1000),
    Span::from_ms(2000),
    Span::from_ms(4000),
    Span::from_ms(8000),
    Span::from_ms(16_000),
];

impl CollCall {
    /// A call by all members of the communicator.
    pub(crate) fn new(kind: CollKind, root: Root, bytes: u64) -> Self {
        let at = CollKind::ALL.iter().position(|known| *known == kind);
        let root = match root {
            Root::Rank(rank) => i32::try_from(rank).unwrap_or(-1),
            Root::Me | Root::Other => -1,
        };
        Self { kind: at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX), root, bytes }
    }

    /// The error of an operation that called `self`, when another process has called `other`, or has called the same and given up.
    pub(crate) fn mismatch_error(self, process: u32, other: Self) -> Error {
        if self == other {
            let text = format!("process {process} of the job has given up the same operation");
            return Error::new(Class::NOT_SAME, text);
        }
        let text = format!("process {process} of the job has called {other}, and this one {self}");
        Error::new(Class::NOT_SAME, text)
    }
}

impl std::fmt::Display for CollCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = CollKind::ALL.get(usize::from(self.kind)).map_or("something else", |kind| kind.name());
        write!(f, "{name} of {} bytes", self.bytes)?;
        if self.root > 0 { write!(f, " with root {}", self.root) } else { Ok(()) }
    }
}

/// Number of recent operations that the history holds.
const HISTORY_LEN: usize = 32;

/// The recent calls of this process.
#[derive(Debug, Default)]
pub(crate) struct CallHistory {
    entries: [Option<RecordedCall>; HISTORY_LEN],
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct RecordedCall {
    match_key: MatchKey,
    called: CollCall,
    failed: bool,
}

impl CallHistory {
    /// Records the start of an operation.
    #[inline]
    pub(crate) fn record(&mut self, match_key: MatchKey, called: CollCall) {
        self.entries[self.next] = Some(RecordedCall { match_key, called, failed: false });
        self.next = (self.next + 1) % HISTORY_LEN;
    }

    /// Records that an operation has failed.
    pub(crate) fn mark_failed(&mut self, match_key: MatchKey) {
        let entries = self.entries.iter_mut().flatten().filter(|entry| entry.match_key == match_key);
        entries.for_each(|entry| entry.failed = true);
    }

    /// This process's call with a key, if it differs from `called` or has failed.
    pub(crate) fn mismatch(&self, match_key: MatchKey, called: CollCall) -> Option<CollCall> {
        let mut entries = self.entries.iter().flatten().filter(|entry| entry.match_key == match_key);
        entries.find(|entry| entry.failed || entry.called != called).map(|entry| entry.called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mismatched_or_failed_calls_are_reported() {
        let (short, long) = (
            CollCall::new(CollKind::Bcast, Root::Rank(2), 8),
            CollCall::new(CollKind::Bcast, Root::Rank(2), 900),
        );
        let match_key = |tag| MatchKey { context: 8, tag };
        let mut history = CallHistory::default();
        assert_eq!(history.mismatch(match_key(1), long), None, "not called yet");
        history.record(match_key(1), short);
        assert_eq!(history.mismatch(match_key(1), short), None);
        assert_eq!(history.mismatch(match_key(1), long), Some(short));
        assert_eq!(history.mismatch(MatchKey { context: 16, tag: 1 }, long), None);
        history.mark_failed(match_key(1));
        assert_eq!(history.mismatch(match_key(1), short), Some(short));
        (2..).take(HISTORY_LEN).for_each(|tag| history.record(match_key(tag), long));
        assert_eq!(history.mismatch(match_key(1), long), None, "dropped from the history");
        let text = long.mismatch_error(3, short).text;
        let expected = "process 3 of the job has called bcast of 8 bytes with root 2, and this one bcast of 900 bytes with root 2";
        assert_eq!(text, expected);
    }
}
