//! [`Unexpected`]: headers of messages that an overflow entry accepted, in the order of arrival
//! (Portals 4.3, sections 3.11 and 3.12).
//!
//! An appended entry, or a search, takes the headers that match, in order. An entry that ignores no bits
//! examines the headers with its bits; one for a single source those from there; any other all headers.

use verbs::host::SlotKey;

use crate::engine::buckets::Buckets;
use crate::engine::chain::{Chain, Links};
use crate::objects::entry::{Entry, Envelope};
use crate::objects::event::Event;
use crate::objects::handles::{CtHandle, Table};
use crate::objects::options::EntryOptions;
use crate::objects::process::Process;

/// The three chains of a header.
const ORDER: usize = 0;
const BITS: usize = 1;
const SOURCE: usize = 2;

/// A message that arrived before its entry.
#[derive(Debug)]
pub(crate) struct Header {
    /// The event for the entry that claims it, without the entry's own fields.
    pub(crate) event: Event,
    /// The overflow entry that holds the data.
    pub(crate) owner: SlotKey,
    pub(crate) state: HeaderState,
}

/// The progress of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// Its data are in flight.
    Arriving,
    /// Its data have arrived.
    Arrived,
    /// Its data are in flight, but an entry has claimed it: it is in no list any more.
    Claimed(Claim),
}

/// What is kept of an entry that has claimed a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) options: EntryOptions,
    pub(crate) counter: Option<CtHandle>,
    pub(crate) user_ptr: u64,
    /// It was a use-once entry, whose unlinking is reported too.
    pub(crate) leaves: bool,
}

/// All headers of an interface.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    pub(crate) table: Table<Header>,
    links: Links<3>,
}

/// The headers of a portal table entry.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    order: Chain,
    by_bits: Buckets<u64>,
    by_source: Buckets<Process>,
}

fn envelope(event: &Event) -> Envelope {
    Envelope {
        initiator: event.initiator,
        match_bits: event.match_bits,
        remote_offset: event.remote_offset,
        length: event.rlength,
    }
}

impl Unexpected {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Appends a header.
    pub(crate) fn push(&mut self, headers: &mut Headers, header: Header) -> SlotKey {
        let (bits, source) = (header.event.match_bits, header.event.initiator);
        let key = headers.table.insert(header);
        headers.links.push(ORDER, &mut self.order, key.slot());
        self.by_bits.push(&mut headers.links, BITS, bits, key.slot());
        self.by_source.push(&mut headers.links, SOURCE, source, key.slot());
        key
    }

    /// Removes a header from the list, but keeps it.
    pub(crate) fn unlink(&mut self, headers: &mut Headers, key: SlotKey) {
        let Headers { table, links } = headers;
        let Some(Header { event, .. }) = table.get(key) else { return };
        links.remove(ORDER, &mut self.order, key.slot());
        self.by_bits.remove(links, BITS, event.match_bits, key.slot());
        self.by_source.remove(links, SOURCE, event.initiator, key.slot());
    }

    /// The headers that an entry matches, in order; at most the first for a use-once entry.
    pub(crate) fn taken_by(&self, headers: &Headers, entry: &Entry) -> Vec<SlotKey> {
        let (which, chain) = match (entry.ignore_bits, entry.source.one()) {
            (0, _) => (BITS, self.by_bits.get(entry.match_bits)),
            (_, Some(source)) => (SOURCE, self.by_source.get(source)),
            (_, None) => (ORDER, self.order),
        };
        let takes = |place: &u32| entry.takes(&envelope(&headers.table[*place].event), 0);
        let most = if entry.is(EntryOptions::USE_ONCE) { 1 } else { usize::MAX };
        let taken = headers.links.iter(which, chain).filter(takes).take(most);
        taken.filter_map(|place| headers.table.key_at(place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::event::EventKind;
    use crate::objects::process::Source;
    use crate::objects::region::Region;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        /// Goal: an entry gets the headers that it matches in the order of arrival, whichever chain is
        /// searched. Method: compare with a plain list.
        #[test]
        fn entries_get_the_first_headers(
            came in prop::collection::vec((0_u64..3, 0_u32..3, 0_u64..6), 0..40),
            searches in prop::collection::vec(
                (0_u64..3, prop_oneof![Just(0_u64), Just(1), Just(u64::MAX)], prop::option::of(0_u32..3), any::<[bool; 3]>()),
                0..20,
            ),
        ) {
            let (mut headers, mut list, mut plain) = (Headers::default(), Unexpected::default(), Vec::new());
            let mut table = Table::default();
            let owner = table.insert(());
            for (match_bits, nid, rlength) in came {
                let initiator = Process::rank(nid);
                let event = Event { match_bits, initiator, rlength, ..Event::new(EventKind::Put, 0) };
                plain.push((list.push(&mut headers, Header { event, owner, state: HeaderState::Arrived }), event));
            }
            for (bits, ignore, nid, [once, whole, both]) in searches {
                let mut options = EntryOptions::empty();
                options.set(EntryOptions::USE_ONCE, once);
                options.set(EntryOptions::NO_TRUNCATE, whole);
                let source = Source { nid, pid: both.then_some(0) };
                let any = Entry::taking_all(Region::new(0, 3), options);
                let entry = Entry { match_bits: bits, ignore_bits: ignore, source, ..any };
                let takes = |event: &Event| {
                    (event.match_bits | ignore) == (bits | ignore)
                        && nid.is_none_or(|nid| nid == event.initiator.nid)
                        && (!whole || event.rlength <= 3)
                };
                let mut want: Vec<SlotKey> =
                    plain.iter().filter(|(_, event)| takes(event)).map(|(key, _)| *key).collect();
                if once {
                    want.truncate(1);
                }
                prop_assert_eq!(&list.taken_by(&headers, &entry), &want);
                for key in want {
                    list.unlink(&mut headers, key);
                    headers.table.remove(key);
                    plain.retain(|(other, _)| *other != key);
                }
                prop_assert_eq!(list.is_empty(), plain.is_empty());
            }
        }
    }
}
