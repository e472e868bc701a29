//! [`Command`]: the commands of a process to its firmware on the NIC, and their encoding.

use super::words::{Reader, Writer};
use crate::engine::ListId;
use crate::objects::command::{CtEvent, MdAddr, Transfer};
use crate::objects::entry::Entry;
use crate::objects::event::List;
use crate::objects::handles::{CtHandle, EntryHandle, MdHandle};
use crate::objects::message::{AckReq, Action};
use crate::objects::options::{EntryOptions, MdOptions, PtOptions};
use crate::objects::process::{Process, Source};
use crate::objects::region::Region;

/// Memory of the process that the NIC can access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) lkey: u32,
}

/// The operation that a counter triggers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Triggered {
    /// `PtlTriggeredPut`, `PtlTriggeredGet`
    Transfer(Transfer),
    /// `PtlTriggeredCTInc`
    Inc(CtHandle, CtEvent),
    /// `PtlTriggeredCTSet`
    Set(CtHandle, CtEvent),
    /// `PtlTriggeredMEAppend`
    Append { place: ListId, entry: Entry, user_ptr: u64 },
    /// `PtlTriggeredMEUnlink`
    Unlink(EntryHandle),
}

/// A command. All except `Memory`, `Transfer` and `Seen` have a reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    /// The NIC may use this memory.
    Memory(Extent),
    /// Addresses of the event ring, with its number of slots, and of the reply, which the counters follow.
    Queues { ring: u64, slots: u64, reply: u64 },
    /// `PtlPTAlloc`
    PtAlloc { options: PtOptions, index: Option<u32> },
    /// `PtlPTEnable`, `PtlPTDisable`
    PtEnable { index: u32, is_enabled: bool },
    /// `PtlPTFree`
    PtFree(u32),
    /// `PtlMEAppend`; in Portals 3.3 `PtlPost`, which does nothing if there are events that the process has
    /// not read.
    Append { place: ListId, entry: Entry, user_ptr: u64, seen: Option<u32> },
    /// `PtlMEUnlink`
    Unlink(EntryHandle),
    /// `PtlMDBind`
    Bind { addr: u64, len: u64, options: MdOptions, counter: Option<CtHandle> },
    /// `PtlMDRelease`
    Release(MdHandle),
    /// `PtlPut`, `PtlGet`
    Transfer(Transfer),
    /// `PtlCTAlloc`
    CtAlloc,
    /// `PtlCTFree`
    CtFree(CtHandle),
    /// `PtlCTCancelTriggered`
    CtCancel(CtHandle),
    /// `PtlCTSet`
    CtSet(CtHandle, CtEvent),
    /// `PtlCTInc`
    CtInc(CtHandle, CtEvent),
    /// Any triggered operation.
    Trigger { ct: CtHandle, threshold: u64, triggered: Triggered },
    /// `PtlMEAttach` of Portals 3.3: an entry without memory.
    Draft { place: ListId, entry: Entry },
    /// `PtlMDAttach` of Portals 3.3: memory for a draft, which accepts no messages yet.
    Attach { draft: u64, addr: u64, len: u64, user_ptr: u64 },
    /// `PtlMDUpdate` of Portals 3.3: the draft accepts messages from now on, unless there are events that the
    /// process has not read.
    Update { draft: u64, seen: u32 },
    /// The number of events read from the ring.
    Seen(u64),
    /// No operation; its reply shows that all commands before it were executed.
    Nothing,
}

impl Command {
    pub(super) fn bytes(&self) -> Writer {
        let tagged = |tag| Writer::new().put(tag);
        match self {
            Self::Memory(Extent { addr, len, lkey }) => tagged(0).put(*addr).put(*len).put((*lkey).into()),
            Self::Queues { ring, slots, reply } => tagged(1).put(*ring).put(*slots).put(*reply),
            Self::PtAlloc { options, index } => tagged(2).put(options.bits().into()).maybe(*index),
            Self::Append { place, entry, user_ptr, seen } => {
                put_entry(tagged(3), *place, entry).put(*user_ptr).maybe(*seen)
            }
            Self::Unlink(entry) => tagged(4).put(entry.number()),
            Self::Bind { addr, len, options, counter } => {
                put_options(tagged(5).put(*addr).put(*len), options.bits(), *counter, None)
            }
            Self::Release(md) => tagged(6).put(md.number()),
            Self::Transfer(transfer) => put_transfer(tagged(7), transfer),
            Self::Draft { place, entry } => put_entry(tagged(8), *place, entry),
            Self::Attach { draft, addr, len, user_ptr } => {
                tagged(9).put(*draft).put(*addr).put(*len).put(*user_ptr)
            }
            Self::Update { draft, seen } => tagged(10).put(*draft).put((*seen).into()),
            Self::Seen(count) => tagged(11).put(*count),
            Self::PtEnable { index, is_enabled } => tagged(12).pair(*index, (*is_enabled).into()),
            Self::Nothing => tagged(20),
            Self::PtFree(index) => tagged(13).put((*index).into()),
            Self::CtAlloc => tagged(14),
            Self::CtFree(ct) => tagged(15).put(ct.number()),
            Self::CtCancel(ct) => tagged(16).put(ct.number()),
            Self::CtSet(ct, to) => put_count(tagged(17), *ct, *to),
            Self::CtInc(ct, by) => put_count(tagged(18), *ct, *by),
            Self::Trigger { ct, threshold, triggered } => {
                let to = tagged(19).put(ct.number()).put(*threshold);
                match triggered {
                    Triggered::Transfer(transfer) => put_transfer(to.put(0), transfer),
                    Triggered::Inc(ct, by) => put_count(to.put(1), *ct, *by),
                    Triggered::Set(ct, value) => put_count(to.put(2), *ct, *value),
                    Triggered::Append { place, entry, user_ptr } => {
                        put_entry(to.put(3), *place, entry).put(*user_ptr)
                    }
                    Triggered::Unlink(entry) => to.put(4).put(entry.number()),
                }
            }
        }
    }

    /// The command in these bytes; `None` for bytes that this library does not write.
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
            5 => {
                let (addr, len) = (words.word()?, words.word()?);
                let (options, counter, _) = options(&mut words)?;
                Self::Bind { addr, len, options: MdOptions::from_bits(options)?, counter }
            }
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
            12 => {
                let (index, is_enabled) = words.pair()?;
                Self::PtEnable { index, is_enabled: is_enabled != 0 }
            }
            13 => Self::PtFree(u32::try_from(words.word()?).ok()?),
            20 => Self::Nothing,
            tag => counting(tag, &mut words)?,
        })
    }
}

/// Parses a command about counters.
fn counting(tag: u64, words: &mut Reader<'_>) -> Option<Command> {
    Some(match tag {
        14 => Command::CtAlloc,
        15 => Command::CtFree(CtHandle::from_number(words.word()?)),
        16 => Command::CtCancel(CtHandle::from_number(words.word()?)),
        17 => {
            let (ct, to) = count(words)?;
            Command::CtSet(ct, to)
        }
        18 => {
            let (ct, by) = count(words)?;
            Command::CtInc(ct, by)
        }
        19 => {
            let (ct, threshold) = (CtHandle::from_number(words.word()?), words.word()?);
            Command::Trigger { ct, threshold, triggered: triggered(words)? }
        }
        _ => return None,
    })
}

fn triggered(words: &mut Reader<'_>) -> Option<Triggered> {
    Some(match words.word()? {
        0 => Triggered::Transfer(transfer(words)?),
        1 => {
            let (ct, by) = count(words)?;
            Triggered::Inc(ct, by)
        }
        2 => {
            let (ct, to) = count(words)?;
            Triggered::Set(ct, to)
        }
        3 => {
            let (place, entry) = entry(words)?;
            Triggered::Append { place, entry, user_ptr: words.word()? }
        }
        4 => Triggered::Unlink(EntryHandle::from_number(words.word()?)),
        _ => return None,
    })
}

fn put_count(to: Writer, ct: CtHandle, CtEvent { success, failure }: CtEvent) -> Writer {
    to.put(ct.number()).put(success).put(failure)
}

fn count(words: &mut Reader<'_>) -> Option<(CtHandle, CtEvent)> {
    let ct = CtHandle::from_number(words.word()?);
    Some((ct, CtEvent { success: words.word()?, failure: words.word()? }))
}

/// Bits of options, then a counter and a user, which are usually absent.
fn put_options(to: Writer, bits: u32, counter: Option<CtHandle>, uid: Option<u32>) -> Writer {
    let to = to.pair(bits, u32::from(counter.is_some()) | u32::from(uid.is_some()) << 1);
    let to = counter.iter().fold(to, |to, counter| to.put(counter.number()));
    uid.iter().fold(to, |to, uid| to.put((*uid).into()))
}

fn options(words: &mut Reader<'_>) -> Option<(u32, Option<CtHandle>, Option<u32>)> {
    let (bits, more) = words.pair()?;
    let counter = if more & 1 != 0 { Some(CtHandle::from_number(words.word()?)) } else { None };
    let uid = if more & 2 != 0 { Some(u32::try_from(words.word()?).ok()?) } else { None };
    (more < 4).then_some((bits, counter, uid))
}

/// Entries have one piece of memory.
fn put_entry(to: Writer, place: ListId, entry: &Entry) -> Writer {
    let to = to.pair(place.pt_index, place.list as u32).put(entry.region.address(0)).put(entry.region.len());
    put_options(to, entry.options.bits(), entry.counter, entry.uid)
        .maybe(entry.source.nid)
        .maybe(entry.source.pid)
        .put(entry.match_bits)
        .put(entry.ignore_bits)
        .put(entry.min_free)
}

fn entry(words: &mut Reader<'_>) -> Option<(ListId, Entry)> {
    let (pt_index, list) = words.pair()?;
    let list = if list == 0 { List::Priority } else { List::Overflow };
    let region = Region::new(words.word()?, words.word()?);
    let (options, counter, uid) = options(words)?;
    let options = EntryOptions::from_bits(options)?;
    let source = Source { nid: words.maybe()?, pid: words.maybe()? };
    let (match_bits, ignore_bits, min_free) = (words.word()?, words.word()?, words.word()?);
    let all = Entry::taking_all(region, options);
    let entry = Entry { counter, uid, source, match_bits, ignore_bits, min_free, ..all };
    Some((ListId { pt_index, list }, entry))
}

fn put_transfer(to: Writer, transfer: &Transfer) -> Writer {
    let Transfer { put, get, length, ack, target, pt_index, .. } = *transfer;
    let local = put.or(get).unwrap_or(MdAddr { md: MdHandle::from_number(u64::MAX), offset: 0 });
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
    let local = MdAddr { md: MdHandle::from_number(words.word()?), offset: words.word()? };
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

    fn commands() -> Vec<Command> {
        let place = ListId { pt_index: 7, list: List::Overflow };
        let entry = Entry {
            source: Source { nid: Some(3), pid: None },
            match_bits: 1 << 40,
            ignore_bits: 5,
            min_free: 9,
            ..Entry::taking_all(Region::new(4096, 77), EntryOptions::OP_PUT | EntryOptions::USE_ONCE)
        };
        let local = MdAddr { md: MdHandle::from_number(1 << 32 | 4), offset: 12 };
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
        let (ct, count) = (CtHandle::from_number(1 << 32 | 3), CtEvent { success: 5, failure: 6 });
        let counted = Entry { counter: Some(ct), uid: Some(9), ..entry.clone() };
        let trigger = |triggered| Command::Trigger { ct, threshold: 7, triggered };
        let counting = vec![
            Command::PtEnable { index: 3, is_enabled: true },
            Command::PtFree(3),
            Command::Nothing,
            Command::CtAlloc,
            Command::CtFree(ct),
            Command::CtCancel(ct),
            Command::CtSet(ct, count),
            Command::CtInc(ct, count),
            Command::Bind { addr: 1, len: 2, options: MdOptions::EVENT_CT_ACK, counter: Some(ct) },
            trigger(Triggered::Transfer(put)),
            trigger(Triggered::Inc(ct, count)),
            trigger(Triggered::Set(ct, count)),
            trigger(Triggered::Append { place, entry: counted.clone(), user_ptr: 4 }),
            trigger(Triggered::Unlink(EntryHandle::from_number(5))),
            Command::Append { place, entry: counted, user_ptr: 4, seen: None },
        ];
        let commands = vec![
            Command::Memory(Extent { addr: 1, len: 2, lkey: 3 }),
            Command::Queues { ring: 1, slots: 2, reply: 3 },
            Command::PtAlloc { options: PtOptions::FLOWCTRL, index: Some(0) },
            Command::Append { place, entry: entry.clone(), user_ptr: 4, seen: None },
            Command::Append { place, entry: entry.clone(), user_ptr: 4, seen: Some(0) },
            Command::Unlink(EntryHandle::from_number(5)),
            Command::Bind { addr: 1, len: 2, options: MdOptions::EVENT_SEND_DISABLE, counter: None },
            Command::Release(MdHandle::from_number(6)),
            Command::Transfer(put),
            Command::Transfer(Transfer { action: Action::Get, put: None, get: Some(local), ..put }),
            Command::Draft { place, entry },
            Command::Attach { draft: 1, addr: 2, len: 3, user_ptr: 4 },
            Command::Update { draft: 1, seen: 2 },
            Command::Seen(3),
        ];
        [commands, counting].concat()
    }

    #[test]
    fn commands_roundtrip() {
        for command in commands() {
            let bytes = command.bytes();
            let bytes = bytes.as_slice();
            assert_eq!(Command::parse(bytes), Some(command.clone()));
            for len in 0..bytes.len() {
                assert_eq!(Command::parse(&bytes[..len]), None, "{len} bytes of {command:?}");
            }
        }
        assert_eq!(Command::parse(&99_u64.to_le_bytes()), None);
    }
}
