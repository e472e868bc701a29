//! external32: the standard's representation for files and messages between heterogeneous machines (MPI 5.0, section 14.5.2).
//! Big-endian, IEEE, with its own sizes.

use crate::cursor::Memory;
use crate::float::Format;
use crate::layout::{Body, Piece};
use crate::{Basic, BasicKind, Datatype, Error, ErrorKind, Result, integer};

/// Bytes converted per step; a multiple of every basic type's size.
const CHUNK: usize = 4096;

impl Datatype {
    /// Bytes of `count` elements in external32.
    ///
    /// # Errors
    /// If the count is negative or too large.
    pub fn external32_size(&self, count: i64) -> Result<u64> {
        self.bytes(count)?;
        let size = external_bytes(self.typed_layout()).and_then(|each| each.checked_mul(count as u64));
        size.filter(|&size| i64::try_from(size).is_ok()).ok_or_else(|| Error::overflow("count in external32"))
    }

    /// Appends `count` elements in external32. On error nothing is appended.
    ///
    /// # Errors
    /// If the count is illegal, or a value does not fit external32: a long beyond 32 bits, a wide character beyond 16.
    pub fn pack_external32(&self, count: i64, memory: &impl Memory, into: &mut Vec<u8>) -> Result<()> {
        let mut cursor = self.typed_cursor(count)?;
        let (start, mut failed, mut chunk) = (into.len(), None, [0; CHUNK]);
        cursor.advance(cursor.total(), |basic, offset, length| {
            for done in (0..length).step_by(CHUNK) {
                let bytes = &mut chunk[..CHUNK.min(length - done)];
                memory.load(offset + done as i64, bytes);
                for element in bytes.chunks_exact(basic.size() as usize) {
                    failed = failed.take().or(encode(basic, element, into).err());
                }
            }
        });
        match failed {
            Some(error) => {
                into.truncate(start);
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Reads `count` elements from their external32 form. Returns the number of bytes read.
    ///
    /// # Errors
    /// If the count is illegal, or `from` is too short. Nothing is stored then.
    pub fn unpack_external32(&self, count: i64, from: &[u8], memory: &mut impl Memory) -> Result<usize> {
        let size = self.external32_size(count)?;
        if (from.len() as u64) < size {
            let text = format!("insize: {} bytes, and {count} elements have {size}", from.len());
            return Err(Error::new(ErrorKind::Truncate, text));
        }
        let (mut rest, mut chunk) = (from, [0; CHUNK]);
        let mut cursor = self.typed_cursor(count)?;
        cursor.advance(cursor.total(), |basic, offset, length| {
            for done in (0..length).step_by(CHUNK) {
                let bytes = &mut chunk[..CHUNK.min(length - done)];
                for element in bytes.chunks_exact_mut(basic.size() as usize) {
                    let (external, later) = rest.split_at(basic.external_size() as usize);
                    decode(basic, external, element);
                    rest = later;
                }
                memory.store(offset + done as i64, bytes);
            }
        });
        Ok(size as usize)
    }
}

fn external_bytes(pieces: &[Piece]) -> Option<u64> {
    pieces.iter().try_fold(0_u64, |all, piece| {
        let bytes = match &piece.body {
            Body::Runs { basic, .. } => piece.elements.checked_mul(u64::from(basic.external_size())),
            Body::Loop { count, pieces, .. } => external_bytes(pieces)?.checked_mul(*count),
        };
        all.checked_add(bytes?)
    })
}

/// The number of numbers in an element.
fn parts(basic: Basic) -> usize {
    if basic.kind() == BasicKind::Complex { 2 } else { 1 }
}

fn is_signed(basic: Basic) -> bool {
    matches!(basic.kind(), BasicKind::CSigned | BasicKind::FInteger | BasicKind::Multi)
}

fn encode(basic: Basic, element: &[u8], into: &mut Vec<u8>) -> Result<()> {
    let size = basic.external_size() as usize / parts(basic);
    for part in element.chunks_exact(element.len() / parts(basic)) {
        let bits = match basic.format() {
            Some(Format::X87) => Format::QUAD.encode(Format::X87.read(part)),
            _ => {
                let value = integer::read(part, is_signed(basic));
                check_fits(basic, value, part.len(), size)?;
                value as u128
            }
        };
        into.extend_from_slice(&bits.to_be_bytes()[16 - size..]);
    }
    Ok(())
}

/// Checks that a value fits if it has fewer bytes in external32.
fn check_fits(basic: Basic, value: i128, native_len: usize, external_len: usize) -> Result<()> {
    if external_len >= native_len {
        return Ok(());
    }
    let bits = 8 * external_len as u32 - u32::from(is_signed(basic));
    let (low, high) =
        if is_signed(basic) { (-1_i128 << bits, (1 << bits) - 1) } else { (0, (1 << bits) - 1) };
    if !(low..=high).contains(&value) {
        let text =
            format!("inbuf: {value} does not fit the {external_len} bytes of {} in external32", basic.name());
        return Err(Error::new(ErrorKind::Conversion, text));
    }
    Ok(())
}

fn decode(basic: Basic, external: &[u8], element: &mut [u8]) {
    let (native_len, external_len) = (element.len() / parts(basic), external.len() / parts(basic));
    for (part, bytes) in element.chunks_exact_mut(native_len).zip(external.chunks_exact(external_len)) {
        let negative = is_signed(basic) && bytes[0] >= 0x80;
        let mut padded = [if negative { 0xff } else { 0 }; 16];
        padded[16 - external_len..].copy_from_slice(bytes);
        let bits = u128::from_be_bytes(padded);
        match basic.format() {
            Some(Format::X87) => Format::X87.write(Format::QUAD.decode(bits), part),
            _ => integer::write(bits as i128, part),
        }
    }
}
