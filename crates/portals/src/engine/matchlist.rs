//! [`MatchList`]: the entries of one list (Portals 4.3, section 3.12). A message matches the first entry, in the
//! order of appending, that accepts it.
//!
//! Entries that ignore no bits, or admit one source, can be found by hash. Entries are therefore in one of
//! four classes: by both, by bits, by source, and others. The match is the oldest of the four classes' first
//! matches. Tests compare this with a linear search.

use verbs::host::SlotKey;

use crate::engine::buckets::Buckets;
use crate::engine::chain::{Chain, Links};
use crate::objects::entry::{Entry, Envelope};
use crate::objects::event::List;
use crate::objects::handles::Table;
use crate::objects::process::Process;

/// The two chains of an entry: its list's and its class's.
const ORDER: usize = 0;
const CLASS: usize = 1;

/// An entry that has been appended.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) entry: Entry,
    pub(crate) user_ptr: u64,
    pub(crate) pt_index: u32,
    pub(crate) list: List,
    pub(crate) state: EntryState,
    /// Bytes used, if the target chooses offsets.
    pub(crate) local: u64,
    /// Messages in delivery to it.
    pub(crate) pending: u32,
    /// Unexpected headers of messages that it accepted.
    pub(crate) headers: u32,
    /// Its position in the order of linking.
    order: u64,
}

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// It waits for a counter before it is appended.
    Waiting,
    /// It is in its list.
    Linked,
    /// It was unlinked automatically, and still has messages or headers.
    Unlinked {
        /// Whether that was reported: then it only has headers.
        reported: bool,
        /// Slots of the event queue that are reserved for the reports.
        reserved: u8,
    },
}

/// All entries of an interface.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) table: Table<Listed>,
    links: Links<2>,
    linked: u64,
}

impl Entries {
    /// Adds an entry that is in no list yet.
    pub(crate) fn insert(&mut self, entry: Entry, user_ptr: u64, pt_index: u32, list: List) -> SlotKey {
        let (state, local) = (EntryState::Waiting, 0);
        self.table.insert(Listed {
            entry,
            user_ptr,
            pt_index,
            list,
            state,
            local,
            pending: 0,
            headers: 0,
            order: 0,
        })
    }
}

/// The hash class of an entry.
enum Class {
    Both(u64, Process),
    Bits(u64),
    Source(Process),
    Other,
}

fn class(entry: &Entry) -> Class {
    match (entry.ignore_bits, entry.source.one()) {
        (0, Some(source)) => Class::Both(entry.match_bits, source),
        (0, None) => Class::Bits(entry.match_bits),
        (_, Some(source)) => Class::Source(source),
        (_, None) => Class::Other,
    }
}

/// An ordered list of entries.
#[derive(Debug, Default)]
pub(crate) struct MatchList {
    order: Chain,
    len: usize,
    by_both: Buckets<(u64, Process)>,
    by_bits: Buckets<u64>,
    by_source: Buckets<Process>,
    others: Chain,
}

impl MatchList {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends a waiting entry.
    pub(crate) fn push(&mut self, entries: &mut Entries, key: SlotKey) {
        let Entries { table, links, linked } = entries;
        let Some(listed) = table.get_mut(key) else { return };
        *linked += 1;
        (listed.order, listed.state) = (*linked, EntryState::Linked);
        links.push(ORDER, &mut self.order, key.slot());
        match class(&listed.entry) {
            Class::Both(bits, source) => self.by_both.push(links, CLASS, (bits, source), key.slot()),
            Class::Bits(bits) => self.by_bits.push(links, CLASS, bits, key.slot()),
            Class::Source(source) => self.by_source.push(links, CLASS, source, key.slot()),
            Class::Other => links.push(CLASS, &mut self.others, key.slot()),
        }
        self.len += 1;
    }

    /// Removes an entry of this list.
    pub(crate) fn remove(&mut self, entries: &mut Entries, key: SlotKey) {
        let Entries { table, links, .. } = entries;
        let Some(listed) = table.get(key) else { return };
        links.remove(ORDER, &mut self.order, key.slot());
        match class(&listed.entry) {
            Class::Both(bits, source) => self.by_both.remove(links, CLASS, (bits, source), key.slot()),
            Class::Bits(bits) => self.by_bits.remove(links, CLASS, bits, key.slot()),
            Class::Source(source) => self.by_source.remove(links, CLASS, source, key.slot()),
            Class::Other => links.remove(CLASS, &mut self.others, key.slot()),
        }
        self.len -= 1;
    }

    /// The entry that matches a message.
    #[inline]
    pub(crate) fn find(&self, entries: &Entries, envelope: &Envelope) -> Option<SlotKey> {
        if self.len == 0 {
            return None;
        }
        let Envelope { initiator, match_bits, .. } = *envelope;
        let mut best = first(entries, CLASS, self.others, envelope);
        let mut look = |chain: Chain| {
            let order = |place: u32| entries.table[place].order;
            let found = first(entries, CLASS, chain, envelope);
            best = match (best, found) {
                (Some(before), Some(place)) if order(before) < order(place) => best,
                (before, None) => before,
                (_, found) => found,
            };
        };
        // Most lists have entries of one class only.
        if !self.by_both.is_empty() {
            look(self.by_both.get((match_bits, initiator)));
        }
        if !self.by_bits.is_empty() {
            look(self.by_bits.get(match_bits));
        }
        if !self.by_source.is_empty() {
            look(self.by_source.get(initiator));
        }
        best.and_then(|place| entries.table.key_at(place))
    }

    /// The entry that matches a message, by linear search.
    #[cfg(test)]
    pub(crate) fn walk(&self, entries: &Entries, envelope: &Envelope) -> Option<SlotKey> {
        first(entries, ORDER, self.order, envelope).and_then(|place| entries.table.key_at(place))
    }

    /// Entries that a linear search examines up to and including the match, and whether there is a match.
    pub(crate) fn walk_length(&self, entries: &Entries, envelope: &Envelope) -> (u64, bool) {
        let mut looked = 0;
        let takes = |place: u32| {
            looked += 1;
            let listed = &entries.table[place];
            listed.entry.takes(envelope, listed.local)
        };
        let found = entries.links.iter(ORDER, self.order).any(takes);
        (looked, found)
    }
}

/// The first place of a chain that matches a message.
#[inline]
fn first(entries: &Entries, which: usize, chain: Chain, envelope: &Envelope) -> Option<u32> {
    let mut next = chain.first();
    next.iter().for_each(|place| entries.table.prefetch(*place));
    while let Some(place) = next {
        let listed = &entries.table[place];
        if listed.entry.takes(envelope, listed.local) {
            return Some(place);
        }
        next = entries.links.next(which, place);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::options::EntryOptions;
    use crate::objects::process::Source;
    use crate::objects::region::Region;
    use proptest::prelude::*;

    /// Few values of each kind, so that many entries match the same messages.
    fn entry() -> impl Strategy<Value = Entry> {
        let source = (prop::option::of(0_u32..3), prop::option::of(0_u32..2));
        let ignore = prop_oneof![4 => Just(0_u64), 1 => Just(1), 1 => Just(2), 1 => Just(u64::MAX)];
        let options = prop_oneof![
            Just(EntryOptions::empty()),
            Just(EntryOptions::NO_TRUNCATE),
            Just(EntryOptions::NO_TRUNCATE | EntryOptions::MANAGE_LOCAL),
        ];
        (0_u64..4, ignore, source, options, 0_u64..8).prop_map(|(bits, ignore, (nid, pid), options, len)| {
            Entry {
                match_bits: bits,
                ignore_bits: ignore,
                source: Source { nid, pid },
                ..Entry::taking_all(Region::new(0, len), options)
            }
        })
    }

    fn envelope() -> impl Strategy<Value = Envelope> {
        (0_u32..3, 0_u32..2, 0_u64..4, 0_u64..4, 0_u64..8).prop_map(
            |(nid, pid, match_bits, remote_offset, length)| Envelope {
                initiator: Process { nid, pid },
                match_bits,
                remote_offset,
                length,
            },
        )
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(Entry),
        Remove(prop::sample::Index),
        Grow(prop::sample::Index, u64),
        Find(Envelope),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => entry().prop_map(Step::Append),
            2 => any::<prop::sample::Index>().prop_map(Step::Remove),
            1 => (any::<prop::sample::Index>(), 0_u64..8).prop_map(|(at, by)| Step::Grow(at, by)),
            4 => envelope().prop_map(Step::Find),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// Goal: the hashed and the linear search find the first entry of a plain list that matches the
        /// message.
        #[test]
        fn hashed_search_equals_linear_search(steps in prop::collection::vec(step(), 0..120)) {
            let (mut entries, mut list) = (Entries::default(), MatchList::default());
            let mut plain: Vec<SlotKey> = Vec::new();
            for step in steps {
                match step {
                    Step::Append(entry) => {
                        let key = entries.insert(entry, 0, 0, List::Priority);
                        list.push(&mut entries, key);
                        plain.push(key);
                    }
                    Step::Remove(at) if !plain.is_empty() => {
                        let key = plain.remove(at.index(plain.len()));
                        list.remove(&mut entries, key);
                        entries.table.remove(key);
                    }
                    Step::Grow(at, by) if !plain.is_empty() => {
                        let key = plain[at.index(plain.len())];
                        entries.table.get_mut(key).expect("listed").local += by;
                    }
                    Step::Find(envelope) => {
                        let takes = |key: &&SlotKey| {
                            let listed = entries.table.get(**key).expect("listed");
                            listed.entry.takes(&envelope, listed.local)
                        };
                        let want = plain.iter().find(takes).copied();
                        prop_assert_eq!(list.walk(&entries, &envelope), want);
                        prop_assert_eq!(list.find(&entries, &envelope), want);
                        let looked = plain.iter().position(|key| Some(*key) == want).map(|at| at + 1);
                        let length = (looked.unwrap_or(plain.len()) as u64, want.is_some());
                        prop_assert_eq!(list.walk_length(&entries, &envelope), length);
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len(), plain.len());
            }
        }
    }
}
