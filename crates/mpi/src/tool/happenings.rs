//! [`Happening`]: what a tool may want to hear of at once, kept until the face above asks for it.

use std::collections::VecDeque;

use host::Time;

/// Something that has happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A message has come before its receive.
    Unexpected {
        /// The process that sent it.
        from: u32,
        /// Its tag.
        tag: i32,
        /// Its length.
        bytes: u64,
    },
    /// A process is lost.
    Lost {
        /// Which.
        process: u32,
    },
    /// A collective operation has begun that goes by messages.
    Scheduled {
        /// Which of [`crate::Kind::ALL`].
        kind: u8,
        /// Bytes by which its algorithm was chosen.
        bytes: u64,
    },
}

/// What has happened since somebody last asked, and what of it was forgotten as nobody did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// In the order in which it happened, with the time.
    pub all: Vec<(Time, Happening)>,
    /// How much more there was.
    pub dropped: u64,
}

/// Happenings that are kept at a time.
const KEPT: usize = 1024;

/// What an engine notes while somebody wants it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    queue: VecDeque<(Time, Happening)>,
    dropped: u64,
}

impl Watch {
    /// Notes something, if there is room.
    pub(crate) fn note(&mut self, at: Time, what: Happening) {
        if self.queue.len() < KEPT {
            self.queue.push_back((at, what));
        } else {
            self.dropped += 1;
        }
    }

    /// All that was noted; nothing is noted then.
    pub(crate) fn take(&mut self) -> Happened {
        Happened { all: self.queue.drain(..).collect(), dropped: std::mem::take(&mut self.dropped) }
    }
}
