//! Data path: receiving. Bytes that were read ahead of what they are for: many small FPDUs cost one system call.

/// Room for bytes that were read ahead.
const LEN: usize = 8 << 10;
/// The same where all payload comes this way, since its CRC is to be checked.
const LEN_WITH_CRC: usize = 16 << 10;

/// A small buffer, filled at the end and consumed at the front.
pub(super) struct Ahead {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Ahead {
    pub(super) fn new(crc: bool) -> Self {
        let len = if crc { LEN_WITH_CRC } else { LEN };
        Self { bytes: vec![0; len].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What has been read and not been consumed.
    #[inline]
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
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
        if self.start > 0 {
            // What is left is the beginning of an FPDU: a few bytes.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let to = self.bytes.len().min(self.end.saturating_add(limit));
        &mut self.bytes[self.end..to]
    }

    /// So many bytes of [`Self::space`] have been filled.
    #[inline]
    pub(super) fn fill(&mut self, n: usize) {
        self.end = (self.end + n).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut ahead = Ahead::new(false);
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
    fn a_full_buffer_has_no_room() {
        let mut ahead = Ahead::new(false);
        assert_eq!(ahead.space(usize::MAX / 2).len(), LEN);
        ahead.fill(LEN);
        assert!(ahead.space(10).is_empty());
        ahead.consume(1);
        assert_eq!(ahead.space(10).len(), 1);
    }
}
