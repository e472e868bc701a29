//! Messages that are stored in fragments in the receiver's ring (`shm`): they arrive whole whatever the order of receives, a full
//! ring delays their sender and loses nothing, and a sender whose peer is lost does not wait for room.

mod support;

use std::net::Ipv4Addr;

use mpi::{ANY_TAG, Class, Connect, Mode, Process, Request};
use support::{buffer, in_threads, pattern, receive, send, with};

/// Lengths of one and of several fragments, around the limits.
const LENGTHS: [usize; 7] =
    [(16 << 10) + 1, 20_000, 40_001, (64 << 10) - 1, 100_000, 128 << 10, (256 << 10) - 3];
/// Messages of 100,000 bytes that exceed the ring of 512 KiB.
const WINDOW: usize = 12;
const EACH: usize = 100_000;

/// Receives before and after the messages, in their order and in reverse, with less room than needed, and again in lap after lap.
fn in_any_order(process: &Process) {
    let world = process.world();
    let other = |tag| with(1 - world.rank(), tag);
    for turn in 0..20 {
        if world.rank() == 0 {
            for (tag, len) in LENGTHS.into_iter().enumerate() {
                send(world, pattern(0, turn + tag, len), other(tag as i32));
            }
            assert_eq!(receive(world, 1, other(99)).1.bytes, 1);
            continue;
        }
        let mut tags: Vec<usize> = (0..LENGTHS.len()).collect();
        if turn % 2 == 1 {
            // All but the last one are unexpected.
            tags.reverse();
        }
        for tag in tags {
            let (len, short) = (LENGTHS[tag], turn % 3 == 2);
            let room = if short { len - 10_000 } else { len };
            let (bytes, status) = receive(world, room, other(tag as i32));
            assert_eq!(
                (status.class() == Class::TRUNCATE, status.bytes),
                (short, room as u64),
                "{len} bytes"
            );
            assert!(bytes[..room] == pattern(0, turn + tag, len)[..room], "{len} bytes in turn {turn}");
        }
        send(world, vec![1], other(99));
    }
}

#[test]
fn stored_fragments_arrive_in_any_order_of_receives() {
    in_threads("shm", 2, Connect::OnDemand, in_any_order);
}

/// Both ranks start more sends than the rings hold before either receives.
fn beyond_the_ring(process: &Process) {
    let world = process.world();
    let other = with(1 - world.rank(), 5);
    for turn in 0..5 {
        let mut sent: Vec<Vec<u8>> =
            (0..WINDOW).map(|number| pattern(world.rank(), turn + number, EACH)).collect();
        let mut sends: Vec<Request> = sent
            .iter_mut()
            .map(|bytes| world.isend(Mode::Standard, &buffer(bytes), other).expect("begun"))
            .collect();
        for number in 0..WINDOW {
            let (bytes, status) = receive(world, EACH, other);
            assert_eq!((status.class(), status.bytes), (Class::SUCCESS, EACH as u64));
            assert!(bytes == pattern(other.rank, turn + number, EACH), "message {number} of turn {turn}");
        }
        sends.iter_mut().for_each(|send| assert_eq!(send.wait().class(), Class::SUCCESS));
    }
}

#[test]
fn full_rings_in_both_directions_delay_and_lose_nothing() {
    in_threads("shm", 2, Connect::OnDemand, beyond_the_ring);
}

/// Goal: sends that wait for room fail when the peer is lost, and one is not reported as successful that has not left. Method: rank
/// 1 receives one byte and vanishes; rank 0 has started more sends than the ring holds.
#[test]
fn sends_that_wait_for_room_fail_with_their_peer() {
    let (host, kvs) = (verbs::host::real::host(), mpi::LocalKvs::new(2));
    let start = |rank| {
        let (host, kvs) = (host.clone(), kvs.clone());
        move || {
            let device = fabric::open("shm", &host).expect("a device");
            let ports = vec![mpi::Port { device, address: Ipv4Addr::LOCALHOST.into(), fabric: "shm".into() }];
            let config = mpi::Config { ports, node: "n".into(), ..mpi::Config::default() };
            Process::start(&host, &config, kvs.bootstrap(rank, &host)).expect("a job")
        }
    };
    let goes = start(1);
    let leaver = host.spawn("leaver", None, move || {
        let process = goes();
        assert_eq!(receive(process.world(), 1, with(0, 1)).1.bytes, 1);
    });
    let process = start(0)();
    let world = process.world();
    send(world, vec![1], with(1, 1));
    let mut sent = vec![vec![7; EACH]; WINDOW];
    // The peer may be lost before the last send starts.
    let begun = sent.iter_mut().map(|bytes| world.isend(Mode::Standard, &buffer(bytes), with(1, 2)));
    let ends: Vec<Class> =
        begun.map(|begun| begun.map_or_else(|error| error.class, |mut send| send.wait().class())).collect();
    assert!(ends.iter().all(|class| [Class::SUCCESS, Class::PROC_ABORTED].contains(class)), "{ends:?}");
    assert_eq!(ends.last(), Some(&Class::PROC_ABORTED));
    leaver.expect("a thread").join();
    assert_eq!(world.probe(with(1, ANY_TAG)).expect_err("it is lost").class, Class::PROC_ABORTED);
}
