//! Matching by a program of the NIC, on SeaStar: by the card's processor and by the kernel of the host, with each flow control. What
//! comes out is the same everywhere; only the times differ.

use std::sync::{Arc, Mutex};

use host::Host;
use host::world::{Config, Ended, Node, World};
use portals::{
    AckReq, Action, Entry, EntryOptions, Event, EventKind, Fail, Limits, List, Local, MdHandle, MdOptions,
    Offload, Place, Process, PtOptions, Region, Source, Transfer,
};
use verbs::Buf;

/// Where programs are matched, and how they are kept from being lost.
const MODES: [&str; 5] = [
    "mode.match_kind=nic",
    "mode.match_kind=host",
    "mode.match_kind=nic,mode.flow_kind=corpse",
    "mode.match_kind=host,mode.flow_kind=corpse",
    "mode.match_kind=host,mode.flow_kind=cop",
];
/// The process of each node.
const PID: u16 = 7;
const TAG: u64 = 0x77;

/// A process with memory and a portal table entry.
struct Rank {
    host: Host,
    port: Offload,
    buf: Buf,
    md: MdHandle,
}

impl Rank {
    fn new(mode: &str, node: &Node, bytes: usize) -> Self {
        let host = node.host();
        let device = fabric::open(&format!("model:seastar({mode})"), &host).expect("a card");
        let buf = Buf::alloc(bytes).expect("memory");
        let port = Offload::open(&device, PID, std::slice::from_ref(&buf), Limits::default(), 4096);
        let mut port = port.expect("an interface");
        assert_eq!(port.pt_alloc(PtOptions::empty(), Some(0)), Ok(0));
        let region = Region::new(buf.addr(), buf.len() as u64);
        let md = port.md_bind(&region, MdOptions::EVENT_SEND_DISABLE).expect("room");
        Self { host, port, buf, md }
    }

    fn entry(&self, at: u64, len: u64) -> Entry {
        Entry {
            region: Region::new(self.buf.addr() + at, len),
            counter: None,
            uid: None,
            options: EntryOptions::OP_PUT
                | EntryOptions::OP_GET
                | EntryOptions::USE_ONCE
                | EntryOptions::EVENT_LINK_DISABLE
                | EntryOptions::EVENT_UNLINK_DISABLE,
            source: Source::ANY,
            match_bits: TAG,
            ignore_bits: 0,
            min_free: 0,
        }
    }

    fn post(&mut self, at: u64, len: u64, user_ptr: u64) {
        let place = Place { pt_index: 0, list: List::Priority };
        self.port.append(place, &self.entry(at, len), user_ptr).expect("room");
    }

    fn put(&mut self, to: Process, at: u64, len: u64, ack: AckReq, hdr_data: u64) {
        let transfer = Transfer {
            action: Action::Put,
            put: Some(Local { md: self.md, offset: at }),
            get: None,
            length: len,
            ack,
            target: to,
            pt_index: 0,
            match_bits: TAG,
            remote_offset: 0,
            user_ptr: 99,
            hdr_data,
        };
        self.port.transfer(&transfer).expect("it can begin");
    }

    fn event(&mut self) -> Event {
        let deadline = self.host.after(host::Span::from_ms(100));
        let (event, lost) = self.port.eq_wait(deadline).expect("an event");
        assert!(!lost);
        event
    }
}

/// The process of a node: cards have consecutive addresses.
fn process(port: &Offload, own: usize, other: usize) -> Process {
    let nid = port.process().nid + other as u32 - own as u32;
    Process::physical(nid, PID.into())
}

fn run(ranks: usize, body: impl Fn(usize, &Node) + Send + Sync + 'static) -> Ended {
    let mut world = World::new(Config::default());
    let body = Arc::new(body);
    let nodes: Vec<Node> = (0..ranks).map(|rank| world.node(&format!("node {rank}"))).collect();
    for (rank, node) in nodes.iter().enumerate() {
        let (body, node) = (body.clone(), node.clone());
        world.rank(&format!("rank {rank}"), &[&node.clone()], move || body(rank, &node)).expect("a rank");
    }
    world.run().expect("every rank ends")
}

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed * 31) as u8).collect()
}

/// Goal: data arrive whole and where they belong, of every size around the limits of a packet, with an event that says so, and an
/// acknowledgement; the same twice.
#[test]
fn puts_arrive_in_every_mode() {
    const SIZES: [u64; 9] = [0, 1, 8, 16, 17, 64, 100, 4096, 70_000];
    for mode in MODES {
        let once = || {
            run(2, move |own, node| {
                let mut rank = Rank::new(mode, node, 160_000);
                let other = process(&rank.port, own, 1 - own);
                for (n, len) in SIZES.into_iter().enumerate() {
                    let n = n as u64;
                    rank.buf.write(0, &pattern(len, n + own as u64)).expect("inside");
                    rank.post(80_000, len, n);
                    // Nobody sends before both have posted: rank 1 after rank 0's message only.
                    if own == 0 {
                        rank.host.wait_a_little();
                        rank.put(other, 0, len, AckReq::Full, n);
                    }
                    let mut events = vec![rank.event()];
                    if own == 1 {
                        rank.put(other, 0, len, AckReq::Full, n);
                    }
                    events.push(rank.event());
                    events.sort_by_key(|event| event.kind as u8);
                    let [put, ack] = events[..] else { unreachable!("two") };
                    assert_eq!((put.kind, put.fail, put.mlength), (EventKind::Put, Fail::Ok, len), "{mode}");
                    assert_eq!((put.user_ptr, put.hdr_data, put.initiator), (n, n, other), "{mode}");
                    assert_eq!((ack.kind, ack.fail, ack.mlength), (EventKind::Ack, Fail::Ok, len), "{mode}");
                    assert_eq!(ack.user_ptr, 99);
                    let got = rank.buf.to_vec(80_000..80_000 + len as usize).expect("inside");
                    assert_eq!(got, pattern(len, n + 1 - own as u64), "{len} bytes, {mode}");
                }
            })
        };
        assert_eq!(once(), once(), "{mode}");
    }
}

trait Patience {
    fn wait_a_little(&self);
}

impl Patience for Host {
    /// Longer than a call of the peer's.
    fn wait_a_little(&self) {
        self.poll("a little", self.after(host::Span::from_us(20)), || None::<()>);
    }
}

/// Goal: messages that nothing waits for are in the overflow list's memory, and are told to the entry that comes later.
#[test]
fn unexpected_messages_wait_in_every_mode() {
    for mode in MODES {
        run(2, move |own, node| {
            let mut rank = Rank::new(mode, node, 8192);
            let other = process(&rank.port, own, 1 - own);
            if own == 0 {
                rank.host.wait_a_little();
                rank.buf.write(0, &pattern(600, 5)).expect("inside");
                rank.put(other, 0, 600, AckReq::Full, 3);
                let ack = rank.event();
                assert_eq!((ack.kind, ack.list), (EventKind::Ack, List::Overflow), "{mode}");
                return;
            }
            let options =
                EntryOptions::OP_PUT | EntryOptions::MANAGE_LOCAL | EntryOptions::EVENT_LINK_DISABLE;
            let entry = Entry { options, ignore_bits: u64::MAX, ..rank.entry(4096, 4096) };
            let place = Place { pt_index: 0, list: List::Overflow };
            rank.port.append(place, &entry, 1).expect("room");
            let put = rank.event();
            assert_eq!((put.kind, put.list, put.user_ptr), (EventKind::Put, List::Overflow, 1), "{mode}");
            rank.post(0, 1024, 2);
            let late = rank.event();
            assert_eq!((late.kind, late.user_ptr, late.mlength), (EventKind::PutOverflow, 2, 600), "{mode}");
            assert_eq!(late.start, rank.buf.addr() + 4096);
            assert_eq!(rank.buf.to_vec(4096..4696).expect("inside"), pattern(600, 5));
        });
    }
}

/// Goal: a get brings what lies at the target, and Portals 3.3's three calls post as one does, unless an event waits.
#[test]
fn gets_fetch_and_receives_are_posted_in_three_calls_or_one() {
    for mode in MODES {
        run(2, move |own, node| {
            let mut rank = Rank::new(mode, node, 8192);
            let other = process(&rank.port, own, 1 - own);
            let place = Place { pt_index: 0, list: List::Priority };
            if own == 1 {
                rank.buf.write(0, &pattern(3000, 8)).expect("inside");
                let orders = rank.port.orders();
                let draft = rank.port.me_attach(place, &rank.entry(0, 3000)).expect("room");
                let region = Region::new(rank.buf.addr(), 3000);
                rank.port.md_attach(draft, &region, 1).expect("a draft");
                assert!(rank.port.md_update(draft).expect("a draft").is_some(), "{mode}");
                assert_eq!(rank.port.md_update(draft), Err(portals::Error::ArgInvalid), "used");
                assert_eq!(rank.port.orders().1 - orders.1, 4, "three, and one in vain");
                let entry = rank.entry(4096, 10);
                assert!(rank.port.post(place, &entry, 2).expect("room").is_some(), "{mode}");
                (0..5).for_each(|_| rank.host.wait_a_little());
                // The get has been told, and not looked at.
                let entry = rank.entry(4096, 10);
                assert_eq!(rank.port.post(place, &entry, 3), Ok(None), "{mode}");
                assert_eq!(rank.event().kind, EventKind::Get);
                assert!(rank.port.post(place, &entry, 3).expect("room").is_some(), "{mode}");
                return;
            }
            rank.host.wait_a_little();
            let get = Transfer {
                action: Action::Get,
                put: None,
                get: Some(Local { md: rank.md, offset: 100 }),
                length: 3000,
                ack: AckReq::None,
                target: other,
                pt_index: 0,
                match_bits: TAG,
                remote_offset: 0,
                user_ptr: 4,
                hdr_data: 0,
            };
            rank.port.transfer(&get).expect("it can begin");
            let reply = rank.event();
            assert_eq!((reply.kind, reply.mlength, reply.user_ptr), (EventKind::Reply, 3000, 4), "{mode}");
            assert_eq!(rank.buf.to_vec(100..3100).expect("inside"), pattern(3000, 8));
        });
    }
}

/// Goal: the profile of a message has all of its time, and interrupts where the kernel matches: one for a short message, two for a
/// longer one, none where the card does.
#[test]
fn a_profile_is_whole() {
    for (mode, interrupts) in [(MODES[0], [0, 0]), (MODES[1], [1, 2])] {
        for (len, interrupts) in [(8, interrupts[0]), (1024, interrupts[1])] {
            let found = Arc::new(Mutex::new(None));
            let told = found.clone();
            run(2, move |own, node| {
                let mut rank = Rank::new(mode, node, 8192);
                let other = process(&rank.port, own, 1 - own);
                if own == 0 {
                    rank.host.wait_a_little();
                    rank.put(other, 0, len, AckReq::None, 0);
                    // A process that ends takes its program with it.
                    rank.host.wait_a_little();
                } else {
                    rank.post(0, 4096, 0);
                    rank.event();
                    *told.lock().expect("a lock") = fabric::profile(&rank.host);
                }
            });
            let profile = found.lock().expect("a lock").take().expect("a profile");
            let all = profile.spent.into_iter().fold(host::Span::ZERO, |sum, span| sum + span);
            assert_eq!(all, profile.ended.since(profile.began), "{mode}");
            assert_eq!(profile.interrupts, interrupts, "{len} bytes, {mode}");
            println!(
                "{mode} {len}: {all} {:?}",
                fabric::COMPONENTS.iter().zip(profile.spent).collect::<Vec<_>>()
            );
        }
    }
}

/// Senders of a flood: more than there are streams. Messages of each, and their bytes.
const SENDERS: usize = 300;
const MESSAGES: u64 = 4;
const LONG: u64 = 4096;

/// Has all of them send long messages to rank 0, which is slow; those that it got of each, in their order.
fn flood(mode: &'static str) -> Vec<Vec<u64>> {
    let got = Arc::new(Mutex::new(vec![Vec::new(); SENDERS + 1]));
    let told = got.clone();
    run(SENDERS + 1, move |own, node| {
        let total = SENDERS as u64 * MESSAGES * LONG;
        let mut rank = Rank::new(mode, node, if own == 0 { total as usize } else { LONG as usize });
        let target = process(&rank.port, own, 0);
        if own > 0 {
            // What is sent before the target is there is lost, as on a machine whose processes begin at different times.
            rank.host.wait_a_little();
            (0..MESSAGES).for_each(|n| rank.put(target, 0, LONG, AckReq::None, n));
            rank.host.poll("the end", rank.host.after(host::Span::from_ms(40)), || None::<()>);
            return;
        }
        let options = EntryOptions::OP_PUT | EntryOptions::MANAGE_LOCAL | EntryOptions::EVENT_LINK_DISABLE;
        let entry = Entry { options, ignore_bits: u64::MAX, ..rank.entry(0, total) };
        let place = Place { pt_index: 0, list: List::Priority };
        rank.port.append(place, &entry, 0).expect("room");
        while let Some((event, lost)) = rank.port.eq_wait(rank.host.after(host::Span::from_ms(20))) {
            assert!(!lost && event.fail == Fail::Ok && event.mlength == LONG, "{mode}: {event:?}");
            let from = (event.initiator.nid - target.nid) as usize;
            told.lock().expect("a lock")[from].push(event.hdr_data);
        }
    });
    got.lock().expect("a lock").clone()
}

/// Goal: with more sources than streams nothing is lost, nothing doubled and all order kept by either flow control, and without one
/// messages are lost. Method: 300 senders of four long messages each, and one receiver.
#[test]
fn a_flood_is_held_back_and_loses_nothing() {
    let all: Vec<u64> = (0..MESSAGES).collect();
    for mode in MODES.into_iter().skip(2) {
        let got = flood(mode);
        assert!(got[1..].iter().all(|one| *one == all), "{mode}");
    }
    for mode in MODES.into_iter().take(2) {
        let got = flood(mode);
        let count: usize = got.iter().map(Vec::len).sum();
        assert!((256..SENDERS * MESSAGES as usize).contains(&count), "{count}, {mode}");
        assert!(got.iter().all(|one| one.is_sorted()), "{mode}");
    }
}
