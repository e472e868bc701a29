//! [`Image`]: what memory contained at one moment, in little space: the first bytes themselves, and a checksum of each further
//! block.
//!
//! Data path: taken of the memory of each posted request.

use std::ops::Range;

use verbs::{Buf, Result};

/// Bytes that are kept.
const KEPT: usize = 128;
/// Bytes of a block.
const BLOCK: usize = 4096;

/// What a part of a buffer contained.
pub(crate) struct Image {
    buf: Buf,
    /// The part of the buffer.
    range: Range<usize>,
    kept: Box<[u8]>,
    sums: Box<[u64]>,
}

impl Image {
    /// What this part of a buffer contains now.
    ///
    /// # Errors
    /// [`verbs::Error::Memory`] if the program has unmapped it.
    pub(crate) fn take(buf: &Buf, range: Range<usize>) -> Result<Self> {
        let kept = range.len().min(KEPT);
        let mut bytes = vec![0; kept];
        buf.read(range.start, &mut bytes)?;
        let sums =
            blocks(range.start + kept..range.end).map(|block| sum(buf, block)).collect::<Result<_>>()?;
        Ok(Self { buf: buf.clone(), range, kept: bytes.into(), sums })
    }

    /// Which of its bytes have changed, as offsets in the part: the first such place. It ends at the latest where its block ends.
    ///
    /// # Errors
    /// As [`Image::take`].
    pub(crate) fn changed(&self, from: usize) -> Result<Option<Range<usize>>> {
        let (start, kept) = (self.range.start, self.kept.len());
        let mut now = [0; KEPT];
        self.buf.read(start, &mut now[..kept])?;
        let differs = |at: &usize| now[*at] != self.kept[*at];
        if let Some(first) = (from.min(kept)..kept).find(differs) {
            let end = (first..kept).rev().find(differs).unwrap_or(first);
            return Ok(Some(first..end + 1));
        }
        for (block, before) in blocks(start + kept..self.range.end).zip(&self.sums) {
            if block.start >= start + from && sum(&self.buf, block.clone())? != *before {
                return Ok(Some(block.start - start..block.end - start));
            }
        }
        Ok(None)
    }
}

/// The blocks of a range.
fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(BLOCK).map(move |at| at..range.end.min(at + BLOCK))
}

/// A checksum of bytes (a multiplication and a rotation for each word).
fn sum(buf: &Buf, range: Range<usize>) -> Result<u64> {
    let mut bytes = [0; BLOCK];
    let bytes = &mut bytes[..range.len()];
    buf.read(range.start, bytes)?;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0x243f_6a88_85a3_08d3, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    Ok(rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte) + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a change of any byte is found, and named exactly near the start.
    #[test]
    fn change_of_any_byte_is_found() {
        let buf = Buf::alloc(20_000).expect("memory");
        for at in [100, 101, 227, 228, 229, 4323, 4324, 9000, 10_099] {
            let image = Image::take(&buf, 100..10_100).expect("mapped");
            assert_eq!(image.changed(0), Ok(None), "{at}");
            buf.write(at, &[at as u8]).expect("mapped");
            let found = image.changed(0).expect("mapped").expect("a change");
            assert!(found.contains(&(at - 100)) && (at >= 228 || found.len() == 1), "{at}: {found:?}");
            assert_eq!(image.changed(found.end), Ok(None), "{at}: it is the only change");
        }
        let image = Image::take(&buf, 100..200).expect("mapped");
        buf.write(99, &[1]).and_then(|()| buf.write(200, &[1])).expect("mapped");
        assert_eq!(image.changed(0), Ok(None), "it is outside");
    }
}
