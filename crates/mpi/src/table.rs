//! [`Table`]: things by number, where a number once given up is never good again.

/// The name of a thing in a [`Table`]: its place, and behind 32 bits the place's lap, 1 to [`LAP_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// As it goes over the wire.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// As it came over the wire: a name that may be nobody's.
    pub(crate) fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its place, which another thing may have later, and the lap.
    pub(crate) fn parts(self) -> (u32, u32) {
        (self.0 as u32, (self.0 >> 32) as u32)
    }

    fn place(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }
}

/// The last lap; then a place's names come again. Two bits of a name are free, and a name is more than any place.
const LAP_MAX: u32 = (1 << 30) - 1;

#[inline]
fn next_lap(lap: u32) -> u32 {
    if lap == LAP_MAX { 1 } else { lap + 1 }
}

#[derive(Debug)]
struct Lapped<T> {
    /// Which thing of the place's this is.
    lap: u32,
    thing: Option<T>,
}

/// Things by [`Key`].
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<Lapped<T>>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Takes a thing in.
    #[inline(always)]
    pub(crate) fn insert(&mut self, thing: T) -> Key {
        self.insert_with(|| thing)
    }

    /// Takes in what is made, where it stays.
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce() -> T) -> Key {
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.grow(),
        };
        let at = &mut self.places[place as usize];
        // In a free place there is nothing to drop.
        std::mem::forget(at.thing.replace(make()));
        Key(u64::from(at.lap) << 32 | u64::from(place))
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.places.push(Lapped { lap: 1, thing: None });
        (self.places.len() - 1) as u32
    }

    /// The thing of this name.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.place())?;
        if u64::from(place.lap) == key.0 >> 32 { place.thing.as_mut() } else { None }
    }

    /// Takes the thing of this name out.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        let place = &mut self.places[key.place()];
        place.lap = next_lap(place.lap);
        self.free.push(key.place() as u32);
        place.thing.take()
    }

    /// Gives the thing of this name up.
    #[inline]
    pub(crate) fn forget(&mut self, key: Key) {
        drop(self.remove(key));
    }

    /// Takes out of the thing of this name all that it holds, and gives it up, unless `take` gives nothing. What is left of it is not
    /// dropped, so that nobody need look whether there is something to drop.
    #[inline(always)]
    pub(crate) fn retire<R>(&mut self, key: Key, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let place = self.places.get_mut(key.place()).filter(|place| u64::from(place.lap) == key.0 >> 32)?;
        let taken = take(place.thing.as_mut()?)?;
        place.lap = next_lap(place.lap);
        std::mem::forget(place.thing.take());
        self.free.push(key.place() as u32);
        Some(taken)
    }

    /// The name of the thing at a place.
    pub(crate) fn at(&self, place: u32) -> Option<Key> {
        let at = self.places.get(place as usize).filter(|at| at.thing.is_some())?;
        Some(Key(u64::from(at.lap) << 32 | u64::from(place)))
    }

    /// All of them, with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let name = |(place, at): (usize, &Lapped<T>)| Key(u64::from(at.lap) << 32 | place as u64);
        let named = self.places.iter().enumerate().map(move |(n, at)| (name((n, at)), &at.thing));
        named.filter_map(|(key, thing)| Some((key, thing.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_name_is_good_until_it_is_given_up() {
        let mut table = Table::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!(table.remove(a), Some('a'));
        let c = table.insert('c');
        assert_eq!(table.get_mut(a), None);
        assert_eq!(table.remove(a), None);
        assert_eq!(c.number() & 0xffff_ffff, a.number() & 0xffff_ffff, "the place is used again");
        assert_eq!(table.get_mut(Key::from_number(c.number())), Some(&mut 'c'));
        assert_eq!(table.iter().map(|(key, thing)| (key, *thing)).collect::<Vec<_>>(), [(c, 'c'), (b, 'b')]);
        assert_eq!((table.at(0), table.at(2), c.parts()), (Some(c), None, (0, 2)));
        table.forget(c);
        assert_eq!(table.get_mut(c), None);
        assert_eq!(table.at(0), None);
        assert_eq!(table.get_mut(Key::from_number(7)), None);
        assert_eq!(table.get_mut(Key::from_number(u64::MAX)), None);
        table.forget(Key::from_number(u64::MAX));
    }

    /// Goal: what is taken out of a thing is all that is left of it, and a thing of which nothing is taken stays. Method: things that
    /// count their holders.
    #[test]
    fn a_thing_is_given_up_when_something_is_taken_of_it() {
        let (mut table, held) = (Table::default(), Arc::new(()));
        let key = table.insert_with(|| Some(held.clone()));
        assert_eq!(table.retire(key, |_| None::<()>), None);
        assert_eq!((Arc::strong_count(&held), table.at(0)), (2, Some(key)));
        drop(table.retire(key, Option::take).expect("there"));
        assert_eq!((Arc::strong_count(&held), table.at(0)), (1, None));
        assert!(table.retire(key, Option::take).is_none(), "its name is good no more");
        let last = Key::from_number(u64::from(LAP_MAX) << 32);
        table.places[0].lap = LAP_MAX;
        assert_eq!(table.insert(None), last);
        table.forget(last);
        assert_eq!(table.insert(None).parts(), (0, 1), "laps come again");
    }
}
