//! [`Table`]: things by number, where a number once given up is not good again for long: 32,768 others come first; and the handles that such numbers are.

use std::collections::VecDeque;

use verbs::host::fetch_ahead;

/// How often a place is used before its names come again: what fits into a face's handles beside the place.
const LAPS: u32 = 1 << 9;
/// Places that rest: so many others are given up before a place is used again.
pub(crate) const RESTING: usize = 64;

/// The name of a thing in a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Where it lies: small numbers, used again.
    pub(crate) place: u32,
    /// How often that place was given up before, modulo [`LAPS`].
    lap: u32,
}

impl Key {
    pub(crate) const fn number(self) -> u64 {
        (self.lap as u64) << 32 | self.place as u64
    }

    pub(crate) const fn from_number(number: u64) -> Self {
        Self { place: number as u32, lap: (number >> 32) as u32 }
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) Key);

        impl $name {
            /// Its number: the place, which is small and used again, and above 32 bits which of 512 uses of it this is.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0.number()
            }

            /// The handle with a number, which may be nobody's.
            #[must_use]
            pub const fn from_number(number: u64) -> Self {
                Self(Key::from_number(number))
            }
        }
    )*};
}

handles! {
    /// An event queue.
    EqHandle;
    /// A counter.
    CtHandle;
    /// A memory descriptor.
    MdHandle;
    /// A list entry, matching or not.
    EntryHandle;
}

#[derive(Debug)]
struct Lapped<T> {
    lap: u32,
    thing: Option<T>,
}

/// Things by [`Key`].
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<Lapped<T>>,
    /// In the order in which they were given up.
    free: VecDeque<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: VecDeque::new() }
    }
}

impl<T> Table<T> {
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes a thing in.
    pub(crate) fn insert(&mut self, thing: T) -> Key {
        let rested = if self.free.len() > RESTING { self.free.pop_front() } else { None };
        let place = rested.unwrap_or_else(|| {
            self.places.push(Lapped { lap: 0, thing: None });
            (self.places.len() - 1) as u32
        });
        let at = &mut self.places[place as usize];
        at.thing = Some(thing);
        Key { place, lap: at.lap }
    }

    /// The thing of this name.
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.place as usize)?;
        if place.lap == key.lap { place.thing.as_ref() } else { None }
    }

    /// The thing of this name.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.place as usize)?;
        if place.lap == key.lap { place.thing.as_mut() } else { None }
    }

    /// The thing at a place that is known to have one.
    pub(crate) fn at(&self, place: u32) -> &T {
        self.places[place as usize].thing.as_ref().expect("whoever links a place keeps a thing there")
    }

    /// Begins to fetch the thing at a place: all its lines at once, where each would be waited for.
    #[inline]
    pub(crate) fn fetch_ahead(&self, place: u32) {
        let at = self.places.as_ptr().addr() + place as usize * size_of::<Lapped<T>>();
        fetch_ahead(at, size_of::<Lapped<T>>().div_ceil(64));
    }

    /// The name of the thing at a place.
    pub(crate) fn key_at(&self, place: u32) -> Key {
        Key { place, lap: self.places[place as usize].lap }
    }

    /// Takes the thing of this name out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let place = &mut self.places[key.place as usize];
        place.lap = (place.lap + 1) % LAPS;
        self.free.push_back(key.place);
        place.thing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_good_until_it_is_given_up() {
        let mut table = Table::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!((table.get(a), table.get(b), table.at(b.place)), (None, Some(&'b'), &'b'));
        assert_eq!((table.remove(a), table.get_mut(a)), (None, None));
        assert_eq!((table.len(), table.key_at(b.place)), (1, b));
        assert_eq!(table.get(Key::from_number(b.number())), Some(&'b'));
        assert_eq!(table.get(Key::from_number(u64::MAX)), None);
    }

    /// Goal: a name that was given up is nobody's for long, and places are used again. Method: so many come and go as the table
    /// promises.
    #[test]
    fn names_come_again_late() {
        let mut table = Table::default();
        let first = table.insert(0);
        table.remove(first);
        for number in 1..LAPS * RESTING as u32 {
            let key = table.insert(number);
            assert_ne!(key, first, "after {number}");
            assert_eq!(table.remove(key), Some(number));
        }
        assert!(table.places.len() <= RESTING + 1 && table.len() == 0);
    }
}
