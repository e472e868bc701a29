//! Keys of this device's regions and of the peer's.
//!
//! A region is registered on each rail, which chooses a key of its own. Programs get one key for all: the number of an
//! entry in the upper bits, random bits in the lower ones. The entry holds the keys of the rails, in a table of the
//! protection domain that peers may read by RDMA, masked by a stream of bits derived from the whole key: a peer that
//! knows only the number of an entry learns nothing from it. A key that names no entry yields random keys, which rails
//! refuse like any wrong key.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use host::{Rng, mix};
use verbs::{Buf, Error, Result};

use crate::RAILS_MAX;

/// Entries of a table, and so regions of a device.
pub(crate) const ENTRIES: u32 = 1 << 14;
/// Minimum number of free entries before the oldest one is reused, as long as the table can grow.
const FREE_ENTRIES_MIN: usize = 256;
const RANDOM_BITS: u32 = 32 - ENTRIES.trailing_zeros();
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 4 * RAILS_MAX;

/// The keys of a region, by rail.
pub(crate) type LaneKeys = [u32; RAILS_MAX];

/// The mask of a key, for one lane.
fn mask_of(key: u32, lane: usize) -> u32 {
    mix(u64::from(key) << 8 | lane as u64 | 1 << 48) as u32
}

/// Offset of a key's entry in its table.
pub(crate) fn offset_of(key: u32) -> u64 {
    u64::from(key >> RANDOM_BITS) * ENTRY_BYTES as u64
}

/// Masks the keys of an entry with the whole key that names it; also the inverse.
fn masked(key: u32, lanes: &LaneKeys) -> LaneKeys {
    std::array::from_fn(|lane| lanes[lane] ^ mask_of(key, lane))
}

/// Unmasks an entry that was read from a peer for this key.
pub(crate) fn unmask(key: u32, entry: &[u8; ENTRY_BYTES]) -> LaneKeys {
    let lanes = std::array::from_fn(|lane| {
        u32::from_be_bytes([entry[4 * lane], entry[4 * lane + 1], entry[4 * lane + 2], entry[4 * lane + 3]])
    });
    masked(key, &lanes)
}

/// A generator with an unpredictable seed; in virtual time, the same in every run.
///
/// # Errors
/// If the system provides no random numbers.
pub(crate) fn seeded_rng(is_virtual: bool) -> Result<Rng> {
    let seed = if is_virtual {
        *b"not rand"
    } else {
        host::random().map_err(|why| Error::system("cannot make keys of several rails", why))?
    };
    Ok(Rng::new(u64::from_ne_bytes(seed)))
}

/// A region's keys for peers, on each rail.
#[derive(Clone, Copy)]
struct Entry {
    /// The key of the region, 0 in a free entry.
    key: u32,
    remote: LaneKeys,
}

const FREE: Entry = Entry { key: 0, remote: [0; RAILS_MAX] };

/// The entries as registration and deregistration see them.
struct Entries {
    all: Vec<Entry>,
    free: std::collections::VecDeque<u32>,
    random: Rng,
}

/// Number of entries in one chunk of [`Keys::local`].
const CHUNK: usize = 256;

/// This device's regions by their entries.
pub(crate) struct Keys {
    entries: Mutex<Entries>,
    /// This side's keys, for requests: a word for each lane of an entry. Its upper half is the key of the region, so a
    /// word is valid for that key alone, whatever concurrent writers do.
    local: [OnceLock<Box<[AtomicU64]>>; ENTRIES as usize / CHUNK],
}

impl Keys {
    pub(crate) fn new(random: Rng) -> Self {
        let entries = Entries { all: Vec::new(), free: std::collections::VecDeque::new(), random };
        Self { entries: Mutex::new(entries), local: [const { OnceLock::new() }; _] }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // No holder of this lock can panic in the middle of a change.
        self.entries.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Allocates a key for a region with these lane keys, and writes its entry into the table. `None` if all entries
    /// are used.
    pub(crate) fn insert(&self, remote: LaneKeys, local: LaneKeys, table: &Buf) -> Option<Result<u32>> {
        let mut entries = self.entries();
        // Keys of one entry differ only in their random bits, so a small number of entries would soon repeat a key.
        let reuses = entries.free.len() >= FREE_ENTRIES_MIN || entries.all.len() as u32 == ENTRIES;
        let entry = match if reuses { entries.free.pop_front() } else { None } {
            Some(entry) => entry,
            None if (entries.all.len() as u32) < ENTRIES => {
                entries.all.push(FREE);
                entries.all.len() as u32 - 1
            }
            None => return None,
        };
        // Never zero and never all ones, which uninitialized keys typically are.
        let random = 1 + (entries.random.next_u64() % ((1 << RANDOM_BITS) - 2)) as u32;
        let key = entry << RANDOM_BITS | random;
        entries.all[entry as usize] = Entry { key, remote };
        self.set_local(key, |lane| u64::from(key) << 32 | u64::from(local[lane]));
        Some(publish(key, &remote, table).map(|()| key))
    }

    /// Invalidates a key; its entry is reused as late as possible.
    pub(crate) fn remove(&self, key: u32, table: &Buf) {
        let (mut entries, entry) = (self.entries(), key >> RANDOM_BITS);
        if let Some(place) = entries.all.get_mut(entry as usize).filter(|e| e.key == key) {
            *place = FREE;
            self.set_local(key, |_| 0);
            entries.free.push_back(entry);
            let noise: LaneKeys = std::array::from_fn(|_| entries.random.next_u64() as u32);
            // The entry is inside the table.
            let _ = publish(key, &noise, table);
        }
    }

    fn set_local(&self, key: u32, word: impl Fn(usize) -> u64) {
        let entry = (key >> RANDOM_BITS) as usize;
        let chunk = self.local[entry / CHUNK]
            .get_or_init(|| (0..CHUNK * RAILS_MAX).map(|_| AtomicU64::new(0)).collect());
        for lane in 0..RAILS_MAX {
            chunk[entry % CHUNK * RAILS_MAX + lane].store(word(lane), Ordering::Relaxed);
        }
    }

    /// This side's key of a region on a lane.
    #[inline]
    pub(crate) fn get(&self, key: u32, lane: usize) -> Option<u32> {
        let entry = (key >> RANDOM_BITS) as usize;
        let chunk = self.local[entry / CHUNK].get()?;
        let word = chunk[entry % CHUNK * RAILS_MAX + lane].load(Ordering::Relaxed);
        (word >> 32 == u64::from(key) && key != 0).then_some(word as u32)
    }

    /// The key of the region that has this remote key on a rail.
    pub(crate) fn find(&self, lane: usize, lane_key: u32) -> Option<u32> {
        self.entries().all.iter().find(|e| e.key != 0 && e.remote[lane] == lane_key).map(|e| e.key)
    }
}

fn publish(key: u32, lanes: &LaneKeys, table: &Buf) -> Result<()> {
    let mut bytes = [0; ENTRY_BYTES];
    for (place, word) in bytes.chunks_exact_mut(4).zip(masked(key, lanes)) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    table.write(offset_of(key) as usize, &bytes)
}

/// Number of the peer's keys that are cached.
const CACHED_KEYS: usize = 64;

/// A cache of the peer's keys and their lane keys.
pub(crate) struct PeerKeyCache([(u32, LaneKeys); CACHED_KEYS]);

impl PeerKeyCache {
    pub(crate) fn new() -> Self {
        Self([(0, [0; RAILS_MAX]); CACHED_KEYS])
    }

    fn slot_index(key: u32) -> usize {
        (key >> RANDOM_BITS) as usize % CACHED_KEYS
    }

    #[inline]
    pub(crate) fn get(&self, key: u32) -> Option<&LaneKeys> {
        let (cached, lanes) = &self.0[Self::slot_index(key)];
        (*cached == key && key != 0).then_some(lanes)
    }

    pub(crate) fn insert(&mut self, key: u32, lanes: LaneKeys) {
        self.0[Self::slot_index(key)] = (key, lanes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Buf {
        Buf::alloc(ENTRIES as usize * ENTRY_BYTES).expect("memory")
    }

    fn entry(table: &Buf, key: u32) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        table.read(offset_of(key) as usize, &mut bytes).expect("inside");
        bytes
    }

    #[test]
    fn entry_is_readable_with_its_key_only() {
        let (keys, table) = (Keys::new(seeded_rng(true).expect("a seed")), table());
        let lanes = std::array::from_fn(|lane| 100 + lane as u32);
        let key = keys.insert(lanes, lanes, &table).expect("room").expect("written");
        assert_eq!(unmask(key, &entry(&table, key)), lanes);
        assert!((0..RAILS_MAX).all(|lane| keys.get(key, lane) == Some(lanes[lane])));
        assert_eq!(keys.find(3, 103), Some(key));
        assert_eq!(keys.find(2, 103), None);
        let near = key ^ 1;
        assert!(unmask(near, &entry(&table, near)).iter().zip(lanes).all(|(a, b)| *a != b));
        assert_eq!(keys.get(near, 3), None);
        assert_eq!(keys.get(!0, 0), None);
    }

    #[test]
    fn removed_key_is_invalid_and_its_entry_reused_late() {
        let (keys, table) = (Keys::new(seeded_rng(true).expect("a seed")), table());
        let lanes = [7; RAILS_MAX];
        let all: Vec<u32> =
            (0..ENTRIES).map(|_| keys.insert(lanes, lanes, &table).expect("room").expect("a key")).collect();
        assert!(keys.insert(lanes, lanes, &table).is_none(), "all are taken");
        assert!(all.iter().all(|key| ![0, !0].contains(key)));
        keys.remove(all[5], &table);
        keys.remove(all[6], &table);
        keys.remove(all[6], &table);
        assert_eq!(keys.get(all[5], 0), None);
        assert!(unmask(all[5], &entry(&table, all[5])).iter().all(|&key| key != 7));
        let next = keys.insert(lanes, lanes, &table).expect("room").expect("a key");
        assert_eq!(next >> RANDOM_BITS, 5);
        assert_ne!(next, all[5]);
    }

    #[test]
    fn cached_key_is_found_until_replaced() {
        let mut cached = PeerKeyCache::new();
        let (one, other) = (5 << RANDOM_BITS | 1, (5 + CACHED_KEYS as u32) << RANDOM_BITS | 1);
        assert!(cached.get(0).is_none() && cached.get(one).is_none());
        cached.insert(one, [1; RAILS_MAX]);
        assert_eq!(cached.get(one), Some(&[1; RAILS_MAX]));
        cached.insert(other, [2; RAILS_MAX]);
        assert!(cached.get(one).is_none());
    }
}
