//! The table of protocols matches reality: the output of `nicety explain mpi` is checked against the counters of messages sent.

mod support;

use mpi::{Connect, MessageTotals, Process, Proto, Protocol, protocols};
use support::{
    Play, in_threads, in_threads_written, in_threads_written_by_odd, pattern, receive, send, with,
};

/// The largest size tested for the last protocol.
const LONGEST: u64 = 5_000_000;

/// The smallest and the largest size of each protocol.
fn sizes(rows: &[Protocol]) -> Vec<(u64, Proto)> {
    let ends = rows.iter().skip(1).map(|next| next.from - 1).chain([LONGEST]);
    rows.iter().zip(ends).flat_map(|(row, last)| [(row.from, row.proto), (last, row.proto)]).collect()
}

/// Rank 0 sends messages of these sizes, and rank 1 answers each with a short one. Each message counts once, for its protocol.
fn each_size_is_counted_for_its_protocol(process: &Process, sizes: &[(u64, Proto)]) {
    let world = process.world();
    let other = with(1 - world.rank(), 1);
    let answer = |is_first: bool| match (world.rank(), is_first) {
        (0, true) | (1, false) => send(world, vec![1], other),
        _ => drop(receive(world, 1, other)),
    };
    // Now both are connected, and rank 0 has the turn to write the line.
    answer(true);
    answer(false);
    for (size, proto) in sizes.iter().copied() {
        let before = process.traffic();
        if world.rank() == 0 {
            send(world, pattern(0, 3, size as usize), other);
            let sent = process.traffic().since(&before);
            let one = MessageTotals { messages: 1, bytes: size };
            assert_eq!((sent.for_protocol(proto), sent.all()), (one, one), "{size} bytes go by {sent:?}");
        } else {
            let received = receive(world, size as usize, other).0;
            assert!(received == pattern(0, 3, size as usize), "{size} bytes have changed on the way");
        }
        answer(false);
    }
}

fn on_device(process: &Process, device: &str) {
    let attr = fabric::attr(device).expect("a device");
    let rows = protocols(&attr, 2, fabric::is_virtual(device));
    let mut sizes = sizes(&rows);
    // Measured costs decide about longer messages in fragments on `shm`.
    let longest = if attr.maps_peers { (64 << 10) - 1 } else { u64::MAX };
    for (size, proto) in &mut sizes {
        *size = if *proto == Proto::EagerFrag { longest.min(*size) } else { *size };
    }
    each_size_is_counted_for_its_protocol(process, &sizes);
}

#[test]
fn on_shm_the_counters_show_the_table() {
    in_threads("shm", 2, Connect::OnDemand, |process| on_device(process, "shm"));
}

/// Which protocol carries messages of 64 to 256 KiB depends on measured costs, unless the program sets the limit.
#[test]
fn on_shm_the_program_sets_the_shortest_message_that_both_sides_copy() {
    in_threads("shm", 2, Connect::OnDemand, |process| {
        process.set_both_sides_copy_min(64 << 10).expect("a limit");
        each_size_is_counted_for_its_protocol(
            process,
            &[((64 << 10) - 1, Proto::EagerFrag), (64 << 10, Proto::RndvShm), (256 << 10, Proto::RndvShm)],
        );
        process.set_both_sides_copy_min(1 << 20).expect("a limit");
        each_size_is_counted_for_its_protocol(process, &[((1 << 20) - 1, Proto::RndvGet)]);
    });
}

#[test]
fn on_iwarp_the_counters_show_the_table() {
    in_threads("iwarp", 2, Connect::OnDemand, |process| on_device(process, "iwarp"));
}

#[test]
fn on_modelled_cards_the_counters_show_the_table() {
    for card in ["model:mt23108-vapi", "model:t3b"] {
        Play { card, ..Play::new(2) }.run(move |process| on_device(process, card));
    }
}

#[test]
fn written_messages_are_counted_as_written() {
    in_threads_written(2, |process| {
        each_size_is_counted_for_its_protocol(
            process,
            &[(0, Proto::EagerWrite), (1000, Proto::EagerWrite), (LONGEST, Proto::RndvGet)],
        );
    });
}

/// Changing a limit while the connection is open moves the sizes at which the protocol changes.
#[test]
fn a_lower_eager_limit_has_short_messages_announced() {
    in_threads("iwarp", 2, Connect::OnDemand, |process| {
        process.set_eager_max(100).expect("a limit");
        each_size_is_counted_for_its_protocol(
            process,
            &[(80, Proto::EagerInline), (100, Proto::EagerCopy), (101, Proto::RndvGet)],
        );
    });
}

/// Goal: options of one process do not break its messages with others. Method: of two processes only rank 1 has the fast path; each
/// size, in both directions.
#[test]
fn a_process_with_the_fast_path_and_one_without_understand_each_other() {
    in_threads_written_by_odd(2, |process| {
        let world = process.world();
        let other = with(1 - world.rank(), 1);
        for len in [1, 200, 8 << 10, (8 << 10) + 16, 9000, 64 << 10, 200_000, 1 << 20, 5_000_000] {
            if world.rank() == 0 {
                send(world, pattern(0, 3, len), other);
            }
            let (bytes, status) = receive(world, len, other);
            assert_eq!(status.bytes, len as u64);
            assert!(bytes == pattern(0, 3, len), "{len} bytes have changed on the way");
            if world.rank() == 1 {
                send(world, bytes, other);
            }
        }
    });
}
