//! [`ToolEvent`]: an event for tools, queued until the binding reads it.

use std::collections::VecDeque;

use host::Time;

/// An event in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEvent {
    /// A message arrived before its receive was posted.
    Unexpected {
        /// The sending process.
        from: u32,
        /// Its tag.
        tag: i32,
        /// Its length.
        bytes: u64,
    },
    /// A process is lost.
    Lost {
        /// The lost process.
        process: u32,
    },
    /// A collective operation that uses messages has started.
    Scheduled {
        /// An index of [`crate::CollKind::ALL`].
        kind: u8,
        /// The size by which its algorithm was chosen.
        bytes: u64,
    },
}

/// The events since the last call, and the number of dropped ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolEvents {
    /// In order of occurrence, with the time.
    pub events: Vec<(Time, ToolEvent)>,
    /// Number of events that were dropped because the queue was full.
    pub dropped: u64,
}

/// Maximum number of queued events.
const EVENTS_MAX: usize = 1024;

/// An engine's event queue, present while a tool wants events.
#[derive(Debug, Default)]
pub(crate) struct EventRecorder {
    queue: VecDeque<(Time, ToolEvent)>,
    dropped: u64,
}

impl EventRecorder {
    /// Adds an event if there is space.
    pub(crate) fn record(&mut self, at: Time, what: ToolEvent) {
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back((at, what));
        } else {
            self.dropped += 1;
        }
    }

    /// Takes all queued events.
    pub(crate) fn take_all(&mut self) -> ToolEvents {
        ToolEvents { events: self.queue.drain(..).collect(), dropped: std::mem::take(&mut self.dropped) }
    }
}
