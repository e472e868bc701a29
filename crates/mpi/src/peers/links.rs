//! [`Links`]: the connections of a process by place. The place of a destroyed connection is reused under another number:
//! completions of the old connection may still be in the queue, and are ignored.

use std::ops::{Index, IndexMut};

use host::{SlotKey, SlotTable};

use crate::peers::connection::Connection;

/// The low bits of a number are the place; the bits above are the generation of that place.
const PLACE_BITS: u32 = 22;
const PLACES_MAX: u32 = 1 << PLACE_BITS;
const GENERATIONS: u32 = u32::MAX >> PLACE_BITS;

/// Connections by place. A place is a small number; it belongs to one connection until that is [removed](Links::remove).
#[derive(Debug, Default)]
pub(crate) struct Links(SlotTable<Connection, GENERATIONS>);

impl Links {
    /// The number of the next connection; `None` when all places are in use.
    pub(crate) fn vacancy(&self) -> Option<u32> {
        self.0.vacancy(PLACES_MAX).map(|key| key.generation() << PLACE_BITS | key.slot())
    }

    /// Adds a connection that was created with the number of the [vacancy](Links::vacancy); returns its place.
    pub(crate) fn insert(&mut self, connection: Connection) -> usize {
        self.0.insert(connection).slot() as usize
    }

    /// The place of the connection with this number, unless it has been removed.
    #[inline]
    pub(crate) fn place_of(&self, number: u32) -> Option<usize> {
        let key = SlotKey::new(number & (PLACES_MAX - 1), number >> PLACE_BITS);
        self.0.get(key).map(|_| key.slot() as usize)
    }

    /// The connection at a place, or `None`.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Connection> {
        self.0.get_slot_mut(place as u32)
    }

    /// Removes the connection at a place.
    pub(crate) fn remove(&mut self, place: usize) -> Option<Connection> {
        self.0.remove(self.0.key_at(place as u32)?)
    }

    /// The connections of this process in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.0.iter().map(|(_, connection)| connection)
    }

    /// The connections in the order of their places, mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.0.values_mut()
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Index<usize> for Links {
    type Output = Connection;

    #[inline]
    fn index(&self, place: usize) -> &Connection {
        &self.0[place as u32]
    }
}

impl IndexMut<usize> for Links {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Connection {
        &mut self.0[place as u32]
    }
}
