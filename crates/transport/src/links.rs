//! [`Links`]: the connections of a process by place. The place of a destroyed connection is reused under another number:
//! completions of the old connection may still be in the queue, and are ignored.

use std::ops::{Index, IndexMut};

use verbs::host::{SlotKey, SlotTable};

/// The low bits of a number are the place; the bits above are the generation of that place.
const PLACE_BITS: u32 = 22;
const PLACES_MAX: u32 = 1 << PLACE_BITS;
const GENERATIONS: u32 = u32::MAX >> PLACE_BITS;

/// Connections by place. A place is a small number; it belongs to one connection until that is [removed](Links::remove).
#[derive(Debug)]
pub struct Links<T>(SlotTable<T, GENERATIONS>);

impl<T> Default for Links<T> {
    fn default() -> Self {
        Self(SlotTable::default())
    }
}

impl<T> Links<T> {
    /// The number of the next connection; `None` when all places are in use.
    pub fn vacancy(&self) -> Option<u32> {
        self.0.vacancy(PLACES_MAX).map(|key| key.generation() << PLACE_BITS | key.slot())
    }

    /// Adds a connection that was created with the number of the [vacancy](Links::vacancy); returns its place.
    pub fn insert(&mut self, connection: T) -> usize {
        self.0.insert(connection).slot() as usize
    }

    /// The place of the connection with this number, unless it has been removed.
    #[inline]
    pub fn place_of(&self, number: u32) -> Option<usize> {
        let key = SlotKey::new(number & (PLACES_MAX - 1), number >> PLACE_BITS);
        self.0.get(key).map(|_| key.slot() as usize)
    }

    /// The connection at a place, or `None`.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.0.get_slot(place as u32)
    }

    /// As [`Links::get`], but mutable.
    #[inline]
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.0.get_slot_mut(place as u32)
    }

    /// Removes the connection at a place.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        self.0.remove(self.0.key_at(place as u32)?)
    }

    /// The connections in the order of their places, each with its place.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().map(|(key, connection)| (key.slot() as usize, connection))
    }

    /// The connections in the order of their places.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, connection)| connection)
    }

    /// As [`Links::values`], but mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }
}

impl<T> Index<usize> for Links<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: usize) -> &T {
        &self.0[place as u32]
    }
}

impl<T> IndexMut<usize> for Links<T> {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut T {
        &mut self.0[place as u32]
    }
}
