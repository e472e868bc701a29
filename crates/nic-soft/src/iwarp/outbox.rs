//! Data path: sending. FPDUs that are part of the stream and have not been sent whole.

use std::collections::VecDeque;

use iwarp::tx::{Fpdu, Trailer};

/// FPDUs that wait, at most; so many go out with one system call.
const FPDUS: usize = 16;
/// Payload that waits as a copy, in bytes: two FPDUs of the largest size, since one may be half sent.
const STAGING_LEN: usize = 128 << 10;

/// An FPDU with its trailer.
pub(super) struct Item {
    pub(super) fpdu: Fpdu,
    pub(super) trailer: Trailer,
    /// Where its payload stands in the copy, if it has been copied.
    pub(super) staged: Option<usize>,
}

impl Item {
    pub(super) fn len(&self) -> usize {
        self.fpdu.len()
    }
}

/// What waits to be sent, in the order of the stream.
pub(super) struct Outbox {
    items: VecDeque<Item>,
    /// Bytes of the first that have been sent.
    sent: usize,
    /// Copies of payload, for streams with CRCs: memory that somebody changes while it is sent would otherwise not agree with
    /// its CRC, and that would end the connection.
    staging: Vec<u8>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { items: VecDeque::with_capacity(FPDUS), sent: 0, staging: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.items.len() < FPDUS && self.staging.len() <= STAGING_LEN / 2
    }

    pub(super) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter()
    }

    /// Bytes of the first FPDU that have been sent.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Room for a copy of `len` bytes, and where it stands.
    pub(super) fn stage(&mut self, len: usize) -> (usize, &mut [u8]) {
        let at = self.staging.len();
        if self.staging.capacity() == 0 {
            // Once for each connection that has CRCs and sends payload.
            self.staging.reserve_exact(STAGING_LEN);
        }
        self.staging.resize(at + len, 0);
        (at, &mut self.staging[at..])
    }

    pub(super) fn staged(&self, at: usize, len: usize) -> &[u8] {
        &self.staging[at..at + len]
    }

    /// So many bytes have been sent: tells of each FPDU that is out whole.
    pub(super) fn advance(&mut self, n: usize, mut out: impl FnMut(&Fpdu)) {
        self.sent += n;
        while let Some(first) = self.items.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            out(&first.fpdu);
            self.items.pop_front();
        }
        if self.items.is_empty() {
            self.staging.clear();
        }
    }

    /// Keeps the first `n` FPDUs only.
    pub(super) fn truncate(&mut self, n: usize) {
        self.items.truncate(n);
    }
}
