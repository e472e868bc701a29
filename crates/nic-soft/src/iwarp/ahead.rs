//! Data path: receiving. Bytes that were read ahead of what they are for: many small FPDUs cost one system call.

use super::outbox::{Pool, Room};

/// Room for bytes that were read ahead.
const LEN: usize = 8 << 10;

/// The same while much payload comes this way because its CRC is to be checked: what stays in the nearest caches.
const LEN_GROWN: usize = 32 << 10;

/// A small buffer, filled at the end and consumed at the front.
pub(super) struct Ahead {
    own: Box<[u8]>,
    /// Used instead, while much payload comes this way because its CRC is to be checked.
    grown: Option<Room>,
    start: usize,
    end: usize,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self { own: vec![0; LEN].into_boxed_slice(), grown: None, start: 0, end: 0 }
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        self.grown.as_deref_mut().map_or(&mut self.own, |room| &mut room[..LEN_GROWN])
    }

    /// What has been read and not been consumed.
    #[inline]
    pub(super) fn filled(&self) -> &[u8] {
        &self.grown.as_deref().unwrap_or(&self.own)[self.start..self.end]
    }

    #[inline]
    pub(super) fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for at most `limit` bytes behind what is there; never none, unless it is full.
    pub(super) fn space(&mut self, limit: usize) -> &mut [u8] {
        let (start, end) = (self.start, self.end);
        if start > 0 {
            // What is left is the beginning of an FPDU: a few bytes.
            self.bytes().copy_within(start..end, 0);
            (self.start, self.end) = (0, end - start);
        }
        let from = self.end;
        let bytes = self.bytes();
        let to = bytes.len().min(from.saturating_add(limit));
        &mut bytes[from..to]
    }

    /// So many bytes of [`Self::space`] have been filled.
    #[inline]
    pub(super) fn fill(&mut self, n: usize) {
        let len = self.bytes().len();
        self.end = (self.end + n).min(len);
    }

    /// Takes more room for a while.
    pub(super) fn grow(&mut self, pool: &Pool) {
        if self.grown.is_none() {
            let mut room = pool.take();
            room[self.start..self.end].copy_from_slice(&self.own[self.start..self.end]);
            self.grown = Some(room);
        }
    }

    /// Gives it back, if nothing is in it.
    #[inline]
    pub(super) fn shrink(&mut self, pool: &Pool) {
        if self.start == self.end
            && let Some(room) = self.grown.take()
        {
            pool.give(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut ahead = Ahead::new();
        let (mut next_in, mut next_out) = (0_u8, 0_u8);
        for round in 0..10_000 {
            let n = ahead.space(1 + round % 97).len();
            ahead.space(n).iter_mut().for_each(|byte| {
                *byte = next_in;
                next_in = next_in.wrapping_add(1);
            });
            ahead.fill(n);
            let take = ahead.filled().len().min(round % 101);
            for &byte in &ahead.filled()[..take] {
                assert_eq!(byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            ahead.consume(take);
        }
        let left = ahead.filled().len();
        assert_eq!(next_out.wrapping_add(left as u8), next_in);
    }

    #[test]
    fn room_is_borrowed_and_given_back() {
        let (mut ahead, pool) = (Ahead::new(), Pool::default());
        ahead.space(3).copy_from_slice(b"abc");
        ahead.fill(3);
        ahead.consume(1);
        ahead.grow(&pool);
        assert_eq!((ahead.filled(), ahead.grown.is_some()), (b"bc".as_slice(), true));
        assert_eq!(ahead.space(usize::MAX).len(), LEN_GROWN - 2);
        ahead.shrink(&pool);
        assert_eq!(ahead.filled(), b"bc", "not while it is needed");
        ahead.consume(2);
        ahead.shrink(&pool);
        assert_eq!(ahead.space(usize::MAX).len(), LEN);
    }

    #[test]
    fn a_full_buffer_has_no_room() {
        let mut ahead = Ahead::new();
        assert_eq!(ahead.space(usize::MAX / 2).len(), LEN);
        ahead.fill(LEN);
        assert!(ahead.space(10).is_empty());
        ahead.consume(1);
        assert_eq!(ahead.space(10).len(), 1);
    }
}
