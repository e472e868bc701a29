//! [`SlotTable`]: values by key, where the key of a removed value stays invalid until its slot has been reused many
//! times.

use std::ops::{Index, IndexMut};

use crate::prefetch::prefetch;

/// The key of a value in a [`SlotTable`]: its slot, and the generation of that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotKey(u64);

impl SlotKey {
    /// The key with these parts, which need not belong to a value.
    #[inline]
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | slot as u64)
    }

    /// The key as a number: the slot in the lower 32 bits, the generation above. A generation is never 0, so a key's
    /// number never equals a slot's.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The key with this number, which need not belong to a value.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The slot: a small number, which another value may have later.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// The generation of the slot, starting with 1.
    #[inline]
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[derive(Debug)]
struct Slot<T> {
    /// The generation of the value, or of the next one.
    generation: u32,
    /// The next slot in the list of free slots.
    next_free: u32,
    value: Option<T>,
}

/// Values by [`SlotKey`], for one thread.
///
/// The generations of a slot are 1 to `GENERATIONS` (at least 2), and then 1 again. With `RESTING` of 0 the free slots
/// are a stack: the next value gets the slot freed last, which is in the cache. Otherwise they are a queue of at least
/// `RESTING` slots: a key becomes valid again after about `RESTING * GENERATIONS` other keys.
///
/// Keys are checked, so they may come from a program or a peer. Threads that share objects by handle use `Table` of the
/// crate `ffi` instead, which counts references.
#[derive(Debug)]
pub struct SlotTable<T, const GENERATIONS: u32, const RESTING: u32 = 0> {
    slots: Vec<Slot<T>>,
    /// The free slots form a list through the slots themselves. Both ends are valid only if it is not empty.
    first_free: u32,
    last_free: u32,
    free: u32,
}

impl<T, const GENERATIONS: u32, const RESTING: u32> Default for SlotTable<T, GENERATIONS, RESTING> {
    fn default() -> Self {
        const { assert!(GENERATIONS >= 2) };
        Self { slots: Vec::new(), first_free: 0, last_free: 0, free: 0 }
    }
}

impl<T, const GENERATIONS: u32, const RESTING: u32> SlotTable<T, GENERATIONS, RESTING> {
    /// The number of values.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free as usize
    }

    /// Whether there is no value.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores a value; returns its key.
    ///
    /// # Panics
    /// If there are 2^32 values.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> SlotKey {
        self.insert_with(|| value)
    }

    /// As [`SlotTable::insert`], for a value that is constructed in place.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> SlotKey {
        let index = if self.free > RESTING { self.take_free() } else { self.grow() };
        let slot = &mut self.slots[index as usize];
        // A free slot holds nothing to drop.
        std::mem::forget(slot.value.replace(make()));
        SlotKey::new(index, slot.generation)
    }

    /// The key that [`SlotTable::insert`] returns next; `None` if all of `most` slots are in use.
    #[must_use]
    pub fn vacancy(&self, most: u32) -> Option<SlotKey> {
        if self.free > RESTING {
            return Some(SlotKey::new(self.first_free, self.slots[self.first_free as usize].generation));
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index < most)?;
        Some(SlotKey::new(index, 1))
    }

    #[inline(always)]
    fn take_free(&mut self) -> u32 {
        let index = self.first_free;
        self.first_free = self.slots[index as usize].next_free;
        self.free -= 1;
        index
    }

    /// Adds a slot. Capacity grows by a quarter: in a job of thousands of ranks, the spare half of a doubled table of
    /// connections would be a tenth of all memory.
    #[cold]
    fn grow(&mut self) -> u32 {
        let len = self.slots.len();
        let index = u32::try_from(len).expect("a table of 2^32 values does not fit into memory");
        if len == self.slots.capacity() {
            self.slots.reserve_exact(len / 4 + 2);
        }
        self.slots.push(Slot { generation: 1, next_free: 0, value: None });
        index
    }

    /// Adds a slot to the free slots, after its value was taken.
    #[inline(always)]
    fn set_free(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = if slot.generation == GENERATIONS { 1 } else { slot.generation + 1 };
        if RESTING == 0 {
            slot.next_free = std::mem::replace(&mut self.first_free, index);
        } else if self.free == 0 {
            (self.first_free, self.last_free) = (index, index);
        } else {
            self.slots[self.last_free as usize].next_free = index;
            self.last_free = index;
        }
        self.free += 1;
    }

    /// The value with this key.
    #[inline]
    #[must_use]
    pub fn get(&self, key: SlotKey) -> Option<&T> {
        let slot = self.slots.get(key.slot() as usize)?;
        if slot.generation == key.generation() { slot.value.as_ref() } else { None }
    }

    /// As [`SlotTable::get`], but mutable.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot() as usize)?;
        if slot.generation == key.generation() { slot.value.as_mut() } else { None }
    }

    /// Removes the value with this key.
    #[inline]
    pub fn remove(&mut self, key: SlotKey) -> Option<T> {
        self.get_mut(key)?;
        let value = self.slots[key.slot() as usize].value.take();
        self.set_free(key.slot());
        value
    }

    /// Removes the value with this key after `take` has moved its content out, unless `take` returns `None`. The rest
    /// of the value is not dropped, which saves checking its fields.
    #[inline(always)]
    pub fn take_with<R>(&mut self, key: SlotKey, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let taken = take(self.get_mut(key)?)?;
        std::mem::forget(self.slots[key.slot() as usize].value.take());
        self.set_free(key.slot());
        Some(taken)
    }

    /// The value in a slot, if there is one.
    #[inline]
    #[must_use]
    pub fn get_slot(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    /// As [`SlotTable::get_slot`], but mutable.
    #[inline]
    #[must_use]
    pub fn get_slot_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// The key of the value in a slot, if there is one.
    #[inline]
    #[must_use]
    pub fn key_at(&self, slot: u32) -> Option<SlotKey> {
        let at = self.slots.get(slot as usize).filter(|at| at.value.is_some())?;
        Some(SlotKey::new(slot, at.generation))
    }

    /// Prefetches all cache lines of a slot.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        let at = self.slots.as_ptr().addr() + slot as usize * size_of::<Slot<T>>();
        prefetch(at, size_of::<Slot<T>>().div_ceil(64));
    }

    /// All values with their keys, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (SlotKey, &T)> {
        let keyed = |(index, slot): (usize, &Slot<T>)| SlotKey::new(index as u32, slot.generation);
        let slots = self.slots.iter().enumerate();
        slots.filter_map(move |(index, slot)| Some((keyed((index, slot)), slot.value.as_ref()?)))
    }

    /// All values, mutable, in the order of the slots.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }
}

/// The value in a slot.
///
/// # Panics
/// If the slot is free.
impl<T, const GENERATIONS: u32, const RESTING: u32> Index<u32> for SlotTable<T, GENERATIONS, RESTING> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        self.slots[slot as usize].value.as_ref().expect(IN_USE)
    }
}

/// The value in a slot, mutable.
///
/// # Panics
/// If the slot is free.
impl<T, const GENERATIONS: u32, const RESTING: u32> IndexMut<u32> for SlotTable<T, GENERATIONS, RESTING> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        self.slots[slot as usize].value.as_mut().expect(IN_USE)
    }
}

/// The reason why a slot by which a caller finds a value is in use.
const IN_USE: &str = "the caller keeps a value in each slot that it remembers";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Goal: a key names its value until that is removed, and no other value. Method: both orders of reusing slots.
    fn keys_of_removed_values_are_invalid<const RESTING: u32>() {
        let mut table = SlotTable::<_, 9, RESTING>::default();
        assert_eq!((table.vacancy(0), table.is_empty()), (None, true));
        let (next, a, b) = (table.vacancy(1), table.insert('a'), table.insert('b'));
        assert_eq!(next, Some(a));
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!((table.remove(a), table.get(a)), (None, None));
        assert_eq!(table.get_mut(a), None);
        assert_eq!((table.get(b), table[b.slot()], table.key_at(b.slot())), (Some(&'b'), 'b', Some(b)));
        assert_eq!((table.key_at(a.slot()), table.len()), (None, 1));
        assert_eq!((table.get_slot(a.slot()), table.get_slot(b.slot())), (None, Some(&'b')));
        assert_eq!(table.get_slot_mut(a.slot()), None);
        assert_eq!(table.get(SlotKey::from_number(b.number())), Some(&'b'));
        for nobodys in [0, 1, 7, u64::from(b.generation() + 1) << 32 | 1, 1 << 32 | 2, u64::MAX] {
            assert_eq!(table.get(SlotKey::from_number(nobodys)), None);
            assert_eq!(table.remove(SlotKey::from_number(nobodys)), None);
        }
        let next = table.vacancy(3);
        let c = table.insert('c');
        assert_eq!(next, Some(c));
        assert_eq!(c.slot() == a.slot(), RESTING == 0, "a slot that was freed just now");
        *table.values_mut().next().expect("a value") = 'd';
        assert_eq!(table.iter().map(|(_, value)| *value).filter(|value| *value == 'd').count(), 1);
        assert_eq!(table.iter().map(|(key, _)| key).filter(|key| [b, c].contains(key)).count(), 2);
    }

    #[test]
    fn keys_of_removed_values_are_invalid_when_slots_rest() {
        keys_of_removed_values_are_invalid::<2>();
    }

    #[test]
    fn keys_of_removed_values_are_invalid_when_the_last_slot_is_used_first() {
        keys_of_removed_values_are_invalid::<0>();
    }

    /// Goal: `take_with` drops only what it returns, and a value stays if nothing is taken out. Method: values that
    /// count their references.
    #[test]
    fn take_with_drops_only_what_it_returns() {
        let (mut table, held) = (SlotTable::<_, 3>::default(), Arc::new(()));
        let key = table.insert_with(|| Some(held.clone()));
        assert_eq!(table.take_with(key, |_| None::<()>), None);
        assert_eq!((Arc::strong_count(&held), table.key_at(0)), (2, Some(key)));
        drop(table.take_with(key, Option::take).expect("there"));
        assert_eq!((Arc::strong_count(&held), table.key_at(0)), (1, None));
        assert!(table.take_with(key, Option::take).is_none(), "the key is invalid now");
    }

    #[test]
    fn generations_restart_at_1() {
        let mut table = SlotTable::<_, 3>::default();
        let generations = (0..5).map(|value| {
            let key = table.insert(value);
            assert_eq!(table.remove(key), Some(value));
            key.generation()
        });
        assert_eq!(generations.collect::<Vec<_>>(), [1, 2, 3, 1, 2]);
    }

    /// Goal: resting slots keep a key invalid for a long time, and are reused. Method: the number of insertions that
    /// the table promises.
    #[test]
    fn resting_slots_keep_keys_invalid_for_long() {
        const GENERATIONS: u32 = 20;
        const RESTING: u32 = 16;
        let mut table = SlotTable::<_, GENERATIONS, RESTING>::default();
        let first = table.insert(0);
        table.remove(first);
        for number in 1..GENERATIONS * RESTING {
            let key = table.insert(number);
            assert_ne!(key, first, "after {number}");
            assert_eq!(table.remove(key), Some(number));
        }
        assert!(table.slots.len() <= RESTING as usize + 1 && table.is_empty());
    }

    /// Goal: the table behaves as a map, whatever the order of calls. Method: random calls on the table and on a map of
    /// the standard library.
    #[test]
    fn random_calls_find_what_a_map_finds() {
        fn run<const RESTING: u32>() {
            let (mut rng, mut table) = (crate::Rng::new(7), SlotTable::<u64, 5, RESTING>::default());
            let mut model = std::collections::BTreeMap::new();
            for value in 0..20_000 {
                if rng.one_in(2) {
                    assert_eq!(model.insert(table.insert(value), value), None, "a key twice");
                } else if let Some(key) = model.keys().nth(rng.next_u64() as usize % 50).copied() {
                    assert_eq!(table.remove(key), model.remove(&key));
                }
                assert_eq!(table.len(), model.len());
            }
            assert!(table.iter().all(|(key, value)| model.get(&key) == Some(value)) && model.len() > 20);
        }
        run::<0>();
        run::<8>();
    }
}
