//! [`Slab`]: a table whose keys are not reused soon.

use std::collections::VecDeque;

/// Bits of a key that hold the generation of its slot.
const LIFE_BITS: u32 = 8;

/// A table. A key consists of a slot and, in its low bits, a generation: the key of a removed item finds
/// nothing until its slot was filled 255 more times. Free slots are reused in FIFO order.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: VecDeque<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: VecDeque::new() }
    }
}

impl<T> Slab<T> {
    /// Adds an item; returns its key, which is never 0.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let slot = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (life, content) = &mut self.slots[slot as usize];
        *life = *life % ((1 << LIFE_BITS) - 1) + 1;
        *content = Some(item);
        slot << LIFE_BITS | *life
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        let (life, content) = self.slots.get((key >> LIFE_BITS) as usize)?;
        content.as_ref().filter(|_| *life == key & ((1 << LIFE_BITS) - 1))
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        let (life, content) = self.slots.get_mut((key >> LIFE_BITS) as usize)?;
        content.as_mut().filter(|_| *life == key & ((1 << LIFE_BITS) - 1))
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        self.get(key)?;
        let slot = key >> LIFE_BITS;
        self.free.push_back(slot);
        self.slots[slot as usize].1.take()
    }

    /// All items with their keys, ordered by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(slot, (life, item))| Some(((slot as u32) << LIFE_BITS | life, item.as_ref()?)))
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
