//! The protocols ([`Proto`]) that carry a message from one process to another, and [`Protocols`]: the table of an endpoint, by
//! message size.
//!
//! An endpoint's table is computed when it is wired up, from the device's capabilities ([`EndpointTraits`]). A send looks its
//! protocol up in the table, by its size and its [`Conditions`]. `nicety explain mpi` prints the same tables ([`protocols`]), and
//! the counters of [`Traffic`](crate::Traffic) have the same names.

use std::ops::RangeInclusive;

pub use pmi::profile::Proto;
use verbs::{Access, DeviceAttr};

use crate::p2p::shm_copy::SHARED_MIN;
use crate::p2p::wire::{HEAD, LINE_MAX};
use crate::peers::nic::{DIRECT_MAX, INLINE, STORED_FRAGMENT, STORED_MAX, Sizes, longest_stored};

/// The cost of a protocol for a message, apart from time per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// One-way trips between the two processes before the receiver has all data.
    pub trips: u8,
    /// How often MPI itself copies each byte. Copies by the device and the kernel do not count.
    pub copies: u8,
}

/// The cost of a protocol for a message.
pub fn cost(proto: Proto) -> Cost {
    let (trips, copies) = match proto {
        Proto::Own => (0, 2),
        Proto::EagerLine | Proto::EagerRing | Proto::EagerInline | Proto::EagerCopy => (1, 2),
        Proto::EagerWrite => (1, 2),
        Proto::EagerFrag => (1, 2),
        // Only the beginning, which fills a slot, is copied.
        Proto::EagerDirect => (1, 0),
        // RTS, and the read's request and response.
        Proto::RndvGet => (3, 0),
        // RTS, SHM_CTS, SHM_FIN.
        Proto::RndvShm => (3, 0),
    };
    Cost { trips, copies }
}

/// A bit set: the properties of a send, or the properties that a protocol requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conditions(u8);

impl Conditions {
    /// No condition at all.
    pub(crate) const NONE: Self = Self(0);
    /// The data are contiguous in the program's memory.
    const IN_PLACE: Self = Self(1);
    /// Local completion: the send completes when its buffer may be reused, whether a receive has matched it or not.
    const LOCAL: Self = Self(2);
    /// The caller waits for the send, and so makes progress meanwhile.
    const BLOCKING: Self = Self(4);
    /// Plain stores to the receiver's memory cost less than others ([`transport::StoreMeter`]).
    const NEAR: Self = Self(8);

    /// The conditions of a send.
    #[inline]
    pub(crate) fn new(in_place: bool, is_local: bool, is_blocking: bool) -> Self {
        Self(u8::from(in_place) | u8::from(is_local) << 1 | u8::from(is_blocking) << 2)
    }

    /// These, with or without [`Conditions::NEAR`].
    #[inline]
    pub(crate) fn with_near(self, is_near: bool) -> Self {
        Self(self.0 | if is_near { Self::NEAR.0 } else { 0 })
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    fn contain(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
}

/// How the endpoint sends short messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortPath {
    /// By stores into mapped NIC memory of the receiver.
    Stored,
    /// By RDMA writes.
    Written,
    /// By sends.
    Sent,
}

/// The properties of an endpoint that determine its protocols and their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndpointTraits {
    /// How short messages are sent.
    pub(crate) short: ShortPath,
    /// Payload bytes of the longest eager message.
    pub(crate) room: usize,
    /// Long messages are sent from the program's memory, and received into it (`Nic::sends_direct`).
    pub(crate) direct: bool,
    /// Each process can read and write all memory of the other.
    pub(crate) both: bool,
}

/// Limits that a program has set, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtocolLimits {
    /// The longest message that may be sent eagerly.
    pub(crate) eager_max: u64,
    /// The shortest message that both sides copy; if `None`, [`SHARED_MIN`], or more where the ring is faster.
    pub(crate) both_sides_copy_min: Option<u64>,
}

impl Default for ProtocolLimits {
    fn default() -> Self {
        Self { eager_max: u64::MAX, both_sides_copy_min: None }
    }
}

/// One protocol of an endpoint.
#[derive(Clone, Copy, Debug)]
struct ProtocolRow {
    proto: Proto,
    /// The longest message that it carries.
    max: u64,
    needs: Conditions,
}

/// The largest number of protocols of an endpoint.
const PROTOCOLS_MAX: usize = 7;

/// The lengths of messages that are stored in fragments only while plain stores are cheap. Others take two copies by the kernel then,
/// one at each side. On a Zen 3, 64 KiB took 3.3 us in fragments and 4.3 by the kernel while processors shared a cache, else 7.8 and
/// 6.6. A send that does not block may find no room for as long as this process does not call MPI, so only shorter ones are.
pub(crate) const STORED_IF_NEAR: RangeInclusive<u64> = SHARED_MIN..=STORED_MAX;
/// The longest message that a send stores in fragments if it does not block.
const STORED_MAX_NONBLOCKING: u64 = 128 << 10;

/// The protocols of an endpoint, by size.
#[derive(Clone, Debug)]
pub(crate) struct Protocols {
    rows: [ProtocolRow; PROTOCOLS_MAX],
    /// The longest message that any send may send eagerly.
    eager_max: u64,
    /// Payload bytes of the longest fragment.
    room: usize,
}

impl Protocols {
    /// Computes the table of an endpoint.
    pub(crate) fn new(traits: EndpointTraits, chosen: &ProtocolLimits) -> Self {
        let EndpointTraits { short, room, direct, both } = traits;
        let eager_max = (room as u64).min(chosen.eager_max);
        let row = |proto, max: u64, needs| ProtocolRow { proto, max, needs };
        let get = row(Proto::RndvGet, u64::MAX, Conditions::NONE);
        let first = |proto, max: usize| row(proto, eager_max.min(max as u64), Conditions::NONE);
        let all = |proto| row(proto, eager_max, Conditions::NONE);
        let rows = match short {
            ShortPath::Stored => {
                let line = first(Proto::EagerLine, LINE_MAX);
                let shared = if both { row(Proto::RndvShm, u64::MAX, Conditions::NONE) } else { get };
                let read_max = chosen.both_sides_copy_min.unwrap_or(SHARED_MIN).saturating_sub(1);
                let read = row(Proto::RndvGet, read_max, Conditions::NONE);
                let most =
                    longest_stored(room).min(chosen.both_sides_copy_min.map_or(u64::MAX, |min| min - 1));
                let stored = |max: u64, needs| {
                    let max = max.min(most).min(chosen.eager_max).max(eager_max);
                    row(Proto::EagerFrag, max, Conditions::IN_PLACE.and(Conditions::LOCAL).and(needs))
                };
                let far = stored(SHARED_MIN - 1, Conditions::NONE);
                let near = stored(STORED_MAX_NONBLOCKING, Conditions::NEAR);
                let blocking = stored(STORED_MAX, Conditions::NEAR.and(Conditions::BLOCKING));
                [line, all(Proto::EagerRing), far, near, blocking, read, shared]
            }
            ShortPath::Written => [all(Proto::EagerWrite), get, get, get, get, get, get],
            ShortPath::Sent => {
                let inline = first(Proto::EagerInline, INLINE - HEAD);
                let needs = Conditions::IN_PLACE.and(Conditions::LOCAL);
                let max = DIRECT_MAX.min(chosen.eager_max);
                let direct = if direct { row(Proto::EagerDirect, max, needs) } else { get };
                [inline, all(Proto::EagerCopy), direct, get, get, get, get]
            }
        };
        Self { rows, eager_max, room }
    }

    /// The protocol of a message of `len` bytes.
    #[inline]
    pub(crate) fn select(&self, len: u64, has: Conditions) -> Proto {
        let row = self.rows.iter().find(|row| len <= row.max && has.contain(row.needs));
        row.map_or(Proto::RndvGet, |row| row.proto)
    }

    /// The longest message that any send may send eagerly.
    #[inline]
    pub(crate) fn eager_max(&self) -> u64 {
        self.eager_max
    }

    /// Bytes of a fragment of a message of `len` bytes.
    pub(crate) fn fragment(&self, len: usize) -> usize {
        let bytes = len.div_ceil(4).next_multiple_of(64);
        bytes.clamp(*STORED_FRAGMENT.start(), *STORED_FRAGMENT.end()).min(self.room)
    }

    /// The protocols of a send that meets these conditions, each with its first size.
    fn size_ranges(&self, has: Conditions) -> Vec<(u64, Proto)> {
        let mut size_ranges: Vec<(u64, Proto)> = Vec::new();
        let ends = self.rows.iter().map(|row| row.max.saturating_add(1));
        let mut froms: Vec<u64> = std::iter::once(0).chain(ends).filter(|from| *from < u64::MAX).collect();
        froms.sort_unstable();
        for from in froms {
            let proto = self.select(from, has);
            if size_ranges.last().is_none_or(|(_, last)| *last != proto) {
                size_ranges.push((from, proto));
            }
        }
        size_ranges
    }
}

/// A protocol, and the first message size that it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The first size, in bytes.
    pub from: u64,
    /// The protocol.
    pub proto: Proto,
    /// What the protocol does, and why it begins at this size.
    pub why: String,
}

/// The protocols, by size, of a blocking standard send (`MPI_Send`) of contiguous data over a device to another process, in a job
/// of `ranks` processes. Modelled cards have shorter slots than real devices.
pub fn protocols(attr: &DeviceAttr, ranks: u32, is_model: bool) -> Vec<Protocol> {
    let sizes = Sizes::of_device(attr, is_model, ranks);
    let traits = EndpointTraits {
        short: if attr.maps_peers { ShortPath::Stored } else { ShortPath::Sent },
        room: if attr.maps_peers { sizes.record_payload() } else { sizes.slot_payload() },
        // The same conditions as `Nic::sends_direct` and `Nic::reaches_both_ways`.
        direct: attr.split_receives && attr.implicit_mr.is_some() && !attr.maps_peers && !is_model,
        both: attr.implicit_mr.is_some_and(|access| access.contains(Access::ALL)),
    };
    let table = Protocols::new(traits, &ProtocolLimits::default());
    let size_ranges = table.size_ranges(Conditions::new(true, true, true).with_near(true));
    let of = |(from, proto)| Protocol { from, proto, why: why(proto, attr, (sizes, ranks)) };
    size_ranges.into_iter().map(of).collect()
}

/// Explains what a protocol does, and why it begins at its first size.
fn why(proto: Proto, attr: &DeviceAttr, (sizes, ranks): (Sizes, u32)) -> String {
    match proto {
        Proto::Own => "copied within the process".into(),
        Proto::EagerLine => "stored in a cache line that both write in turn, if the message answers one; other messages use the ring".into(),
        Proto::EagerRing => {
            let ring = sizes.ring;
            format!("stored in a ring of {ring} B in the receiver's NIC memory, and copied out of it")
        }
        Proto::EagerWrite => "written by RDMA to memory that the receiver polls".into(),
        Proto::EagerInline => {
            let (slots, bytes) = (sizes.slots, sizes.slot_bytes);
            format!(
                "the data are part of the work request, and wait at the receiver in one of {slots} slots of {bytes} B that each process \
                 has for each other one"
            )
        }
        Proto::EagerCopy => {
            format!("with its header the message has more than the {INLINE} B that can be sent inline: copied into a slot, and out of one")
        }
        Proto::EagerDirect => "sent from the program's memory as one message: the receiver sees its header, and the device reads the rest into \
             the memory of the matching receive, or if there is none yet, into memory of its own"
            .into(),
        Proto::EagerFrag => format!(
            "fragments of {} to {} KiB are stored in the ring, and the receiver copies one out of it while the next one is stored. Where \
             plain stores to the receiver's memory cost more than stores that bypass the caches, as measured while messages are sent, \
             only messages of less than {} KiB are; of sends that do not block, up to {} KiB",
            STORED_FRAGMENT.start() >> 10,
            STORED_FRAGMENT.end() >> 10,
            SHARED_MIN >> 10,
            STORED_MAX_NONBLOCKING >> 10
        ),
        Proto::RndvGet => {
            let reached = match attr.implicit_mr {
                Some(_) => "a region of all memory, so that no memory is registered for it",
                None => "a region that is registered at either end, or on modelled cards found in the registration cache",
            };
            format!(
                "more than an eager message holds in a job of {ranks}: an RTS has the address of the data, and the receiver reads them by RDMA \
                 through {reached}"
            )
        }
        Proto::RndvShm => {
            "the receiver reads pieces, and the sender writes others after a CTS: each side claims pieces by a word in NIC memory that both map"
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_sizes(attr: &DeviceAttr, ranks: u32, is_model: bool) -> Vec<(u64, &'static str)> {
        let rows = protocols(attr, ranks, is_model);
        rows.iter().map(|row| (row.from, row.proto.name())).collect()
    }

    #[test]
    fn large_jobs_have_shorter_slots() {
        let attr = fabric::attr("model:mt23108-vapi").expect("a card");
        let names =
            |rows: Vec<(u64, &'static str)>| rows.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(first_sizes(&attr, 4, true)), ["eager/inline", "eager/copy", "rndv/get"]);
        let last = |attr, ranks, is_model| first_sizes(attr, ranks, is_model).last().expect("some").0;
        assert!(last(&attr, 4096, true) < last(&attr, 4, true));
        assert_eq!(
            [8, 9, 65].map(|ranks| last(&attr, ranks, false)),
            [(64 << 10) + 17, (8 << 10) + 17, last(&attr, 65, true)]
        );
    }

    #[test]
    fn devices_that_split_receives_send_long_messages_directly() {
        let attr = fabric::attr("model:mt23108-vapi").expect("a card");
        let attr = DeviceAttr { implicit_mr: Some(Access::LOCAL_WRITE), split_receives: true, ..attr };
        for ranks in [8, 64] {
            let begins = [(8 << 10) + 17, DIRECT_MAX + 1];
            let rows = first_sizes(&attr, ranks, false);
            assert_eq!(rows[2..], [(begins[0], "eager/direct"), (begins[1], "rndv/get")]);
        }
    }

    #[test]
    fn mapped_devices_store_short_messages_and_copy_long_ones_at_both_sides() {
        let attr = fabric::attr("model:mt23108-vapi").expect("a card");
        let mapped = DeviceAttr { maps_peers: true, implicit_mr: None, ..attr.clone() };
        let short = [(0, "eager/line"), (17, "eager/ring"), ((16 << 10) + 1, "eager/frag")];
        let then = |last| [&short[..], &[((256 << 10) + 1, last)]].concat();
        assert_eq!(first_sizes(&mapped, 4, false), then("rndv/get"));
        let reached = DeviceAttr { implicit_mr: Some(Access::ALL), ..mapped };
        assert_eq!(first_sizes(&reached, 4, false), then("rndv/shm-both"));
        let large =
            [(0, "eager/line"), (17, "eager/ring"), (2001, "rndv/get"), (SHARED_MIN, "rndv/shm-both")];
        assert_eq!(first_sizes(&reached, 65, false), large, "records are too short for fragments");
    }

    /// Which messages are stored in fragments depends on the cost of plain stores, on the call, and on the program's limits.
    #[test]
    fn long_messages_are_stored_while_that_is_cheap() {
        let traits = EndpointTraits { short: ShortPath::Stored, room: 16 << 10, direct: false, both: true };
        let table = Protocols::new(traits, &ProtocolLimits::default());
        let of = |len: u64, is_near, is_blocking| {
            table.select(len, Conditions::new(true, true, is_blocking).with_near(is_near))
        };
        for (is_blocking, near_max) in [(false, STORED_MAX_NONBLOCKING), (true, STORED_MAX)] {
            assert_eq!(of(SHARED_MIN - 1, false, is_blocking), Proto::EagerFrag);
            assert_eq!(of(SHARED_MIN, false, is_blocking), Proto::RndvShm);
            assert_eq!(of(near_max, true, is_blocking), Proto::EagerFrag);
            assert_eq!(of(near_max + 1, true, is_blocking), Proto::RndvShm);
        }
        assert_eq!(
            [1, 50_000, STORED_MAX as usize].map(|len| table.fragment(len)),
            [8 << 10, 12_544, 16 << 10]
        );
        let synchronous = Conditions::new(true, false, true).with_near(true);
        assert_eq!(table.select(20 << 10, synchronous), Proto::RndvGet);
        let chosen = ProtocolLimits { both_sides_copy_min: Some(100 << 10), ..ProtocolLimits::default() };
        let ranges = |chosen| {
            Protocols::new(traits, chosen).size_ranges(Conditions::new(true, true, true).with_near(true))
        };
        assert_eq!(ranges(&chosen)[2..], [((16 << 10) + 1, Proto::EagerFrag), (100 << 10, Proto::RndvShm)]);
        let chosen = ProtocolLimits { eager_max: 1000, ..ProtocolLimits::default() };
        assert_eq!(ranges(&chosen)[2..], [(1001, Proto::RndvGet), (SHARED_MIN, Proto::RndvShm)]);
    }

    /// A send that lacks the conditions of a protocol uses another protocol.
    #[test]
    fn sends_without_the_conditions_of_a_protocol_take_another() {
        let traits = EndpointTraits { short: ShortPath::Sent, room: 8 << 10, direct: true, both: false };
        let table = Protocols::new(traits, &ProtocolLimits::default());
        let of = |len, in_place, is_local| table.select(len, Conditions::new(in_place, is_local, true));
        assert_eq!(of(100 << 10, true, true), Proto::EagerDirect);
        assert_eq!(of(100 << 10, true, false), Proto::RndvGet);
        assert_eq!(of(100 << 10, false, true), Proto::RndvGet);
        assert_eq!(of(DIRECT_MAX + 1, true, true), Proto::RndvGet);
        assert_eq!(of(8 << 10, false, false), Proto::EagerCopy);
    }

    /// A limit set by the program moves the size limits, and every size still has a protocol.
    #[test]
    fn lower_eager_limit_moves_the_size_limits() {
        let traits = EndpointTraits { short: ShortPath::Sent, room: 64 << 10, direct: true, both: false };
        let chosen = ProtocolLimits { eager_max: 1000, ..ProtocolLimits::default() };
        let table = Protocols::new(traits, &chosen);
        let size_ranges = table.size_ranges(Conditions::new(true, true, true));
        assert_eq!(size_ranges, [(0, Proto::EagerInline), (81, Proto::EagerCopy), (1001, Proto::RndvGet)]);
        assert_eq!(table.eager_max(), 1000);
        let none = Protocols::new(traits, &ProtocolLimits { eager_max: 0, ..chosen });
        assert_eq!(
            none.size_ranges(Conditions::new(true, true, true)),
            [(0, Proto::EagerInline), (1, Proto::RndvGet)]
        );
    }
}
