//! [`Order`]: what a process has its program on the NIC do, as the bytes of a command.

use super::words::{Reader, Writer};
use crate::command::{Local, Transfer};
use crate::engine::Place;
use crate::entry::Entry;
use crate::event::List;
use crate::message::{AckReq, Action};
use crate::options::{EntryOptions, MdOptions, PtOptions};
use crate::process::{Process, Source};
use crate::region::Region;
use crate::table::{EntryHandle, MdHandle};

/// Memory of the process that the NIC reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) lkey: u32,
}

/// What is asked for. Every order but memory and transfers is answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// The process has this memory.
    Memory(Extent),
    /// Events go into a ring of so many slots here, and replies to the other address.
    Queues { ring: u64, slots: u64, reply: u64 },
    /// `PtlPTAlloc`
    PtAlloc { options: PtOptions, index: Option<u32> },
    /// `PtlMEAppend`; of Portals 3.3 `PtlPost`, which does nothing if there are more events than the process has seen.
    Append { place: Place, entry: Entry, user_ptr: u64, seen: Option<u32> },
    /// `PtlMEUnlink`
    Unlink(EntryHandle),
    /// `PtlMDBind`
    Bind { addr: u64, len: u64, options: MdOptions },
    /// `PtlMDRelease`
    Release(MdHandle),
    /// `PtlPut`, `PtlGet`
    Transfer(Transfer),
    /// Of Portals 3.3 `PtlMEAttach`: an entry without memory.
    Draft { place: Place, entry: Entry },
    /// Of Portals 3.3 `PtlMDAttach`: memory for it, which takes no message yet.
    Attach { draft: u64, addr: u64, len: u64, user_ptr: u64 },
    /// Of Portals 3.3 `PtlMDUpdate`: it takes messages from now on, unless there are more events than the process has seen.
    Update { draft: u64, seen: u32 },
    /// So many events of the ring have been taken.
    Seen(u64),
}

impl Order {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let tagged = |tag| Writer::default().put(tag);
        match self {
            Self::Memory(Extent { addr, len, lkey }) => tagged(0).put(*addr).put(*len).put((*lkey).into()),
            Self::Queues { ring, slots, reply } => tagged(1).put(*ring).put(*slots).put(*reply),
            Self::PtAlloc { options, index } => tagged(2).put(options.bits().into()).maybe(*index),
            Self::Append { place, entry, user_ptr, seen } => {
                put_entry(tagged(3), *place, entry).put(*user_ptr).maybe(*seen)
            }
            Self::Unlink(entry) => tagged(4).put(entry.number()),
            Self::Bind { addr, len, options } => tagged(5).put(*addr).put(*len).put(options.bits().into()),
            Self::Release(md) => tagged(6).put(md.number()),
            Self::Transfer(transfer) => put_transfer(tagged(7), transfer),
            Self::Draft { place, entry } => put_entry(tagged(8), *place, entry),
            Self::Attach { draft, addr, len, user_ptr } => {
                tagged(9).put(*draft).put(*addr).put(*len).put(*user_ptr)
            }
            Self::Update { draft, seen } => tagged(10).put(*draft).put((*seen).into()),
            Self::Seen(count) => tagged(11).put(*count),
        }
        .bytes()
    }

    /// The order in a command; `None` for what no process of this library gives.
    pub(super) fn parse(command: &[u8]) -> Option<Self> {
        let mut words = Reader(command);
        Some(match words.word()? {
            0 => Self::Memory(Extent {
                addr: words.word()?,
                len: words.word()?,
                lkey: u32::try_from(words.word()?).ok()?,
            }),
            1 => Self::Queues { ring: words.word()?, slots: words.word()?, reply: words.word()? },
            2 => Self::PtAlloc {
                options: PtOptions::from_bits(u32::try_from(words.word()?).ok()?)?,
                index: words.maybe()?,
            },
            3 => {
                let (place, entry) = entry(&mut words)?;
                Self::Append { place, entry, user_ptr: words.word()?, seen: words.maybe()? }
            }
            4 => Self::Unlink(EntryHandle::from_number(words.word()?)),
            5 => Self::Bind {
                addr: words.word()?,
                len: words.word()?,
                options: MdOptions::from_bits(u32::try_from(words.word()?).ok()?)?,
            },
            6 => Self::Release(MdHandle::from_number(words.word()?)),
            7 => Self::Transfer(transfer(&mut words)?),
            8 => {
                let (place, entry) = entry(&mut words)?;
                Self::Draft { place, entry }
            }
            9 => Self::Attach {
                draft: words.word()?,
                addr: words.word()?,
                len: words.word()?,
                user_ptr: words.word()?,
            },
            10 => Self::Update { draft: words.word()?, seen: words.word()? as u32 },
            11 => Self::Seen(words.word()?),
            _ => return None,
        })
    }
}

/// Entries have one piece of memory, no counter, and are for all users.
fn put_entry(to: Writer, place: Place, entry: &Entry) -> Writer {
    to.pair(place.pt_index, place.list as u32)
        .put(entry.region.address(0))
        .put(entry.region.len())
        .put(entry.options.bits().into())
        .maybe(entry.source.nid)
        .maybe(entry.source.pid)
        .put(entry.match_bits)
        .put(entry.ignore_bits)
        .put(entry.min_free)
}

fn entry(words: &mut Reader<'_>) -> Option<(Place, Entry)> {
    let (pt_index, list) = words.pair()?;
    let list = if list == 0 { List::Priority } else { List::Overflow };
    let region = Region::new(words.word()?, words.word()?);
    let options = EntryOptions::from_bits(u32::try_from(words.word()?).ok()?)?;
    let source = Source { nid: words.maybe()?, pid: words.maybe()? };
    let (match_bits, ignore_bits, min_free) = (words.word()?, words.word()?, words.word()?);
    let entry = Entry { source, match_bits, ignore_bits, min_free, ..Entry::taking_all(region, options) };
    Some((Place { pt_index, list }, entry))
}

fn put_transfer(to: Writer, transfer: &Transfer) -> Writer {
    let Transfer { put, get, length, ack, target, pt_index, .. } = *transfer;
    let local = put.or(get).unwrap_or(Local { md: MdHandle::from_number(u64::MAX), offset: 0 });
    to.pair(u32::from(transfer.action == Action::Get), ack as u32)
        .put(local.md.number())
        .put(local.offset)
        .put(length)
        .pair(target.nid, target.pid)
        .put(pt_index.into())
        .put(transfer.match_bits)
        .put(transfer.remote_offset)
        .put(transfer.user_ptr)
        .put(transfer.hdr_data)
}

fn transfer(words: &mut Reader<'_>) -> Option<Transfer> {
    let (is_get, ack) = words.pair()?;
    let acks = [AckReq::None, AckReq::Full, AckReq::Counting, AckReq::Completed];
    let ack = *acks.get(ack as usize)?;
    let local = Local { md: MdHandle::from_number(words.word()?), offset: words.word()? };
    let length = words.word()?;
    let (nid, pid) = words.pair()?;
    let pt_index = u32::try_from(words.word()?).ok()?;
    let is_get = is_get != 0;
    Some(Transfer {
        action: if is_get { Action::Get } else { Action::Put },
        put: (!is_get).then_some(local),
        get: is_get.then_some(local),
        length,
        ack,
        target: Process { nid, pid },
        pt_index,
        match_bits: words.word()?,
        remote_offset: words.word()?,
        user_ptr: words.word()?,
        hdr_data: words.word()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Vec<Order> {
        let place = Place { pt_index: 7, list: List::Overflow };
        let entry = Entry {
            source: Source { nid: Some(3), pid: None },
            match_bits: 1 << 40,
            ignore_bits: 5,
            min_free: 9,
            ..Entry::taking_all(Region::new(4096, 77), EntryOptions::OP_PUT | EntryOptions::USE_ONCE)
        };
        let local = Local { md: MdHandle::from_number(1 << 32 | 4), offset: 12 };
        let put = Transfer {
            action: Action::Put,
            put: Some(local),
            get: None,
            length: 99,
            ack: AckReq::Full,
            target: Process { nid: 0x0a01_0002, pid: 17 },
            pt_index: 3,
            match_bits: u64::MAX,
            remote_offset: 8,
            user_ptr: 21,
            hdr_data: 22,
        };
        vec![
            Order::Memory(Extent { addr: 1, len: 2, lkey: 3 }),
            Order::Queues { ring: 1, slots: 2, reply: 3 },
            Order::PtAlloc { options: PtOptions::FLOWCTRL, index: Some(0) },
            Order::Append { place, entry: entry.clone(), user_ptr: 4, seen: None },
            Order::Append { place, entry: entry.clone(), user_ptr: 4, seen: Some(0) },
            Order::Unlink(EntryHandle::from_number(5)),
            Order::Bind { addr: 1, len: 2, options: MdOptions::EVENT_SEND_DISABLE },
            Order::Release(MdHandle::from_number(6)),
            Order::Transfer(put),
            Order::Transfer(Transfer { action: Action::Get, put: None, get: Some(local), ..put }),
            Order::Draft { place, entry },
            Order::Attach { draft: 1, addr: 2, len: 3, user_ptr: 4 },
            Order::Update { draft: 1, seen: 2 },
            Order::Seen(3),
        ]
    }

    #[test]
    fn what_is_ordered_is_understood() {
        for order in orders() {
            let bytes = order.bytes();
            assert!(bytes.len() <= 128, "{order:?}");
            assert_eq!(Order::parse(&bytes), Some(order.clone()));
            for len in 0..bytes.len() {
                assert_eq!(Order::parse(&bytes[..len]), None, "{len} bytes of {order:?}");
            }
        }
        assert_eq!(Order::parse(&99_u64.to_le_bytes()), None);
    }
}
