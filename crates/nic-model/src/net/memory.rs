//! Finding registered memory, and copying between it and packets.

use verbs::{Access, MemoryKind, RemoteAddr, Sge};

use super::slab::Slab;
use super::state::State;
use super::tables::Region;

/// Bytes at either end of a message that move in spite of a hole.
const HOLE_EDGE: u64 = 64;

/// A piece of registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) region: u32,
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) kind: MemoryKind,
}

/// Who looks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Owner,
    Peer,
}

fn reach(
    regions: &Slab<Region>,
    who: Who,
    domain: u32,
    key: u32,
    addr: u64,
    len: u64,
    need: Access,
) -> Option<Piece> {
    let region = regions.get(key)?;
    let open = who == Who::Owner || !region.invalidated;
    let at = addr.checked_sub(region.base)?;
    let inside = at.checked_add(len)? <= region.buf.len() as u64;
    let found = region.domain == domain && open && region.access.contains(need) && inside;
    found.then(|| Piece { region: key, at, len, kind: region.buf.kind() })
}

impl State {
    /// Whether all of these pieces may be used so. Empty pieces are not checked.
    pub(super) fn may_use(&self, domain: u32, sges: &[Sge], need: Access) -> bool {
        let mut sges = sges.iter().filter(|sge| sge.length > 0);
        sges.all(|s| {
            reach(&self.regions, Who::Owner, domain, s.lkey, s.addr, s.length.into(), need).is_some()
        })
    }

    /// Whether a peer may use this memory so. Memory of no bytes is not checked.
    pub(super) fn peer_may_use(&self, domain: u32, remote: RemoteAddr, len: u64, need: Access) -> bool {
        len == 0 || reach(&self.regions, Who::Peer, domain, remote.rkey, remote.addr, len, need).is_some()
    }

    /// Puts the memory that a peer names into `out`, if the peer may use it so.
    pub(super) fn peer_pieces(
        &self,
        domain: u32,
        remote: RemoteAddr,
        len: u64,
        need: Access,
        out: &mut Vec<Piece>,
    ) -> bool {
        out.clear();
        if len == 0 {
            return true;
        }
        let piece = reach(&self.regions, Who::Peer, domain, remote.rkey, remote.addr, len, need);
        out.extend(piece);
        piece.is_some()
    }

    /// Puts `len` bytes from `offset` on of the memory in `sges` into `out`, as far as there are so many; whether all of
    /// it may be used so.
    pub(super) fn own_pieces(
        &self,
        domain: u32,
        sges: &[Sge],
        (offset, len): (u64, u64),
        need: Access,
        out: &mut Vec<Piece>,
    ) -> bool {
        out.clear();
        let (mut skip, mut rest) = (offset, len);
        for sge in sges {
            let length = u64::from(sge.length);
            if skip >= length {
                skip -= length;
                continue;
            }
            let now = rest.min(length - skip);
            if now == 0 {
                break;
            }
            let Some(addr) = sge.addr.checked_add(skip) else { return false };
            let Some(piece) = reach(&self.regions, Who::Owner, domain, sge.lkey, addr, now, need) else {
                return false;
            };
            out.push(piece);
            (skip, rest) = (0, rest - now);
        }
        true
    }

    /// Copies out of memory into a packet's data, `offset` being the first byte's place in a message of `total` bytes.
    pub(super) fn gather(&self, pieces: &[Piece], offset: u64, total: u64, data: &mut Vec<u8>) {
        let mut place = offset;
        for piece in pieces {
            for (begin, end) in moved(self.hole, place, piece.len, total) {
                let (at, len) = (data.len(), (end - begin) as usize);
                data.resize(at + len, 0);
                if let Some(region) = self.regions.get(piece.region) {
                    // The piece has been checked against the region.
                    let _ = region.buf.read((piece.at + begin - place) as usize, &mut data[at..]);
                }
            }
            place += piece.len;
        }
    }

    /// Copies a packet's data into memory, the other way.
    pub(super) fn scatter(&self, pieces: &[Piece], offset: u64, total: u64, data: &[u8]) {
        let (mut place, mut rest) = (offset, data);
        for piece in pieces {
            for (begin, end) in moved(self.hole, place, piece.len, total) {
                let (now, later) = rest.split_at(rest.len().min((end - begin) as usize));
                if let Some(region) = self.regions.get(piece.region) {
                    // The piece has been checked against the region.
                    let _ = region.buf.write((piece.at + begin - place) as usize, now);
                }
                rest = later;
            }
            place += piece.len;
        }
    }

    /// The place of a piece within its first page, for the translation cache.
    pub(super) fn place_in_pages(&self, piece: &Piece) -> u64 {
        // Buffers begin on pages of this size; larger ones would depend on where the process has its memory.
        const PAGE: u64 = 4096;
        self.regions.get(piece.region).map_or(0, |region| region.buf.addr() % PAGE + piece.at)
    }
}

/// The ranges between `place` and `place + len`, of a message of `total` bytes, whose bytes really move.
pub(super) fn moved(hole: bool, place: u64, len: u64, total: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = place + len;
    let (head, tail) = if hole && total > 2 * HOLE_EDGE {
        ((place, end.min(HOLE_EDGE)), (place.max(total - HOLE_EDGE), end))
    } else {
        ((place, end), (end, end))
    };
    [head, tail].into_iter().filter(|(begin, end)| begin < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_leaves_both_ends_of_a_message() {
        let all = |hole, place, len| moved(hole, place, len, 1000).collect::<Vec<_>>();
        assert_eq!(all(false, 100, 200), [(100, 300)]);
        assert_eq!(all(true, 0, 1000), [(0, 64), (936, 1000)]);
        assert_eq!(all(true, 32, 100), [(32, 64)]);
        assert_eq!(all(true, 100, 200), []);
        assert_eq!(all(true, 930, 70), [(936, 1000)]);
        assert_eq!(all(true, 100, 0), []);
        assert_eq!(moved(true, 0, 128, 128).collect::<Vec<_>>(), [(0, 128)], "nothing to leave out");
    }
}
