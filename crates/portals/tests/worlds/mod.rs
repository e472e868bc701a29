//! Random programs of several processes in a virtual world, by seed, compared with the slow model.
//!
//! Each process has a portal table entry, memory, an event queue and a counter for each process including
//! itself, so that the results of one initiator do not depend on the others, while all share links, tables
//! and the network. Counters trigger later appends and unlinks, at a position of the message stream that the
//! stream determines. After the run, the model replays the operations of each pair in order: events,
//! counters, answers and memory must be equal.

#[path = "../model/mod.rs"]
mod model;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use host::world::{Config, Ended, Failure, Node as Machine, World};
use host::{Host, Rng, Span};
use model::{Arrival, Later, Model};
use portals::{
    AckReq, Action, CtEvent, CtHandle, Datatype, ELEMENT_MAX, Engine, Entry, EntryHandle, EntryOptions,
    EqHandle, Event, EventKind, Fail, Key, Limits, List, ListId, Matcher, MdAddr, MdHandle, MdOptions,
    MemoryDescriptor, Ni, NiKind, Node, Op, Operand, Piece, Process, PtOptions, Region, Transfer,
};
use verbs::Buf;

/// The fault settings; the first has none.
pub(crate) const FAULT_SETTINGS: &[&str] = &[
    "model:mt23108-vapi",
    "model:mt23108-vapi(faults.loss_ppm=5000)",
    "model:mt23108-nicmem(faults.delay_ns=20000)",
    "model:mt23108-vapi(faults.stall_ppm=20000,faults.stall_ns=50000)",
    "model:mt23108-nicmem(faults.loss_ppm=3000,faults.delay_ns=5000,faults.stall_ppm=5000,faults.stall_ns=20000)",
];

const PID: u32 = 7;
const UID: u32 = 100;
/// Bytes of a pair's memory at the target, and of its initiator's send memory.
const THERE: u64 = 96 << 10;
const HERE: u64 = 32 << 10;
/// Maximum bytes of inline data.
const SHORT: u64 = 8000;
/// Additions of each process to the one shared word.
const ADDITIONS: u64 = 4;
/// Slots for all events of a pair.
const SLOTS: usize = 1 << 12;

/// An entry of a pair, with addresses relative to the pair's memory.
#[derive(Clone, Debug)]
struct Planned {
    list: List,
    pieces: Vec<Piece>,
    entry: Entry,
    /// It is appended when the counter reaches this value.
    threshold: Option<u64>,
}

impl Planned {
    fn entry(&self, base: u64, counter: CtHandle) -> Entry {
        let pieces: Vec<Piece> =
            self.pieces.iter().map(|piece| Piece { addr: piece.addr + base, ..*piece }).collect();
        let region = match pieces[..] {
            [Piece { addr, len }] => Region::new(addr, len),
            _ => Region::from_pieces(&pieces).expect("few bytes"),
        };
        Entry { region, counter: Some(counter), ..self.entry.clone() }
    }
}

/// An operation of a pair.
#[derive(Clone, Copy, Debug)]
struct Act {
    action: Action,
    length: u64,
    bits: u64,
    remote_offset: u64,
    ack: AckReq,
    /// Offsets of its data in the send memory, and of its fetched data after those of the pair's earlier
    /// operations.
    from: u64,
    into: u64,
}

/// The operations of one process on another one, and the entries there.
#[derive(Debug)]
struct Plan {
    has_flow: bool,
    /// Results do not depend on the order in which data arrive.
    is_long: bool,
    entries: Vec<Planned>,
    /// Entries that the counter unlinks.
    unlinks: Vec<(u64, usize)>,
    acts: Vec<Act>,
    /// Bytes fetched.
    fetched: u64,
}

fn options(rng: &mut Rng, is_long: bool) -> EntryOptions {
    let mut options = EntryOptions::OP_PUT | EntryOptions::OP_GET;
    let rare = [
        (EntryOptions::USE_ONCE, 2),
        (EntryOptions::MANAGE_LOCAL, if is_long { 1 } else { 2 }),
        (EntryOptions::NO_TRUNCATE, 4),
        (EntryOptions::ACK_DISABLE, 8),
        (EntryOptions::UNEXPECTED_HDR_DISABLE, 6),
        (EntryOptions::EVENT_LINK_DISABLE, 3),
        (EntryOptions::EVENT_COMM_DISABLE, 8),
        (EntryOptions::EVENT_SUCCESS_DISABLE, 10),
        (EntryOptions::EVENT_OVER_DISABLE, 8),
        (EntryOptions::EVENT_UNLINK_DISABLE, 4),
        (EntryOptions::EVENT_CT_COMM, 2),
        (EntryOptions::EVENT_CT_OVERFLOW, 2),
        (EntryOptions::EVENT_CT_BYTES, 8),
    ];
    rare.into_iter().for_each(|(option, n)| options.set(option, rng.one_in(n)));
    for needed in [EntryOptions::OP_PUT, EntryOptions::OP_GET] {
        if rng.one_in(12) {
            options.remove(needed);
        }
    }
    options
}

fn planned(rng: &mut Rng, is_long: bool, at: &mut u64) -> Planned {
    // Long messages arrive in any order, so their memory does not overlap.
    let len = if is_long { rng.below(24 << 10) } else { *rng.one_of(&[0, 8, 64, 700, 9000]) };
    let begin = if is_long { *at } else { rng.below(THERE - len) };
    *at += len;
    let cut = rng.below(len + 1);
    let whole = vec![Piece { addr: begin, len }];
    let halves = vec![Piece { addr: begin + cut, len: len - cut }, Piece { addr: begin, len: cut }];
    let pieces = if rng.one_in(4) && cut > 0 && cut < len { halves } else { whole };
    let entry = Entry {
        uid: rng.one_in(10).then_some(UID + rng.below(2) as u32),
        match_bits: rng.below(3),
        ignore_bits: *rng.one_of(&[0, 0, 1, u64::MAX]),
        min_free: rng.below(2) * rng.below(64),
        ..Entry::taking_all(Region::new(0, 0), options(rng, is_long))
    };
    let list = *rng.one_of(&[List::Priority, List::Priority, List::Overflow]);
    Planned { list, pieces, entry, threshold: (!is_long && rng.one_in(3)).then(|| rng.below(12)) }
}

fn act(rng: &mut Rng, is_long: bool, fetched: &mut u64) -> Act {
    let lens: &[u64] =
        if is_long { &[0, 8, 700, 8081, 20_000] } else { &[0, 1, 8, 8, 30, 100, 700, 4096, SHORT] };
    let some = |rng: &mut Rng, datatype: Datatype| rng.below(5) * datatype.size() as u64;
    let (action, length) = match rng.below(10) {
        0..=4 => (Action::Put, *rng.one_of(lens)),
        5..=6 => (Action::Get, *rng.one_of(lens)),
        7 => (Action::Atomic(Op::Bxor, Datatype::Uint32), some(rng, Datatype::Uint32)),
        8 => (Action::FetchAtomic(Op::Sum, Datatype::Uint64), some(rng, Datatype::Uint64)),
        _ => {
            let mut operand: Operand = [0; ELEMENT_MAX];
            operand[0] = rng.below(2) as u8;
            (Action::Swap(Op::Mswap, Datatype::Uint64, operand), 8)
        }
    };
    let ack = *rng.one_of(&[AckReq::None, AckReq::Full, AckReq::Counting, AckReq::Completed]);
    let into = *fetched;
    *fetched += if action.fetches() { length } else { 0 };
    let (bits, remote_offset, from) = (rng.below(3), rng.below(3) * rng.below(40), rng.below(HERE - length));
    Act { action, length, bits, remote_offset, ack, from, into }
}

impl Plan {
    fn new(seed: u64, from: usize, to: usize) -> Self {
        let mut rng = Rng::new(host::mix(seed << 8 | (from as u64) << 4 | to as u64));
        let (is_long, mut at, mut fetched) = (rng.one_in(3), 0, 0);
        let entries: Vec<Planned> =
            (0..1 + rng.index(8)).map(|_| planned(&mut rng, is_long, &mut at)).collect();
        let entries: Vec<Planned> = entries
            .into_iter()
            .filter(|it| it.pieces.iter().all(|piece| piece.addr + piece.len <= THERE))
            .collect();
        let count = if is_long || entries.is_empty() { 0 } else { rng.index(3) };
        let unlinks = (0..count).map(|_| (rng.below(12), rng.index(entries.len()))).collect();
        let acts = (0..rng.index(24)).map(|_| act(&mut rng, is_long, &mut fetched)).collect();
        Self { has_flow: rng.one_in(4), is_long, entries, unlinks, acts, fetched }
    }

    fn pt_options(&self) -> PtOptions {
        if self.has_flow { PtOptions::FLOWCTRL } else { PtOptions::empty() }
    }
}

/// The transfer for an operation of a pair.
fn transfer(
    act: &Act,
    mds: (MdHandle, MdHandle),
    (target, pt_index): (Process, u32),
    number: u64,
) -> Transfer {
    let Act { action, length, bits, remote_offset, ack, from, into } = *act;
    Transfer {
        action,
        put: action.brings().then_some(MdAddr { md: mds.0, offset: from }),
        get: action.fetches().then_some(MdAddr { md: mds.1, offset: into }),
        length,
        ack,
        target,
        pt_index,
        match_bits: bits,
        remote_offset,
        user_ptr: number,
        hdr_data: number << 8,
    }
}

const MD_OPTIONS: MdOptions = MdOptions::EVENT_CT_ACK.union(MdOptions::EVENT_CT_REPLY);

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed * 31) as u8).collect()
}

/// The initial layout of a process's memory: for each pair the target memory, the send memory, and the
/// fetched data.
struct Layout {
    starts: Vec<[u64; 3]>,
    len: u64,
}

impl Layout {
    fn of(seed: u64, own: usize, ranks: usize) -> Self {
        let mut len = 64;
        let starts = (0..ranks).map(|other| {
            let starts = [len, len + THERE, len + THERE + HERE];
            len = starts[2] + Plan::new(seed, own, other).fetched;
            starts
        });
        let starts = starts.collect();
        Self { starts, len }
    }
}

/// What a process observed.
#[derive(Debug)]
struct Report {
    me: Process,
    base: u64,
    /// By peer: events and count of its operations here, and of this process's operations there.
    at_target: Vec<(Vec<Event>, CtEvent)>,
    at_initiator: Vec<(Vec<Event>, CtEvent)>,
    /// The shared word before each of this process's additions.
    sums: Vec<u64>,
    memory: Vec<u8>,
}

/// A running process.
struct Rank {
    host: Host,
    ni: Ni,
    memory: Buf,
    /// By peer: queue and counter for its operations here; queue, counter and descriptors for operations
    /// there.
    here: Vec<(EqHandle, CtHandle)>,
    there: Vec<(EqHandle, CtHandle, (MdHandle, MdHandle))>,
    common: (EqHandle, MdHandle),
}

impl Rank {
    fn open(machine: &Machine, card: &str, (seed, own, ranks): (u64, usize, usize)) -> Self {
        let host = machine.host();
        let device = fabric::open(card, &host).expect("a card");
        let address = match device.attr().port_addrs.first() {
            Some(IpAddr::V4(address)) => *address,
            _ => Ipv4Addr::LOCALHOST,
        };
        let layout = Layout::of(seed, own, ranks);
        let memory = Buf::alloc(layout.len as usize).expect("memory");
        memory.write(0, &[0; 64]).expect("inside");
        memory.write(64, &pattern(layout.len - 64, own as u64)).expect("inside");
        // SAFETY: the memory lives until the interface is closed and the node dropped.
        let node = unsafe {
            let key = Key::from_bytes([1; 16]);
            Node::open(&host, &device, address, Some(PID), UID, Matcher::Caller, &key)
        };
        let kind = NiKind { is_matching: true, is_logical: false };
        let ni = node.expect("a node").interface(kind, Limits::default());
        let base = memory.addr();
        let (here, there, common) =
            ni.with_engine(|engine| set_up(engine, base, &layout, (seed, own, ranks))).expect("open");
        Self { host, ni, memory, here, there, common }
    }

    fn begin(&self, transfer: &Transfer) {
        self.ni.with_engine(|engine| engine.transfer(transfer)).expect("open").expect("legal");
    }

    /// The next event of the shared portal table entry.
    fn common(&self) -> Event {
        let deadline = self.host.after(Span::from_secs(10));
        let look = |engine: &mut Engine| engine.eq_get(self.common.0).expect("a queue");
        self.ni.wait("a world's test", deadline, look).expect("an event in time").0
    }
}

type Sides =
    (Vec<(EqHandle, CtHandle)>, Vec<(EqHandle, CtHandle, (MdHandle, MdHandle))>, (EqHandle, MdHandle));

/// Tables, entries and descriptors for each pair, and the shared word.
fn set_up(engine: &mut Engine, base: u64, layout: &Layout, (seed, own, ranks): (u64, usize, usize)) -> Sides {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for other in 0..ranks {
        let plan = Plan::new(seed, other, own);
        let (eq, ct) = (engine.eq_alloc(SLOTS).expect("room"), engine.ct_alloc().expect("room"));
        engine.pt_alloc(plan.pt_options(), Some(eq), Some(other as u32)).expect("free");
        let mut handles = Vec::new();
        for (number, planned) in plan.entries.iter().enumerate() {
            let place = ListId { pt_index: other as u32, list: planned.list };
            let entry = planned.entry(base + layout.starts[other][0], ct);
            let appended = match planned.threshold {
                None => engine.append(place, entry, number as u64),
                Some(threshold) => engine.trigger_append(ct, threshold, place, entry, number as u64),
            };
            handles.push(appended.expect("room"));
        }
        for (threshold, which) in &plan.unlinks {
            engine.trigger_unlink(ct, *threshold, handles[*which]).expect("room");
        }
        here.push((eq, ct));
        let own = Plan::new(seed, own, other);
        let (eq, ct) = (engine.eq_alloc(SLOTS).expect("room"), engine.ct_alloc().expect("room"));
        let [_, sent, fetched] = layout.starts[other];
        let mut bind = |region| {
            let md = MemoryDescriptor { region, options: MD_OPTIONS, eq: Some(eq), counter: Some(ct) };
            engine.md_bind(md).expect("room")
        };
        let mds = (bind(Region::new(base + sent, HERE)), bind(Region::new(base + fetched, own.fetched)));
        there.push((eq, ct, mds));
    }
    let eq = engine.eq_alloc(SLOTS).expect("room");
    engine.pt_alloc(PtOptions::empty(), None, Some(ranks as u32)).expect("free");
    let place = ListId { pt_index: ranks as u32, list: List::Priority };
    let open = EntryOptions::OP_PUT | EntryOptions::OP_GET;
    engine.append(place, Entry::taking_all(Region::new(base, 8), open), 0).expect("room");
    let (region, options) = (Region::new(base + 8, 56), MdOptions::EVENT_SEND_DISABLE);
    let md = engine.md_bind(MemoryDescriptor { region, options, eq: Some(eq), counter: None });
    (here, there, (eq, md.expect("room")))
}

/// The program of a rank: its operations in a random order of pairs, additions to the shared word, and
/// finally a message to each peer that marks the end.
fn play(
    machine: &Machine,
    card: &str,
    (seed, own, ranks): (u64, usize, usize),
    ended: &Mutex<usize>,
) -> Report {
    let rank = Rank::open(machine, card, (seed, own, ranks));
    // A process that has not started cannot be reached.
    rank.host.poll("others", rank.host.after(Span::from_ms(2)), || None::<()>);
    let me = rank.ni.node().me();
    let process = |other: usize| Process::physical(me.nid + other as u32 - own as u32, PID);
    let mut rng = Rng::new(host::mix(seed) ^ own as u64);
    let mut left: Vec<(usize, u64, std::vec::IntoIter<Act>)> =
        (0..ranks).map(|other| (other, 0, Plan::new(seed, own, other).acts.into_iter())).collect();
    while !left.is_empty() {
        let at = rng.index(left.len());
        let (other, number, acts) = &mut left[at];
        match acts.next() {
            Some(act) => {
                let to = (process(*other), own as u32);
                rank.begin(&transfer(&act, rank.there[*other].2, to, *number));
                *number += 1;
            }
            None => drop(left.remove(at)),
        }
        match rng.below(4) {
            0 => drop(rank.ni.test(|_| ())),
            1 => rank.host.charge(Span::from_ns(rng.below(3000))),
            _ => {}
        }
    }
    let sums = (0..ADDITIONS).map(|_| add(&rank, process(0), ranks as u32)).collect();
    for other in 0..ranks {
        let last = Act {
            action: Action::Put,
            length: 0,
            bits: 0,
            remote_offset: 0,
            ack: AckReq::Full,
            from: 0,
            into: 0,
        };
        rank.begin(&transfer(&last, (rank.common.1, rank.common.1), (process(other), ranks as u32), 0));
    }
    for _ in 0..ranks {
        let event = rank.common();
        assert_eq!((event.kind, event.fail), (EventKind::Ack, Fail::Ok));
    }
    finish(rank, own, ranks, ended, sums)
}

/// Adds 1 to the shared word; returns its previous value.
fn add(rank: &Rank, to: Process, pt_index: u32) -> u64 {
    rank.memory.write(8, &1_u64.to_le_bytes()).expect("inside");
    let action = Action::FetchAtomic(Op::Sum, Datatype::Uint64);
    let act = Act { action, length: 8, bits: 0, remote_offset: 0, ack: AckReq::None, from: 0, into: 8 };
    rank.begin(&transfer(&act, (rank.common.1, rank.common.1), (to, pt_index), 0));
    let event = rank.common();
    assert_eq!((event.kind, event.fail), (EventKind::Reply, Fail::Ok));
    let mut bytes = [0; 8];
    rank.memory.read(16, &mut bytes).expect("inside");
    u64::from_le_bytes(bytes)
}

/// Keeps answering until all processes have finished; returns what this one observed.
fn finish(rank: Rank, own: usize, ranks: usize, ended: &Mutex<usize>, sums: Vec<u64>) -> Report {
    let mut is_counted = false;
    for _ in 0..10_000 {
        rank.ni.wait("others", rank.host.after(Span::from_us(50)), |_| None::<()>);
        if !is_counted && rank.ni.is_idle() {
            *ended.lock().expect("no panic") += 1;
            is_counted = true;
        }
        if *ended.lock().expect("no panic") == ranks {
            break;
        }
    }
    assert_eq!(*ended.lock().expect("no panic"), ranks, "rank {own} waits for others in vain");
    let drain = |eq: EqHandle, ct: CtHandle| {
        let take = |engine: &mut Engine| {
            let events: Vec<(Event, bool)> =
                std::iter::from_fn(|| engine.eq_get(eq).expect("a queue")).collect();
            assert!(events.iter().all(|(_, lost)| !lost));
            (events.into_iter().map(|(event, _)| event).collect(), engine.ct_get(ct).expect("a counter"))
        };
        rank.ni.with_engine(take).expect("open")
    };
    let report = Report {
        me: rank.ni.node().me(),
        base: rank.memory.addr(),
        at_target: rank.here.iter().map(|(eq, ct)| drain(*eq, *ct)).collect(),
        at_initiator: rank.there.iter().map(|(eq, ct, _)| drain(*eq, *ct)).collect(),
        sums,
        memory: rank.memory.to_vec(0..rank.memory.len()).expect("inside"),
    };
    rank.ni.close();
    report
}

/// Runs the programs of a seed on a card, and compares them with the model.
///
/// # Errors
/// Processes that did not finish.
pub(crate) fn run(card: &'static str, seed: u64) -> Result<Ended, Failure> {
    let ranks = 2 + (seed % 3) as usize;
    let mut world = World::new(Config { seed, ..Config::default() });
    let machines: Vec<Machine> = (0..ranks).map(|rank| world.add_node(&format!("node {rank}"))).collect();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let ended = Arc::new(Mutex::new(0));
    for (own, machine) in machines.iter().enumerate() {
        let (reports, ended, machine) = (reports.clone(), ended.clone(), machine.clone());
        let body = move || {
            let report = play(&machine, card, (seed, own, ranks), &ended);
            reports.lock().expect("no panic").push((own, report));
        };
        world.spawn(&format!("rank {own}"), &[&machines[own]], body).expect("a fiber");
    }
    let outcome = world.run()?;
    let mut reports = std::mem::take(&mut *reports.lock().expect("no panic"));
    reports.sort_by_key(|(own, _)| *own);
    let reports: Vec<Report> = reports.into_iter().map(|(_, report)| report).collect();
    for from in 0..ranks {
        for to in 0..ranks {
            Trial::new(seed, (from, to), &reports).compare();
        }
    }
    let mut sums: Vec<u64> = reports.iter().flat_map(|report| &report.sums).copied().collect();
    sums.sort_unstable();
    assert!(sums.into_iter().eq(0..ranks as u64 * ADDITIONS), "additions are atomic");
    Ok(outcome)
}

/// A pair in the model.
struct Trial<'a> {
    seed: u64,
    pair: (usize, usize),
    plan: Plan,
    initiator: &'a Report,
    target: &'a Report,
    initiates: Model,
    targets: Model,
    there: Vec<u8>,
    /// Address of the target memory.
    base: u64,
    here: Vec<u8>,
    fetched: Vec<u8>,
}

const EQ: fn() -> EqHandle = || EqHandle::from_number(1);
const CT: fn() -> CtHandle = || CtHandle::from_number(1);

impl<'a> Trial<'a> {
    fn new(seed: u64, (from, to): (usize, usize), reports: &'a [Report]) -> Self {
        let (initiator, target) = (&reports[from], &reports[to]);
        let model = |me| {
            let mut model = Model::new(me, UID, true, Limits::default());
            model.add_queue(EQ(), SLOTS);
            model.add_counter(CT());
            model
        };
        let starts = |own: usize, other: usize| Layout::of(seed, own, reports.len()).starts[other];
        let bytes = |own: usize, begin: u64, len: u64| {
            pattern(begin - 64 + len, own as u64).split_off((begin - 64) as usize)
        };
        let plan = Plan::new(seed, from, to);
        let [there, _, _] = starts(to, from);
        let [_, here, fetched] = starts(from, to);
        let (there, base) = (bytes(to, there, THERE), target.base + there);
        let (here, fetched) = (bytes(from, here, HERE), bytes(from, fetched, plan.fetched));
        let (initiates, targets) = (model(initiator.me), model(target.me));
        let pair = (from, to);
        Self { seed, pair, plan, initiator, target, initiates, targets, there, base, here, fetched }
    }

    fn set_up(&mut self) {
        let (pt_index, model) = (self.pair.0 as u32, &mut self.targets);
        model.pt_alloc(pt_index, self.plan.pt_options(), Some(EQ()));
        for (number, planned) in self.plan.entries.iter().enumerate() {
            let (name, place) =
                (EntryHandle::from_number(number as u64), ListId { pt_index, list: planned.list });
            model.insert(name, place, planned.entry(self.base, CT()), number as u64);
            match planned.threshold {
                None => model.link(name),
                Some(threshold) => model.trigger(CT(), threshold, Later::Append(name)),
            }
            model.settle();
        }
        for (threshold, which) in &self.plan.unlinks {
            model.trigger(CT(), *threshold, Later::Unlink(EntryHandle::from_number(*which as u64)));
            model.settle();
        }
        for (name, len) in [(0, HERE), (1, self.plan.fetched)] {
            let region = Region::new(0, len);
            let md = MemoryDescriptor { region, options: MD_OPTIONS, eq: Some(EQ()), counter: Some(CT()) };
            self.initiates.bind(MdHandle::from_number(name), md);
        }
    }

    /// Performs an operation in the model.
    fn carry(&mut self, number: u64, act: &Act) {
        let mds = (MdHandle::from_number(0), MdHandle::from_number(1));
        let transfer = transfer(act, mds, (self.target.me, self.pair.0 as u32), number);
        let request = self.initiates.start(&transfer, number);
        let answer = match self.targets.arrive(&request) {
            Arrival::Refused(answer) => answer,
            Arrival::Deliver(delivery) => {
                let mlength = delivery.event.mlength;
                let region = self.region_of(delivery.event.user_ptr);
                self.apply(act, &region, delivery.offset, mlength);
                self.targets.deliver(delivery, Fail::Ok)
            }
        };
        self.targets.settle();
        self.initiates.sent(number, Fail::Ok);
        answer.iter().for_each(|answer| self.initiates.answered(answer));
    }

    fn region_of(&self, user_ptr: u64) -> Region {
        self.plan.entries[user_ptr as usize].entry(0, CT()).region
    }

    /// Applies an operation to the model's bytes.
    fn apply(&mut self, act: &Act, region: &Region, offset: u64, len: u64) {
        let places: Vec<usize> =
            region.part(offset, len).flat_map(|it| it.addr as usize..(it.addr + it.len) as usize).collect();
        let before: Vec<u8> = places.iter().map(|at| self.there[*at]).collect();
        let came = &self.here[act.from as usize..][..len as usize];
        let after: Vec<u8> = match act.action {
            Action::Get => before.clone(),
            Action::Put => came.to_vec(),
            Action::Atomic(..) => before.iter().zip(came).map(|(a, b)| a ^ b).collect(),
            Action::FetchAtomic(..) => words(&before, came, |a, b| a.wrapping_add(b)),
            Action::Swap(_, _, operand) => {
                let mask = u64::from(operand[0]);
                words(&before, came, |a, b| a & !mask | b & mask)
            }
        };
        places.iter().zip(after).for_each(|(at, byte)| self.there[*at] = byte);
        if act.action.fetches() {
            self.fetched[act.into as usize..][..len as usize].copy_from_slice(&before);
        }
    }

    fn compare(mut self) {
        self.set_up();
        let acts = self.plan.acts.clone();
        (0..).zip(&acts).for_each(|(number, act)| self.carry(number, act));
        let (seed, (from, to)) = (self.seed, self.pair);
        let about = format!("seed {seed}, {from} to {to}");
        let all = |model: &mut Model| -> (Vec<Event>, CtEvent) {
            let events = std::iter::from_fn(|| model.pop(EQ())).map(|(event, _)| event).collect();
            (events, model.value(CT()).expect("a counter"))
        };
        let (want_here, want_there) = (all(&mut self.initiates), all(&mut self.targets));
        let order = |(events, count): &(Vec<Event>, CtEvent)| {
            let mut events = events.clone();
            if self.plan.is_long {
                events.sort_by_key(|event| format!("{event:?}"));
            }
            (events, *count)
        };
        assert_eq!(order(&self.target.at_target[from]), order(&want_there), "{about}, at the target");
        // `Send` events may come before or after answers to other operations.
        for is_send in [true, false] {
            let some = |(events, count): &(Vec<Event>, CtEvent)| {
                let some = |event: &&Event| (event.kind == EventKind::Send) == is_send;
                order(&(events.iter().filter(some).copied().collect(), *count))
            };
            let got = some(&self.initiator.at_initiator[to]);
            assert_eq!(got, some(&want_here), "{about}, at the initiator");
        }
        let at = (self.base - self.target.base) as usize;
        assert!(self.target.memory[at..][..THERE as usize] == self.there, "{about}, memory at the target");
        let [_, _, at] = Layout::of(seed, from, self.target.at_target.len()).starts[to];
        let got = &self.initiator.memory[at as usize..][..self.fetched.len()];
        assert!(got == self.fetched, "{about}, what was fetched");
    }
}

/// Combines words of 8 bytes.
fn words(before: &[u8], came: &[u8], with: impl Fn(u64, u64) -> u64) -> Vec<u8> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight"));
    before.chunks(8).zip(came.chunks(8)).flat_map(|(a, b)| with(word(a), word(b)).to_le_bytes()).collect()
}
