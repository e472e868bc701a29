//! Data path: sending. What is part of the stream and has not been sent whole.
//!
//! Small FPDUs are written out, one behind the other: the kernel reads one run of bytes faster than a list of entries. Those
//! with more payload wait as they are, and their payload is gathered from where it lies.

use std::collections::VecDeque;
use std::sync::Mutex;

use iwarp::tx::{Fpdu, Trailer};

use crate::sync::unpoisoned;

/// Payload up to this size is copied, in bytes.
pub(super) const SMALL_MAX: usize = 256;
/// FPDUs with more payload that wait, at most.
const LARGES: usize = 8;
/// Bytes of small FPDUs that wait, at most.
const SMALL_LEN: usize = 2 << 10;
/// Payload that waits as a copy, in bytes: two FPDUs of the largest size, since one may be half sent.
const STAGING_LEN: usize = 128 << 10;

/// A part of the stream.
pub(super) enum Item {
    /// Small FPDUs, written out: these bytes of [`Outbox::small`].
    Run { from: usize, to: usize },
    /// An FPDU with its trailer, and where its payload stands in the copy if it has been copied.
    Large { fpdu: Fpdu, trailer: Trailer, staged: Option<usize> },
}

impl Item {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Run { from, to } => to - from,
            Self::Large { fpdu, .. } => fpdu.len(),
        }
    }
}

/// Room for copies, [`STAGING_LEN`] bytes of whatever was there before, or none.
pub(super) type Room = Box<[u8]>;

/// Room for copies that no connection needs at the moment.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<Room>>);

impl Pool {
    /// Room that is kept, in entries.
    const KEPT: usize = 8;

    pub(super) fn take(&self) -> Room {
        unpoisoned(&self.0).pop().unwrap_or_else(|| vec![0; STAGING_LEN].into_boxed_slice())
    }

    pub(super) fn give(&self, room: Room) {
        let mut kept = unpoisoned(&self.0);
        if kept.len() < Self::KEPT {
            kept.push(room);
        }
    }
}

/// An item, and the number of requests that are wholly out with it, if any are.
type Entry = (Item, Option<u64>);

/// What waits to be sent, in the order of the stream.
pub(super) struct Outbox {
    items: VecDeque<Entry>,
    /// Bytes of the first that have been sent.
    sent: usize,
    small: Vec<u8>,
    /// Copies of payload, for streams with CRCs: memory that somebody changes while it is sent would otherwise not agree with
    /// its CRC, and that would end the connection.
    staging: Room,
    /// Bytes of it that are taken.
    staged: usize,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let (items, small) = (VecDeque::with_capacity(LARGES + 1), Vec::with_capacity(SMALL_LEN));
        Self { items, sent: 0, small, staging: Room::default(), staged: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether an FPDU of either kind fits.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.items.len() < LARGES
            && self.small.len() + SMALL_MAX + 128 <= SMALL_LEN
            && self.staged <= STAGING_LEN / 2
    }

    pub(super) fn push(&mut self, fpdu: Fpdu, trailer: Trailer, staged: Option<usize>, upto: Option<u64>) {
        self.items.push_back((Item::Large { fpdu, trailer, staged }, upto));
    }

    /// Writes a small FPDU out: `write` appends its bytes, or leaves what was there if it fails.
    #[inline]
    pub(super) fn append<E>(
        &mut self,
        upto: Option<u64>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.small.len();
        if let Err(why) = write(&mut self.small) {
            self.small.truncate(before);
            return Err(why);
        }
        let after = self.small.len();
        match self.items.back_mut() {
            Some((Item::Run { to, .. }, all)) => {
                *to = after;
                *all = upto.or(*all);
            }
            _ => self.items.push_back((Item::Run { from: before, to: after }, upto)),
        }
        Ok(())
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().map(|(item, _)| item)
    }

    /// The bytes of a run.
    #[inline]
    pub(super) fn run(&self, from: usize, to: usize) -> &[u8] {
        &self.small[from..to]
    }

    /// If all that waits is one run, the bytes of it that have not been sent.
    #[inline]
    pub(super) fn only_run(&self) -> Option<&[u8]> {
        match self.items.front() {
            Some((Item::Run { from, to }, _)) if self.items.len() == 1 => {
                Some(&self.small[from + self.sent..*to])
            }
            _ => None,
        }
    }

    /// Bytes of the first item that have been sent.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Room for a copy of `len` bytes, and where it stands.
    pub(super) fn stage(&mut self, len: usize, pool: &Pool) -> (usize, &mut [u8]) {
        if self.staging.is_empty() {
            self.staging = pool.take();
        }
        let at = self.staged;
        self.staged += len;
        (at, &mut self.staging[at..at + len])
    }

    pub(super) fn staged(&self, at: usize, len: usize) -> &[u8] {
        &self.staging[at..at + len]
    }

    /// So many bytes have been sent; the number of requests that are wholly out by that, if there are any more.
    #[inline]
    pub(super) fn advance(&mut self, n: usize, pool: &Pool) -> Option<u64> {
        self.sent += n;
        let mut out = None;
        while let Some((item, upto)) = self.items.front()
            && self.sent >= item.len()
        {
            self.sent -= item.len();
            out = upto.or(out);
            self.items.pop_front();
        }
        if self.items.is_empty() {
            self.small.clear();
            self.staged = 0;
            if !self.staging.is_empty() {
                pool.give(std::mem::take(&mut self.staging));
            }
        }
        out
    }

    /// Forgets all that was to be sent.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        (self.sent, self.staged) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_while_nothing_stands_behind_them() {
        let (mut outbox, pool) = (Outbox::new(), Pool::default());
        let write = |outbox: &mut Outbox, bytes: &[u8], upto| {
            let done: Result<(), ()> = outbox.append(upto, |to| {
                to.extend_from_slice(bytes);
                Ok(())
            });
            done.expect("written");
        };
        write(&mut outbox, b"abc", Some(1));
        write(&mut outbox, b"de", None);
        assert_eq!(outbox.only_run(), Some(b"abcde".as_slice()));
        assert_eq!(outbox.advance(2, &pool), None, "not all of it");
        write(&mut outbox, b"f", Some(2));
        assert_eq!((outbox.only_run(), outbox.sent()), (Some(b"cdef".as_slice()), 2));
        assert_eq!(
            outbox.append(None, |to| {
                to.push(1);
                Err(5)
            }),
            Err(5)
        );
        assert_eq!(outbox.only_run(), Some(b"cdef".as_slice()), "what failed leaves nothing");
        assert_eq!(outbox.advance(4, &pool), Some(2));
        assert!(outbox.is_empty() && outbox.has_room() && outbox.only_run().is_none());
    }
}
