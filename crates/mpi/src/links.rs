//! [`Links`]: the connections of a process by place. The place of a connection that has ended is used again, under another number:
//! completions of the old connection may still be in the queue, and are ignored.

use std::ops::{Index, IndexMut};

use crate::connection::Connection;

/// Bits of a number that hold the place. The bits above count the earlier uses of that place.
const PLACE_BITS: u32 = 22;
const PLACES_MAX: usize = 1 << PLACE_BITS;

#[derive(Debug)]
struct Place {
    /// Earlier uses, modulo what a number can hold.
    lap: u32,
    connection: Option<Connection>,
}

/// Connections by place. A place is a small number; it is one connection's until that is [removed](Links::remove).
#[derive(Debug, Default)]
pub(crate) struct Links {
    places: Vec<Place>,
    free: Vec<usize>,
}

impl Links {
    /// The number of the next connection; `None` when all places are in use.
    pub(crate) fn vacancy(&self) -> Option<u32> {
        let place = self.free.last().copied().unwrap_or(self.places.len());
        let lap = self.places.get(place).map_or(0, |at| at.lap);
        (place < PLACES_MAX).then_some(lap << PLACE_BITS | place as u32)
    }

    /// Adds a connection that was made with the number of the [vacancy](Links::vacancy); returns its place.
    pub(crate) fn insert(&mut self, connection: Connection) -> usize {
        if let Some(place) = self.free.pop() {
            self.places[place].connection = Some(connection);
            return place;
        }
        // In jobs of thousands, the spare capacity of a doubled list would be a tenth of all memory.
        if self.places.len() == self.places.capacity() {
            self.places.reserve_exact(self.places.len() / 4 + 2);
        }
        self.places.push(Place { lap: 0, connection: Some(connection) });
        self.places.len() - 1
    }

    /// The place of the connection with this number, unless it has been removed.
    #[inline]
    pub(crate) fn place_of(&self, number: u32) -> Option<usize> {
        let place = (number as usize) & (PLACES_MAX - 1);
        let at = self.places.get(place).filter(|at| at.connection.is_some())?;
        (at.lap == number >> PLACE_BITS).then_some(place)
    }

    /// The connection at a place, or `None`.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Connection> {
        self.places.get_mut(place)?.connection.as_mut()
    }

    /// Removes the connection at a place.
    pub(crate) fn remove(&mut self, place: usize) -> Option<Connection> {
        let at = self.places.get_mut(place)?;
        let connection = at.connection.take()?;
        at.lap = (at.lap + 1) & (u32::MAX >> PLACE_BITS);
        self.free.push(place);
        Some(connection)
    }

    /// The connections of this process in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.places.iter().filter_map(|at| at.connection.as_ref())
    }

    /// As [`Links::iter`], to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.places.iter_mut().filter_map(|at| at.connection.as_mut())
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl Index<usize> for Links {
    type Output = Connection;

    #[inline]
    fn index(&self, place: usize) -> &Connection {
        self.places[place].connection.as_ref().expect("whoever has a place has its connection")
    }
}

impl IndexMut<usize> for Links {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Connection {
        self.places[place].connection.as_mut().expect("whoever has a place has its connection")
    }
}
