//! Data path: sending. The part of the stream that has not been sent completely.
//!
//! Small FPDUs are serialized one after the other: the kernel sends one run of bytes faster than a list of entries.
//! FPDUs with more payload stay as values, and their payload is gathered from the program's memory.

use std::collections::VecDeque;
use std::sync::Mutex;

use iwarp::tx::{Fpdu, Trailer};

use nic_util::sync::unpoisoned;

/// Payload of up to this many bytes is copied.
pub(crate) const SMALL_MAX: usize = 256;
/// Maximum number of queued FPDUs with more payload.
const LARGES: usize = 8;
/// Maximum bytes of queued small FPDUs.
const SMALL_LEN: usize = 2 << 10;
/// Size of the staging buffer for payload copies: two FPDUs of the largest size, since one may be partly sent.
pub(crate) const STAGING_LEN: usize = 128 << 10;

/// A part of the stream.
pub(crate) enum OutboxItem {
    /// Serialized small FPDUs: these bytes of [`Outbox::small`].
    Run { from: usize, to: usize },
    /// An FPDU with its trailer, and the position of its payload in the staging buffer if it was copied.
    Large { fpdu: Fpdu, trailer: Trailer, staged: Option<usize> },
}

impl OutboxItem {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Run { from, to } => to - from,
            Self::Large { fpdu, .. } => fpdu.len(),
        }
    }
}

/// A staging buffer of [`STAGING_LEN`] bytes with arbitrary content, or empty.
pub(crate) type StagingBuffer = Box<[u8]>;

/// Staging buffers that no connection uses at the moment.
#[derive(Default)]
pub(crate) struct StagingPool(Mutex<Vec<StagingBuffer>>);

impl StagingPool {
    /// Maximum number of buffers to keep.
    const KEPT: usize = 8;

    pub(crate) fn take(&self) -> StagingBuffer {
        unpoisoned(&self.0).pop().unwrap_or_else(|| vec![0; STAGING_LEN].into_boxed_slice())
    }

    /// Takes a buffer back; one of another length is freed.
    pub(crate) fn put_back(&self, room: StagingBuffer) {
        let mut kept = unpoisoned(&self.0);
        if room.len() == STAGING_LEN && kept.len() < Self::KEPT {
            kept.push(room);
        }
    }
}

/// An item, and the number of requests that are completely sent with it, if it completes any.
type Entry = (OutboxItem, Option<u64>);

/// The items that wait to be sent, in stream order.
pub(crate) struct Outbox {
    items: VecDeque<Entry>,
    /// Number of bytes of the first item that have been sent.
    sent: usize,
    small: Vec<u8>,
    /// Copies of payload, for streams with CRCs: if the program changed memory while it is sent, the CRC would be
    /// wrong and the connection would end.
    staging: StagingBuffer,
    /// Number of its bytes in use.
    staged: usize,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        let (items, small) = (VecDeque::with_capacity(LARGES + 1), Vec::with_capacity(SMALL_LEN));
        Self { items, sent: 0, small, staging: StagingBuffer::default(), staged: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether an FPDU of either kind fits.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.items.len() < LARGES
            && self.small.len() + SMALL_MAX + 128 <= SMALL_LEN
            && self.staged <= STAGING_LEN / 2
    }

    pub(crate) fn push(
        &mut self,
        fpdu: Fpdu,
        trailer: Trailer,
        staged: Option<usize>,
        completed_end: Option<u64>,
    ) {
        self.items.push_back((OutboxItem::Large { fpdu, trailer, staged }, completed_end));
    }

    /// Serializes a small FPDU: `write` appends its bytes; if it fails, the buffer is restored.
    #[inline]
    pub(crate) fn append<E>(
        &mut self,
        completed_end: Option<u64>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.small.len();
        if let Err(why) = write(&mut self.small) {
            self.small.truncate(before);
            return Err(why);
        }
        let after = self.small.len();
        match self.items.back_mut() {
            Some((OutboxItem::Run { to, .. }, all)) => {
                *to = after;
                *all = completed_end.or(*all);
            }
            _ => self.items.push_back((OutboxItem::Run { from: before, to: after }, completed_end)),
        }
        Ok(())
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &OutboxItem> {
        self.items.iter().map(|(item, _)| item)
    }

    /// The bytes of a run.
    #[inline]
    pub(crate) fn run(&self, from: usize, to: usize) -> &[u8] {
        &self.small[from..to]
    }

    /// The unsent bytes, if everything queued is one run.
    #[inline]
    pub(crate) fn only_run(&self) -> Option<&[u8]> {
        match self.items.front() {
            Some((OutboxItem::Run { from, to }, _)) if self.items.len() == 1 => {
                Some(&self.small[from + self.sent..*to])
            }
            _ => None,
        }
    }

    /// Number of bytes of the first item that have been sent.
    pub(crate) fn bytes_sent(&self) -> usize {
        self.sent
    }

    /// Reserves staging space for `len` bytes; returns its position and the space.
    pub(crate) fn reserve_staging(&mut self, len: usize, pool: &StagingPool) -> (usize, &mut [u8]) {
        if self.staging.is_empty() {
            self.staging = pool.take();
        }
        let at = self.staged;
        self.staged += len;
        (at, &mut self.staging[at..at + len])
    }

    pub(crate) fn staged(&self, at: usize, len: usize) -> &[u8] {
        &self.staging[at..at + len]
    }

    /// Records that `n` bytes were sent; returns the number of requests that are completely sent, if it has changed.
    #[inline]
    pub(crate) fn advance(&mut self, n: usize, pool: &StagingPool) -> Option<u64> {
        self.sent += n;
        let mut out = None;
        while let Some((item, completed_end)) = self.items.front()
            && self.sent >= item.len()
        {
            self.sent -= item.len();
            out = completed_end.or(out);
            self.items.pop_front();
        }
        if self.items.is_empty() {
            self.small.clear();
            self.staged = 0;
            if !self.staging.is_empty() {
                pool.put_back(std::mem::take(&mut self.staging));
            }
        }
        out
    }

    /// Makes the first item independent of the program's memory, if part of it has been sent: `copy` copies its
    /// payload and returns whether it could. If not, the payload is replaced by zeros, provided that the peer
    /// delivers nothing of it; otherwise returns false.
    pub(crate) fn stage_partly_sent_payload(
        &mut self,
        pool: &StagingPool,
        copy: impl FnOnce(&Fpdu, &mut [u8]) -> bool,
    ) -> bool {
        let fpdu = match self.items.front() {
            Some((OutboxItem::Large { fpdu, staged: None, .. }, _)) if self.sent > 0 => *fpdu,
            _ => return true,
        };
        let (at, room) = self.reserve_staging(fpdu.payload.len(), pool);
        if !copy(&fpdu, room) {
            if fpdu.completes_message() {
                return false;
            }
            room.fill(0);
        }
        if let Some((OutboxItem::Large { staged, .. }, _)) = self.items.front_mut() {
            *staged = Some(at);
        }
        true
    }

    /// Drops the first item that was not started and needs the program's memory, and all items after it.
    pub(crate) fn drop_unstarted(&mut self) {
        let begun = usize::from(self.sent > 0);
        let is_in_memory = |(item, _): &Entry| matches!(item, OutboxItem::Large { staged: None, .. });
        if let Some(place) = self.items.iter().skip(begun).position(is_in_memory) {
            self.items.truncate(begun + place);
        }
    }

    /// Drops all but the first item.
    pub(crate) fn drop_behind_first(&mut self) {
        self.items.truncate(1);
    }

    /// Drops everything queued.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        (self.sent, self.staged) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_while_last_in_outbox() {
        let (mut outbox, pool) = (Outbox::new(), StagingPool::default());
        let write = |outbox: &mut Outbox, bytes: &[u8], completed_end| {
            let done: Result<(), ()> = outbox.append(completed_end, |to| {
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
        assert_eq!((outbox.only_run(), outbox.bytes_sent()), (Some(b"cdef".as_slice()), 2));
        assert_eq!(
            outbox.append(None, |to| {
                to.push(1);
                Err(5)
            }),
            Err(5)
        );
        assert_eq!(outbox.only_run(), Some(b"cdef".as_slice()), "a failed FPDU leaves no bytes");
        assert_eq!(outbox.advance(4, &pool), Some(2));
        assert!(outbox.is_empty() && outbox.has_room() && outbox.only_run().is_none());
    }

    /// The FPDUs of an operation with 8,000 bytes, in several segments.
    fn segments(kind: iwarp::tx::OpKind) -> Vec<Fpdu> {
        use iwarp::tx::{Op, Sender, SenderConfig, Transmit};
        let (mulpdu, rtr) = (4000, None);
        let config = SenderConfig { crc: false, ird: 1, ord: 1, queue: 1, mulpdu, held: false, rtr };
        let mut sender = Sender::new(config);
        sender.post(Op { id: 1, kind, fence: false }).expect("room");
        let next = || match sender.poll() {
            Some(Transmit::Fpdu(fpdu)) => Some(fpdu),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    fn outbox_with(fpdus: &[Fpdu], sent: usize, pool: &StagingPool) -> Outbox {
        let mut outbox = Outbox::new();
        for fpdu in fpdus {
            outbox.push(*fpdu, fpdu.trailer_builder().finish().expect("no CRC"), None, None);
        }
        outbox.advance(sent, pool);
        outbox
    }

    /// Goal: the payload of a partly sent FPDU becomes zeros only if the peer delivers nothing of it. Method: the
    /// first and the last segment of a Write and of a Send, unsent and partly sent.
    #[test]
    fn partly_sent_payload_is_copied_or_zeroed() {
        let pool = StagingPool::default();
        pool.put_back(vec![9; STAGING_LEN].into_boxed_slice());
        let write = segments(iwarp::tx::OpKind::Write { stag: 1, to: 0, len: 8000 });
        let send = segments(iwarp::tx::OpKind::Send { len: 8000, solicited: false, invalidate: None });
        for (fpdus, may_be_zeros) in
            [(&write[..1], true), (&write[2..], true), (&send[..1], true), (&send[2..], false)]
        {
            assert_eq!(fpdus.len(), 1);
            let mut outbox = outbox_with(fpdus, 0, &pool);
            assert!(outbox.stage_partly_sent_payload(&pool, |_, _| panic!("nothing has been sent")));
            outbox = outbox_with(fpdus, 5, &pool);
            assert_eq!(outbox.stage_partly_sent_payload(&pool, |_, _| false), may_be_zeros);
            if may_be_zeros {
                let len = fpdus[0].payload.len();
                assert!(matches!(outbox.items().next(), Some(OutboxItem::Large { staged: Some(0), .. })));
                assert_eq!((outbox.staged(0, len), outbox.bytes_sent()), (vec![0; len].as_slice(), 5));
            }
            outbox = outbox_with(fpdus, 5, &pool);
            assert!(outbox.stage_partly_sent_payload(&pool, |_, to| {
                to.fill(7);
                true
            }));
            assert_eq!(outbox.staged(0, 8), [7; 8], "as it was read");
        }
    }

    #[test]
    fn unsent_items_are_dropped_with_later_ones() {
        let pool = StagingPool::default();
        let fpdus = segments(iwarp::tx::OpKind::Write { stag: 1, to: 0, len: 8000 });
        for (sent, left) in [(0, 0), (1, 1)] {
            let mut outbox = outbox_with(&fpdus, sent, &pool);
            outbox
                .append(None, |to| {
                    to.push(1);
                    Ok::<(), ()>(())
                })
                .expect("written");
            outbox.drop_unstarted();
            assert_eq!(outbox.items().count(), left);
        }
        let mut outbox = Outbox::new();
        outbox
            .append(None, |to| {
                to.push(1);
                Ok::<(), ()>(())
            })
            .expect("written");
        outbox.drop_unstarted();
        assert_eq!(outbox.items().count(), 1, "it does not need the program's memory");
    }
}
