//! [`OwnedSend`] and [`OwnedRecv`]: requests that wait in front of their queue, with their lists of elements.

use std::collections::VecDeque;

use host::Time;
use verbs::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge};

/// A request for a send queue.
pub(crate) struct OwnedSend {
    wr_id: u64,
    op: SendOp,
    data: OwnedData,
    flags: SendFlags,
}

enum OwnedData {
    Sges(Vec<Sge>),
    Inline(Vec<u8>),
}

impl OwnedSend {
    pub(crate) fn new(wr: &SendWr<'_>) -> Self {
        let data = match wr.data {
            Data::Sges(sges) => OwnedData::Sges(sges.to_vec()),
            Data::Inline(bytes) => OwnedData::Inline(bytes.to_vec()),
        };
        Self { wr_id: wr.wr_id, op: wr.op, data, flags: wr.flags }
    }

    pub(crate) fn wr(&self) -> SendWr<'_> {
        let data = match &self.data {
            OwnedData::Sges(sges) => Data::Sges(sges),
            OwnedData::Inline(bytes) => Data::Inline(bytes),
        };
        SendWr { wr_id: self.wr_id, op: self.op, data, flags: self.flags }
    }
}

/// A receive with its own list of elements.
pub(crate) struct OwnedRecv {
    wr_id: u64,
    sges: Vec<Sge>,
}

impl OwnedRecv {
    pub(crate) fn new(wr: &RecvWr<'_>) -> Self {
        Self { wr_id: wr.wr_id, sges: wr.sges.to_vec() }
    }

    pub(crate) fn wr(&self) -> RecvWr<'_> {
        RecvWr::new(self.wr_id, &self.sges)
    }
}

/// Requests of one queue that wait, each until its time. They keep their order.
pub(crate) struct Waiting<T>(VecDeque<(Time, T)>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Waiting<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a request; returns when it leaves: not before those in front of it.
    pub(crate) fn push(&mut self, due: Time, request: T) -> Time {
        let due = self.0.back().map_or(due, |(last, _)| due.max(*last));
        self.0.push_back((due, request));
        due
    }

    /// The first request, if its time has come.
    pub(crate) fn first_due(&self, now: Time) -> Option<&T> {
        self.0.front().filter(|(due, _)| *due <= now).map(|(_, request)| request)
    }

    pub(crate) fn remove_first(&mut self) {
        self.0.pop_front();
    }

    /// Removes all, in order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(&mut self.0).into_iter().map(|(_, request)| request)
    }
}
