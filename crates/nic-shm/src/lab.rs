//! Fault injection for the siege (feature `lab`, never in released builds): lists every word of shared memory
//! that a connection uses and every field of its hello packet, by name and offset, and changes them.
//!
//! The words come from the layout itself: words without a name are listed by their offset, so that a new
//! field is always included.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbs::provider::downcast;
use verbs::{Error, Qp, Result};

use crate::api::handle::QpHandle;
use crate::memory::layout::{
    ChannelShared, CqShared, Header, MrEntry, QpShared, SrqShared, channel_offset, comp, cq_offset,
    mr_offset, qp_offset, recv, srq_offset,
};
use crate::memory::segment::MappedSegment;
use crate::protocol::hello_fault;
use crate::qp::QpInner;

/// Number of slots listed of each ring: one in use, and its neighbours.
const SLOTS: u64 = 3;

/// A word of shared memory, or a field of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The name, with its table first.
    pub name: String,
    /// The name without an index: all words of an array or ring, except the first few, are one field.
    pub field: String,
    /// Whether it is in the peer's segment.
    pub of_peer: bool,
    /// The offset in the segment or packet.
    pub offset: u64,
    /// Size in bytes: 4 or 8 in shared memory, 1 to 8 in a packet.
    pub width: u8,
}

/// Number of an array's first words that are separate fields: words of the first queue pairs, and all words
/// of an event count except its padding. All further words are one field.
const FEW: u64 = 2;

/// A field of a structure: its name, its offset, the size of its words, and its total size.
struct NamedField {
    name: &'static str,
    at: u64,
    width: u8,
    size: u64,
}

const fn size_of_field<T, F>(_: fn(&T) -> &F) -> u64 {
    size_of::<F>() as u64
}

/// The fields of a structure, with the size of their words.
macro_rules! names {
    ($t:ty: $($($field:tt).+ = $width:literal),* $(,)?) => {
        &[$(NamedField {
            name: stringify!($($field).+),
            at: offset_of!($t, $($field).+) as u64,
            width: $width,
            size: size_of_field(|t: &$t| &t.$($field).+),
        }),*]
    };
}

type Names = &'static [NamedField];

const HEADER: Names = names!(Header:
    version = 4, token = 8, atomic_holder.0 = 8, kicked.summary = 8, kicked.words = 8,
    rnr.summary = 8, rnr.words = 8, reporting.summary = 8, reporting.words = 8, visited.summary = 8,
    visited.words = 8);
const REGION: Names = names!(MrEntry: key = 4, access = 4, pd = 4, kind = 4, addr = 8, len = 8, place = 8, stamp = 8, window_owner = 8);
const QUEUE_PAIR: Names = names!(QpShared:
    status = 8, pd = 4, recv_cq = 4, srq = 4, recv_shift = 4, recv_stride = 4, comp_shift = 4, recv_ring = 8,
    comp_ring = 8, rnr_pause = 4, peer.0.busy.inside = 4, peer.0.busy.mark = 4, rnr.0 = 4, taken = 8, access_error = 4, service.0.turn = 4, service.0.kind = 4,
    service.0.len = 8, service.0.addr = 8, service.0.key = 4, service.0.refused = 4,
    service.0.operand = 8, service.0.bounce = 8);
const COMPLETION_QUEUE: Names = names!(CqShared:
    wakeup = 4, adaptive_fence = 4, armed = 4, channel = 4, events = 4, many = 4, asymmetric_notify = 4, ready.summary = 8, ready.words = 8);
const SHARED_QUEUE: Names = names!(SrqShared:
    pd = 4, shift = 4, stride = 4, ring = 8, store = 8, head.0 = 8, tail = 8, limit = 4, rnr = 4);
const CHANNEL: Names = names!(ChannelShared: wakeup = 4);

/// Fields that peers write according to the protocol; all others they only read.
const WRITTEN: &[&str] = &[
    "header.atomic_holder.0",
    "header.kicked",
    "header.rnr",
    "header.reporting",
    "header.visited",
    "region 0.key",
    "region 0.stamp",
    "region 1.key",
    "region 1.stamp",
    "queue pair.status",
    "queue pair.peer.0.busy",
    "queue pair.rnr.0",
    "queue pair.access_error",
    "queue pair.service.0.turn",
    "queue pair.service.0.kind",
    "queue pair.service.0.len",
    "queue pair.service.0.addr",
    "queue pair.service.0.key",
    "queue pair.service.0.operand",
    "completion queue.wakeup",
    "completion queue.armed",
    "completion queue.events",
    "completion queue.asymmetric_notify",
    "completion queue.ready",
    "channel.wakeup",
    "shared queue.head.0",
    "shared queue.rnr",
    "completion ring",
    "shared queue ring",
    "bounce",
];

/// Whether peers write the words of this field according to the protocol.
pub fn is_written_by_peers(field: &str) -> bool {
    WRITTEN.iter().any(|name| field.starts_with(name))
}

/// All words of a structure of `size` bytes: the named ones, and all others as one field.
fn struct_words(table: &str, names: Names, size: usize, base: u64) -> Vec<Word> {
    let word = |name, field, at, width| Word { name, field, of_peer: false, offset: base + at, width };
    let mut words = Vec::new();
    let mut at = 0;
    while at < size as u64 {
        let Some(named) = names.iter().find(|named| named.at == at) else {
            words.push(word(format!("{table}+{at:#x}"), format!("{table}, unnamed"), at, 4));
            at += 4;
            continue;
        };
        let count = named.size / u64::from(named.width);
        let field = format!("{table}.{}", named.name);
        for i in 0..count {
            let name = if count == 1 { field.clone() } else { format!("{field}[{i}]") };
            let field = if i < FEW { name.clone() } else { format!("{field}[{FEW}..]") };
            words.push(word(name, field, at, named.width));
            at += u64::from(named.width);
        }
    }
    words
}

/// One end of a connection, for fault injection.
pub struct FaultInjector(Arc<QpInner>);

impl FaultInjector {
    /// The end of a queue pair.
    ///
    /// # Errors
    /// If it does not belong to this NIC.
    pub fn of(qp: &Qp) -> Result<Self> {
        let handle: Arc<QpHandle> = downcast(qp.ops().clone(), "the queue pair")?;
        Ok(Self(handle.qp.clone()))
    }

    /// All words of this side's segment that this queue pair and these regions use.
    pub fn own_words(&self, keys: &[u32]) -> Vec<Word> {
        object_words(&self.0.connection.device.table.map, self.0.index(), keys)
    }

    /// The words of the peer's segment that peers write according to the protocol, once connected.
    pub fn peer_words(&self, keys: &[u32]) -> Vec<Word> {
        let Some(link) = self.0.connection.link() else { return Vec::new() };
        let mut words = object_words(&link.peer.table.map, link.index, keys);
        words.retain(|word| is_written_by_peers(&word.field));
        words.iter_mut().for_each(|word| word.of_peer = true);
        words
    }

    /// The value of a word.
    pub fn read(&self, word: &Word) -> Option<u64> {
        let at = self.map(word)?.bytes(word.offset, word.width.into())?;
        // SAFETY: inside the mapping and aligned to its size, as the layout's words are; shared memory is
        // accessed by atomics. Test: every_word_of_the_layout_is_listed_once_and_can_be_changed.
        Some(unsafe {
            match word.width {
                4 => AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire).into(),
                _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire),
            }
        })
    }

    /// Sets a word; false if it is not inside its segment.
    pub fn write(&self, word: &Word, value: u64) -> bool {
        let Some(at) = self.map(word).and_then(|map| map.bytes(word.offset, word.width.into())) else {
            return false;
        };
        // SAFETY: as above.
        unsafe {
            match word.width {
                4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Release),
                _ => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Release),
            }
        }
        true
    }

    /// The remote address by which a request to the peer's region of NIC memory would access `target`, an
    /// address of this process, if the bounds of the region were not checked.
    pub fn out_of_bounds_address(&self, key: u32, target: u64) -> Option<u64> {
        let map = &self.0.connection.link()?.peer.table.map;
        let entry = map.get::<MrEntry>(mr_offset((key >> 16) as usize))?;
        let base = map.bytes(entry.place.load(Ordering::Relaxed), 1)?.addr() as u64;
        Some(entry.addr.load(Ordering::Relaxed).wrapping_add(target.wrapping_sub(base)))
    }

    /// Wakes the peer's NIC thread, which then checks its queue pair.
    pub fn kick(&self) {
        if let Some(link) = self.0.connection.link() {
            link.kick();
        }
    }

    fn map(&self, word: &Word) -> Option<&MappedSegment> {
        match word.of_peer {
            false => Some(&self.0.connection.device.table.map),
            true => Some(&self.0.connection.link()?.peer.table.map),
        }
    }
}

/// The words of a queue pair, of the objects that it refers to, and of some regions.
fn object_words(map: &MappedSegment, index: usize, keys: &[u32]) -> Vec<Word> {
    let mut words = struct_words("header", HEADER, size_of::<Header>(), 0);
    for (i, key) in keys.iter().enumerate() {
        let table = format!("region {i}");
        words.extend(struct_words(&table, REGION, size_of::<MrEntry>(), mr_offset((key >> 16) as usize)));
    }
    let Some(qp) = map.get::<QpShared>(qp_offset(index)) else { return words };
    words.extend(struct_words("queue pair", QUEUE_PAIR, size_of::<QpShared>(), qp_offset(index)));
    let cq_index = qp.recv_cq.load(Ordering::Relaxed) as usize;
    words.extend(struct_words(
        "completion queue",
        COMPLETION_QUEUE,
        size_of::<CqShared>(),
        cq_offset(cq_index),
    ));
    if let Some(cq) = map.get::<CqShared>(cq_offset(cq_index))
        && let Some(channel) = (cq.channel.load(Ordering::Relaxed) as usize).checked_sub(1)
    {
        words.extend(struct_words("channel", CHANNEL, size_of::<ChannelShared>(), channel_offset(channel)));
    }
    let word = |at: &AtomicU64| at.load(Ordering::Relaxed);
    words.extend(slot_words("completion ring", word(&qp.comp_ring), comp::STRIDE, completion_word_name));
    match (qp.srq.load(Ordering::Relaxed) as usize)
        .checked_sub(1)
        .map(|i| (i, map.get::<SrqShared>(srq_offset(i))))
    {
        Some((i, Some(srq))) => {
            let stride = srq.stride.load(Ordering::Relaxed).into();
            words.extend(struct_words("shared queue", SHARED_QUEUE, size_of::<SrqShared>(), srq_offset(i)));
            words.extend(slot_words("shared queue ring", word(&srq.ring), 8, |_| "entry"));
            words.extend(slot_words("shared queue store", word(&srq.store), stride, receive_word_name));
        }
        _ => {
            let stride = qp.recv_stride.load(Ordering::Relaxed).into();
            words.extend(slot_words("receive ring", word(&qp.recv_ring), stride, receive_word_name));
        }
    }
    if word(&qp.service.0.bounce) != 0 {
        words.extend(slot_words("bounce", word(&qp.service.0.bounce), 8, |_| "bytes"));
    }
    words
}

/// The words of a ring's first slots; `called` names the words of a slot.
fn slot_words(ring: &str, base: u64, stride: u64, called: fn(usize) -> &'static str) -> Vec<Word> {
    let word = |i: u64| {
        let (slot, at) = (i * 8 / stride, i * 8 % stride / 8);
        let field = format!("{ring}.{}", called(at as usize));
        Word {
            name: format!("{field}, slot {slot} word {at}"),
            field,
            of_peer: false,
            offset: base + i * 8,
            width: 8,
        }
    };
    (0..SLOTS * stride / 8).map(word).collect()
}

/// The name of a word of a receive; see [`recv`].
fn receive_word_name(at: usize) -> &'static str {
    match at {
        recv::MARK => "mark",
        recv::WR_ID => "wr_id",
        _ if (at - recv::SGES).is_multiple_of(2) => "address",
        _ => "length and key",
    }
}

/// The name of a word of a completion; see [`comp`].
fn completion_word_name(at: usize) -> &'static str {
    match at {
        comp::MARK => "mark",
        comp::LEN_IMM => "length and immediate",
        comp::RECEIVE => "receive",
        at if at < comp::BYTES => "unnamed",
        _ => "bytes",
    }
}

/// The fields of a hello packet; see `wire`. The last one is the packet's length.
pub fn hello_words() -> Vec<Word> {
    let fields: [(&str, u64, u8); 12] = [
        ("magic", 0, 4),
        ("version", 4, 2),
        ("kind", 6, 1),
        ("barriers", 7, 1),
        ("token", 8, 8),
        ("process", 16, 8),
        ("probe_addr", 24, 8),
        ("qp_index", 32, 4),
        ("generation", 36, 4),
        ("qp_num", 40, 4),
        ("depths", 44, 4),
        ("length", hello_fault::LENGTH, 2),
    ];
    let word = |(name, offset, width)| {
        let name = format!("hello.{name}");
        Word { field: name.clone(), name, of_peer: false, offset, width }
    };
    fields.map(word).to_vec()
}

/// Sets this field to `value` in all hellos of this process; `None` stops that.
pub fn set_hello_fault(lie: Option<(Word, u64)>) {
    hello_fault::set(lie.map(|(word, value)| (word.offset, word.width, value)));
}

/// Finds a word by its name.
///
/// # Errors
/// If no word has that name.
pub fn find<'w>(words: &'w [Word], name: &str) -> Result<&'w Word> {
    let missing = || Error::Invalid(format!("no word has the name {name}"));
    words.iter().find(|word| word.name == name).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::{Hello, Message};

    /// Goal: no word of the layout is left out. Method: the words of each structure cover its size without a
    /// gap or an overlap, each name is a separate word, and each word can be written and read back.
    #[test]
    fn every_word_of_the_layout_is_listed_once_and_can_be_changed() {
        let tables: [(Names, usize); 6] = [
            (HEADER, size_of::<Header>()),
            (REGION, size_of::<MrEntry>()),
            (QUEUE_PAIR, size_of::<QpShared>()),
            (COMPLETION_QUEUE, size_of::<CqShared>()),
            (SHARED_QUEUE, size_of::<SrqShared>()),
            (CHANNEL, size_of::<ChannelShared>()),
        ];
        for (names, size) in tables {
            let words = struct_words("t", names, size, 0);
            let mut end = 0;
            for word in &words {
                assert_eq!(word.offset, end, "{word:?}");
                assert!(word.offset.is_multiple_of(word.width.into()), "{word:?}");
                end += u64::from(word.width);
            }
            assert_eq!(end, size as u64);
            let is_there =
                |named: &NamedField| words.iter().any(|w| w.field.starts_with(&format!("t.{}", named.name)));
            assert!(names.iter().all(is_there));
        }
        let (one, other) = crate::hostile_peer::connected_qps();
        let lab = FaultInjector::of(&one).expect("a queue pair of this NIC");
        let words = [lab.own_words(&[1]), lab.peer_words(&[1])].concat();
        let places = |field| words.iter().filter(|word| word.field == field && !word.of_peer).count();
        assert_eq!(
            ["region 0.len", "header.visited.words[1]", "header.visited.words[2..]"].map(places),
            [1, 1, 126]
        );
        assert!(words.len() > 300 && words.iter().any(|word| word.of_peer));
        for word in words.iter().filter(|word| !word.name.contains("busy")) {
            let old = lab.read(word).expect("mapped");
            assert!(lab.write(word, old ^ 1));
            assert_eq!(lab.read(word), Some(old ^ 1), "{word:?}");
            assert!(lab.write(word, old));
        }
        drop(other);
    }

    /// Goal: the fields of the packet have the listed offsets. Method: a changed packet parses to the changed
    /// value.
    #[test]
    fn faulty_hellos_have_the_forged_value() {
        let hello = Hello {
            token: 1,
            process: 2,
            probe_addr: 3,
            qp_index: 4,
            generation: 5,
            qp_num: 6,
            barriers: false,
            depths: verbs::Depths { responder_resources: 7, initiator_depth: 8 },
            rnr_retry: 6,
            private_data: Vec::new(),
        };
        let words = hello_words();
        for name in ["token", "process", "probe_addr", "qp_index", "generation", "qp_num"] {
            let word = find(&words, &format!("hello.{name}")).expect("a field");
            let mut packet = Message::Request(hello.clone()).emit();
            set_hello_fault(Some((word.clone(), 99)));
            hello_fault::apply(&mut packet);
            set_hello_fault(None);
            let Ok(Message::Request(said)) = Message::parse(&packet) else { panic!("{name}: no hello") };
            assert!(format!("{said:?}").contains(&format!("{name}: 99")), "{said:?}");
        }
    }
}
