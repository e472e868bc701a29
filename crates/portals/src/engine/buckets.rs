//! [`Buckets`]: chains by key; empty chains use no memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::engine::chain::{Chain, Links};

/// Non-empty chains by key.
#[derive(Debug)]
pub(crate) struct Buckets<K>(HashMap<K, Chain, BuildHasherDefault<Mixer>>);

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Hash + Eq + Copy> Buckets<K> {
    /// Whether there is no chain.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The chain of a key.
    #[inline]
    pub(crate) fn get(&self, key: K) -> Chain {
        self.0.get(&key).copied().unwrap_or_default()
    }

    /// Appends a place to the chain of a key.
    pub(crate) fn push<const N: usize>(&mut self, links: &mut Links<N>, which: usize, key: K, place: u32) {
        links.push(which, self.0.entry(key).or_default(), place);
    }

    /// Removes a place from the chain of a key.
    pub(crate) fn remove<const N: usize>(&mut self, links: &mut Links<N>, which: usize, key: K, place: u32) {
        let Some(chain) = self.0.get_mut(&key) else { return };
        links.remove(which, chain, place);
        if chain.is_empty() {
            self.0.remove(&key);
        }
    }
}

/// A fixed hasher for keys of a few words, so that runs repeat. The keys come from processes of one job,
/// which trust each other.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        // Fold both halves of a product with an odd constant: each bit of the word affects each bit of the
        // hash.
        let product = u128::from(self.0 ^ word ^ 0x5851_f42d_4c95_7f2d) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_by_key_and_in_order() {
        let (mut links, mut buckets) = (Links::<1>::default(), Buckets::<(u64, u32)>::default());
        for place in 0..100 {
            buckets.push(&mut links, 0, (u64::from(place) % 7, place % 2), place);
        }
        let chain =
            |buckets: &Buckets<_>, links: &Links<1>, key| links.iter(0, buckets.get(key)).collect::<Vec<_>>();
        let want =
            |key: (u64, u32)| (0..100).filter(|n| (u64::from(n % 7), n % 2) == key).collect::<Vec<_>>();
        assert_eq!(chain(&buckets, &links, (3, 1)), want((3, 1)));
        for place in want((3, 1)) {
            buckets.remove(&mut links, 0, (3, 1), place);
        }
        assert_eq!((chain(&buckets, &links, (3, 1)), buckets.0.len()), (vec![], 13));
        assert_eq!(chain(&buckets, &links, (3, 0)), want((3, 0)));
    }

    /// Goal: typical keys do not collide. Method: hash words that differ in one range of bits, low or high,
    /// and compare the bits that the map uses.
    #[test]
    fn near_keys_are_spread() {
        let hash = |word: u64| {
            let mut mixer = Mixer::default();
            mixer.write_u64(word);
            mixer.finish()
        };
        for shift in [0, 12, 24, 40, 54] {
            let low: std::collections::BTreeSet<u64> = (0..1024).map(|n| hash(n << shift) & 1023).collect();
            assert!(low.len() > 512, "{} of 1024 at shift {shift}", low.len());
        }
    }
}
