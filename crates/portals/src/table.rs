//! [`Table`]: things by number, where a number once given up is never good again; and the handles that such numbers are.

/// The name of a thing in a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Where it lies: small numbers, used again.
    pub(crate) place: u32,
    /// How often that place was given up before.
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
            /// Its number: the place, which is small and used again, and above 32 bits how often that was given up before.
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
struct Place<T> {
    lap: u32,
    thing: Option<T>,
}

/// Things by [`Key`].
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes a thing in.
    pub(crate) fn insert(&mut self, thing: T) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { lap: 0, thing: None });
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

    /// The name of the thing at a place.
    pub(crate) fn key_at(&self, place: u32) -> Key {
        Key { place, lap: self.places[place as usize].lap }
    }

    /// Takes the thing of this name out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let place = &mut self.places[key.place as usize];
        place.lap = place.lap.wrapping_add(1);
        self.free.push(key.place);
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
        let c = table.insert('c');
        assert_eq!(c.place, a.place, "the place is used again");
        assert_eq!((table.get(a), table.at(c.place)), (None, &'c'));
        assert_eq!((table.remove(a), table.get_mut(a)), (None, None));
        assert_eq!((table.get(b), table.get(c), table.at(c.place)), (Some(&'b'), Some(&'c'), &'c'));
        assert_eq!((table.len(), table.key_at(c.place)), (2, c));
        assert_eq!(table.get(Key::from_number(c.number())), Some(&'c'));
        assert_eq!(table.get(Key::from_number(u64::MAX)), None);
    }
}
