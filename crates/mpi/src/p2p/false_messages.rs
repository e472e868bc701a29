//! Tests: a peer sends valid messages with false contents, and must do no harm; and the messages that a correct peer sends. The
//! tests drive both processes step by step, so that no other message comes between.

use std::net::Ipv4Addr;
use std::sync::Arc;

use host::SlotKey;

use crate::bootstrap::{LocalBootstrap, LocalKvs};
use crate::error::Class;
use crate::memory::Buffer;
use crate::p2p::engine::Mode;
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::{MatchKey, Message, RemoteMemory};
use crate::peers::connection::Payload;
use crate::peers::nic::{DIRECT_MAX, Port, STORED_MAX};
use crate::process::{Config, Process};

const LEN: usize = 1 << 20;
const MATCH_KEY: MatchKey = MatchKey { context: 77, tag: 1 };
/// The number of pieces of a message of this length.
const PIECES: u32 = 8;

/// Two processes, connected by shared memory.
fn pair() -> [Process; 2] {
    job()
}

/// Processes, with a connection from the first to each other one by shared memory.
fn job<const SIZE: usize>() -> [Process; SIZE] {
    job_on("shm")
}

/// The processes of [`job`], connected over another device.
fn job_on<const SIZE: usize>(name: &str) -> [Process; SIZE] {
    let (host, kvs) = (host::real::host(), LocalKvs::new(SIZE as u32));
    let start = |bootstrap: Arc<LocalBootstrap>| {
        let device = fabric::open(name, &host).expect("a device");
        let ports = vec![Port { device, address: Ipv4Addr::LOCALHOST.into(), fabric: name.into() }];
        let config = Config { ports, node: "here".into(), ..Config::default() };
        Process::start(&host, &config, bootstrap).expect("a job")
    };
    let bootstraps: [_; SIZE] = std::array::from_fn(|rank| kvs.bootstrap(rank as u32, &host));
    let all = std::thread::scope(|scope| {
        bootstraps
            .map(|bootstrap| scope.spawn(|| start(bootstrap)))
            .map(|process| process.join().expect("started"))
    });
    let others = 1..SIZE as u32;
    others.clone().for_each(|other| all[0].core().with(|e| e.transport.connect(other)).expect("reached"));
    let is_open = |at: u32, to| all[at as usize].core().with(|e| e.transport.is_open(to));
    progress_until(&all, || others.clone().all(|other| is_open(0, other) && is_open(other, 0)));
    all
}

/// Has all processes make progress until a condition holds.
fn progress_until(all: &[Process], is_there: impl Fn() -> bool) {
    let patience = std::time::Instant::now();
    while !is_there() {
        all.iter().for_each(Process::progress);
        assert!(patience.elapsed().as_secs() < 60, "the condition does not hold within 60 s");
    }
}

fn data() -> Vec<u8> {
    (0..LEN).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Starts a long send to the other process.
fn begin_send(process: &Process, buffer: &Buffer) -> SlotKey {
    begin_send_to(1 - process.world().rank() as u32, process, buffer)
}

fn begin_send_to(to: u32, process: &Process, buffer: &Buffer) -> SlotKey {
    process.core().with(|engine| {
        let started = engine.send(to, MATCH_KEY, buffer, Mode::Standard).expect("reached");
        engine.key_of(started)
    })
}

/// Starts a receive from the other process.
fn begin_receive(process: &Process, buffer: &Buffer) -> SlotKey {
    begin_receive_from(1 - process.world().rank() as u32, process, buffer)
}

fn begin_receive_from(from: u32, process: &Process, buffer: &Buffer) -> SlotKey {
    let wanted = MatchCriteria { context: MATCH_KEY.context, source: Some(from), tag: Some(MATCH_KEY.tag) };
    let receive = Receive { wanted, buffer: buffer.clone(), sources: SourceRanks::One(from as i32) };
    process.core().with(|engine| {
        let started = engine.receive(receive);
        engine.key_of(started)
    })
}

fn send_messages(process: &Process, messages: &[Message]) {
    let to = 1 - process.world().rank() as u32;
    process.core().with(|engine| {
        for message in messages {
            engine.transport.send(to, *message, Payload::None, None).expect("reached");
        }
    });
}

fn is_complete(process: &Process, key: SlotKey) -> bool {
    process.core().with(|engine| engine.is_complete(key))
}

/// Goal: a receive does not complete while its own device writes to the memory. Method: the sender claims immediately that it has
/// copied all pieces, or more than exist, while the receiver is copying.
#[test]
fn receive_waits_for_its_own_pieces() {
    for pieces in [PIECES, u32::MAX] {
        let both = pair();
        let (sent, got) = (
            Buffer::from_bytes(&data()).expect("memory"),
            Buffer::from_bytes(&vec![0; LEN]).expect("memory"),
        );
        let wanted = MatchCriteria { context: MATCH_KEY.context, source: Some(1), tag: Some(MATCH_KEY.tag) };
        let receive = Receive { wanted, buffer: got.clone(), sources: SourceRanks::One(1) };
        let receiving = both[0].core().with(|engine| {
            let started = engine.receive(receive);
            engine.key_of(started)
        });
        let sending = begin_send(&both[1], &sent);
        send_messages(&both[1], &[Message::ShmFin { key: receiving.number(), pieces }]);
        both[0].progress();
        assert!(!is_complete(&both[0], receiving), "with its pieces under way");
        progress_until(&both, || is_complete(&both[0], receiving) && is_complete(&both[1], sending));
        assert_eq!(
            both[0].core().with(|engine| engine.take_status(receiving)).map(|s| s.class()),
            Some(Class::SUCCESS)
        );
        assert!(got.to_vec() == data());
    }
}

/// Goal: a sender accepts one invitation, and its send does not complete while its own device reads the memory. Method: the
/// receiver invites it twice, and reports completion at the same time.
#[test]
fn send_waits_for_its_own_pieces() {
    let both = pair();
    let (sent, got) =
        (Buffer::from_bytes(&data()).expect("memory"), Buffer::from_bytes(&vec![0; LEN]).expect("memory"));
    let sending = begin_send(&both[0], &sent);
    let (addr, _) = got.contiguous_range().expect("one");
    let (invited, _registration) = both[1].core().with(|engine| {
        let registration = engine.transport.reach(0, addr, LEN, false).expect("reached");
        let remote = registration.remote(addr as u64);
        let at = RemoteMemory { addr: remote.addr, rkey: remote.rkey, length: LEN as u64 };
        let shares = [5, 6].map(|key| {
            engine.transport.await_share(0, SlotKey::from_number(key), LEN as u64);
            (key, engine.transport.next_share(0).expect("a word").1)
        });
        let id = sending.number();
        (
            shares.map(|(key, s)| Message::ShmCts { id, key, at, word: s.word, sequence: s.sequence }),
            registration,
        )
    });
    let done = Message::Fin { id: sending.number(), ok: true };
    send_messages(&both[1], &invited);
    send_messages(&both[1], &[done]);
    both[0].progress();
    assert!(!is_complete(&both[0], sending), "with its pieces under way");
    (0..4).for_each(|_| both[0].progress());
    let messages = take_all_stored(&both[1]);
    let [Message::Rts { .. }, Message::ShmFin { key: 5, pieces: PIECES }] = messages[..] else {
        panic!("the sender has sent {messages:?}");
    };
    assert!(got.to_vec() == data());
    send_messages(&both[1], &[done]);
    progress_until(&both, || is_complete(&both[0], sending));
}

/// Goal: a sender whose message is longer than a slot without a header that allows it, or not as long as its header says, loses its
/// connection, and its receive fails; nobody waits. Method: over iWARP, messages of 20,000 bytes with false headers.
#[test]
fn long_messages_with_false_headers_end_the_connection() {
    let long = vec![7; 20_000];
    let direct = |length| Message::Begin { match_key: MATCH_KEY, length };
    for message in [
        Message::Eager { match_key: MATCH_KEY, answer: None },
        direct(DIRECT_MAX + 1),
        direct(100),
        direct(long.len() as u64 - 1),
        direct(u64::MAX),
    ] {
        let both = job_on::<2>("iwarp");
        let got = Buffer::from_bytes(&vec![0; long.len()]).expect("memory");
        let receiving = begin_receive(&both[0], &got);
        both[1].core().with(|engine| {
            let all = Buffer::from_bytes(&long).expect("memory");
            let bytes = all.piece().expect("one");
            let (addr, len) = bytes.addr_len();
            let registration =
                engine.transport.reach(0, addr as usize, len as usize, false).expect("reached");
            let from = registration.sge(addr, len as u32);
            let payload = Payload::Zcopy { bytes, from, key: None };
            engine.transport.send(0, message, payload, None).expect("reached");
            // The device reads it until the connection ends.
            std::mem::forget(all);
        });
        progress_until(&both, || is_complete(&both[0], receiving));
        assert_eq!(ended(&both[0], receiving).0, Class::PROC_ABORTED, "{message:?}");
    }
}

/// Goal: fragments that no message has announced, that exceed it, or that a second announcement interrupts end the connection, and the
/// receive fails; nobody waits. Method: over shared memory, sequences of messages that no correct sender stores.
#[test]
fn false_fragments_end_the_connection() {
    let begin = |length| (Message::Begin { match_key: MATCH_KEY, length }, 100);
    let frag = |bytes| (Message::Frag, bytes);
    for messages in [
        vec![frag(100)],
        vec![begin(300), frag(201)],
        vec![begin(300), frag(100), begin(300)],
        vec![begin(STORED_MAX + 1)],
        vec![begin(u64::MAX)],
        vec![begin(99)],
    ] {
        let both = pair();
        let got = Buffer::from_bytes(&[0; 300]).expect("memory");
        let receiving = begin_receive(&both[0], &got);
        both[1].core().with(|engine| {
            for (message, bytes) in &messages {
                // The peer may have ended the connection before the last one.
                drop(engine.transport.send(0, *message, Payload::Own(vec![7; *bytes]), None));
            }
        });
        progress_until(&both, || is_complete(&both[0], receiving));
        assert_eq!(ended(&both[0], receiving).0, Class::PROC_ABORTED, "{messages:?}");
    }
}

/// Goal: fragments get to the receive of their message, posted before or after any fragment, and no byte behind it changes; other
/// messages may come between. Method: over shared memory, a message of four parts, one part empty, and a receive after each.
#[test]
fn fragments_match_receives_posted_before_and_after_each() {
    let data: Vec<u8> = (0..300_u32).map(|at| at as u8).collect();
    for posted_after in 0..5 {
        for room in [310, 300, 120] {
            let both = pair();
            let got = Buffer::from_bytes(&vec![0; room]).expect("memory");
            let mut receiving = None;
            let parts = [(0, 100), (100, 100), (100, 250), (250, 300)];
            for (number, (from, to)) in parts.into_iter().enumerate() {
                if posted_after == number {
                    receiving = Some(begin_receive(&both[0], &got));
                }
                let begin = Message::Begin { match_key: MATCH_KEY, length: data.len() as u64 };
                let message = if number == 0 { begin } else { Message::Frag };
                let payload = Payload::Own(data[from..to].to_vec());
                both[1]
                    .core()
                    .with(|engine| engine.transport.send(0, message, payload, None))
                    .expect("reached");
                let other = Message::Eager { match_key: MatchKey { tag: 2, ..MATCH_KEY }, answer: None };
                send_messages(&both[1], &[other]);
                (0..20).for_each(|_| both.iter().for_each(Process::progress));
                assert!(receiving.is_none_or(|key| number == 3 || !is_complete(&both[0], key)));
            }
            let receiving = receiving.unwrap_or_else(|| begin_receive(&both[0], &got));
            progress_until(&both, || is_complete(&both[0], receiving));
            let class = if room < data.len() { Class::TRUNCATE } else { Class::SUCCESS };
            assert_eq!(ended(&both[0], receiving).0, class, "posted after {posted_after} into {room}");
            let (got, whole) = (got.to_vec(), room.min(data.len()));
            assert!(got[..whole] == data[..whole] && got[whole..].iter().all(|byte| *byte == 0));
        }
    }
}

/// Goal: a message that is longer than a slot, but not as long as its header says, completes no receive: the next message's bytes do
/// not count for it. Method: over iWARP, a false length, and a correct message after it.
#[test]
fn a_message_shorter_than_its_header_says_is_not_received() {
    let both = job_on::<2>("iwarp");
    let got = Buffer::from_bytes(&vec![0; 30_000]).expect("memory");
    let receiving = begin_receive(&both[0], &got);
    let message = Message::Begin { match_key: MATCH_KEY, length: 30_000 };
    both[1].core().with(|engine| {
        let all = Buffer::from_bytes(&[7; 20_000]).expect("memory");
        let bytes = all.piece().expect("one");
        let (addr, len) = bytes.addr_len();
        let registration = engine.transport.reach(0, addr as usize, len as usize, false).expect("reached");
        let from = registration.sge(addr, len as u32);
        engine.transport.send(0, message, Payload::Zcopy { bytes, from, key: None }, None).expect("reached");
        std::mem::forget(all);
    });
    progress_until(&both, || is_complete(&both[0], receiving));
    assert_eq!(ended(&both[0], receiving).0, Class::PROC_ABORTED);
}

/// Goal: a long message gets to its receive whole, whether the receive is posted before it, while it arrives, or after, and a receive
/// that is too short reports that. Method: over iWARP, several lengths around the limits of slots and of messages sent as one.
#[test]
fn long_messages_match_receives_posted_before_and_after() {
    let both = job_on::<2>("iwarp");
    for len in [8 << 10, (8 << 10) + 17, 100_000, DIRECT_MAX as usize, DIRECT_MAX as usize + 1] {
        for (is_early, room) in
            [(true, len), (false, len), (true, len + 9), (true, len / 2), (false, len / 2)]
        {
            let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
            let (sent, got) = (
                Buffer::from_bytes(&data).expect("memory"),
                Buffer::from_bytes(&vec![0; room]).expect("memory"),
            );
            let mut receiving = is_early.then(|| begin_receive(&both[0], &got));
            let sending = begin_send(&both[1], &sent);
            if receiving.is_none() {
                (0..20).for_each(|_| both.iter().for_each(Process::progress));
            }
            let receiving = *receiving.get_or_insert_with(|| begin_receive(&both[0], &got));
            progress_until(&both, || is_complete(&both[0], receiving) && is_complete(&both[1], sending));
            let class = if room < len { Class::TRUNCATE } else { Class::SUCCESS };
            assert_eq!(ended(&both[0], receiving).0, class, "{len} bytes into {room}");
            assert_eq!(ended(&both[1], sending).0, Class::SUCCESS);
            let got = got.to_vec();
            let whole = len.min(room);
            assert!(
                got[..whole] == data[..whole] && got[whole..].iter().all(|byte| *byte == 0),
                "{len} {room}"
            );
        }
    }
}

/// Goal: a peer's cancel reply without a request is ignored, and a peer can cancel only its own messages. Method: a peer replies
/// for a send that was not cancelled, and cancels messages that it has not sent, and a message of another process.
#[test]
fn false_cancel_messages_are_ignored() {
    let all = job::<3>();
    let (sent, got) =
        (Buffer::from_bytes(&data()).expect("memory"), Buffer::from_bytes(&vec![0; LEN]).expect("memory"));
    let sending = begin_send_to(1, &all[0], &sent);
    let others = begin_send_to(0, &all[2], &sent);
    let tell = |message: Message| {
        all[1].core().with(|engine| engine.transport.send(0, message, Payload::None, None)).expect("reached");
    };
    (0..4).for_each(|_| all.iter().for_each(Process::progress));
    [sending.number(), sending.number() + 1, u64::MAX]
        .into_iter()
        .for_each(|id| tell(Message::CancelRsp { id }));
    [others.number(), u64::MAX].into_iter().for_each(|id| tell(Message::CancelReq { id }));
    (0..4).for_each(|_| all.iter().for_each(Process::progress));
    assert!(!is_complete(&all[0], sending), "it is not cancelled");
    let receiving = [begin_receive_from(0, &all[1], &got), begin_receive_from(2, &all[0], &got)];
    progress_until(&all, || is_complete(&all[1], receiving[0]) && is_complete(&all[0], receiving[1]));
    progress_until(&all, || is_complete(&all[0], sending) && is_complete(&all[2], others));
    let how = all[0].core().with(|engine| engine.take_status(sending)).expect("over");
    assert!(!how.cancelled && got.to_vec() == data());
}

/// Goal: in an exchange each process reads for itself. Method: compares the messages of a receiver that also sends with those of a
/// pure receiver.
#[test]
fn receiver_that_also_sends_invites_no_copies() {
    for sends in [true, false] {
        let both = pair();
        let (sent, got) = (
            Buffer::from_bytes(&data()).expect("memory"),
            Buffer::from_bytes(&vec![0; LEN]).expect("memory"),
        );
        if sends {
            begin_send(&both[0], &sent);
        }
        begin_send(&both[1], &sent);
        let wanted = MatchCriteria { context: MATCH_KEY.context, source: Some(1), tag: Some(MATCH_KEY.tag) };
        both[0]
            .core()
            .with(|engine| engine.receive(Receive { wanted, buffer: got, sources: SourceRanks::One(1) }));
        (0..4).for_each(|_| both[0].progress());
        let messages = take_all_stored(&both[1]);
        let expected = match messages[..] {
            [Message::Rts { .. }, Message::Fin { ok: true, .. }] => sends,
            [Message::ShmCts { .. }, Message::Fin { ok: true, .. }] => !sends,
            _ => false,
        };
        assert!(expected, "a receiver has sent {messages:?}");
    }
}

/// Goal: of many long messages at a time both sides copy each. Method: more messages than are copied at the same time, all waiting
/// when the sender polls.
#[test]
fn both_sides_copy_each_of_many_messages() {
    const MANY: usize = 20;
    let both = pair();
    let sent: Vec<Buffer> = (0..MANY).map(|_| Buffer::from_bytes(&data()).expect("memory")).collect();
    let got: Vec<Buffer> = (0..MANY).map(|_| Buffer::from_bytes(&vec![0; LEN]).expect("memory")).collect();
    let receiving: Vec<SlotKey> = got.iter().map(|got| begin_receive(&both[0], got)).collect();
    for sent in &sent {
        begin_send(&both[1], sent);
    }
    let mut messages = Vec::new();
    for _ in 0..2 * MANY {
        both[0].progress();
        messages.extend(take_all_stored(&both[1]));
    }
    assert!(
        receiving.iter().all(|key| is_complete(&both[0], *key))
            && got.iter().all(|got| got.to_vec() == data())
    );
    let invited = messages.iter().filter(|message| matches!(message, Message::ShmCts { .. })).count();
    assert_eq!(invited, MANY);
}

/// Goal: long messages of one process do not hold up those of another, and the loss of a process whose messages are first in the
/// queue affects only them. Method: two processes send more messages than both sides copy at a time; one makes no more progress,
/// and exits.
#[test]
fn messages_of_others_pass_those_of_a_lost_process() {
    const MANY: usize = 12;
    let mut all = job::<3>().map(Some);
    let sent: Vec<Buffer> = (0..MANY).map(|_| Buffer::from_bytes(&data()).expect("memory")).collect();
    let got: Vec<Buffer> =
        (0..2 * MANY).map(|_| Buffer::from_bytes(&vec![0; LEN]).expect("memory")).collect();
    let from = |at: usize| 1 + at / MANY;
    let receiver = all[0].take().expect("there");
    let receives =
        got.iter().enumerate().map(|(at, got)| begin_receive_from(from(at) as u32, &receiver, got));
    let receiving: Vec<SlotKey> = receives.collect();
    for sender in all[1..].iter().flatten() {
        for sent in &sent {
            begin_send_to(0, sender, sent);
        }
    }
    receiver.progress();
    let sender = all[2].take().expect("there");
    let is_share = |message: &Message| matches!(message, Message::ShmCts { .. });
    let invited = |messages: Vec<Message>| messages.iter().filter(|message| is_share(message)).count();
    let at_once = invited(take_all_stored(&sender));
    assert!(at_once > 0 && at_once < MANY, "{at_once} of the messages behind the other's");
    all[1] = None;
    let mut later = 0;
    for _ in 0..4 * MANY {
        receiver.progress();
        later += invited(take_all_stored(&sender));
    }
    assert_eq!(at_once + later, MANY);
    progress_until(std::slice::from_ref(&receiver), || {
        receiving.iter().all(|key| is_complete(&receiver, *key))
    });
    let ended =
        |key: SlotKey| receiver.core().with(|engine| engine.take_status(key)).map(|status| status.class());
    let ended: Vec<_> = receiving.into_iter().map(ended).collect();
    assert_eq!(ended[MANY - 1], Some(Class::PROC_ABORTED), "{ended:?}");
    assert!(ended[MANY..].iter().all(|class| *class == Some(Class::SUCCESS)), "{ended:?}");
    assert!(got[MANY..].iter().all(|got| got.to_vec() == data()));
}

/// The result of a completed receive.
fn ended(process: &Process, key: SlotKey) -> (Class, String) {
    let status = process.core().with(|engine| engine.take_status(key)).expect("over");
    (status.class(), status.error.map_or_else(String::new, |error| error.text.clone()))
}

/// Goal: [`Message::Leave`] can be sent while the peer receives nothing, and arrives after all earlier messages. Method: a process
/// fills the peer's memory with messages, and leaves.
#[test]
fn leaving_needs_no_room_at_the_peer() {
    for device in ["shm", "iwarp"] {
        let both = job_on::<2>(device);
        let message = Message::Eager { match_key: MATCH_KEY, answer: None };
        let mut sent = 0;
        let send = |engine: &mut crate::p2p::engine::Engine| {
            engine.transport.send_now(0, &message, &Payload::Own(vec![5; 8])).expect("reached")
        };
        while both[1].core().with(send) {
            sent += 1;
        }
        progress_until(&both[1..], || both[1].core().with(|engine| engine.transport.leave(true)));
        let got = Buffer::from_bytes(&[0; 8]).expect("memory");
        for number in 0..sent {
            let receiving = begin_receive(&both[0], &got);
            progress_until(&both[..1], || is_complete(&both[0], receiving));
            assert_eq!(ended(&both[0], receiving).0, Class::SUCCESS, "{number} of {sent} on {device}");
        }
        let receiving = begin_receive(&both[0], &got);
        progress_until(&both[..1], || is_complete(&both[0], receiving));
        let (class, text) = ended(&both[0], receiving);
        assert!(class == Class::PROC_ABORTED && text.contains("has left"), "{text}");
    }
}

/// Goal: messages after [`Message::Leave`] are ignored. Method: a process sends some.
#[test]
fn messages_after_leave_are_ignored() {
    for device in ["shm", "iwarp"] {
        let both = job_on::<2>(device);
        let got = Buffer::from_bytes(&[0; 8]).expect("memory");
        let receiving = begin_receive(&both[0], &got);
        let eager = Message::Eager { match_key: MATCH_KEY, answer: None };
        send_messages(&both[1], &[Message::Leave, Message::Leave, eager, Message::Fin { id: 1, ok: true }]);
        progress_until(&both, || is_complete(&both[0], receiving));
        (0..100).for_each(|_| both.iter().for_each(Process::progress));
        let how = ended(&both[0], receiving);
        assert!(how.1.contains("has left"), "{device} {how:?}");
        let receiving = begin_receive(&both[0], &got);
        assert!(ended(&both[0], receiving).1.contains("has left"), "at once");
    }
}

/// Takes the payload of the next message that the other process has stored, if there is one.
fn take_stored(process: &Process) -> Option<Vec<u8>> {
    process.core().with(|engine| {
        let transport = &mut engine.transport;
        transport.poll(false);
        let number = transport.next_stored_to().expect("one that is connected");
        let (_, what, place) = transport.next_stored(number)?;
        let (buf, range) = transport.payload(&what, place);
        let bytes = buf.to_vec(range).expect("inside");
        transport.release(place, &what.message);
        Some(bytes)
    })
}

fn store(process: &Process, bytes: Vec<u8>) {
    let to = 1 - process.world().rank() as u32;
    let message = Message::Eager { match_key: MATCH_KEY, answer: None };
    process
        .core()
        .with(|engine| engine.transport.send(to, message, Payload::Own(bytes), None))
        .expect("reached");
}

/// Goal: records arrive whole and in order, whether they are received immediately or late. Method: random lengths up to the
/// longest, and a receiver that lags behind at random.
#[test]
fn records_received_late_stay_in_order() {
    let both = pair();
    let most = both[0].core().with(|engine| engine.transport.payload_max(1)).expect("reached");
    assert_eq!(most, 16 << 10, "a record's, and not a slot's");
    let (mut rng, mut waiting) = (host::Rng::new(5), std::collections::VecDeque::new());
    for number in 0..4000_u32 {
        let longest = [20, 100, 1000, most][rng.next_u64() as usize % 4];
        let len = 17 + (rng.next_u64() % (longest as u64 - 16)) as usize;
        let bytes: Vec<u8> = (0..len).map(|at| (number as usize + at * 7) as u8).collect();
        waiting.push_back(bytes.clone());
        store(&both[0], bytes);
        while !waiting.is_empty() && (waiting.len() > 300 || rng.next_u64() % 5 > u64::from(number / 400 % 5))
        {
            // Records that found no room are sent once there is some.
            both[0].progress();
            let bytes = take_stored(&both[1]).expect("a message");
            assert!(Some(bytes) == waiting.pop_front(), "around message {number}");
        }
    }
    while let Some(next) = waiting.pop_front() {
        both[0].progress();
        assert!(take_stored(&both[1]) == Some(next));
    }
}

/// Takes all messages that the other process has stored for this one.
fn take_all_stored(process: &Process) -> Vec<Message> {
    let mut all = Vec::new();
    process.core().with(|engine| {
        let transport = &mut engine.transport;
        transport.poll(false);
        let number = transport.next_stored_to().expect("one that is connected");
        while let Some((_, what, place)) = transport.next_stored(number) {
            all.push(what.message);
            transport.release(place, &what.message);
        }
    });
    all
}
