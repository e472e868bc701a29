//! Wire bytes: an inline buffer that is filled from the front, and big-endian fields that are read without panics.

use std::fmt;

/// Up to `N` bytes, stored inline: appending never allocates, and a copy is independent of the original.
#[derive(Clone, Copy)]
pub struct InlineBytes<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> InlineBytes<N> {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Appends as many bytes as fit. Every format of this crate fits its buffer; each has a test for that.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(N - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        debug_assert_eq!(n, bytes.len(), "the format is larger than its buffer");
        self.len += n;
    }

    /// The bytes so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Default for InlineBytes<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> std::ops::Deref for InlineBytes<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl<const N: usize> PartialEq for InlineBytes<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<const N: usize> Eq for InlineBytes<N> {}

impl<const N: usize> fmt::Debug for InlineBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.as_slice() {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Reads fields in network byte order from the front. `None` means that the bytes have ended.
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl FieldReader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Whether `[to, to + len)` exceeds the end of the 64-bit offset space. The last byte of the range may be the last of
/// the space.
pub(crate) fn wraps(to: u64, len: u32) -> bool {
    len > 0 && to.checked_add(u64::from(len) - 1).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_reader_returns_none_at_the_end() {
        let mut fields = FieldReader(&[1, 2, 3, 4, 5]);
        assert_eq!(fields.u32(), Some(0x0102_0304));
        assert_eq!(fields.u16(), None);
        assert_eq!(fields.u8(), Some(5));
        assert_eq!(fields.u8(), None);
    }

    #[test]
    fn range_up_to_last_address_does_not_wrap() {
        assert!(!wraps(u64::MAX, 0) && !wraps(u64::MAX, 1) && wraps(u64::MAX, 2));
        assert!(!wraps(u64::MAX - 7, 8) && wraps(u64::MAX - 7, 9));
    }
}
