//! [`Ledger`]: detects mismatched collectives, which would deadlock (MPI 5.0, section 6.14). Message sizes decide the algorithm,
//! and thereby the communication pattern. A member that waits long queries the peers it waits for. A peer that has called another
//! operation, or has given up, replies so, and the operation fails at both.

use collectives::{Kind, Root};
use host::Span;

use crate::error::{Class, Error};
use crate::p2p::wire::{Called, Label};

/// Waits before the first and each further query. After the last one, a member waits without limit.
pub(crate) const PATIENCE: [Span; 6] = [
    Span::from_ms(500),
    Span::from_ms(1000),
    Span::from_ms(2000),
    Span::from_ms(4000),
    Span::from_ms(8000),
    Span::from_ms(16_000),
];

impl Called {
    /// A call by all members of the communicator.
    pub(crate) fn new(kind: Kind, root: Root, bytes: u64) -> Self {
        let at = Kind::ALL.iter().position(|known| *known == kind);
        let root = match root {
            Root::Rank(rank) => i32::try_from(rank).unwrap_or(-1),
            Root::Me | Root::Other => -1,
        };
        Self { kind: at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX), root, bytes }
    }

    /// The error of an operation that called `self`, when another process has called `other`, or has called the same and given up.
    pub(crate) fn differs(self, process: u32, other: Self) -> Error {
        if self == other {
            let text = format!("process {process} of the job has given up the same operation");
            return Error::new(Class::NOT_SAME, text);
        }
        let text = format!("process {process} of the job has called {other}, and this one {self}");
        Error::new(Class::NOT_SAME, text)
    }
}

impl std::fmt::Display for Called {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = Kind::ALL.get(usize::from(self.kind)).map_or("something else", |kind| kind.name());
        write!(f, "{name} of {} bytes", self.bytes)?;
        if self.root > 0 { write!(f, " with root {}", self.root) } else { Ok(()) }
    }
}

/// Number of recent operations that a ledger records.
const KEPT: usize = 32;

/// The recent calls of this process.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: [Option<Entry>; KEPT],
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    label: Label,
    called: Called,
    gave_up: bool,
}

impl Ledger {
    /// Records the start of an operation.
    #[inline]
    pub(crate) fn begin(&mut self, label: Label, called: Called) {
        self.entries[self.next] = Some(Entry { label, called, gave_up: false });
        self.next = (self.next + 1) % KEPT;
    }

    /// Records that an operation has failed.
    pub(crate) fn give_up(&mut self, label: Label) {
        let entries = self.entries.iter_mut().flatten().filter(|entry| entry.label == label);
        entries.for_each(|entry| entry.gave_up = true);
    }

    /// This process's call with a label, if it differs from `called` or has failed.
    pub(crate) fn differs(&self, label: Label, called: Called) -> Option<Called> {
        let mut entries = self.entries.iter().flatten().filter(|entry| entry.label == label);
        entries.find(|entry| entry.gave_up || entry.called != called).map(|entry| entry.called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_or_has_failed_is_told() {
        let (short, long) =
            (Called::new(Kind::Bcast, Root::Rank(2), 8), Called::new(Kind::Bcast, Root::Rank(2), 900));
        let label = |tag| Label { context: 8, tag };
        let mut ledger = Ledger::default();
        assert_eq!(ledger.differs(label(1), long), None, "it has not come so far");
        ledger.begin(label(1), short);
        assert_eq!(ledger.differs(label(1), short), None);
        assert_eq!(ledger.differs(label(1), long), Some(short));
        assert_eq!(ledger.differs(Label { context: 16, tag: 1 }, long), None);
        ledger.give_up(label(1));
        assert_eq!(ledger.differs(label(1), short), Some(short));
        (2..).take(KEPT).for_each(|tag| ledger.begin(label(tag), long));
        assert_eq!(ledger.differs(label(1), long), None, "it is long past");
        let text = long.differs(3, short).text;
        let expected = "process 3 of the job has called bcast of 8 bytes with root 2, and this one bcast of 900 bytes with root 2";
        assert_eq!(text, expected);
    }
}
