//! [`Header`]: the header that a user of the transport puts before the payload of each message. The transport moves headers without
//! interpreting them.
//!
//! A header is a sequence of 64-bit words. Two fields of its first word belong to the transport:
//!
//! - bits 0 to 7 are neither 0 nor 255. A receiver polls this word; 0 means that nothing has arrived, and 255 is reserved for the
//!   transport.
//! - bits 16 to 31 are 0 in the user's header. The transport stores the length of the whole message there in a ring, and credits
//!   for the peer in a message that is sent.
//!
//! The functions are called for each message. They are resolved at compile time, so that a header of a frequent kind is moved from
//! the user's fields into the ring word by word, and back, without an intermediate copy.

use verbs::{Buf, Result, Sge};

/// Words of a cache line.
pub const LINE_WORDS: usize = 8;
/// Bytes of the longest header.
pub const HEADER_MAX: usize = 128;

/// A message without its payload.
pub trait Header: Sized {
    /// The words of a header of the frequent kind: an array of 1 to [`LINE_WORDS`] words.
    type Short: AsRef<[u64]>;

    /// The words of this header if it is of the frequent kind; [`Header::decode_short`] reads them. Both sides are on one host, so
    /// words have the processor's byte order.
    fn encode_short(&self) -> Option<Self::Short>;

    /// The bytes of any header; [`Header::decode`] reads them.
    fn encode(&self) -> HeaderBytes;

    /// Reads a header of the frequent kind from the first line of a message of `total` bytes, and returns the offset of the
    /// payload. `None` means that the caller must use [`Header::decode`]. The rest of the line is payload or stale data.
    fn decode_short(&mut self, line: &[u64; LINE_WORDS], total: usize) -> Option<usize>;

    /// Reads any header from the first bytes of a message of `total` bytes, and returns the offset of the payload. `bytes` are the
    /// whole message, or its first [`HEADER_MAX`]. `None` for a header that no user of this version sends.
    fn decode(&mut self, bytes: &[u8], total: usize) -> Option<usize>;
}

/// The payload of a message, which the transport copies to its destination.
pub trait Payload {
    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    #[inline]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes of a payload of at most 16, padded with zeros, as words in memory order; `None` if it is longer, or if
    /// [`Payload::copy_to`] is as good.
    #[inline]
    fn words(&self) -> Option<[u64; 2]> {
        None
    }

    /// Memory from which a NIC can send all bytes; it must not change until then. `None` if the payload is copied.
    #[inline]
    fn sge(&self) -> Option<Sge> {
        None
    }

    /// Copies all bytes to `into`, which has the same length.
    fn load(&self, into: &mut [u8]);

    /// Copies all bytes to an offset in memory that has room for them.
    ///
    /// # Errors
    /// Those of the memory.
    fn copy_to(&self, memory: &Buf, at: usize) -> Result<()>;

    /// As [`Payload::copy_to`], by stores that bypass the caches where that is possible.
    ///
    /// # Errors
    /// Those of the memory.
    #[inline]
    fn copy_past_caches(&self, memory: &Buf, at: usize) -> Result<()> {
        self.copy_to(memory, at)
    }
}

impl Payload for &[u8] {
    #[inline]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn load(&self, into: &mut [u8]) {
        into.copy_from_slice(self);
    }

    #[inline]
    fn copy_to(&self, memory: &Buf, at: usize) -> Result<()> {
        memory.write(at, self)
    }
}

/// The bytes of a header.
#[derive(Clone, Copy, Debug)]
pub struct HeaderBytes {
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl HeaderBytes {
    /// A header of the first `len` bytes of an array.
    #[inline]
    pub fn new(bytes: [u8; HEADER_MAX], len: usize) -> Self {
        Self { bytes, len: len.min(HEADER_MAX) }
    }

    /// The bytes of these words, each in little-endian order; at most [`HEADER_MAX`] bytes.
    #[inline]
    pub fn from_words<const N: usize>(words: [u64; N]) -> Self {
        const { assert!(8 * N <= HEADER_MAX) };
        let mut bytes = [0; HEADER_MAX];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        Self { bytes, len: 8 * N }
    }

    /// Sets bits 16 to 31 of the first word, which are the transport's.
    #[inline]
    pub(crate) fn set_spare_bits(&mut self, bits: u16) {
        self.bytes[2..4].copy_from_slice(&bits.to_le_bytes());
    }

    /// Appends bytes; the caller ensures that there is room.
    #[inline]
    pub fn push(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    /// Keeps the first `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The bytes of the header.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The first word, and the bytes after it.
    #[inline]
    pub(crate) fn split_first(&self) -> (u64, &[u8]) {
        let (first, rest) = self.bytes[..self.len].split_first_chunk().unwrap_or((&[0; 8], &[]));
        (u64::from_le_bytes(*first), rest)
    }
}
