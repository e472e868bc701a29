//! Converts received bytes to numbers of elements, and back: `MPI_Get_count`, `MPI_Get_elements` and `MPI_Status_set_elements`
//! (MPI 5.0, sections 3.2.5, 5.1.11 and 13.3).

use crate::Datatype;
use crate::layout::{Body, Piece};

impl Datatype {
    /// The number of whole elements in these bytes, for `MPI_Get_count`; `None`, for `MPI_UNDEFINED`, if a partial element remains.
    pub fn count_in(&self, bytes: u64) -> Option<i64> {
        match self.size() as u64 {
            0 => (bytes == 0).then_some(0),
            size if bytes.is_multiple_of(size) => i64::try_from(bytes / size).ok(),
            _ => None,
        }
    }

    /// The number of basic elements in these bytes, for `MPI_Get_elements`; `None`, for `MPI_UNDEFINED`, if a partial element
    /// remains. A pair is two elements.
    pub fn elements_in(&self, bytes: u64) -> Option<i64> {
        let size = self.size() as u64;
        if size == 0 {
            return (bytes == 0).then_some(0);
        }
        let whole = (bytes / size).checked_mul(elements(self.typed_layout()))?;
        i64::try_from(whole.checked_add(elements_before(self.typed_layout(), bytes % size)?)?).ok()
    }

    /// The bytes of this many basic elements, for `MPI_Status_set_elements`; `None` for elements of a type without data,
    /// a negative number, and more than 64 bits of bytes.
    pub fn bytes_of_elements(&self, count: i64) -> Option<u64> {
        let count = u64::try_from(count).ok()?;
        let each = elements(self.typed_layout());
        if each == 0 {
            return (count == 0).then_some(0);
        }
        (count / each)
            .checked_mul(self.size() as u64)?
            .checked_add(bytes_before(self.typed_layout(), count % each))
    }
}

fn elements(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.elements).sum()
}

/// Elements in the first `bytes` of a longer list; `None` if they end within an element.
fn elements_before(pieces: &[Piece], mut bytes: u64) -> Option<u64> {
    let mut elements = 0;
    for piece in pieces {
        if bytes >= piece.bytes {
            elements += piece.elements;
            bytes -= piece.bytes;
            continue;
        }
        return Some(match &piece.body {
            Body::Runs { basic, .. } if bytes.is_multiple_of(u64::from(basic.size())) => {
                elements + bytes / u64::from(basic.size())
            }
            Body::Runs { .. } => return None,
            Body::Loop { count, pieces, .. } => {
                let each = piece.bytes / count;
                elements + bytes / each * (piece.elements / count) + elements_before(pieces, bytes % each)?
            }
        });
    }
    Some(elements)
}

/// Bytes of the first `elements` of a longer list.
fn bytes_before(pieces: &[Piece], mut elements: u64) -> u64 {
    let mut bytes = 0;
    for piece in pieces {
        if elements >= piece.elements {
            bytes += piece.bytes;
            elements -= piece.elements;
            continue;
        }
        return match &piece.body {
            Body::Runs { basic, .. } => bytes + elements * u64::from(basic.size()),
            Body::Loop { count, pieces, .. } => {
                let each = piece.elements / count;
                bytes + elements / each * (piece.bytes / count) + bytes_before(pieces, elements % each)
            }
        };
    }
    bytes
}
