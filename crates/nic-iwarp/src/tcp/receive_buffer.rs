//! Data path: receiving. The read-ahead buffer: many small FPDUs cost one system call.

use iwarp::mpa::FPDU_MAX;

use crate::tcp::outbox::{StagingBuffer, StagingPool};

/// Size of the buffer in bytes: a little more than 8 KiB, so that one call reads a message of 8 KiB with its headers.
const LEN: usize = (8 << 10) + 512;

/// Size while FPDUs arrive that do not fit and whose CRCs must be checked first: the longest FPDU, and a little of
/// what follows.
const LEN_GROWN: usize = FPDU_MAX + 1024;

/// A buffer that is filled at the end and consumed at the front.
pub(crate) struct ReceiveBuffer {
    own: Box<[u8]>,
    /// A larger buffer to use instead, while longer FPDUs arrive, and how much of it is used.
    grown: Option<StagingBuffer>,
    grown_len: usize,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub(crate) fn new() -> Self {
        Self { own: vec![0; LEN].into_boxed_slice(), grown: None, grown_len: 0, start: 0, end: 0 }
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        let len = self.grown_len;
        self.grown.as_deref_mut().map_or(&mut self.own, |room| &mut room[..len])
    }

    /// The bytes that have been read and not consumed.
    #[inline]
    pub(crate) fn filled(&self) -> &[u8] {
        &self.grown.as_deref().unwrap_or(&self.own)[self.start..self.end]
    }

    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The space after the buffered bytes, up to `limit` bytes in total.
    pub(crate) fn space_up_to(&mut self, limit: usize) -> &mut [u8] {
        let (start, end) = (self.start, self.end);
        if start > 0 {
            // The remaining bytes are the beginning of an FPDU: only a few, or with CRCs less than the small buffer.
            self.bytes().copy_within(start..end, 0);
            (self.start, self.end) = (0, end - start);
        }
        let from = self.end;
        let bytes = self.bytes();
        let to = bytes.len().min(limit).max(from);
        &mut bytes[from..to]
    }

    /// Records that `n` bytes of [`Self::space_up_to`] have been filled.
    #[inline]
    pub(crate) fn commit(&mut self, n: usize) {
        let len = self.bytes().len();
        self.end = (self.end + n).min(len);
    }

    /// Ensures that an FPDU of this length fits.
    pub(crate) fn make_room(&mut self, len: usize, pool: &StagingPool) {
        if len > LEN && self.grown.is_none() {
            let mut room = pool.take();
            room[self.start..self.end].copy_from_slice(&self.own[self.start..self.end]);
            (self.grown, self.grown_len) = (Some(room), LEN_GROWN);
        }
    }

    /// Appends bytes that were read elsewhere, however many.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let needed = self.filled().len() + bytes.len();
        if needed > self.bytes().len() {
            let mut room = vec![0; needed].into_boxed_slice();
            let filled = self.filled();
            room[..filled.len()].copy_from_slice(filled);
            (self.start, self.end) = (0, filled.len());
            (self.grown, self.grown_len) = (Some(room), needed);
        }
        let space = self.space_up_to(needed);
        space[..bytes.len()].copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// Returns the larger buffer, if it is empty.
    #[inline]
    pub(crate) fn shrink(&mut self, pool: &StagingPool) {
        if self.start == self.end
            && let Some(room) = self.grown.take()
        {
            pool.put_back(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_buffer_keeps_bytes_in_order() {
        let mut buffer = ReceiveBuffer::new();
        let (mut next_in, mut next_out) = (0_u8, 0_u8);
        for round in 0..10_000 {
            let n = buffer.filled().len() + 1 + round % 97;
            let n = buffer.space_up_to(n).len();
            let limit = buffer.filled().len() + n;
            buffer.space_up_to(limit).iter_mut().for_each(|byte| {
                *byte = next_in;
                next_in = next_in.wrapping_add(1);
            });
            buffer.commit(n);
            let take = buffer.filled().len().min(round % 101);
            for &byte in &buffer.filled()[..take] {
                assert_eq!(byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            buffer.consume(take);
        }
        let left = buffer.filled().len();
        assert_eq!(next_out.wrapping_add(left as u8), next_in);
    }

    #[test]
    fn staging_buffer_is_borrowed_and_returned() {
        let (mut buffer, pool) = (ReceiveBuffer::new(), StagingPool::default());
        buffer.space_up_to(3).copy_from_slice(b"abc");
        buffer.commit(3);
        buffer.consume(1);
        buffer.make_room(LEN, &pool);
        assert!(buffer.grown.is_none(), "that fits");
        buffer.make_room(FPDU_MAX, &pool);
        assert_eq!((buffer.filled(), buffer.grown.is_some()), (b"bc".as_slice(), true));
        assert_eq!(buffer.space_up_to(usize::MAX).len(), LEN_GROWN - 2);
        buffer.shrink(&pool);
        assert_eq!(buffer.filled(), b"bc", "still in use");
        buffer.consume(2);
        buffer.shrink(&pool);
        assert_eq!(buffer.space_up_to(usize::MAX).len(), LEN);
    }

    #[test]
    fn appended_bytes_follow_and_never_lack_room() {
        let (mut buffer, pool) = (ReceiveBuffer::new(), StagingPool::default());
        let all: Vec<u8> = (0..400_000_usize).map(|at| (at % 251) as u8).collect();
        let (mut appended, mut consumed) = (0, 0);
        for len in [20, 8000, 600, 70_000, 130_000, 1, 100_000] {
            buffer.append(&all[appended..appended + len]);
            appended += len;
            let step = len / 3;
            buffer.consume(step);
            consumed += step;
            assert_eq!(buffer.filled(), &all[consumed..appended]);
        }
        buffer.consume(appended - consumed);
        buffer.shrink(&pool);
        assert_eq!(buffer.space_up_to(usize::MAX).len(), LEN);
        assert_eq!(pool.take().len(), crate::tcp::outbox::STAGING_LEN, "no other length is pooled");
    }

    #[test]
    fn a_full_buffer_has_no_room() {
        let mut buffer = ReceiveBuffer::new();
        assert_eq!(buffer.space_up_to(usize::MAX / 2).len(), LEN);
        buffer.commit(LEN);
        assert!(buffer.space_up_to(LEN).is_empty());
        buffer.consume(1);
        assert_eq!(buffer.space_up_to(LEN).len(), 1);
    }
}
