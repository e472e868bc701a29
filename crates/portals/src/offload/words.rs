//! Integers of 8 bytes in sequence: the encoding between a process and its firmware, which share a machine
//! and a library version.

/// Bytes of the longest command or record.
const MOST: usize = 128;

/// A buffer of words, the least significant byte first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    bytes: [u8; MOST],
    len: usize,
}

impl Writer {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; MOST], len: 0 }
    }

    /// Appends a word of 8 bytes.
    ///
    /// # Panics
    /// If the longest command would be exceeded.
    pub(super) fn put(mut self, word: u64) -> Self {
        self.bytes[self.len..self.len + 8].copy_from_slice(&word.to_le_bytes());
        self.len += 8;
        self
    }

    /// Appends two halves of a word.
    pub(super) fn pair(self, low: u32, high: u32) -> Self {
        self.put(u64::from(low) | u64::from(high) << 32)
    }

    /// Appends an optional number.
    pub(super) fn maybe(self, number: Option<u32>) -> Self {
        self.pair(number.unwrap_or(0), u32::from(number.is_some()))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads words in sequence.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub(super) fn pair(&mut self) -> Option<(u32, u32)> {
        self.word().map(|word| (word as u32, (word >> 32) as u32))
    }

    pub(super) fn maybe(&mut self) -> Option<Option<u32>> {
        self.pair().map(|(number, is_there)| (is_there != 0).then_some(number))
    }
}
