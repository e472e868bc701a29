//! [`Slab`]: a table whose keys have 32 bits and are not reused soon.

use host::{SlotKey, SlotTable};

/// Bits of a key that hold the generation of its slot.
const GENERATION_BITS: u32 = 8;
const GENERATIONS: u32 = (1 << GENERATION_BITS) - 1;

/// A table. A key consists of a slot and, in its low bits, a generation: the key of a removed item finds
/// nothing until its slot was filled 255 more times. Free slots are reused in FIFO order.
#[derive(Debug)]
pub(crate) struct Slab<T>(SlotTable<T, GENERATIONS, 1>);

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self(SlotTable::default())
    }
}

const fn key_of(slot: SlotKey) -> u32 {
    slot.slot() << GENERATION_BITS | slot.generation()
}

const fn slot_of(key: u32) -> SlotKey {
    SlotKey::new(key >> GENERATION_BITS, key & GENERATIONS)
}

impl<T> Slab<T> {
    /// Adds an item; returns its key, which is never 0.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        key_of(self.0.insert(item))
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        self.0.get(slot_of(key))
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.0.get_mut(slot_of(key))
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        self.0.remove(slot_of(key))
    }

    /// All items with their keys, ordered by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.0.iter().map(|(slot, item)| (key_of(slot), item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_of_a_removed_key_is_none() {
        let mut slab = Slab::default();
        let mut keys = vec![];
        for i in 0..600 {
            let key = slab.insert(i);
            assert_eq!(slab.get(key), Some(&i));
            assert_eq!(slab.remove(key), Some(i));
            assert!(slab.get(key).is_none() && slab.get_mut(key).is_none());
            assert!(slab.remove(key).is_none());
            keys.push(key);
        }
        assert!(!keys.contains(&0));
        assert_eq!(keys[..255].iter().collect::<std::collections::BTreeSet<_>>().len(), 255);
        assert_eq!(slab.iter().count(), 0);
    }

    #[test]
    fn iter_yields_items_in_slot_order() {
        let mut slab = Slab::default();
        let keys: Vec<u32> = (0..3).map(|i| slab.insert(i)).collect();
        slab.remove(keys[1]);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(keys[0], &0), (keys[2], &2)]);
    }
}
