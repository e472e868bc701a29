//! [`Region`]: user memory in one or several pieces (Portals 4.3, section 3.10). It only holds addresses; nothing
//! in this crate dereferences them.

use std::sync::Arc;

/// A range of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Its address.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// Memory of one or several pieces, addressed by one offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pieces: Pieces,
    len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pieces {
    One(u64),
    Many(Arc<[Piece]>),
}

impl Region {
    /// Memory in one piece.
    #[must_use]
    pub const fn new(addr: u64, len: u64) -> Self {
        Self { pieces: Pieces::One(addr), len }
    }

    /// Memory in several pieces; `None` if their total length overflows.
    #[must_use]
    pub fn from_pieces(pieces: &[Piece]) -> Option<Self> {
        let len = pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.len))?;
        Some(Self { pieces: Pieces::Many(pieces.into()), len })
    }

    /// Bytes of all pieces.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of pieces it was created from.
    #[must_use]
    pub fn piece_count(&self) -> usize {
        match &self.pieces {
            Pieces::One(_) => 1,
            Pieces::Many(pieces) => pieces.len(),
        }
    }

    /// The address at an offset. Offsets beyond the end continue after the last piece.
    #[must_use]
    pub fn address(&self, offset: u64) -> u64 {
        match &self.pieces {
            Pieces::One(addr) => addr.wrapping_add(offset),
            Pieces::Many(pieces) => {
                let mut left = offset;
                for piece in pieces.iter() {
                    if left < piece.len {
                        return piece.addr.wrapping_add(left);
                    }
                    left -= piece.len;
                }
                pieces.last().map_or(left, |last| last.addr.wrapping_add(last.len).wrapping_add(left))
            }
        }
    }

    /// The address of `len` bytes at `offset`, if they are in range and the memory is a single piece.
    #[inline]
    pub(crate) fn one_piece(&self, offset: u64, len: usize) -> Option<u64> {
        match self.pieces {
            Pieces::One(addr) if offset <= self.len && len as u64 <= self.len - offset => {
                Some(addr.wrapping_add(offset))
            }
            _ => None,
        }
    }

    /// The non-empty pieces that cover `len` bytes from `offset` on, cut at the end of the region.
    pub fn part(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + '_ {
        let one = match self.pieces {
            Pieces::One(addr) => Some(Piece { addr, len: self.len }),
            Pieces::Many(_) => None,
        };
        let many: &[Piece] = match &self.pieces {
            Pieces::One(_) => &[],
            Pieces::Many(pieces) => pieces,
        };
        let (mut skip, mut left) = (offset, len);
        one.into_iter().chain(many.iter().copied()).filter_map(move |piece| {
            let from = skip.min(piece.len);
            let take = (piece.len - from).min(left);
            (skip, left) = (skip - from, left - take);
            (take > 0).then(|| Piece { addr: piece.addr.wrapping_add(from), len: take })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(addr: u64, len: u64) -> Piece {
        Piece { addr, len }
    }

    #[test]
    fn pieces_act_as_one_region() {
        let region =
            Region::from_pieces(&[piece(100, 3), piece(200, 0), piece(300, 5)]).expect("eight bytes");
        assert_eq!((region.len(), region.piece_count(), region.is_empty()), (8, 3, false));
        let addresses: Vec<u64> = (0..10).map(|offset| region.address(offset)).collect();
        assert_eq!(addresses, [100, 101, 102, 300, 301, 302, 303, 304, 305, 306]);
        for offset in 0..9 {
            for len in 0..10 {
                let bytes: Vec<u64> =
                    region.part(offset, len).flat_map(|piece| piece.addr..piece.addr + piece.len).collect();
                let end = (offset + len).min(8).max(offset);
                let want: Vec<u64> = (offset..end).map(|offset| region.address(offset)).collect();
                assert_eq!(bytes, want, "{len} bytes from {offset}");
                assert!(region.part(offset, len).all(|piece| piece.len > 0));
            }
        }
    }

    #[test]
    fn one_piece_is_cut() {
        let region = Region::new(50, 10);
        assert_eq!(region.part(4, 100).collect::<Vec<_>>(), [piece(54, 6)]);
        assert_eq!(region.part(11, 1).count(), 0);
        assert_eq!(region.address(4), 54);
    }

    #[test]
    fn overflowing_length_is_refused() {
        assert_eq!(Region::from_pieces(&[piece(0, u64::MAX), piece(0, 1)]), None);
        assert!(Region::from_pieces(&[]).is_some_and(|region| region.is_empty() && region.address(3) == 3));
    }
}
