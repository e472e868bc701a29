//! [`Image`]: what memory contained at one moment, in little space: the first bytes themselves, and a checksum of each further
//! block.
//!
//! Data path: taken of the memory of each request.

use std::ops::Range;

/// Bytes that are kept.
const KEPT: usize = 128;
/// Bytes of a block.
const BLOCK: usize = 4096;

/// What a range of offsets of some memory contained. The functions that read it get an offset and fill a slice.
pub struct Image {
    range: Range<usize>,
    kept: Box<[u8]>,
    sums: Box<[u64]>,
}

impl Image {
    /// What the range contains now.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn take<E>(
        range: Range<usize>,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let kept = range.len().min(KEPT);
        let mut bytes = vec![0; kept];
        read(range.start, &mut bytes)?;
        let blocks = blocks(range.start + kept..range.end);
        let sums = blocks.map(|block| sum(&mut read, block)).collect::<Result<_, E>>()?;
        Ok(Self { range, kept: bytes.into(), sums })
    }

    /// Which of its bytes have changed, as offsets in the range, from the offset `from` on: the first such place. It ends at the
    /// latest where its block ends.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn changed<E>(
        &self,
        from: usize,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Range<usize>>, E> {
        let (start, kept) = (self.range.start, self.kept.len());
        let mut now = [0; KEPT];
        read(start, &mut now[..kept])?;
        let differs = |at: &usize| now[*at] != self.kept[*at];
        if let Some(first) = (from.min(kept)..kept).find(differs) {
            let end = (first..kept).rev().find(differs).unwrap_or(first);
            return Ok(Some(first..end + 1));
        }
        for (block, before) in blocks(start + kept..self.range.end).zip(&self.sums) {
            if block.start >= start + from && sum(&mut read, block.clone())? != *before {
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
fn sum<E>(read: &mut impl FnMut(usize, &mut [u8]) -> Result<(), E>, range: Range<usize>) -> Result<u64, E> {
    let mut bytes = [0; BLOCK];
    let bytes = &mut bytes[..range.len()];
    read(range.start, bytes)?;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0x243f_6a88_85a3_08d3, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    Ok(rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte) + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Goal: a change of any byte is found, and named exactly near the start.
    #[test]
    fn change_of_any_byte_is_found() {
        let mut memory = vec![0_u8; 20_000];
        let changed = |image: &Image, memory: &[u8], from| {
            let Ok(found) = image.changed(from, |at, bytes| copy(memory, at, bytes));
            found
        };
        for at in [100, 101, 227, 228, 229, 4323, 4324, 9000, 10_099] {
            let Ok(image) = Image::take(100..10_100, |at, bytes| copy(&memory, at, bytes));
            assert_eq!(changed(&image, &memory, 0), None, "{at}");
            memory[at] = at as u8;
            let found = changed(&image, &memory, 0).expect("a change");
            assert!(found.contains(&(at - 100)) && (at >= 228 || found.len() == 1), "{at}: {found:?}");
            assert_eq!(changed(&image, &memory, found.end), None, "{at}: it is the only change");
        }
        let Ok(image) = Image::take(100..200, |at, bytes| copy(&memory, at, bytes));
        (memory[99], memory[200]) = (1, 1);
        assert_eq!(changed(&image, &memory, 0), None, "it is outside");
    }

    fn copy(memory: &[u8], at: usize, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.copy_from_slice(&memory[at..at + bytes.len()]);
        Ok(())
    }
}
