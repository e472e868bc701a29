//! [`Chain`]: a doubly linked list of places, with insertion and removal in constant time. All chains share
//! one vector of links, by place.

/// Stands for no place.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    previous: u32,
    next: u32,
}

/// The links of places that are in up to `N` chains each.
#[derive(Debug)]
pub(crate) struct Links<const N: usize>(Vec<[Neighbours; N]>);

impl<const N: usize> Default for Links<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// An ordered list of places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Chain {
    pub(crate) fn is_empty(self) -> bool {
        self.first == NONE
    }

    /// The first place.
    #[inline]
    pub(crate) fn first(self) -> Option<u32> {
        some(self.first)
    }
}

impl<const N: usize> Links<N> {
    /// Appends a place to a chain, which is the place's `which`th chain.
    pub(crate) fn push(&mut self, which: usize, chain: &mut Chain, place: u32) {
        let none = Neighbours { previous: NONE, next: NONE };
        if self.0.len() <= place as usize {
            self.0.resize(place as usize + 1, [none; N]);
        }
        self.0[place as usize][which] = Neighbours { previous: chain.last, next: NONE };
        match chain.last {
            NONE => chain.first = place,
            last => self.0[last as usize][which].next = place,
        }
        chain.last = place;
    }

    /// Removes a place from a chain.
    pub(crate) fn remove(&mut self, which: usize, chain: &mut Chain, place: u32) {
        let Neighbours { previous, next } = self.0[place as usize][which];
        match previous {
            NONE => chain.first = next,
            previous => self.0[previous as usize][which].next = next,
        }
        match next {
            NONE => chain.last = previous,
            next => self.0[next as usize][which].previous = previous,
        }
    }

    /// The place after this one.
    #[inline]
    pub(crate) fn next(&self, which: usize, place: u32) -> Option<u32> {
        some(self.0[place as usize][which].next)
    }

    /// The places of a chain, in order.
    pub(crate) fn iter(&self, which: usize, chain: Chain) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(chain.first(), move |place| self.next(which, *place))
    }
}

fn some(place: u32) -> Option<u32> {
    (place != NONE).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: a chain behaves like a list. Method: compare with a vector; each place is also in a second
        /// chain that must stay unchanged.
        #[test]
        fn a_chain_is_a_list(steps in prop::collection::vec((any::<bool>(), 0_u32..12), 0..80)) {
            let (mut links, mut chain, mut other) = (Links::<2>::default(), Chain::default(), Chain::default());
            (0..12).for_each(|place| links.push(1, &mut other, place));
            let mut list: Vec<u32> = Vec::new();
            for (puts, place) in steps {
                match list.iter().position(|at| *at == place) {
                    None if puts => {
                        links.push(0, &mut chain, place);
                        list.push(place);
                    }
                    Some(at) if !puts => {
                        links.remove(0, &mut chain, place);
                        list.remove(at);
                    }
                    _ => {}
                }
                prop_assert_eq!(links.iter(0, chain).collect::<Vec<_>>(), list.clone());
                prop_assert_eq!(chain.is_empty(), list.is_empty());
            }
            prop_assert_eq!(links.iter(1, other).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
        }
    }
}
