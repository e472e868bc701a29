//! Matching in the NIC's firmware on SeaStar: on the card's processor and in the host's kernel, with each
//! flow control. The results are the same everywhere; only the times differ.

use std::sync::{Arc, Mutex};

use host::Host;
use host::world::{Config, Ended, Node, World};
use portals::{
    AckReq, Action, CtEvent, Entry, EntryOptions, Error, Event, EventKind, Fail, Limits, List, ListId,
    MdAddr, MdHandle, MdOptions, Offload, Process, PtOptions, Region, Source, Transfer,
};
use verbs::Buf;

/// Where matching happens, and which flow control keeps messages from being lost.
const MODES: [&str; 5] = [
    "mode.match_kind=nic",
    "mode.match_kind=host",
    "mode.match_kind=nic,mode.flow_kind=corpse",
    "mode.match_kind=host,mode.flow_kind=corpse",
    "mode.match_kind=host,mode.flow_kind=cop",
];
/// The process number on each node.
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
        let place = ListId { pt_index: 0, list: List::Priority };
        self.port.append(place, &self.entry(at, len), user_ptr).expect("room");
    }

    fn put(&mut self, to: Process, at: u64, len: u64, ack: AckReq, hdr_data: u64) {
        let transfer = put(self.md, to, at, len, ack, hdr_data);
        self.port.transfer(&transfer).expect("it can begin");
    }

    fn event(&mut self) -> Event {
        let deadline = self.host.after(host::Span::from_ms(100));
        let (event, lost) = self.port.eq_wait(deadline).expect("an event");
        assert!(!lost);
        event
    }
}

fn put(md: MdHandle, target: Process, at: u64, length: u64, ack: AckReq, hdr_data: u64) -> Transfer {
    Transfer {
        action: Action::Put,
        put: Some(MdAddr { md, offset: at }),
        get: None,
        length,
        ack,
        target,
        pt_index: 0,
        match_bits: TAG,
        remote_offset: 0,
        user_ptr: 99,
        hdr_data,
    }
}

/// The process of another node: cards have consecutive addresses.
fn process(port: &Offload, own: usize, other: usize) -> Process {
    let nid = port.process().nid + other as u32 - own as u32;
    Process::physical(nid, PID.into())
}

fn run(ranks: usize, body: impl Fn(usize, &Node) + Send + Sync + 'static) -> Ended {
    let mut world = World::new(Config::default());
    let body = Arc::new(body);
    let nodes: Vec<Node> = (0..ranks).map(|rank| world.add_node(&format!("node {rank}"))).collect();
    for (rank, node) in nodes.iter().enumerate() {
        let (body, node) = (body.clone(), node.clone());
        world.spawn(&format!("rank {rank}"), &[&node.clone()], move || body(rank, &node)).expect("a fiber");
    }
    world.run().expect("every rank ends")
}

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed * 31) as u8).collect()
}

/// Goal: data of all sizes around the limits of a packet arrive complete and in the right place, with a
/// matching event and an acknowledgement, and two runs are equal.
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
                    // No process sends before both have posted: rank 1 sends only after rank 0's message.
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
    /// Waits longer than a call of the peer takes.
    fn wait_a_little(&self) {
        self.poll("a little", self.after(host::Span::from_us(20)), || None::<()>);
    }
}

/// Goal: unexpected messages are stored in the overflow list's memory, and reported to an entry that is
/// appended later.
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
            let place = ListId { pt_index: 0, list: List::Overflow };
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

/// Goal: a get fetches the target's data, and Portals 3.3's three calls post a receive as the single call
/// does, unless an event is unread.
#[test]
fn gets_fetch_and_receives_are_posted_in_three_calls_or_one() {
    for mode in MODES {
        run(2, move |own, node| {
            let mut rank = Rank::new(mode, node, 8192);
            let other = process(&rank.port, own, 1 - own);
            let place = ListId { pt_index: 0, list: List::Priority };
            if own == 1 {
                rank.buf.write(0, &pattern(3000, 8)).expect("inside");
                let orders = rank.port.commands();
                let draft = rank.port.me_attach(place, &rank.entry(0, 3000)).expect("room");
                let region = Region::new(rank.buf.addr(), 3000);
                rank.port.md_attach(draft, &region, 1).expect("a draft");
                assert!(rank.port.md_update(draft).expect("a draft").is_some(), "{mode}");
                assert_eq!(rank.port.md_update(draft), Err(portals::Error::ArgInvalid), "used");
                assert_eq!(rank.port.commands().1 - orders.1, 4, "three, and one in vain");
                let entry = rank.entry(4096, 10);
                assert!(rank.port.post(place, &entry, 2).expect("room").is_some(), "{mode}");
                (0..5).for_each(|_| rank.host.wait_a_little());
                // The get's event has been written, but not read.
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
                get: Some(MdAddr { md: rank.md, offset: 100 }),
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

/// Goal: the profile of a message accounts for all of its time, and for interrupts if the kernel matches: one
/// for a short message, two for a longer one; none if the card matches.
#[test]
fn profile_accounts_for_all_time() {
    for (mode, interrupts) in [(MODES[0], [0, 0]), (MODES[1], [1, 2])] {
        for (len, interrupts) in [(8, interrupts[0]), (1024, interrupts[1])] {
            let found = Arc::new(Mutex::new(None));
            let result = found.clone();
            run(2, move |own, node| {
                let mut rank = Rank::new(mode, node, 8192);
                let other = process(&rank.port, own, 1 - own);
                if own == 0 {
                    rank.host.wait_a_little();
                    rank.put(other, 0, len, AckReq::None, 0);
                    // A process that exits removes its firmware.
                    rank.host.wait_a_little();
                } else {
                    rank.post(0, 4096, 0);
                    rank.event();
                    *result.lock().expect("a lock") = fabric::profile(&rank.host);
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

/// Senders of a flood: more than there are streams. Then messages of each sender, and bytes of each message.
const SENDERS: usize = 300;
const MESSAGES: u64 = 4;
const LONG: u64 = 4096;

/// All senders send long messages to rank 0, which is slow; returns the messages received from each, in
/// order.
fn flood(mode: &'static str) -> Vec<Vec<u64>> {
    let got = Arc::new(Mutex::new(vec![Vec::new(); SENDERS + 1]));
    let received = got.clone();
    run(SENDERS + 1, move |own, node| {
        let total = SENDERS as u64 * MESSAGES * LONG;
        let mut rank = Rank::new(mode, node, if own == 0 { total as usize } else { LONG as usize });
        let target = process(&rank.port, own, 0);
        if own > 0 {
            // Messages sent before the target exists are lost, as on a machine whose processes start at
            // different times.
            rank.host.wait_a_little();
            (0..MESSAGES).for_each(|n| rank.put(target, 0, LONG, AckReq::None, n));
            rank.host.poll("the end", rank.host.after(host::Span::from_ms(40)), || None::<()>);
            return;
        }
        let options = EntryOptions::OP_PUT | EntryOptions::MANAGE_LOCAL | EntryOptions::EVENT_LINK_DISABLE;
        let entry = Entry { options, ignore_bits: u64::MAX, ..rank.entry(0, total) };
        let place = ListId { pt_index: 0, list: List::Priority };
        rank.port.append(place, &entry, 0).expect("room");
        while let Some((event, lost)) = rank.port.eq_wait(rank.host.after(host::Span::from_ms(20))) {
            assert!(!lost && event.fail == Fail::Ok && event.mlength == LONG, "{mode}: {event:?}");
            let from = (event.initiator.nid - target.nid) as usize;
            received.lock().expect("a lock")[from].push(event.hdr_data);
        }
    });
    got.lock().expect("a lock").clone()
}

/// Goal: with more sources than streams either flow control loses and duplicates nothing and preserves order;
/// without one, messages are lost. Method: 300 senders of four long messages each, and one receiver.
#[test]
fn flow_control_loses_no_message_of_a_flood() {
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

fn counts(success: u64) -> CtEvent {
    CtEvent { success, failure: 0 }
}

/// Goal: counters count messages and acknowledgements, and trigger puts, entries and each other, without a
/// call by the target. Method: rank 1 prepares everything, and reads its counters when rank 0 has got an
/// answer.
#[test]
fn counters_trigger_in_every_mode() {
    for mode in MODES {
        run(2, move |own, node| {
            let mut rank = Rank::new(mode, node, 4096);
            let other = process(&rank.port, own, 1 - own);
            let deadline = rank.host.after(host::Span::from_ms(50));
            let (came, acked) = (rank.port.ct_alloc().expect("room"), rank.port.ct_alloc().expect("room"));
            assert_eq!((rank.port.ct_get(came), rank.port.ct_get(acked)), (counts(0), counts(0)));
            if own == 0 {
                let options = MdOptions::EVENT_CT_ACK | MdOptions::EVENT_SEND_DISABLE;
                let region = Region::new(rank.buf.addr(), 4096);
                let md = rank.port.md_bind_counting(&region, options, acked).expect("room");
                rank.post(64, 8, 1);
                (0..10).for_each(|_| rank.host.wait_a_little());
                for n in 0..3 {
                    rank.buf.write(0, &[n; 8]).expect("inside");
                    rank.port.transfer(&put(md, other, 0, 8, AckReq::Counting, n.into())).expect("legal");
                    let acknowledged = rank.port.ct_wait(acked, u64::from(n) + 1, deadline);
                    assert_eq!(acknowledged, Some(counts(u64::from(n) + 1)), "{mode}");
                }
                // Three messages have arrived there and triggered a put.
                assert_eq!((rank.event().kind, rank.buf.to_vec(64..72)), (EventKind::Put, Ok(vec![9; 8])));
                return;
            }
            let place = ListId { pt_index: 0, list: List::Priority };
            let entry = |at, options| Entry { counter: Some(came), options, ..rank.entry(at, 8) };
            let counted =
                rank.entry(0, 8).options | EntryOptions::EVENT_CT_COMM | EntryOptions::EVENT_COMM_DISABLE;
            let [first, second, third] = [0, 8, 16].map(|at| entry(at, counted));
            rank.port.append(place, &first, 1).expect("room");
            rank.port.trigger_append(came, 1, place, &second, 2).expect("room");
            rank.port.trigger_append(came, 2, place, &third, 3).expect("room");
            rank.buf.write(32, &[9; 8]).expect("inside");
            rank.port.trigger(came, 3, &put(rank.md, other, 32, 8, AckReq::None, 7)).expect("legal");
            rank.port.trigger_ct_inc(came, 2, acked, counts(5)).expect("counters");
            rank.port.trigger_ct_set(acked, 5, acked, counts(40)).expect("counters");
            assert_eq!(rank.port.ct_wait(came, 3, deadline), Some(counts(3)), "{mode}");
            assert_eq!(rank.port.ct_get(acked), counts(40));
            assert_eq!(rank.buf.to_vec(0..24), Ok([[0; 8], [1; 8], [2; 8]].concat()));
            // Cancelling a counter drops its pending operations; a freed handle is invalid.
            let waiting = rank.port.trigger_append(acked, 99, place, &first, 4).expect("room");
            rank.port.trigger_unlink(came, 99, waiting).expect("room");
            rank.port.ct_cancel(acked).expect("a counter");
            assert_eq!(rank.port.unlink(waiting), Err(Error::ArgInvalid));
            rank.port.ct_set(acked, counts(1)).expect("a counter");
            rank.port.ct_inc(acked, counts(2)).expect("a counter");
            assert_eq!(rank.port.ct_get(acked), counts(3));
            rank.port.ct_free(acked).expect("a counter");
            assert_eq!(rank.port.ct_inc(acked, counts(1)), Err(Error::ArgInvalid));
            assert_eq!(rank.port.pt_free(0), Ok(()));
        });
    }
}

/// Senders of a crowd, messages of each, and messages that the receiver has room for.
const CROWD: usize = 64;
const EACH: u64 = 6;
const ROOM: u64 = 16;
/// Messages on the second portal table entry.
const STOP: u64 = 1;
const GO: u64 = 2;
const QUIET: u64 = 3;
const OVER: u64 = 4;

impl Rank {
    /// Allocates the second portal table entry.
    fn open_control(&mut self) {
        assert_eq!(self.port.pt_alloc(PtOptions::empty(), Some(1)), Ok(1));
        let options = EntryOptions::OP_PUT | EntryOptions::EVENT_LINK_DISABLE;
        let entry = Entry { options, ..self.entry(0, 0) };
        let place = ListId { pt_index: 1, list: List::Priority };
        self.port.append(place, &entry, 0).expect("room");
    }

    fn say(&mut self, to: Process, what: u64) {
        let put = Transfer { pt_index: 1, ..put(self.md, to, 0, 0, AckReq::None, what) };
        self.port.transfer(&put).expect("it can begin");
    }

    /// Sends all messages, repeats refused ones, and pauses when the receiver asks for it.
    fn send_all(&mut self, target: Process) {
        let (mut next, mut refused, mut under_way, mut done) = (0, EACH, 0, 0);
        let (mut stops, mut is_still) = (false, false);
        loop {
            while !stops && !is_still && refused == EACH && next < EACH && under_way < 3 {
                let put = Transfer { user_ptr: next, ..put(self.md, target, 0, 8, AckReq::Full, next) };
                self.port.transfer(&put).expect("it can begin");
                (next, under_way) = (next + 1, under_way + 1);
            }
            if stops && under_way == 0 {
                self.say(target, QUIET);
                (stops, is_still) = (false, true);
            }
            let event = self.event();
            match (event.kind, event.hdr_data) {
                (EventKind::Ack, _) => {
                    under_way -= 1;
                    match event.fail {
                        Fail::Ok => done += 1,
                        Fail::PtDisabled => refused = refused.min(event.user_ptr),
                        other => panic!("{other:?}"),
                    }
                }
                (EventKind::Put, STOP) => stops = true,
                (EventKind::Put, GO) => {
                    (is_still, next) = (false, next.min(refused));
                    refused = EACH;
                }
                (EventKind::Put, OVER) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((done, under_way), (EACH, 0));
    }

    /// Receives all messages, slowly; returns each sender's in order, and how often there was no room.
    fn take_all(&mut self, senders: &[Process]) -> (Vec<Vec<u64>>, u32) {
        let (mut got, mut disabled, mut waits) = (vec![Vec::new(); senders.len()], 0, false);
        let (mut left, mut quiet) = (senders.len() as u64 * EACH, 0);
        while left > 0 {
            let event = if waits { self.port.eq_get().map(|(event, _)| event) } else { Some(self.event()) };
            let Some(event) = event else {
                senders.iter().for_each(|to| self.say(*to, STOP));
                while quiet < senders.len() {
                    let event = self.event();
                    assert_eq!((event.pt_index, event.hdr_data), (1, QUIET));
                    quiet += 1;
                }
                (waits, quiet) = (false, 0);
                self.port.pt_enable(0, true).expect("there");
                senders.iter().for_each(|to| self.say(*to, GO));
                continue;
            };
            match event.kind {
                EventKind::PtDisabled => (waits, disabled) = (true, disabled + 1),
                EventKind::Put => {
                    let from = senders.iter().position(|sender| *sender == event.initiator).expect("known");
                    got[from].push(event.hdr_data);
                    left -= 1;
                    self.host.charge(host::Span::from_us(5));
                    self.post(0, 8, 0);
                }
                other => panic!("{other:?}"),
            }
        }
        senders.iter().for_each(|to| self.say(*to, OVER));
        self.port.finish();
        (got, disabled)
    }
}

/// Goal: with the standard's flow control, nothing is lost or duplicated, and each sender's messages stay in
/// order. Method: 64 senders and one receiver with room for 16 messages, which recovers by pausing all
/// senders.
#[test]
fn refused_senders_repeat_their_messages() {
    for mode in MODES {
        run(CROWD + 1, move |own, node| {
            let mut rank = Rank::new(mode, node, 64);
            rank.open_control();
            let target = process(&rank.port, own, 0);
            if own > 0 {
                (0..10).for_each(|_| rank.host.wait_a_little());
                return rank.send_all(target);
            }
            rank.port.pt_free(0).expect("nothing has come");
            assert_eq!(rank.port.pt_alloc(PtOptions::FLOWCTRL, Some(0)), Ok(0));
            (0..ROOM).for_each(|_| rank.post(0, 8, 0));
            let senders: Vec<Process> = (1..=CROWD).map(|other| process(&rank.port, 0, other)).collect();
            let (got, disabled) = rank.take_all(&senders);
            assert!(got.iter().all(|one| one.iter().copied().eq(0..EACH)), "{mode}: {got:?}");
            assert!(disabled > 0, "{mode}: nobody was refused");
        });
    }
}
