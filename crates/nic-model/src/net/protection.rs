//! [`Protection`]: which memory requests may access, and all copies between it and packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use verbs::{Access, Buf, Error, MemoryKind, RemoteAddr, Result, Sge, WcStatus};

use super::slab::Slab;
use crate::config::Payload;

/// Bytes at either end of a message that are copied in spite of a hole.
const HOLE_EDGE: u64 = 64;
/// NIC memory is allocated in multiples of this.
const NIC_ALIGN: u64 = 4096;

/// A part of a registered region that requests may access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(super) region: u32,
    /// Its offset in the region.
    at: u64,
    pub(super) len: u64,
    pub(super) kind: MemoryKind,
}

impl Extent {
    /// Its offset in the region.
    pub(super) fn region_offset(&self) -> u64 {
        self.at
    }
}

/// A memory region.
struct Region {
    card: usize,
    domain: u32,
    buf: Buf,
    /// The address of its first byte in requests.
    base: u64,
    access: Access,
    /// A peer has invalidated its remote key.
    invalidated: bool,
}

/// Allocated NIC memory, while its owner is alive.
struct NicBuffer {
    context: u32,
    card: usize,
    len: u64,
    owner: Weak<dyn Send + Sync>,
}

/// Which side accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accessor {
    Owner,
    Peer,
}

/// The tables of regions and of NIC memory of all cards.
pub(crate) struct Protection {
    regions: Slab<Region>,
    /// NIC memory by its address in this process.
    nic_buffers: BTreeMap<u64, NicBuffer>,
    nic_bytes: u64,
    last_domain: u32,
    payload: Payload,
}

impl Protection {
    /// Empty tables for cards with `nic_bytes` bytes of NIC memory.
    pub(crate) fn new(nic_bytes: u64, payload: Payload) -> Self {
        Self { regions: Slab::default(), nic_buffers: BTreeMap::new(), nic_bytes, last_domain: 0, payload }
    }

    /// Creates a protection domain.
    pub(crate) fn domain(&mut self) -> u32 {
        self.last_domain += 1;
        self.last_domain
    }

    /// Allocates NIC memory of a card.
    pub(super) fn alloc_dm(&mut self, context: u32, card: usize, len: usize) -> Result<Buf> {
        self.nic_buffers.retain(|_, buffer| buffer.owner.strong_count() > 0);
        let own = self.nic_buffers.values().filter(|buffer| buffer.card == card);
        let used: u64 = own.map(|buffer| buffer.len).sum();
        Error::check_limit("bytes of NIC memory", len as u64, self.nic_bytes.saturating_sub(used))?;
        let buf = Buf::alloc_nic(len, used.next_multiple_of(NIC_ALIGN))?;
        let owner = Arc::downgrade(&buf.owner());
        self.nic_buffers.insert(buf.addr(), NicBuffer { context, card, len: len as u64, owner });
        Ok(buf)
    }

    /// Registers memory; returns its key, and its address in requests.
    pub(crate) fn register(
        &mut self,
        (context, card): (u32, usize),
        domain: u32,
        buf: &Buf,
        access: Access,
    ) -> Result<(u32, u64)> {
        if buf.kind() == MemoryKind::Nic {
            let below = self.nic_buffers.range(..=buf.addr()).next_back();
            let own = below.is_some_and(|(start, buffer)| {
                buffer.context == context
                    && buf.addr() - start < buffer.len
                    && buffer.owner.strong_count() > 0
            });
            if !own {
                return Err(Error::Foreign { what: "the NIC memory" });
            }
        }
        let base = if buf.kind() == MemoryKind::Nic { 0 } else { buf.addr() };
        let region = Region { card, domain, buf: buf.clone(), base, access, invalidated: false };
        Ok((self.regions.insert(region), base))
    }

    /// Removes a region; returns the card that it was registered with.
    pub(crate) fn deregister(&mut self, key: u32) -> Option<usize> {
        self.regions.remove(key).map(|region| region.card)
    }

    fn find_extent(
        &self,
        accessor: Accessor,
        domain: u32,
        key: u32,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Option<Extent> {
        let region = self.regions.get(key)?;
        let open = accessor == Accessor::Owner || !region.invalidated;
        let at = addr.checked_sub(region.base)?;
        let inside = at.checked_add(len)? <= region.buf.len() as u64;
        let found = region.domain == domain && open && region.access.contains(need) && inside;
        found.then(|| Extent { region: key, at, len, kind: region.buf.kind() })
    }

    /// Whether these SGEs permit this access. Empty ones are not checked.
    pub(super) fn may_use(&self, domain: u32, sges: &[Sge], need: Access) -> bool {
        self.may_use_first(domain, sges, u64::MAX, need)
    }

    /// Whether the first `len` bytes of these SGEs, or all if there are fewer, permit this access.
    pub(super) fn may_use_first(&self, domain: u32, sges: &[Sge], len: u64, need: Access) -> bool {
        let mut rest = len;
        sges.iter().all(|sge| {
            let now = rest.min(sge.length.into());
            rest -= now;
            now == 0 || self.find_extent(Accessor::Owner, domain, sge.lkey, sge.addr, now, need).is_some()
        })
    }

    /// Whether a peer may access this memory so. Empty ranges are not checked.
    pub(super) fn peer_may_use(&self, domain: u32, remote: RemoteAddr, len: u64, need: Access) -> bool {
        len == 0 || self.find_extent(Accessor::Peer, domain, remote.rkey, remote.addr, len, need).is_some()
    }

    /// Puts the memory that a peer names into `out`, if the peer may access it so.
    pub(super) fn peer_extents(
        &self,
        domain: u32,
        remote: RemoteAddr,
        len: u64,
        need: Access,
        out: &mut Vec<Extent>,
    ) -> bool {
        out.clear();
        if len == 0 {
            return true;
        }
        let extent = self.find_extent(Accessor::Peer, domain, remote.rkey, remote.addr, len, need);
        out.extend(extent);
        extent.is_some()
    }

    /// Puts `len` bytes from `offset` on of the memory in `sges` into `out`, as far as they go; returns
    /// whether all of it permits this access.
    pub(crate) fn own_extents(
        &self,
        domain: u32,
        sges: &[Sge],
        (offset, len): (u64, u64),
        need: Access,
        out: &mut Vec<Extent>,
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
            let Some(extent) = self.find_extent(Accessor::Owner, domain, sge.lkey, addr, now, need) else {
                return false;
            };
            out.push(extent);
            (skip, rest) = (0, rest - now);
        }
        true
    }

    /// Invalidates a region of this domain for its peers; returns whether it was valid for them.
    pub(super) fn invalidate(&mut self, domain: u32, key: u32) -> bool {
        let region = self.regions.get_mut(key).filter(|r| r.domain == domain && !r.invalidated);
        region.map(|region| region.invalidated = true).is_some()
    }

    /// Appends the contents of memory to a packet's data; `offset` is the position of the first byte in a
    /// message of `total` bytes.
    pub(crate) fn gather(&self, extents: &[Extent], offset: u64, total: u64, data: &mut Vec<u8>) {
        let mut begins = offset;
        for extent in extents {
            for (begin, end) in moved(self.payload, begins, extent.len, total) {
                let (at, len) = (data.len(), (end - begin) as usize);
                data.resize(at + len, 0);
                if let Some(region) = self.regions.get(extent.region) {
                    // The extent was checked against the region. Memory that the program has unmapped reads
                    // as zeros: the modelled card has pinned its pages, which no one else can see any more.
                    let _ = region.buf.read((extent.at + begin - begins) as usize, &mut data[at..]);
                }
            }
            begins += extent.len;
        }
    }

    /// Appends inline data of a request to a packet's data: `len` bytes from `offset` on, of `total`.
    pub(super) fn gather_inline(
        &self,
        inline: &[u8],
        (offset, len, total): (u64, u64, u64),
        data: &mut Vec<u8>,
    ) {
        for (begin, end) in moved(self.payload, offset, len, total) {
            data.extend_from_slice(inline.get(begin as usize..end as usize).unwrap_or(&[]));
        }
    }

    /// Copies a packet's data into memory: the reverse of [`Protection::gather`].
    pub(crate) fn scatter(&self, extents: &[Extent], offset: u64, total: u64, data: &[u8]) {
        let (mut begins, mut rest) = (offset, data);
        for extent in extents {
            for (begin, end) in moved(self.payload, begins, extent.len, total) {
                let (now, later) = rest.split_at(rest.len().min((end - begin) as usize));
                if let Some(region) = self.regions.get(extent.region) {
                    // The extent was checked against the region; as in `gather`.
                    let _ = region.buf.write((extent.at + begin - begins) as usize, now);
                }
                rest = later;
            }
            begins += extent.len;
        }
    }

    /// Changes the word at the start of an extent atomically; returns its old value. An aligned address may
    /// be unaligned in memory, if its region is zero-based ([`WcStatus::RemInvReqErr`]), and a program may
    /// have unmapped the memory.
    pub(super) fn change_word(&self, extent: &Extent, change: impl Fn(u64) -> u64) -> Result<u64, WcStatus> {
        let region = self.regions.get(extent.region).ok_or(WcStatus::RemAccessErr)?;
        region.buf.update_word(extent.at as usize, change).map_err(|why| match why {
            Error::Memory { .. } => WcStatus::RemAccessErr,
            _ => WcStatus::RemInvReqErr,
        })
    }

    /// The offset of an extent relative to the pages of its region, for the translation cache.
    pub(super) fn offset_in_pages(&self, extent: &Extent) -> u64 {
        // Buffers begin on pages of this size; larger pages would depend on where the process has its memory.
        const PAGE: u64 = 4096;
        self.regions.get(extent.region).map_or(0, |region| region.buf.addr() % PAGE + extent.at)
    }
}

/// The ranges between `begin` and `begin + len`, of a message of `total` bytes, whose bytes are copied.
fn moved(payload: Payload, begin: u64, len: u64, total: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = begin + len;
    let (head, tail) = if payload == Payload::Hole && total > 2 * HOLE_EDGE {
        ((begin, end.min(HOLE_EDGE)), (begin.max(total - HOLE_EDGE), end))
    } else {
        ((begin, end), (end, end))
    };
    [head, tail].into_iter().filter(|(begin, end)| begin < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hole_payload_copies_both_ends_of_a_message() {
        let all = |payload, begin, len| moved(payload, begin, len, 1000).collect::<Vec<_>>();
        assert_eq!(all(Payload::Bytes, 100, 200), [(100, 300)]);
        assert_eq!(all(Payload::Hole, 0, 1000), [(0, 64), (936, 1000)]);
        assert_eq!(all(Payload::Hole, 32, 100), [(32, 64)]);
        assert_eq!(all(Payload::Hole, 100, 200), []);
        assert_eq!(all(Payload::Hole, 930, 70), [(936, 1000)]);
        assert_eq!(all(Payload::Hole, 100, 0), []);
        assert_eq!(moved(Payload::Hole, 0, 128, 128).collect::<Vec<_>>(), [(0, 128)], "nothing to leave out");
    }

    /// A table with one region of domain 1, and an SGE of all of it.
    fn table() -> (Protection, Buf, Sge) {
        let (mut table, buf) = (Protection::new(0, Payload::Bytes), Buf::alloc(4096).expect("memory"));
        let (key, base) = table.register((1, 0), 1, &buf, Access::REMOTE_WRITE).expect("a region");
        (table, buf, Sge { addr: base, length: 4096, lkey: key })
    }

    #[test]
    fn access_needs_rights_for_peers_and_the_domain_for_owners() {
        let (mut table, _buf, sge) = table();
        let at = |offset| RemoteAddr { addr: sge.addr + offset, rkey: sge.lkey };
        let write = Access::REMOTE_WRITE;
        assert!(table.peer_may_use(1, at(0), 4096, write) && table.may_use(1, &[sge], Access::empty()));
        assert!(!table.peer_may_use(2, at(0), 4096, write), "another domain");
        assert!(!table.peer_may_use(1, at(1), 4096, write), "a byte beyond");
        assert!(!table.peer_may_use(1, at(u64::MAX - sge.addr), 2, write), "around the end of all addresses");
        assert!(!table.peer_may_use(1, at(0), 1, Access::REMOTE_READ), "another right");
        assert!(table.peer_may_use(1, at(9999), 0, Access::REMOTE_READ), "nothing is everywhere");
        assert!(table.invalidate(1, sge.lkey) && !table.invalidate(1, sge.lkey));
        assert!(!table.peer_may_use(1, at(0), 1, write) && table.may_use(1, &[sge], Access::empty()));
        assert_eq!((table.deregister(sge.lkey), table.deregister(sge.lkey)), (Some(0), None));
        assert!(!table.may_use(1, &[sge], Access::empty()));
    }

    #[test]
    fn ranges_of_a_request_are_found_across_its_sges() {
        let (table, buf, sge) = table();
        let part = |at: u64, length| Sge { addr: sge.addr + at, length, ..sge };
        let (sges, mut extents) = ([part(0, 10), part(100, 0), part(200, 10)], Vec::new());
        buf.write(0, &[1; 10]).expect("inside");
        buf.write(200, &[2; 10]).expect("inside");
        assert!(table.own_extents(1, &sges, (8, 4), Access::empty(), &mut extents));
        let mut data = vec![9];
        table.gather(&extents, 8, 20, &mut data);
        assert_eq!(data, [9, 1, 1, 2, 2]);
        table.scatter(&extents, 8, 20, &[5, 6, 7, 8]);
        assert_eq!((buf.to_vec(8..10), buf.to_vec(200..202)), (Ok(vec![5, 6]), Ok(vec![7, 8])));
        assert!(!table.own_extents(2, &sges, (8, 4), Access::empty(), &mut extents), "another domain");
    }
}
