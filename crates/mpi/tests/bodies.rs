//! Communication between processes. Each body runs twice in a simulated world, with the same trace, and in threads over shared
//! memory, where messages are stored in rings, and over iWARP, where they are sent.

mod support;

use datatypes::{Basic, Datatype};
use mpi::{
    ANY_TAG, BSEND_OVERHEAD, BsendSpace, Buffer, Class, Comm, Comparison, Connect, Group, Keyval, Mode,
    PROC_NULL, Piece, Process, Request, SplitType, Status, TestAny, UNDEFINED,
};
use support::{
    ANY, Body, Play, buffer, in_threads, in_threads_by, in_threads_written, pattern, receive, send, typed,
    with,
};
use verbs::host::Span;

fn twice(ranks: u32, connect: Connect, body: Body) {
    let play = Play { connect, ..Play::new(ranks) };
    assert_eq!(play.run(body), play.run(body), "the same seed gave another world");
}

/// Messages written by RDMA to memory that the receiver polls: on a modelled card that guarantees ordered writes, and in threads
/// over iWARP.
mod fast_path {
    use super::{Body, Connect, Play};

    fn twice(ranks: u32, body: Body) {
        let play = Play { card: "model:t3b", fast_path: true, ..Play::new(ranks) };
        let sent = Play { fast_path: false, ..play }.run(body);
        let written = play.run(body);
        assert_eq!(written, play.run(body), "the same seed gave another world");
        assert_ne!(written.trace, sent.trace, "nothing was written");
        super::in_threads_written(ranks, body);
    }

    macro_rules! bodies {
        ($($name:ident $ranks:literal)*) => { $(#[test] fn $name() { twice($ranks, super::$name); })* };
    }

    bodies! {
        messages_of_all_sizes_arrive 2
        messages_of_one_sender_stay_in_order 2
        floods_in_both_directions_complete 2
        rings_wrap_around 2
        payloads_are_not_taken_for_messages 2
        answers_and_floods_stay_in_order 2
        all_pairs_exchange_messages 6
    }

    /// Goal: a write wakes a sleeping receiver. Method: each message is sent long after its receive was posted.
    #[test]
    fn sleeping_receivers_are_woken_by_writes() {
        super::in_threads_written(2, |process| {
            let world = process.world();
            for number in 0..10 {
                let (bytes, other) = (vec![number; 16], super::with(1 - world.rank(), 5));
                if i32::from(number % 2) == world.rank() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    super::send(world, bytes, other);
                } else {
                    assert_eq!(super::receive(world, 16, other).0, bytes);
                }
            }
            let written: u64 =
                world.traffic().iter().map(|sent| sent.for_protocol(mpi::Proto::EagerWrite).messages).sum();
            assert_eq!(written, 5, "they went by other ways");
        });
    }

    #[test]
    fn connections_at_the_start_write() {
        let play = Play { card: "model:t3b", fast_path: true, connect: Connect::All, ..Play::new(4) };
        assert_eq!(play.run(super::a_ring_exchanges), play.run(super::a_ring_exchanges));
    }

    #[test]
    fn processes_communicate_over_kernel_tcp() {
        let play = Play { card: "model:t3b-sockets", ..Play::new(3) };
        play.run(super::all_pairs_exchange_messages);
    }
}

/// Cancelled sends, which Portals does not support.
mod taking_back {
    #[test]
    fn in_virtual_time() {
        super::twice(2, super::Connect::OnDemand, super::a_send_without_a_receive_is_cancelled);
    }

    #[test]
    fn on_this_machine() {
        for device in ["shm", "shm(dm=4K)", "iwarp"] {
            super::in_threads(
                device,
                2,
                super::Connect::OnDemand,
                super::a_send_without_a_receive_is_cancelled,
            );
        }
    }
}

/// A test for each kind of time and each body, with this number of ranks.
macro_rules! bodies {
    ($($name:ident $ranks:literal)*) => {
        mod model {
            $(#[test] fn $name() { super::twice($ranks, mpi::Connect::OnDemand, super::$name); })*
        }
        mod shm {
            $(#[test] fn $name() { super::in_threads("shm", $ranks, mpi::Connect::OnDemand, super::$name); })*
        }
        mod iwarp {
            $(#[test] fn $name() { super::in_threads("iwarp", $ranks, mpi::Connect::OnDemand, super::$name); })*
        }
        mod portals {
            const MATCH_ENGINE: mpi::MatchEngine = mpi::MatchEngine::Portals(mpi::Matcher::Caller);
            $(#[test] fn $name() { super::in_threads_by(MATCH_ENGINE, "shm", $ranks, super::$name); })*
        }
        mod portals_model {
            const MATCH_ENGINE: mpi::MatchEngine = mpi::MatchEngine::Portals(mpi::Matcher::Caller);
            $(#[test] fn $name() { super::Play { match_engine: MATCH_ENGINE, ..super::Play::new($ranks) }.run(super::$name); })*
        }
    };
}

bodies! {
    messages_of_all_sizes_arrive 2
    send_modes_complete_as_mpi_specifies 2
    messages_of_one_sender_stay_in_order 2
    any_source_receives_from_every_sender 4
    floods_in_both_directions_complete 2
    rings_wrap_around 2
    payloads_are_not_taken_for_messages 2
    answers_and_floods_stay_in_order 2
    short_messages_complete_at_once 2
    long_messages_are_copied_by_both 2
    long_messages_come_whole_however_they_begin 2
    requests_complete_in_any_order 2
    persistent_requests_start_again 2
    a_receive_without_a_message_is_cancelled 2
    probes_and_matched_probes_find_messages 3
    disconnect_waits_for_pending_operations 2
    a_ring_exchanges 5
    long_messages_are_cut 2
    a_process_sends_to_itself 1
    proc_null_is_a_valid_partner 1
    pieces_are_packed 2
    wrong_arguments_are_named 2
    duplicated_communicators_separate_messages 3
    communicators_are_duplicated_concurrently 5
    split_groups_by_color_and_key 6
    groups_become_communicators 5
    intercommunicators_communicate_and_merge 5
    attributes_are_copied_and_deleted 2
    all_pairs_exchange_messages 6
    threads_share_a_process 2
    partitioned_messages_arrive 2
    programs_complete_their_requests 1
}

const SIZES: &[usize] =
    &[0, 1, 8, 79, 80, 81, 97, 1000, 2000, 2001, 8143, 8144, 8145, 8192, 40_000, 3_000_000];

fn messages_of_all_sizes_arrive(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    for (number, &len) in SIZES.iter().enumerate() {
        let there = pattern(0, number, len);
        if world.rank() == 0 {
            send(world, there, with(1, 5));
            let (back, status) = receive(world, len + 3, with(1, 6));
            assert!(back == pattern(1, number, len), "{len} bytes came back otherwise");
            assert_eq!((status.source, status.tag, status.bytes), (1, 6, len as u64));
        } else {
            let (got, status) = receive(world, len, with(peer, 5));
            assert!(got == there, "{len} bytes came otherwise");
            assert_eq!((status.source, status.tag, status.class()), (0, 5, Class::SUCCESS));
            send(world, pattern(1, number, len), with(peer, 6));
        }
    }
}

fn send_modes_complete_as_mpi_specifies(process: &Process) {
    let world = process.world();
    for len in [10, 20_000] {
        if world.rank() == 0 {
            let mut bytes = pattern(0, 1, len);
            let mut waits = world.isend(Mode::Synchronous, &buffer(&mut bytes), with(1, 1)).expect("begun");
            // The other rank receives the second message first, so the first one is not matched yet.
            send(world, vec![1], with(1, 2));
            assert_eq!(receive(world, 1, with(1, 3)).0, [2]);
            assert_eq!(waits.test(), None, "nobody has matched it");
            send(world, vec![1], with(1, 4));
            assert_eq!(waits.wait().class(), Class::SUCCESS);
            assert!(waits.is_null());

            process.attach_buffer(BsendSpace::Given { address: 8, size: 50_000 }).expect("the first");
            assert_eq!(process.attach_buffer(BsendSpace::Automatic).expect_err("two").class, Class::BUFFER);
            let mut copied = pattern(0, 2, len);
            world.send(Mode::Buffered, &buffer(&mut copied), with(1, 5)).expect("space");
            copied.fill(0);
            let mut large = vec![0; 50_001 - BSEND_OVERHEAD as usize];
            let refused = world.send(Mode::Buffered, &buffer(&mut large), with(1, 5)).expect_err("no space");
            assert_eq!(refused.class, Class::BUFFER);
            assert_eq!(process.detach_buffer(), Ok(BsendSpace::Given { address: 8, size: 50_000 }));
            assert_eq!(receive(world, 1, with(1, 6)).0, [3]);
            world.send(Mode::Ready, &buffer(&mut bytes), with(1, 7)).expect("sent");
        } else {
            assert_eq!(receive(world, 1, with(0, 2)).0, [1]);
            send(world, vec![2], with(0, 3));
            assert_eq!(receive(world, 1, with(0, 4)).0, [1]);
            assert!(receive(world, len, with(0, 1)).0 == pattern(0, 1, len));
            assert!(receive(world, len, with(0, 5)).0 == pattern(0, 2, len));
            let mut got = vec![0; len];
            let mut posted = world.ireceive(buffer(&mut got), with(0, 7)).expect("begun");
            send(world, vec![3], with(0, 6));
            assert_eq!(posted.wait().bytes, len as u64);
            assert!(got == pattern(0, 1, len));
        }
    }
}

/// Alternating long and short messages: none overtakes another, with any protocol.
fn messages_of_one_sender_stay_in_order(process: &Process) {
    let world = process.world();
    let len = |number: usize| [3, 30_000, 500, 0][number % 4] + number;
    for posted_first in [false, true] {
        if world.rank() == 0 {
            if posted_first {
                receive(world, 1, with(1, 9));
            }
            let mut all: Vec<Vec<u8>> = (0..40).map(|number| pattern(0, number, len(number))).collect();
            let mut requests: Vec<Request> = all
                .iter_mut()
                .map(|bytes| world.isend(Mode::Standard, &buffer(bytes), with(1, 1)).expect("begun"))
                .collect();
            let statuses = Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
            assert!(statuses.iter().all(|status| status.error.is_none()));
        } else {
            let mut all: Vec<Vec<u8>> = (0..40).map(|_| vec![0; 31_000]).collect();
            let mut requests: Vec<Request> = all
                .iter_mut()
                .map(|bytes| world.ireceive(buffer(bytes), with(0, ANY_TAG)).expect("begun"))
                .collect();
            if posted_first {
                send(world, vec![1], with(0, 9));
            }
            let statuses = Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
            for (number, (status, bytes)) in statuses.iter().zip(&all).enumerate() {
                assert_eq!(status.bytes, len(number) as u64, "message {number}");
                assert!(bytes[..len(number)] == pattern(0, number, len(number)), "message {number}");
            }
        }
    }
}

fn any_source_receives_from_every_sender(process: &Process) {
    let world = process.world();
    const EACH: usize = 30;
    let len = |number: usize| if number.is_multiple_of(5) { 20_000 } else { number };
    if world.rank() == 0 {
        let mut next = [0; 4];
        for _ in 0..3 * EACH {
            let (bytes, status) = receive(world, 20_000, ANY);
            let (source, number) = (status.source as usize, next[status.source as usize]);
            assert_eq!(status.tag as usize, number, "rank {source} was overtaken by itself");
            assert!(bytes == pattern(status.source, number, len(number)));
            next[source] += 1;
        }
        assert_eq!(next, [0, EACH, EACH, EACH]);
    } else {
        for number in 0..EACH {
            send(world, pattern(world.rank(), number, len(number)), with(0, number as i32));
        }
    }
}

/// Goal: credits run out on both sides and are returned. Method: each side sends far more messages than there are slots, before it
/// receives.
fn floods_in_both_directions_complete(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    let mut all: Vec<Vec<u8>> = (0..300).map(|number| pattern(world.rank(), number, 100)).collect();
    let mut requests: Vec<Request> = all
        .iter_mut()
        .map(|bytes| world.isend(Mode::Standard, &buffer(bytes), with(peer, 1)).expect("begun"))
        .collect();
    for number in 0..300 {
        assert_eq!(receive(world, 100, with(peer, 1)).0, pattern(peer, number, 100));
    }
    Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
}

/// Goal: rings fill and wrap around at every offset in a message. Method: messages of all numbers of lines, filling several rings
/// before the receiver takes the first.
fn rings_wrap_around(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    let len = |number: usize| number * 37 % 1500;
    let mut all: Vec<Vec<u8>> = (0..1000).map(|number| pattern(world.rank(), number, len(number))).collect();
    let mut requests: Vec<Request> = all
        .iter_mut()
        .map(|bytes| world.isend(Mode::Standard, &buffer(bytes), with(peer, 1)).expect("begun"))
        .collect();
    for number in 0..1000 {
        let (bytes, status) = receive(world, 1500, with(peer, 1));
        assert_eq!(status.bytes, len(number) as u64, "message {number}");
        assert!(bytes[..len(number)] == pattern(peer, number, len(number)), "message {number}");
    }
    Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
}

/// Goal: old contents of a ring are not mistaken for a message. Method: payloads that look like message headers, at every offset
/// from the start of a line.
fn payloads_are_not_taken_for_messages(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    for round in 0..400_usize {
        let head = [1, 0, 24, 0, 5, 0, 0, 0];
        let bytes: Vec<u8> = (0..round % 9 * 64 + round % 64).map(|at| head[at % 8]).collect();
        if world.rank() == round as i32 % 2 {
            send(world, bytes, with(peer, 1));
        } else {
            let (got, status) = receive(world, 1000, ANY);
            assert_eq!((status.tag, status.bytes), (1, bytes.len() as u64), "round {round}");
            assert!(got[..bytes.len()] == bytes, "round {round}");
        }
    }
}

/// Goal: messages of one sender stay in order if some are replies and others are not. Method: alternately one side sends a request,
/// and the other sends up to four numbered messages, short and longer.
fn answers_and_floods_stay_in_order(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    let (mut sent, mut got) = (0_usize, 0_usize);
    for turn in 0..2000_usize {
        for message in 0..1 + turn * 7 % 4 {
            let len = [8, 16, 17, 300][(turn + message) % 4];
            if world.rank() == turn as i32 % 2 {
                send(world, pattern(world.rank(), sent, len), with(peer, sent as i32));
                sent += 1;
            } else {
                let (bytes, status) = receive(world, 300, with(peer, ANY_TAG));
                assert_eq!((status.tag as usize, status.bytes), (got, len as u64), "turn {turn}");
                assert!(bytes[..len] == pattern(peer, got, len), "turn {turn}");
                got += 1;
            }
        }
    }
}

fn piece(bytes: &mut [u8]) -> Piece {
    // SAFETY: used by calls that return while the bytes exist, and by requests that are waited for.
    unsafe { Piece::new(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }
}

/// Goal: operations that complete immediately have the same results as on the general path, in the same order. Method: messages of
/// all short lengths, alternating and in bursts, sent by the fast path where possible; received by the fast path, by receives
/// started there, into buffers that are too small, or after attempts to receive a message that does not exist.
fn short_messages_complete_at_once(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    let (mut sent, mut got) = (0_usize, 0_usize);
    for turn in 0..2000_usize {
        for message in 0..1 + turn * 7 % 5 {
            let len = [0, 1, 4, 8, 9, 16, 17, 300, 8][(turn + message) % 9];
            if world.rank() == turn as i32 % 2 {
                let mut bytes = pattern(world.rank(), sent, len);
                let to = with(peer, sent as i32);
                if !world.try_send(piece(&mut bytes), to) {
                    send(world, bytes, to);
                }
                sent += 1;
                continue;
            }
            let (mut bytes, tag) = (vec![0; 300], got as i32);
            let want = pattern(peer, got, len);
            match (turn + message) % 5 {
                // Neither with another tag, nor into a smaller buffer.
                0 => {
                    assert_eq!(world.try_receive(piece(&mut bytes), with(peer, tag + 1)), None);
                    if len > 0 {
                        assert_eq!(world.try_receive(piece(&mut bytes[..len - 1]), with(peer, tag)), None);
                    }
                    let (all, status) = receive(world, 300, with(peer, ANY_TAG));
                    assert_eq!((status.tag, status.bytes), (tag, len as u64), "turn {turn}");
                    bytes = all;
                }
                1 | 2 => {
                    let room = if len > 1 && message > 0 { len - 1 } else { 300 };
                    let source = if turn % 3 == 0 { mpi::ANY_SOURCE } else { peer };
                    let any = with(source, if turn % 2 == 0 { ANY_TAG } else { tag });
                    let begun = world.try_post_receive(piece(&mut bytes[..room]), any);
                    let begun = begun.unwrap_or_else(|| {
                        world.begin_receive(buffer(&mut bytes[..room]), any).expect("begun")
                    });
                    let status = process.requests().wait(begun).expect("an end").status;
                    assert_eq!((status.source, status.tag), (peer, tag), "turn {turn}");
                    assert_eq!(status.bytes as usize, len.min(room), "turn {turn}");
                    assert_eq!(status.class() == Class::TRUNCATE, len > room, "turn {turn}");
                    if len > room {
                        assert!(bytes[..room] == want[..room] && bytes[room..].iter().all(|byte| *byte == 0));
                        got += 1;
                        continue;
                    }
                }
                _ => match world.try_receive(piece(&mut bytes), with(peer, tag)) {
                    Some(found) => assert_eq!(found, (tag, len), "turn {turn}"),
                    None => bytes = receive(world, 300, with(peer, tag)).0,
                },
            }
            assert!(bytes[..len] == want, "turn {turn}");
            got += 1;
        }
    }
    let mut bytes = [0; 8];
    if let Some(begun) = world.try_post_receive(piece(&mut bytes), with(peer, 0)) {
        process.requests().cancel(begun).expect("a request");
        assert!(process.requests().wait(begun).expect("an end").status.cancelled);
    }
}

/// Goal: long messages arrive complete, for any division of the copying. Method: both sides send at the same time, more messages
/// than are copied by both at a time, with all numbers of pieces, the last into a buffer that is too small; one side at a time is
/// busy elsewhere while they arrive.
fn long_messages_are_copied_by_both(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    for round in 0..6 {
        let len =
            |number: usize| [65_535, 65_536, 65_537, 200_000, 1_048_576, 1_500_001][(number + round) % 6];
        let room = |number: usize| if number == 11 { len(number) / 2 } else { len(number) };
        let mut out: Vec<Vec<u8>> =
            (0..12).map(|number| pattern(world.rank(), number, len(number))).collect();
        let mut back: Vec<Vec<u8>> = (0..12).map(|number| vec![0; room(number)]).collect();
        let receive = |bytes: &mut Vec<u8>| world.ireceive(buffer(bytes), with(peer, 1)).expect("begun");
        let mut requests: Vec<Request> = back.iter_mut().map(receive).collect();
        let send =
            |bytes: &mut Vec<u8>| world.isend(Mode::Standard, &buffer(bytes), with(peer, 1)).expect("begun");
        requests.extend(out.iter_mut().map(send));
        if world.rank() as usize == round % 3 {
            let host = process.host();
            assert_eq!(host.poll("something else", host.after(Span::from_ms(3)), || None::<()>), None);
        }
        let statuses = Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
        for (number, (status, bytes)) in statuses.iter().zip(&back).enumerate() {
            let class = if number == 11 { Class::TRUNCATE } else { Class::SUCCESS };
            assert_eq!((status.class(), status.bytes), (class, room(number) as u64), "message {number}");
            let all = pattern(peer, number, len(number));
            assert!(bytes[..] == all[..room(number)], "message {number} of round {round}");
        }
    }
}

/// Every second byte.
fn comb(len: usize) -> Datatype {
    let comb = Datatype::vector(len as i64, 1, 2, &Basic::Byte.into()).expect("a vector");
    comb.commit();
    comb
}

/// Goal: long messages arrive complete, or as much of them as fits, for any division of the transfer. Method: lengths around those
/// at which the protocol changes, into buffers that end in each part; the sender waits, or continues; the receive is posted early
/// or late; the bytes are contiguous or scattered, at either end.
fn long_messages_come_whole_however_they_begin(process: &Process) {
    let world = process.world();
    for (number, len) in [16_384, 16_385, 40_000, 65_552, 65_553, 131_072, 300_001].into_iter().enumerate() {
        let all = pattern(0, number, len);
        for (turn, room) in [len, len - 1, len / 2 + 1, len / 2, 5, 0].into_iter().enumerate() {
            for how in 0..12 {
                let (waits, is_late, is_apart) = (how % 3, how / 3 % 2 == 1, how / 6 == 1 && turn % 2 == 0);
                if world.rank() == 0 {
                    if !is_late {
                        receive(world, 0, with(1, 2));
                    }
                    let mut bytes = all.clone();
                    if is_apart {
                        bytes = all.iter().flat_map(|byte| [*byte, 3]).collect();
                    }
                    let sent = match is_apart {
                        true => typed(&mut bytes, 1, &comb(len)),
                        false => buffer(&mut bytes),
                    };
                    match waits {
                        0 => world.send(Mode::Standard, &sent, with(1, 1)).expect("sent"),
                        1 => world.send(Mode::Synchronous, &sent, with(1, 1)).expect("sent"),
                        _ => {
                            let mut request = world.isend(Mode::Standard, &sent, with(1, 1)).expect("begun");
                            request.wait().ok().expect("sent");
                        }
                    }
                } else {
                    let step = if is_apart { 2 } else { 1 };
                    let mut bytes = vec![9; step * room + 1];
                    let got = match is_apart && room > 0 {
                        true => typed(&mut bytes, 1, &comb(room)),
                        false => buffer(&mut bytes[..room]),
                    };
                    let status = if is_late {
                        assert_eq!(world.probe(with(0, 1)).expect("valid").bytes, len as u64);
                        world.receive(got, with(0, 1)).expect("valid")
                    } else {
                        let mut request = world.ireceive(got, with(0, 1)).expect("begun");
                        send(world, vec![], with(0, 2));
                        request.wait()
                    };
                    let class = if room < len { Class::TRUNCATE } else { Class::SUCCESS };
                    assert_eq!((status.class(), status.bytes), (class, room as u64), "{len} B, {how}");
                    let there = bytes.iter().copied().step_by(step).take(room);
                    assert!(there.eq(all[..room].iter().copied()), "{len} B into {room}, {how}");
                    assert_eq!(bytes[step * room], 9, "behind the end");
                }
            }
        }
    }
}

fn requests_complete_in_any_order(process: &Process) {
    let world = process.world();
    if world.rank() == 1 {
        for tag in [2, 0, 1] {
            send(world, vec![tag as u8], with(0, tag));
            receive(world, 0, with(0, 9));
        }
        return;
    }
    let mut bytes = [[0_u8; 1]; 3];
    let mut requests: Vec<Request> = (0..)
        .zip(&mut bytes)
        .map(|(tag, byte)| world.ireceive(buffer(byte), with(1, tag)).expect("begun"))
        .collect();
    let mut requests: Vec<&mut Request> = requests.iter_mut().collect();
    assert_eq!(Request::test_all(&mut requests), None);
    let (first, status) = Request::wait_any(&mut requests).expect("active");
    assert_eq!((first, status.tag), (2, 2));
    assert_eq!(Request::test_any(&mut requests), TestAny::Pending);
    send(world, vec![], with(1, 9));
    let some = Request::wait_some(&mut requests).expect("active");
    assert_eq!(some.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0]);
    assert_eq!(Request::test_some(&mut requests), Some(vec![]));
    send(world, vec![], with(1, 9));
    let statuses = Request::wait_all(&mut requests);
    assert_eq!(statuses.iter().map(|status| status.tag).collect::<Vec<_>>(), [ANY_TAG, 1, ANY_TAG]);
    assert_eq!(Request::wait_any(&mut requests), None);
    assert_eq!(Request::test_any(&mut requests), TestAny::Inactive);
    assert_eq!(Request::wait_some(&mut requests), None);
    assert!(Request::test_all(&mut requests).is_some());
    send(world, vec![], with(1, 9));
    assert_eq!(bytes, [[0], [1], [2]]);
}

fn persistent_requests_start_again(process: &Process) {
    let (world, peer) = (process.world(), 1 - process.world().rank());
    let (mut out, mut back) = (vec![0; 10_000], vec![0; 10_000]);
    let mut sends = world.send_init(Mode::Standard, buffer(&mut out), with(peer, 1)).expect("valid");
    let mut receives = world.receive_init(buffer(&mut back), with(peer, 1)).expect("valid");
    for round in 0..4_u8 {
        assert!(sends.is_persistent() && !sends.is_active());
        assert_eq!(sends.test(), Some(Status::empty()), "an inactive request is over");
        // SAFETY: nothing uses the memory between rounds.
        unsafe { std::ptr::write_bytes(out.as_mut_ptr(), round + 1, out.len()) };
        receives.start().expect("inactive");
        sends.start().expect("inactive");
        assert_eq!(sends.start().expect_err("active").class, Class::REQUEST);
        let statuses = Request::wait_all(&mut [&mut sends, &mut receives]);
        assert_eq!(statuses[1].bytes, 10_000);
        assert!(back.iter().all(|byte| *byte == round + 1), "round {round}");
    }
    assert_eq!(Request::null().start().expect_err("null").class, Class::REQUEST);
}

fn a_receive_without_a_message_is_cancelled(process: &Process) {
    let world = process.world();
    if world.rank() == 0 {
        let mut bytes = [7; 4];
        let mut receives = world.ireceive(buffer(&mut bytes), with(1, 1)).expect("begun");
        receives.cancel().expect("active");
        assert!(receives.wait().cancelled);
        assert_eq!(receives.cancel().expect_err("null").class, Class::REQUEST);
        send(world, vec![], with(1, 2));
        // The next message is not for the cancelled receive.
        let (got, status) = receive(world, 4, with(1, 1));
        assert_eq!((got, status.cancelled, bytes), (vec![1, 2, 3, 4], false, [7; 4]));
    } else {
        receive(world, 0, with(0, 2));
        let mut bytes = [1, 2, 3, 4];
        let mut sends = world.isend(Mode::Standard, &buffer(&mut bytes), with(0, 1)).expect("begun");
        sends.cancel().expect("active");
        assert!(!sends.wait().cancelled, "sends complete");
    }
}

/// Goal: an unmatched send ends when it is cancelled, and leaves nothing behind; a matched one completes. Method: short and long
/// messages, to each other and to oneself; then messages with posted receives, and some that are probed.
fn a_send_without_a_receive_is_cancelled(process: &Process) {
    const LENS: [usize; 5] = [0, 8, 3_000, 40_000, 3_000_000];
    let (world, me) = (process.world(), process.world().rank());
    let mut data = LENS.map(|len| pattern(me, 0, len));
    for (tag, bytes) in (0..).zip(&mut data) {
        for to in [1 - me, me] {
            let mut sends = world.isend(Mode::Synchronous, &buffer(bytes), with(to, tag)).expect("begun");
            sends.cancel().expect("active");
            sends.cancel().expect("active");
            assert!(sends.wait().cancelled, "{} bytes to {to} from {me}", bytes.len());
        }
    }
    world.collective(&mpi::Collective::Barrier).expect("both");
    assert_eq!(world.iprobe(ANY).expect("valid"), None, "it came all the same");
    world.collective(&mpi::Collective::Barrier).expect("both");
    if me == 0 {
        receive(world, 0, with(1, 100));
        for (tag, bytes) in (0..).zip(&mut data) {
            let mut sends = world.isend(Mode::Synchronous, &buffer(bytes), with(1, tag)).expect("begun");
            sends.cancel().expect("active");
            assert!(!sends.wait().cancelled, "it was received");
        }
        let mut sends = world.isend(Mode::Synchronous, &buffer(&mut data[3]), with(1, 200)).expect("begun");
        receive(world, 0, with(1, 101));
        sends.cancel().expect("active");
        assert!(!sends.wait().cancelled, "it was claimed");
    } else {
        let mut got = LENS.map(|len| vec![0; len]);
        let receive =
            |(tag, bytes): (i32, &mut Vec<u8>)| world.ireceive(buffer(bytes), with(0, tag)).expect("begun");
        let mut requests: Vec<Request> = (0..).zip(&mut got).map(receive).collect();
        send(world, vec![], with(0, 100));
        Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
        assert!(got == LENS.map(|len| pattern(0, 0, len)));
        let (message, _) = world.mprobe(with(0, 200)).expect("valid");
        send(world, vec![], with(0, 101));
        message.receive(buffer(&mut got[3]));
        assert!(got[3] == pattern(0, 0, LENS[3]));
    }
}

fn probes_and_matched_probes_find_messages(process: &Process) {
    let world = process.world();
    if world.rank() > 0 {
        for len in [5, 50_000] {
            send(world, pattern(world.rank(), 0, len), with(0, world.rank()));
        }
        return;
    }
    for rank in [2, 1] {
        for len in [5, 50_000] {
            let seen = world.probe(with(rank, ANY_TAG)).expect("valid");
            assert_eq!((seen.source, seen.tag, seen.bytes), (rank, rank, len as u64));
            let again = world.iprobe(with(rank, rank)).expect("valid").expect("it is there");
            assert_eq!(again, seen);
            let (message, claimed) = world.mprobe(with(rank, rank)).expect("valid");
            assert_eq!(claimed, seen);
            if len == 50_000 {
                assert_eq!(world.iprobe(with(rank, rank)).expect("valid"), None, "it was claimed");
                assert!(world.improbe(with(rank, rank)).expect("valid").is_none());
            }
            let mut bytes = vec![0; len];
            let status = if rank == 1 {
                message.receive(buffer(&mut bytes))
            } else {
                message.ireceive(buffer(&mut bytes)).wait()
            };
            assert_eq!((status.bytes, status.source), (len as u64, rank));
            assert!(bytes == pattern(rank, 0, len));
        }
    }
}

/// Disconnecting a communicator waits for its pending operations: here for a message with a slow receiver.
fn disconnect_waits_for_pending_operations(process: &Process) {
    let comm = process.world().dup().expect("a copy");
    let mut bytes = vec![7; 100];
    if comm.rank() == 0 {
        let mut request = comm.isend(Mode::Synchronous, &buffer(&mut bytes), with(1, 3)).expect("begun");
        comm.disconnect().expect("all is over");
        assert!(request.test().is_some(), "it has not waited");
    } else {
        let host = process.host();
        host.wait("nothing", &verbs::host::EventCount::new(), host.after(Span::from_ms(20)), || None::<()>);
        assert_eq!(receive(&comm, 100, with(0, 3)).0, bytes);
        comm.disconnect().expect("all is over");
    }
}

fn a_ring_exchanges(process: &Process) {
    let world = process.world();
    let (rank, size) = (world.rank(), world.size());
    let (right, left) = (with((rank + 1) % size, 1), with((rank + size - 1) % size, 1));
    for len in [4, 30_000] {
        let (mut out, mut got) = (pattern(rank, 0, len), vec![0; len]);
        let status = world.sendrecv(&buffer(&mut out), right, buffer(&mut got), left).expect("valid");
        assert_eq!((status.source, status.bytes), (left.rank, len as u64));
        assert!(got == pattern(left.rank, 0, len));
        world.sendrecv_replace(buffer(&mut got), right, left).expect("valid");
        assert!(got == pattern((left.rank + size - 1) % size, 0, len));
        let mut request = world.isendrecv_replace(buffer(&mut got), left, right).expect("valid");
        request.wait().ok().expect("exchanged");
        assert!(got == pattern(left.rank, 0, len));
    }
}

fn long_messages_are_cut(process: &Process) {
    let world = process.world();
    for (len, room) in [(10, 4), (10, 0), (50_000, 4), (50_000, 0), (50_000, 49_999)] {
        if world.rank() == 0 {
            send(world, pattern(0, 0, len), with(1, 1));
        } else {
            let mut bytes = vec![9; room + 1];
            let status = world.receive(buffer(&mut bytes[..room]), with(0, 1)).expect("valid");
            assert_eq!((status.class(), status.bytes, status.source), (Class::TRUNCATE, room as u64, 0));
            assert!(bytes[..room] == pattern(0, 0, len)[..room] && bytes[room] == 9);
        }
    }
}

fn a_process_sends_to_itself(process: &Process) {
    for comm in [process.world(), process.comm_self()] {
        for len in [0, 5, 100_000] {
            let mut out = pattern(0, 0, len);
            let mut waits = comm.isend(Mode::Synchronous, &buffer(&mut out), with(0, 1)).expect("begun");
            assert_eq!(waits.test(), None);
            assert_eq!(comm.probe(ANY).expect("valid").bytes, len as u64);
            assert!(receive(comm, len, with(0, 1)).0 == out);
            assert_eq!(waits.test().expect("matched").class(), Class::SUCCESS);
            let mut got = vec![0; len];
            let mut posted = comm.ireceive(buffer(&mut got), ANY).expect("begun");
            comm.send(Mode::Synchronous, &buffer(&mut out), with(0, 2)).expect("sent");
            assert_eq!(posted.wait().tag, 2);
            assert!(got == out);
        }
    }
}

fn proc_null_is_a_valid_partner(process: &Process) {
    let world = process.world();
    let nobody = with(PROC_NULL, 3);
    send(world, vec![1], nobody);
    let (bytes, status) = receive(world, 1, with(PROC_NULL, ANY_TAG));
    assert_eq!((bytes, status.source, status.tag, status.bytes), (vec![], PROC_NULL, ANY_TAG, 0));
    assert_eq!(world.probe(nobody).expect("valid").source, PROC_NULL);
    let (message, status) = world.mprobe(nobody).expect("valid");
    assert!(message.is_no_proc() && status == Status::from_proc_null());
    assert_eq!(message.receive(mpi::Buffer::empty()), Status::from_proc_null());
}

/// Types with gaps at one side and without at the other, short and long.
fn pieces_are_packed(process: &Process) {
    let world = process.world();
    for count in [6_usize, 20_000] {
        let comb = Datatype::vector(count as i64, 1, 3, &Basic::Byte.into()).expect("a type");
        comb.commit();
        let (wide, packed) = (pattern(0, 1, 3 * count), pattern(0, 1, 3 * count).into_iter().step_by(3));
        let packed: Vec<u8> = packed.collect();
        if world.rank() == 0 {
            let mut wide = wide.clone();
            world.send(Mode::Standard, &typed(&mut wide, 1, &comb), with(1, 1)).expect("sent");
            send(world, packed, with(1, 2));
        } else {
            assert!(receive(world, count, with(0, 1)).0 == packed);
            let mut got = vec![0; 3 * count];
            let status = world.receive(typed(&mut got, 1, &comb), with(0, 2)).expect("valid");
            assert_eq!(status.bytes, count as u64);
            let expected = |(at, byte): (usize, &u8)| *byte == if at % 3 == 0 { wide[at] } else { 0 };
            assert!(got.iter().enumerate().all(expected));
        }
    }
}

fn wrong_arguments_are_named(process: &Process) {
    let world = process.world();
    let mut byte = [0];
    for rank in [-1, 2, -7] {
        let refused = world.send(Mode::Standard, &buffer(&mut byte), with(rank, 0)).expect_err("no rank");
        assert_eq!(refused.class, Class::RANK);
    }
    assert_eq!(world.receive(buffer(&mut byte), with(2, 0)).expect_err("no rank").class, Class::RANK);
    let refused = world.isend(Mode::Standard, &buffer(&mut byte), with(0, ANY_TAG)).expect_err("no tag");
    assert_eq!(refused.class, Class::TAG);
    assert!(refused.text.contains("-2"), "{}", refused.text);
    assert_eq!(world.iprobe(with(0, -3)).expect_err("no tag").class, Class::TAG);
    assert_eq!(world.split(-1, 0).expect_err("no colour").class, Class::ARG);
    let long = "x".repeat(mpi::NAME_MAX + 1);
    assert_eq!(world.set_name(&long).expect_err("long").class, Class::ARG);
}

fn duplicated_communicators_separate_messages(process: &Process) {
    let world = process.world();
    let copies = [world.dup().expect("a copy"), world.dup().expect("another")];
    assert_eq!(world.compare(&copies[0]), Comparison::Congruent);
    assert_eq!(copies[0].compare(&copies[0].clone()), Comparison::Identical);
    assert_ne!(copies[0].id(), copies[1].id());
    let all: Vec<&Comm> = copies.iter().chain([world]).collect();
    let (right, left) = ((world.rank() + 1) % 3, (world.rank() + 2) % 3);
    for (number, comm) in all.iter().enumerate() {
        send(comm, vec![number as u8], with(right, 1));
    }
    for (number, comm) in all.iter().enumerate().rev() {
        assert_eq!(receive(comm, 1, with(left, 1)).0, [number as u8]);
    }
    copies.iter().for_each(|comm| comm.free().expect("freed"));
}

fn communicators_are_duplicated_concurrently(process: &Process) {
    let world = process.world();
    let me = world.rank();
    let side = world.split(me % 2, 0).expect("valid").expect("a member");
    let (leader, other) = if me % 2 == 0 { (0, 1) } else { (0, 0) };
    let inter = side.intercomm_create(leader, Some(world), other, 1).expect("agreed");
    let (copy, mut first) = world.idup(None).expect("begun");
    let (between, mut second) = inter.idup(Some(mpi::Info::default())).expect("begun");
    if me > 0 {
        send(world, vec![1], with(0, 4));
    } else {
        (1..5).for_each(|rank| drop(receive(world, 1, with(rank, 4))));
    }
    let statuses = Request::wait_all(&mut [&mut second, &mut first]);
    assert!(statuses.iter().all(|status| status.error.is_none()));
    assert_eq!(census(&copy, me), [0, 1, 2, 3, 4]);
    if between.rank() < 2 {
        send(&between, vec![me as u8], with(between.rank(), 3));
        let got = receive(&between, 1, ANY).0[0];
        assert_eq!(i32::from(got), if me % 2 == 0 { me + 1 } else { me - 1 });
    }
}

/// Rank 0 of a communicator collects the others' world ranks.
fn census(comm: &Comm, me: i32) -> Vec<u8> {
    if comm.rank() > 0 {
        send(comm, vec![me as u8], with(0, 1));
        return receive(comm, 100, with(0, 2)).0;
    }
    let others = (1..comm.size()).map(|rank| receive(comm, 1, with(rank, 1)).0[0]);
    let all: Vec<u8> = std::iter::once(me as u8).chain(others).collect();
    (1..comm.size()).for_each(|rank| send(comm, all.clone(), with(rank, 2)));
    all
}

fn split_groups_by_color_and_key(process: &Process) {
    let world = process.world();
    let me = world.rank();
    let color = if me == 4 { UNDEFINED } else { me % 2 };
    let part = world.split(color, -me).expect("valid");
    match color {
        UNDEFINED => assert!(part.is_none()),
        0 => assert_eq!(census(&part.expect("a member"), me), [2, 0]),
        _ => assert_eq!(census(&part.expect("a member"), me), [5, 3, 1]),
    }
    let shared = world.split_type(&SplitType::Shared, 0).expect("valid").expect("at least this process");
    // In threads all ranks are on one host, in a world each has its own.
    assert!([1, 6].contains(&shared.size()));
    assert_eq!(census(&shared, me).len(), shared.size() as usize);
    assert!(world.split_type(&SplitType::Undefined, 0).expect("valid").is_none());
}

fn groups_become_communicators(process: &Process) {
    let world = process.world();
    let me = world.rank();
    let odd = world.group().include(&[3, 1]).expect("ranks");
    let part = world.create(&odd).expect("valid");
    assert_eq!(part.is_some(), me % 2 == 1);
    if let Some(part) = part {
        assert_eq!(census(&part, me), [3, 1]);
    }
    // Only the members make this call, and twice.
    if me != 2 {
        let group = world.group().exclude(&[2]).expect("ranks");
        for tag in [7, 7] {
            let part = world.create_group(&group, tag).expect("valid").expect("a member");
            assert_eq!(census(&part, me), [0, 1, 3, 4]);
        }
    }
    assert!(world.create(&Group::empty()).expect("valid").is_none());
    let strangers = Group::new(vec![77]).expect("distinct");
    assert_eq!(world.create(&strangers).expect_err("no member").class, Class::GROUP);
}

fn intercommunicators_communicate_and_merge(process: &Process) {
    let world = process.world();
    let me = world.rank();
    // Sides {0, 2, 4} and {1, 3}; their leaders are 4 (rank 2 of its side) and 1.
    let side = world.split(me % 2, 0).expect("valid").expect("a member");
    let (leader, other) = if me % 2 == 0 { (2, 1) } else { (0, 4) };
    let inter = side.intercomm_create(leader, Some(world), other, 9).expect("agreed");
    assert!(inter.is_inter());
    let sizes = (inter.size(), inter.remote_group().expect("two sides").size());
    assert_eq!(sizes, if me % 2 == 0 { (3, 2) } else { (2, 3) });
    for inter in [inter.clone(), inter.dup().expect("a copy")] {
        let partner = with(inter.rank(), 3);
        if inter.rank() < 2 {
            send(&inter, vec![me as u8], partner);
            let (bytes, status) = receive(&inter, 1, with(mpi::ANY_SOURCE, 3));
            assert_eq!(status.source, inter.rank());
            assert_eq!(i32::from(bytes[0]), if me % 2 == 0 { me + 1 } else { me - 1 });
        }
    }
    let merged = inter.intercomm_merge(me % 2 == 0).expect("merged");
    assert_eq!(census(&merged, me), [1, 3, 0, 2, 4]);
    let merged = inter.intercomm_merge(true).expect("merged");
    assert_eq!(census(&merged, me), [0, 2, 4, 1, 3]);
    let halves = inter.split(i32::from(inter.rank() == 0), 0).expect("valid").expect("both sides have it");
    let sizes = (halves.size(), halves.remote_group().expect("two sides").size());
    let expected = match (me % 2, inter.rank()) {
        (_, 0) => (1, 1),
        (0, _) => (2, 1),
        _ => (1, 2),
    };
    assert_eq!(sizes, expected);
    assert_eq!(side.intercomm_merge(false).expect_err("one side").class, Class::COMM);
}

fn attributes_are_copied_and_deleted(process: &Process) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let world = process.world();
    let deleted = Arc::new(AtomicUsize::new(0));
    let count = deleted.clone();
    let key = Keyval::<Comm>::new(
        |_, value| Ok(Some(value + 1)),
        move |_, value| {
            count.fetch_add(value, Ordering::Relaxed);
            if value == 66 { Err(mpi::Error::new(Class::OTHER, "kept")) } else { Ok(()) }
        },
    );
    let silent = Keyval::<Comm>::new(|_, _| Ok(None), |_, _| Ok(()));
    let comm = world.dup().expect("a copy");
    comm.set_attribute(&key, 5).expect("new");
    comm.set_attribute(&silent, 7).expect("new");
    comm.set_attribute(&key, 10).expect("replaced");
    assert_eq!((deleted.load(Ordering::Relaxed), comm.attribute(&key)), (5, Some(10)));
    let copy = comm.dup().expect("a copy");
    assert_eq!((copy.attribute(&key), copy.attribute(&silent)), (Some(11), None));
    copy.free().expect("freed");
    assert_eq!(deleted.load(Ordering::Relaxed), 16);
    comm.set_attribute(&key, 66).expect("replaced");
    assert_eq!(comm.delete_attribute(&key).expect_err("the function's").text, "kept");
    assert_eq!(comm.attribute(&key), Some(66), "it stays");
    assert_eq!(world.attribute(&key), None);
}

/// All ranks send to all others at the same time, so that connections are requested from both ends.
fn all_pairs_exchange_messages(process: &Process) {
    let world = process.world();
    let (rank, size) = (world.rank(), world.size());
    for round in 0..3 {
        let mut all: Vec<Vec<u8>> = (0..size).map(|to| pattern(rank, (to + round) as usize, 200)).collect();
        let sends = (0..)
            .zip(&mut all)
            .map(|(to, bytes)| world.isend(Mode::Standard, &buffer(bytes), with(to, round)).expect("begun"));
        let mut sends: Vec<Request> = sends.collect();
        for from in 0..size {
            assert!(receive(world, 200, with(from, round)).0 == pattern(from, (rank + round) as usize, 200));
        }
        Request::wait_all(&mut sends.iter_mut().collect::<Vec<_>>());
    }
}

/// Several threads of each process send and receive concurrently, each with its own tag.
fn threads_share_a_process(process: &Process) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let done = Arc::new(AtomicU32::new(0));
    let body = |tag: i32| {
        let (process, done) = (process.clone(), done.clone());
        move || {
            let (world, peer) = (process.world(), with(1 - process.world().rank(), tag));
            for number in 0..50_usize {
                let len = if number.is_multiple_of(10) { 10_000 } else { number };
                if world.rank() == 0 {
                    send(world, pattern(tag, number, len), peer);
                    assert!(receive(world, len, peer).0 == pattern(tag + 9, number, len));
                } else {
                    assert!(receive(world, len, peer).0 == pattern(tag, number, len));
                    send(world, pattern(tag + 9, number, len), peer);
                }
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
    };
    let host = process.host();
    let threads = [1, 2, 3].map(|tag| host.spawn("thread", None, body(tag)).expect("a thread"));
    threads.into_iter().for_each(|thread| thread.join());
    assert_eq!(done.load(Ordering::SeqCst), 3, "a thread has failed");
}

/// Parts become ready in any order; the receiver checks them in another order, and one part arrives before the next one is ready.
fn partitioned_messages_arrive(process: &Process) {
    let (world, peer) = (process.world(), with(1 - process.world().rank(), 5));
    for len in [0, 12, 60_000] {
        let mut bytes = vec![0; len];
        if world.rank() == 0 {
            let mut sends = world.send_parts_init(buffer(&mut bytes), 6, peer).expect("six parts");
            assert_eq!(
                sends.handle_for_threads().expect("parts").parts_ready(0, 0).expect_err("not started").class,
                Class::ARG
            );
            for round in 0..2 {
                bytes.copy_from_slice(&pattern(0, round, len));
                sends.start().expect("inactive");
                for part in [4, 5] {
                    sends.handle_for_threads().expect("parts").parts_ready(part, part).expect("waits");
                }
                assert_eq!(
                    sends
                        .handle_for_threads()
                        .expect("parts")
                        .parts_ready(5, 5)
                        .expect_err("ready already")
                        .class,
                    Class::ARG
                );
                assert_eq!(
                    sends
                        .handle_for_threads()
                        .expect("parts")
                        .parts_ready(6, 6)
                        .expect_err("no such part")
                        .class,
                    Class::ARG
                );
                // The receiver has the last third.
                assert_eq!(receive(world, 1, with(1, 6)).0, [1]);
                assert_eq!(sends.test(), None);
                sends.handle_for_threads().expect("parts").parts_ready(0, 3).expect("wait");
                assert_eq!(sends.wait().class(), Class::SUCCESS);
                // The receiver has everything.
                receive(world, 0, with(1, 7));
            }
        } else {
            let mut receives = world.receive_parts_init(buffer(&mut bytes), 3, peer).expect("three parts");
            for round in 0..2 {
                receives.start().expect("inactive");
                while !receives.handle_for_threads().expect("parts").part_arrived(2).expect("active") {}
                assert_eq!(receives.handle_for_threads().expect("parts").part_arrived(0), Ok(false));
                assert_eq!(
                    receives
                        .handle_for_threads()
                        .expect("parts")
                        .part_arrived(3)
                        .expect_err("no such part")
                        .class,
                    Class::ARG
                );
                send(world, vec![1], with(0, 6));
                let status = receives.wait();
                assert_eq!((status.source, status.bytes), (0, len as u64));
                assert!(bytes == pattern(0, round, len), "round {round} of {len} bytes");
                assert_eq!(receives.handle_for_threads().expect("parts").part_arrived(0), Ok(true));
                send(world, vec![], with(0, 7));
            }
        }
    }
    let mut nobody = world.send_parts_init(Buffer::empty(), 2, with(PROC_NULL, 1)).expect("nobody");
    nobody.start().expect("inactive");
    nobody.handle_for_threads().expect("parts").parts_ready(0, 1).expect("nothing to do");
    assert_eq!(nobody.wait().class(), Class::SUCCESS);
    let mut odd = [0; 5];
    assert_eq!(world.send_parts_init(buffer(&mut odd), 2, peer).expect_err("odd").class, Class::COUNT);
}

/// Generalized requests of the program can be waited for together with others.
fn programs_complete_their_requests(process: &Process) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    #[derive(Default)]
    struct Job {
        freed: AtomicU32,
        cancelled: AtomicU32,
    }
    impl mpi::Generalized for Job {
        fn query(&self) -> Status {
            Status { tag: 77, ..Status::empty() }
        }
        fn free(&self) -> mpi::Result<()> {
            self.freed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        fn cancel(&self, is_complete: bool) -> mpi::Result<()> {
            self.cancelled.fetch_add(1 + u32::from(is_complete), Ordering::SeqCst);
            Ok(())
        }
    }
    let world = process.world();
    let job = Arc::new(Job::default());
    let mut request = process.generalized(job.clone());
    let mut byte = [0; 1];
    let mut receives = world.ireceive(buffer(&mut byte), with(0, 1)).expect("begun");
    assert_eq!(request.test(), None);
    request.cancel().expect("active");
    send(world, vec![3], with(0, 1));
    assert_eq!(Request::wait_any(&mut [&mut request, &mut receives]).map(|(at, _)| at), Some(1));
    let handle_for_threads = request.handle_for_threads().expect("active");
    handle_for_threads.complete().expect("active");
    request.cancel().expect("active");
    assert_eq!(request.peek().map(|status| status.tag), Some(77));
    assert_eq!(job.freed.load(Ordering::SeqCst), 0, "the request is still there");
    assert_eq!(request.wait().tag, 77);
    assert_eq!((job.freed.load(Ordering::SeqCst), job.cancelled.load(Ordering::SeqCst)), (1, 3));
    assert!(request.handle_for_threads().is_none(), "it is gone");
}

#[test]
fn all_are_connected_at_the_start() {
    twice(5, Connect::All, all_pairs_exchange_messages);
    in_threads("shm", 5, Connect::All, all_pairs_exchange_messages);
    twice(6, Connect::All, everybody_asks_those_below);
    in_threads("iwarp", 4, Connect::All, everybody_asks_those_below);
}

/// Goal: of two processes the higher rank requests the connection, and each process starts with the next lower rank.
fn everybody_asks_those_below(process: &Process) {
    let (me, size) = (process.world().rank() as u32, process.world().size() as u32);
    let all = process.connected();
    let asked: Vec<u32> = all.iter().filter(|(_, asked)| *asked).map(|(other, _)| *other).collect();
    assert_eq!(asked, (0..me).rev().collect::<Vec<_>>());
    let mut answered: Vec<u32> = all.iter().filter(|(_, asked)| !asked).map(|(other, _)| *other).collect();
    answered.sort_unstable();
    assert_eq!(answered, (me + 1..size).collect::<Vec<_>>());
}

#[test]
fn threads_and_coroutines_give_the_same_world() {
    use verbs::host::world::FiberKind;
    let run = |fiber_kind| Play { fiber_kind, ..Play::new(4) }.run(any_source_receives_from_every_sender);
    assert_eq!(run(FiberKind::Coroutine), run(FiberKind::Thread));
}
