//! Two connected nodes: data of all sizes and shapes arrive in the right place, on each device, and a failed
//! peer is reported.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use portals::{
    AckReq, Action, CtHandle, Datatype, Engine, Entry, EntryOptions, EqHandle, Event, EventKind, Fail, Key,
    Limits, List, ListId, Matcher, MdAddr, MdHandle, MdOptions, MemoryDescriptor, Ni, NiKind, Node, Op,
    Operand, Piece, Process, PtOptions, Region, Transfer,
};
use verbs::host::Span;

/// Memory that both the test and the library access: the library by address.
struct Memory(Vec<AtomicU8>);

impl Memory {
    fn new(bytes: impl IntoIterator<Item = u8>) -> Self {
        Self(bytes.into_iter().map(AtomicU8::new).collect())
    }

    fn zeros(len: usize) -> Self {
        Self::new(std::iter::repeat_n(0, len))
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    fn addr(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    fn region(&self) -> Region {
        Region::new(self.addr(), self.0.len() as u64)
    }

    /// All of it, as three pieces.
    fn pieces(&self) -> Region {
        let (len, addr) = (self.0.len() as u64, self.addr());
        let cuts = [0, len / 3, len / 2, len];
        let piece = |cut: &[u64]| Piece { addr: addr + cut[0], len: cut[1] - cut[0] };
        Region::from_pieces(&cuts.windows(2).map(piece).collect::<Vec<_>>()).expect("few bytes")
    }
}

const KIND: NiKind = NiKind { is_matching: true, is_logical: false };

/// A device, and the thread that matches messages.
#[derive(Clone, Copy)]
struct At(&'static str, Matcher);

const SHM: At = At("shm", Matcher::Caller);

fn node(at: At) -> Node {
    node_with(at, 1)
}

/// A node whose key consists of this byte.
fn node_with(At(device, matcher): At, key: u8) -> Node {
    let host = verbs::host::real::host();
    let device = fabric::open(device, &host).expect("a device");
    let address = match device.attr().port_addrs.first() {
        Some(IpAddr::V4(address)) => *address,
        _ => Ipv4Addr::LOCALHOST,
    };
    // SAFETY: the tests keep all memory until the operations that use it have completed.
    unsafe { Node::open(&host, &device, address, None, 7, matcher, &Key::from_bytes([key; 16])) }
        .expect("a node")
}

/// One side of a test.
struct Side {
    ni: Ni,
    eq: EqHandle,
    ct: CtHandle,
}

impl Side {
    fn new(at: At, kind: NiKind) -> Self {
        Self::at(&node(at), kind)
    }

    fn at(node: &Node, kind: NiKind) -> Self {
        let ni = node.interface(kind, Limits::default());
        let open = |engine: &mut Engine| {
            let eq = engine.eq_alloc(100).expect("the first");
            engine.pt_alloc(PtOptions::empty(), Some(eq), Some(0)).expect("the first");
            (eq, engine.ct_alloc().expect("the first"))
        };
        let (eq, ct) = ni.with_engine(open).expect("open");
        Self { ni, eq, ct }
    }

    fn me(&self) -> Process {
        self.ni.node().me()
    }

    fn append(&self, region: Region, options: EntryOptions, user_ptr: u64) {
        let options =
            options | EntryOptions::OP_PUT | EntryOptions::OP_GET | EntryOptions::EVENT_LINK_DISABLE;
        let place = ListId { pt_index: 0, list: List::Priority };
        let entry = Entry::taking_all(region, options);
        self.ni.with_engine(|engine| engine.append(place, entry, user_ptr)).expect("open").expect("room");
    }

    fn bind(&self, region: Region) -> MdHandle {
        let options = MdOptions::EVENT_CT_REPLY | MdOptions::EVENT_CT_ACK;
        let md = MemoryDescriptor { region, options, eq: Some(self.eq), counter: Some(self.ct) };
        self.ni.with_engine(|engine| engine.md_bind(md)).expect("open").expect("room")
    }

    fn next(&self) -> Event {
        let deadline = self.ni.after(Span::from_secs(30));
        let look = |engine: &mut Engine| engine.eq_get(self.eq).expect("a queue");
        self.ni.wait("test", deadline, look).expect("an event in time").0
    }

    /// The next event, which must be of this kind.
    fn expect(&self, kind: EventKind) -> Event {
        let event = self.next();
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    fn begin(&self, transfer: &Transfer) {
        self.ni.with_engine(|engine| engine.transfer(transfer)).expect("open").expect("legal");
    }
}

fn transfer(action: Action, md: MdHandle, length: u64, target: Process) -> Transfer {
    let local = MdAddr { md, offset: 0 };
    Transfer {
        action,
        put: action.brings().then_some(local),
        get: action.fetches().then_some(local),
        length,
        ack: AckReq::Full,
        target,
        pt_index: 0,
        match_bits: 0,
        remote_offset: 0,
        user_ptr: 5,
        hdr_data: 77,
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 13 + at / 251) as u8).collect()
}

const SIZES: [usize; 8] = [0, 1, 8, 100, 8000, 8081, 100_000, 3 << 20];

/// Goal: puts and gets of all sizes, with memory in one piece and in several. Method: all data are compared.
fn data_go_where_they_belong(at: At) {
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    for (round, len) in SIZES.into_iter().enumerate() {
        for in_pieces in [false, true] {
            let (ours, theirs) = (Memory::new(pattern(round, len)), Memory::zeros(len));
            let shape = |memory: &Memory| if in_pieces { memory.pieces() } else { memory.region() };
            let md = a.bind(shape(&ours));
            b.append(shape(&theirs), EntryOptions::USE_ONCE | EntryOptions::EVENT_UNLINK_DISABLE, 9);
            a.begin(&transfer(Action::Put, md, len as u64, b.me()));
            let event = b.expect(EventKind::Put);
            assert_eq!((event.mlength, event.user_ptr, event.hdr_data), (len as u64, 9, 77));
            assert_eq!((event.initiator, event.uid, event.fail), (a.me(), 7, Fail::Ok));
            assert_eq!(theirs.bytes(), ours.bytes(), "a put of {len} bytes, in pieces: {in_pieces}");
            a.expect(EventKind::Send);
            assert_eq!((a.expect(EventKind::Ack).mlength, event.rlength), (len as u64, len as u64));
            a.ni.with_engine(|engine| engine.md_release(md)).expect("open").expect("unused");

            let (ours, theirs) = (Memory::zeros(len), Memory::new(pattern(round + 50, len)));
            let md = a.bind(shape(&ours));
            b.append(shape(&theirs), EntryOptions::USE_ONCE | EntryOptions::EVENT_UNLINK_DISABLE, 9);
            a.begin(&transfer(Action::Get, md, len as u64, b.me()));
            assert_eq!(b.expect(EventKind::Get).mlength, len as u64);
            assert_eq!(a.expect(EventKind::Reply).mlength, len as u64);
            assert_eq!(theirs.bytes(), ours.bytes(), "a get of {len} bytes, in pieces: {in_pieces}");
        }
    }
    a.ni.close();
    b.ni.close();
}

/// Goal: atomic operations, truncation, and messages without an entry.
fn atomics_and_truncation_and_drops_are_reported(at: At) {
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    let (ours, theirs) = (Memory::new(5_u64.to_ne_bytes()), Memory::new(37_u64.to_ne_bytes()));
    let md = a.bind(ours.region());
    a.begin(&transfer(Action::Put, md, 8, b.me()));
    a.expect(EventKind::Send);
    assert_eq!(a.expect(EventKind::Ack).fail, Fail::Dropped, "there is no entry");

    b.append(theirs.region(), EntryOptions::empty(), 1);
    a.begin(&transfer(Action::Atomic(Op::Sum, Datatype::Uint64), md, 8, b.me()));
    assert_eq!(b.expect(EventKind::Atomic).atomic, Some((Op::Sum, Datatype::Uint64)));
    assert_eq!(theirs.bytes(), 42_u64.to_ne_bytes());
    a.expect(EventKind::Send);
    a.expect(EventKind::Ack);

    let mut operand = Operand::default();
    operand[..8].copy_from_slice(&42_u64.to_ne_bytes());
    let result = Memory::zeros(8);
    let get = Some(MdAddr { md: a.bind(result.region()), offset: 0 });
    let swap = Action::Swap(Op::Cswap, Datatype::Uint64, operand);
    a.begin(&Transfer { get, ..transfer(swap, md, 8, b.me()) });
    b.expect(EventKind::FetchAtomic);
    a.expect(EventKind::Send);
    a.expect(EventKind::Reply);
    assert_eq!(
        (result.bytes(), theirs.bytes()),
        (42_u64.to_ne_bytes().to_vec(), 5_u64.to_ne_bytes().to_vec())
    );

    let long = Memory::new(pattern(1, 100_000));
    let md = a.bind(long.region());
    a.begin(&transfer(Action::Put, md, 100_000, b.me()));
    let event = b.expect(EventKind::Put);
    assert_eq!((event.rlength, event.mlength), (100_000, 8));
    assert_eq!(theirs.bytes(), long.bytes()[..8]);
    let silent =
        Transfer { ack: AckReq::None, remote_offset: 3, ..transfer(Action::Put, md, 100_000, b.me()) };
    a.expect(EventKind::Send);
    a.expect(EventKind::Ack);
    a.begin(&silent);
    a.expect(EventKind::Send);
    assert_eq!(b.expect(EventKind::Put).mlength, 5);
}

/// Goal: operations of a process on itself behave as those on others.
#[test]
fn operations_on_the_process_itself_complete() {
    let a = Side::new(SHM, KIND);
    for len in SIZES {
        let (from, to, back) = (Memory::new(pattern(2, len)), Memory::zeros(len), Memory::zeros(len));
        a.append(to.region(), EntryOptions::USE_ONCE | EntryOptions::EVENT_UNLINK_DISABLE, 1);
        a.begin(&transfer(Action::Put, a.bind(from.region()), len as u64, a.me()));
        let kinds = [a.next().kind, a.next().kind, a.next().kind];
        assert_eq!(kinds, [EventKind::Send, EventKind::Put, EventKind::Ack]);
        a.append(to.pieces(), EntryOptions::USE_ONCE | EntryOptions::EVENT_UNLINK_DISABLE, 1);
        a.begin(&transfer(Action::Get, a.bind(back.pieces()), len as u64, a.me()));
        assert_eq!([a.next().kind, a.next().kind], [EventKind::Get, EventKind::Reply]);
        assert_eq!((to.bytes(), back.bytes()), (from.bytes(), from.bytes()));
    }
}

/// Goal: a target that makes no calls is reachable nevertheless. Method: the target calls nothing until the
/// initiator knows that everything has completed.
fn target_is_reachable_without_calls(at: At) {
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    let (ours, theirs) = (Memory::new(pattern(3, 50_000)), Memory::zeros(50_000));
    b.append(theirs.region(), EntryOptions::empty(), 1);
    let md = a.bind(ours.region());
    for length in [10, 50_000] {
        a.begin(&transfer(Action::Put, md, length, b.me()));
        a.expect(EventKind::Send);
        a.expect(EventKind::Ack);
        assert_eq!(theirs.bytes()[..length as usize], ours.bytes()[..length as usize]);
    }
}

/// Goal: with more messages than slots, in both directions at the same time, none is lost and all stay in
/// order.
fn many_messages_stay_in_order(at: At) {
    flood([at, at]);
}

/// Goal: immediate puts stay in order with other puts, and puts with events, or without room, are left to the
/// usual path. Method: more puts than a link has room for.
fn puts_at_once_stay_in_order(at: At) {
    const COUNT: u64 = 90;
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    let (ours, theirs) = (Memory::new(pattern(3, 8 * COUNT as usize)), Memory::zeros(8 * COUNT as usize));
    b.append(theirs.region(), EntryOptions::empty(), 1);
    let reported = a.bind(ours.region());
    let options = MdOptions::EVENT_SUCCESS_DISABLE;
    let md = MemoryDescriptor { region: ours.region(), options, eq: Some(a.eq), counter: None };
    let silent = a.ni.with_engine(|engine| engine.md_bind(md)).expect("open").expect("room");
    let put = |md, number: u64| Transfer {
        put: Some(MdAddr { md, offset: 8 * number }),
        ack: AckReq::None,
        remote_offset: 8 * number,
        hdr_data: number,
        ..transfer(Action::Put, md, 8, b.me())
    };
    assert!(!a.ni.try_put(&put(silent, 0)), "there is no link");
    a.begin(&put(silent, 0));
    assert_eq!(b.expect(EventKind::Put).hdr_data, 0);
    for refused in [put(reported, 1), Transfer { ack: AckReq::Full, ..put(silent, 1) }] {
        assert!(!a.ni.try_put(&refused), "{refused:?} is told of");
    }
    let beyond = Transfer { length: 8 * COUNT, ..put(silent, 1) };
    assert!(!a.ni.try_put(&beyond), "it cannot begin");
    let mut at_once = 0;
    for number in 1..COUNT {
        match a.ni.try_put(&put(silent, number)) {
            true => at_once += 1,
            false => a.begin(&put(silent, number)),
        }
    }
    for number in 1..COUNT {
        // The initiator learns of room at the peer when it polls.
        assert_eq!(a.ni.test(|engine| engine.eq_get(a.eq)), Some(Ok(None)));
        assert_eq!(b.expect(EventKind::Put).hdr_data, number);
    }
    assert!(at_once > 0 && theirs.bytes() == ours.bytes());
}

/// Goal: a process without memory for stored messages receives sent ones, and still stores its own at the
/// peer. Method: the NICs of one side, or of both, have too little memory for a ring.
#[test]
fn flood_arrives_without_nic_memory() {
    let small = At("shm(dm=4K)", Matcher::Caller);
    flood([small, small]);
    flood([small, SHM]);
    data_go_where_they_belong(small);
}

fn flood(places: [At; 2]) {
    const COUNT: u64 = 2000;
    let sides = places.map(|at| Side::new(at, KIND));
    let memory = [Memory::zeros(64), Memory::zeros(64)];
    let mut mds = Vec::new();
    for (side, memory) in sides.iter().zip(&memory) {
        side.append(memory.region(), EntryOptions::EVENT_COMM_DISABLE, 1);
        mds.push(side.bind(memory.region()));
    }
    let quiet = |side: &Side, md, to| {
        let all = transfer(Action::Put, md, 8, to);
        (0..COUNT).for_each(|number| {
            side.begin(&Transfer { ack: AckReq::Counting, hdr_data: number, user_ptr: number, ..all });
        });
    };
    for (side, other) in [(0, 1), (1, 0)] {
        quiet(&sides[side], mds[side], sides[other].me());
    }
    for side in &sides {
        let deadline = side.ni.after(Span::from_secs(30));
        let all = |engine: &mut Engine| {
            let count = engine.ct_get(side.ct).expect("a counter");
            (count.success == COUNT && count.failure == 0).then_some(())
        };
        assert!(
            side.ni.wait("test", deadline, all).is_some(),
            "{:?}",
            side.ni.with_engine(|engine| engine.ct_get(side.ct))
        );
        let events = std::iter::from_fn(|| {
            side.ni.with_engine(|engine| engine.eq_get(side.eq)).expect("open").expect("a queue")
        });
        let sent: Vec<u64> = events.map(|(event, _)| event.user_ptr).collect();
        assert_eq!(sent, (COUNT - 100..COUNT).collect::<Vec<_>>(), "the last hundred, in order");
    }
}

/// Goal: operations on a process that has exited fail, both those in flight and those that start later.
fn operations_on_an_exited_process_fail(at: At) {
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    let ours = Memory::new(pattern(4, 100_000));
    let (md, gone) = (a.bind(ours.region()), b.me());
    let memory = Memory::zeros(8);
    b.append(memory.region(), EntryOptions::EVENT_COMM_DISABLE, 1);
    a.begin(&transfer(Action::Put, md, 8, gone));
    a.expect(EventKind::Send);
    assert_eq!(a.expect(EventKind::Ack).fail, Fail::Ok);
    drop(b);
    for action in [Action::Put, Action::Get] {
        for length in [8, 100_000] {
            a.begin(&transfer(action, md, length, gone));
            let mut last = a.next();
            if last.kind == EventKind::Send && last.fail == Fail::Ok {
                last = a.next();
            }
            assert_eq!(last.fail, Fail::Undeliverable, "{action:?} of {length}: {last:?}");
        }
    }
    a.begin(&transfer(Action::Put, md, 8, Process::physical(0x7f00_0001, 70_000)));
    assert_eq!(a.expect(EventKind::Send).fail, Fail::Undeliverable, "no process has such a number");
}

/// Goal: ranks address processes once there is a map.
#[test]
fn ranks_address_processes() {
    let kind = NiKind { is_matching: false, is_logical: true };
    let sides = [Side::new(SHM, kind), Side::new(SHM, kind)];
    let map = [sides[0].me(), sides[1].me()];
    let ours = Memory::new(pattern(5, 16));
    let md = sides[1].bind(ours.region());
    sides[1].begin(&transfer(Action::Put, md, 16, Process::rank(0)));
    assert_eq!(sides[1].expect(EventKind::Send).fail, Fail::Undeliverable, "there is no map yet");
    assert_eq!((sides[0].ni.id(), sides[0].ni.set_map(&map[1..])), (None, false), "not among them");
    assert!(sides.iter().all(|side| side.ni.set_map(&map)) && !sides[0].ni.set_map(&map));
    assert_eq!((sides[1].ni.id(), sides[1].ni.map()), (Some(Process::rank(1)), map.to_vec()));

    let theirs = Memory::zeros(16);
    sides[0].append(theirs.region(), EntryOptions::empty(), 1);
    sides[1].begin(&transfer(Action::Put, md, 16, Process::rank(0)));
    assert_eq!(sides[0].expect(EventKind::Put).initiator, Process::rank(1));
    assert_eq!(theirs.bytes(), ours.bytes());
    sides[1].expect(EventKind::Send);
    sides[1].expect(EventKind::Ack);
    sides[1].begin(&transfer(Action::Put, md, 16, Process::rank(2)));
    assert_eq!(sides[1].expect(EventKind::Send).fail, Fail::Undeliverable, "nobody has this rank");
}

/// Goal: events do not depend on the thread that matches. Method: run one script with each matcher and
/// compare all events: puts, gets and atomics that meet both lists, truncation, no entry and no permission,
/// each started after the previous one has ended.
fn events_are_the_same_with_each_matcher(device: &'static str) {
    let reported = Matcher::ALL.map(|(matcher, _)| script(At(device, matcher)));
    assert!(reported[0].len() > 40, "{:?}", reported[0]);
    assert_eq!(reported[0], reported[1]);
    assert_eq!(reported[0], reported[2]);
}

/// The events of both sides, without addresses and process numbers, which differ between runs.
fn script(at: At) -> Vec<Event> {
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    let (ours, theirs, spare) =
        (Memory::new(pattern(8, 20_000)), Memory::zeros(20_000), Memory::zeros(20_000));
    let md = a.bind(ours.region());
    let append = |list, region: Region, options, match_bits| {
        let options = options | EntryOptions::OP_PUT | EntryOptions::OP_GET;
        let entry = Entry { match_bits, ignore_bits: 0, ..Entry::taking_all(region, options) };
        let place = ListId { pt_index: 0, list };
        b.ni.with_engine(|engine| engine.append(place, entry, match_bits)).expect("open").expect("room");
    };
    let mut reported = Vec::new();
    let mut play = |all: Transfer| {
        a.begin(&all);
        reported.push(a.next());
        // The first event was `Send`.
        if all.action.brings() {
            reported.push(a.next());
        }
        reported.extend(
            std::iter::from_fn(|| {
                b.ni.with_engine(|engine| engine.eq_get(b.eq)).expect("open").expect("a queue")
            })
            .map(|(event, _)| event),
        );
    };
    let add = Action::FetchAtomic(Op::Sum, Datatype::Uint64);
    for length in [0, 8, 200, 8_000, 20_000] {
        for bits in 1..5 {
            let put = transfer(Action::Put, md, length, b.me());
            match bits {
                1 => append(List::Priority, theirs.region(), EntryOptions::USE_ONCE, bits),
                2 => append(List::Overflow, spare.region(), EntryOptions::USE_ONCE, bits),
                3 => append(List::Priority, Region::new(theirs.addr(), 100), EntryOptions::USE_ONCE, bits),
                _ => {}
            }
            play(Transfer { match_bits: bits, ..put });
            if bits == 2 {
                append(List::Priority, theirs.region(), EntryOptions::USE_ONCE, bits);
                play(Transfer { match_bits: 9, ..put });
            }
        }
        append(List::Priority, theirs.region(), EntryOptions::USE_ONCE, 5);
        play(Transfer { match_bits: 5, ..transfer(Action::Get, md, length, b.me()) });
    }
    append(List::Priority, theirs.region(), EntryOptions::USE_ONCE, 6);
    play(Transfer { match_bits: 6, ..transfer(add, md, 8, b.me()) });
    let plain = |event: Event| Event { start: 0, initiator: Process::default(), ..event };
    reported.into_iter().map(plain).collect()
}

/// Goal: messages to a patient interface wait for room and arrive in order, even if there are more than a
/// link has slots; so do messages of the process to itself. Method: entries are appended only after the
/// initiator has started all operations.
fn patient_interface_loses_nothing(at: At) {
    const COUNT: u64 = 90;
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    b.ni.with_engine(Engine::set_patient);
    let (ours, theirs) = (Memory::new(pattern(9, 8)), Memory::zeros(8));
    for (side, to) in [(&a, b.me()), (&b, b.me())] {
        let all = transfer(Action::Put, side.bind(ours.region()), 8, to);
        (0..COUNT)
            .for_each(|number| side.begin(&Transfer { ack: AckReq::Counting, hdr_data: number, ..all }));
    }
    let quiet = EntryOptions::USE_ONCE | EntryOptions::EVENT_UNLINK_DISABLE;
    let mut came: [Vec<u64>; 2] = Default::default();
    for _ in 0..2 * COUNT {
        b.append(theirs.region(), quiet, 1);
        let put = loop {
            let event = b.next();
            if event.kind == EventKind::Put {
                break event;
            }
        };
        came[usize::from(put.initiator == b.me())].push(put.hdr_data);
    }
    assert_eq!(came, [(0..COUNT).collect::<Vec<_>>(), (0..COUNT).collect()]);
    for side in [&a, &b] {
        let deadline = side.ni.after(Span::from_secs(30));
        let all = |engine: &mut Engine| {
            let count = engine.ct_get(side.ct).expect("a counter");
            (count.success == COUNT && count.failure == 0).then_some(())
        };
        assert!(side.ni.wait("test", deadline, all).is_some());
    }
}

/// Goal: puts stay in order and complete, whichever memory carries them. Method: the sides take turns with
/// zero to three puts of one to sixteen bytes, with and without header data, immediate and by the usual path.
fn puts_of_all_kinds_stay_in_order(at: At) {
    let sides = [Side::new(at, KIND), Side::new(at, KIND)];
    let (mut rng, mut number) = (verbs::host::Rng::new(4), 0);
    let memories = [0, 1].map(|_| Memory::zeros(16));
    let ours = Memory::new(pattern(3, 16));
    let mds = [0, 1].map(|at: usize| {
        sides[at].append(memories[at].region(), EntryOptions::empty(), 1);
        let (options, eq, counter) = (MdOptions::EVENT_SUCCESS_DISABLE, Some(sides[at].eq), None);
        let md = MemoryDescriptor { region: ours.region(), options, eq, counter };
        sides[at].ni.with_engine(|engine| engine.md_bind(md)).expect("open").expect("room")
    });
    for turn in 0..3000 {
        let (from, to) = (turn % 2, 1 - turn % 2);
        let puts: Vec<Transfer> = (0..rng.next_u64() % 4)
            .map(|_| {
                number += 1;
                let put = transfer(Action::Put, mds[from], 1 + rng.next_u64() % 16, sides[to].me());
                let hdr_data = if rng.one_in(3) { number } else { 0 };
                Transfer { ack: AckReq::None, match_bits: number, hdr_data, ..put }
            })
            .collect();
        for put in &puts {
            match rng.one_in(4) {
                true => sides[from].begin(put),
                false => sides[from].ni.transfer(put).expect("open").expect("legal"),
            }
        }
        for put in &puts {
            let event = sides[to].expect(EventKind::Put);
            let reported = (event.match_bits, event.hdr_data, event.mlength, event.initiator);
            assert_eq!(reported, (put.match_bits, put.hdr_data, put.length, sides[from].me()));
            let len = put.length as usize;
            assert_eq!(memories[to].bytes()[..len], ours.bytes()[..len]);
        }
    }
}

/// Goal: a process gets the answer it waits for, although requests of the answering process wait for room
/// there. Method: the latter puts, while more requests than a link has slots wait.
fn answers_pass_requests_that_wait(at: At) {
    let (a, b) = (Side::new(at, KIND), Side::new(at, KIND));
    b.ni.with_engine(Engine::set_patient);
    let (ours, theirs) = (Memory::new(pattern(9, 8)), Memory::zeros(8));
    a.append(theirs.region(), EntryOptions::EVENT_COMM_DISABLE, 1);
    let put = transfer(Action::Put, a.bind(ours.region()), 8, b.me());
    (0..90).for_each(|_| a.begin(&Transfer { ack: AckReq::None, ..put }));
    let put = transfer(Action::Put, b.bind(ours.region()), 8, a.me());
    for _ in 0..90 {
        b.begin(&put);
        b.expect(EventKind::Send);
        assert_eq!(b.expect(EventKind::Ack).fail, Fail::Ok);
    }
    assert_eq!(theirs.bytes(), ours.bytes());
}

#[test]
fn events_are_the_same_on_shm() {
    events_are_the_same_with_each_matcher("shm");
}

#[test]
fn events_are_the_same_on_iwarp() {
    events_are_the_same_with_each_matcher("iwarp");
}

macro_rules! in_places {
    ($($module:ident $device:literal $matcher:ident;)*) => {$(
        mod $module {
            const AT: super::At = super::At($device, portals::Matcher::$matcher);

            #[test]
            fn data_go_where_they_belong() {
                super::data_go_where_they_belong(AT);
            }

            #[test]
            fn atomics_and_truncation_and_drops_are_reported() {
                super::atomics_and_truncation_and_drops_are_reported(AT);
            }

            #[test]
            fn target_is_reachable_without_calls() {
                super::target_is_reachable_without_calls(AT);
            }

            #[test]
            fn puts_at_once_stay_in_order() {
                super::puts_at_once_stay_in_order(AT);
            }

            #[test]
            fn many_messages_stay_in_order() {
                super::many_messages_stay_in_order(AT);
            }

            #[test]
            fn operations_on_an_exited_process_fail() {
                super::operations_on_an_exited_process_fail(AT);
            }

            #[test]
            fn patient_interface_loses_nothing() {
                super::patient_interface_loses_nothing(AT);
            }

            #[test]
            fn puts_of_all_kinds_stay_in_order() {
                super::puts_of_all_kinds_stay_in_order(AT);
            }

            #[test]
            fn answers_pass_requests_that_wait() {
                super::answers_pass_requests_that_wait(AT);
            }
        }
    )*};
}

in_places! {
    shm "shm" Caller;
    iwarp "iwarp" Caller;
    shm_thread "shm" Thread;
    iwarp_thread "iwarp" Thread;
    shm_spin "shm" Busy;
    iwarp_spin "iwarp" Busy;
}

/// Goal: a process with another key can neither read nor write, and its operations fail; other processes
/// continue.
fn a_process_with_another_key_reads_and_writes_nothing(device: &'static str) {
    let at = At(device, Matcher::Caller);
    let [target, friend] = [0, 1].map(|_| Side::new(at, KIND));
    let stranger = Side::at(&node_with(at, 2), KIND);
    let (there, here) = (Memory::new(pattern(1, 64)), Memory::new(pattern(2, 64)));
    target.append(there.region(), EntryOptions::empty(), 0);
    let theirs = stranger.bind(here.region());
    for action in [Action::Put, Action::Get] {
        stranger.begin(&transfer(action, theirs, 64, target.me()));
        let event = stranger.next();
        assert_eq!(event.fail, Fail::Undeliverable, "{event:?}");
    }
    assert_eq!((there.bytes(), here.bytes()), (pattern(1, 64), pattern(2, 64)));
    let md = friend.bind(here.region());
    friend.begin(&transfer(Action::Put, md, 64, target.me()));
    // The first event at the target is the friend's put.
    assert_eq!(target.expect(EventKind::Put).initiator, friend.me());
    assert_eq!(there.bytes(), pattern(2, 64));
}

#[test]
fn a_process_with_another_key_reads_and_writes_nothing_on_shm() {
    a_process_with_another_key_reads_and_writes_nothing("shm");
}

#[test]
fn a_process_with_another_key_reads_and_writes_nothing_on_iwarp() {
    a_process_with_another_key_reads_and_writes_nothing("iwarp");
}
