//! Tests one-sided communication: each body twice in a simulated world with the same trace, and in threads over shared memory,
//! which maps others' memory, and over iWARP, where the device reads, writes and executes atomics.

mod support;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datatypes::{Basic, Datatype, Op, Operator};
use mpi::{
    Assert, Buffer, Class, Comm, Connect, Flavor, Group, Info, IntegerOp, LockKind, PROC_NULL, Piece,
    Process, TargetRange, Window,
};
use support::{Body, Play, buffer, in_threads, receive, send, typed, with};
use verbs::host::Span;

fn twice(ranks: u32, body: Body) {
    let play = Play::new(ranks);
    assert_eq!(play.run(body), play.run(body), "the same seed gave another world");
}

/// A test for each kind of time and each body, with this number of ranks.
macro_rules! bodies {
    ($($name:ident $ranks:literal)*) => {
        mod model {
            $(#[test] fn $name() { super::twice($ranks, super::$name); })*
        }
        mod shm {
            $(#[test] fn $name() { super::in_threads("shm", $ranks, mpi::Connect::OnDemand, super::$name); })*
        }
        mod iwarp {
            $(#[test] fn $name() { super::in_threads("iwarp", $ranks, mpi::Connect::OnDemand, super::$name); })*
        }
    };
}

bodies! {
    puts_and_gets_move_elements 3
    types_with_gaps_are_put_and_got 2
    exclusive_locks_exclude_each_other 4
    shared_locks_are_shared 3
    starts_match_posts 3
    operations_complete_at_the_end_of_their_epoch 2
    a_busy_target_delays_no_origin 2
    requests_complete_with_their_operations 2
    accumulating_is_atomic 4
    operators_reduce_at_the_target 2
    accumulated_elements_may_have_gaps 2
    only_one_compare_and_swap_succeeds 4
    dynamic_windows_access_attached_memory 3
    attached_regions_have_a_limit 2
    wrong_arguments_are_named 2
    operations_out_of_epochs_are_refused 2
    a_window_alone 1
}

/// Operations as messages, all or only the short ones, on a card with and without writes to peers' memory.
mod carried {
    use super::{Body, Play};
    use mpi::OneSided;

    fn each(ranks: u32, body: Body) {
        let some = OneSided { put_max: 100, get_max: 20_000 };
        for (one_sided, fast_path) in [
            (OneSided::MESSAGES, true),
            (OneSided::MESSAGES, false),
            (some, true),
            (OneSided::default(), true),
        ] {
            let play = Play { card: "model:t3b", fast_path, one_sided, ..Play::new(ranks) };
            assert_eq!(play.run(body), play.run(body), "the same seed gave another world");
        }
    }

    macro_rules! bodies {
        ($($name:ident $ranks:literal)*) => { $(#[test] fn $name() { each($ranks, super::$name); })* };
    }

    bodies! {
        puts_and_gets_move_elements 3
        types_with_gaps_are_put_and_got 2
        shared_locks_are_shared 3
        starts_match_posts 3
        operations_complete_at_the_end_of_their_epoch 2
        wrong_arguments_are_named 2
        operations_out_of_epochs_are_refused 2
        completed_operations_need_no_origin 2
    }
}

/// Bytes of a window's own memory, read by the processor.
fn own(window: &Window, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: within the window's memory, which peers do not change at this time.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::with_exposed_provenance(window.base().wrapping_add(at)),
            bytes.as_mut_ptr(),
            len,
        )
    };
    bytes
}

fn set(window: &Window, at: usize, bytes: &[u8]) {
    // SAFETY: as above.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            std::ptr::with_exposed_provenance_mut(window.base() + at),
            bytes.len(),
        )
    };
}

fn word(window: &Window, at: usize) -> u64 {
    own(window, at, 8).try_into().map(u64::from_ne_bytes).expect("eight bytes")
}

fn at(rank: i32, displacement: i64, count: i64, datatype: &Datatype) -> TargetRange {
    TargetRange { rank, displacement, count, datatype: datatype.clone() }
}

fn bytes_at(rank: i32, displacement: i64, count: usize) -> TargetRange {
    at(rank, displacement, count as i64, &Basic::Byte.into())
}

fn u64_at(rank: i32, displacement: i64) -> TargetRange {
    at(rank, displacement, 1, &Basic::Uint64.into())
}

fn u64_buffer(bytes: &mut [u8]) -> Buffer {
    let count = bytes.len() as i64 / 8;
    typed(bytes, count, &Basic::Uint64.into())
}

fn allocated(comm: &Comm, size: i64, unit: i64) -> Window {
    Window::allocate(comm, size, unit, Info::default()).expect("a window")
}

fn fence(window: &Window) {
    window.fence(Assert::default()).expect("between epochs");
}

/// A window onto the test's memory, and one with allocated memory.
fn both(comm: &Comm, memory: &mut [u8], unit: i64) -> [Window; 2] {
    let address = memory.as_mut_ptr().expose_provenance();
    // SAFETY: the test keeps the memory until it has freed the window.
    let given = unsafe { Window::create(comm, address, memory.len() as i64, unit, Info::default()) };
    [given.expect("a window"), allocated(comm, memory.len() as i64, unit)]
}

fn sum() -> Op {
    Operator::Sum.into()
}

fn puts_and_gets_move_elements(process: &Process) {
    let (world, me) = (process.world(), process.world().rank());
    let mut memory = vec![0; 3 * 20_000];
    for window in both(world, &mut memory, 1) {
        for len in [0, 1, 8, 100, 20_000] {
            fence(&window);
            let mut mine = support::pattern(me, len, len);
            for rank in 0..world.size() {
                let place = bytes_at(rank, i64::from(me) * 20_000, len);
                window.put(&buffer(&mut mine), &place).expect("in the window");
            }
            fence(&window);
            for rank in 0..world.size() {
                let expected = support::pattern(rank, len, len);
                assert!(own(&window, rank as usize * 20_000, len) == expected, "{len} bytes of {rank}");
                let mut got = vec![0; len];
                window
                    .get(&buffer(&mut got), &bytes_at((me + 1) % 3, i64::from(rank) * 20_000, len))
                    .expect("inside");
                fence(&window);
                assert!(got == expected, "{len} bytes that {rank} has put");
            }
        }
        window.free().expect("an end");
    }
}

/// Every second integer, and every third.
fn types_with_gaps_are_put_and_got(process: &Process) {
    let world = process.world();
    let int = Datatype::from(Basic::Int);
    let [second, third] = [2, 3].map(|stride| Datatype::vector(5, 1, stride, &int).expect("a vector"));
    second.commit();
    third.commit();
    let ints = |range: std::ops::Range<i32>| -> Vec<u8> { range.flat_map(i32::to_ne_bytes).collect() };
    let mut memory = vec![0; 60];
    for window in both(world, &mut memory, 4) {
        set(&window, 0, &ints(0..15));
        fence(&window);
        let peer = 1 - world.rank();
        let mut from = ints(100..110);
        let mut into = vec![0xee; 40];
        window.get(&typed(&mut into, 1, &second), &at(peer, 1, 1, &third)).expect("inside");
        fence(&window);
        let got: Vec<i32> =
            into.chunks_exact(4).map(|four| i32::from_ne_bytes(four.try_into().expect("four"))).collect();
        let gap = i32::from_ne_bytes([0xee; 4]);
        assert_eq!(got, [1, gap, 4, gap, 7, gap, 10, gap, 13, gap]);
        window.put(&typed(&mut from, 1, &second), &at(peer, 2, 1, &third)).expect("inside");
        fence(&window);
        let mut expected = ints(0..15);
        for (place, value) in [(2, 100), (5, 102), (8, 104), (11, 106), (14, 108_i32)] {
            expected[place * 4..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        assert_eq!(own(&window, 0, 60), expected);
        // From this rank's memory to its own window.
        window.put(&typed(&mut from, 1, &second), &at(world.rank(), 0, 5, &int)).expect("inside");
        fence(&window);
        assert_eq!(own(&window, 0, 20), [100, 102, 104, 106, 108_i32].map(i32::to_ne_bytes).concat());
        window.free().expect("an end");
    }
}

/// Counts by a get and a put, which only a lock makes atomic.
fn exclusive_locks_exclude_each_other(process: &Process) {
    const TIMES: u64 = 20;
    let world = process.world();
    let mut memory = vec![0; 64];
    for window in both(world, &mut memory, 8) {
        for _ in 0..TIMES {
            let mut count = [0; 8];
            window.lock(LockKind::Exclusive, 0, Assert::default()).expect("free at last");
            window.get(&u64_buffer(&mut count), &u64_at(0, 3)).expect("inside");
            window.flush(0).expect("locked");
            count = (u64::from_ne_bytes(count) + 1).to_ne_bytes();
            window.put(&u64_buffer(&mut count), &u64_at(0, 3)).expect("inside");
            window.unlock(0).expect("locked");
        }
        fence(&window);
        if world.rank() == 0 {
            assert_eq!(word(&window, 24), TIMES * world.size() as u64);
        }
        window.free().expect("an end");
    }
}

/// Two ranks share a lock, and an exclusive request waits for both.
fn shared_locks_are_shared(process: &Process) {
    let world = process.world();
    let window = allocated(world, 64, 1);
    let me = world.rank();
    if me < 2 {
        window.lock(LockKind::Shared, 0, Assert::default()).expect("free");
        // The two synchronize while both hold the lock.
        send(world, vec![1], with(1 - me, 1));
        receive(world, 1, with(1 - me, 1));
        if me == 0 {
            send(world, vec![1], with(2, 2));
        }
        let mut mark = [7];
        window.put(&buffer(&mut mark), &bytes_at(0, i64::from(me), 1)).expect("inside");
        window.unlock(0).expect("locked");
    } else {
        receive(world, 1, with(0, 2));
        window.lock(LockKind::Exclusive, 0, Assert::default()).expect("when both have let go");
        let mut seen = [0; 2];
        window.get(&buffer(&mut seen), &bytes_at(0, 0, 2)).expect("inside");
        window.unlock(0).expect("locked");
        assert_eq!(seen, [7, 7]);
    }
    window.free().expect("an end");
}

/// Goal: a completed operation is carried out, whatever the origin does then. Method: more puts than there are credits, by an
/// origin that computes for seconds afterwards.
fn completed_operations_need_no_origin(process: &Process) {
    const LEN: usize = 20_000;
    let (world, host, me) = (process.world(), process.host(), process.world().rank());
    let group = Group::new(vec![1 - me as u32]).expect("one");
    let window = allocated(world, 64 * LEN as i64, 1);
    let mut out = support::pattern(0, 1, LEN);
    if me == 0 {
        window.start(&group, Assert::default()).expect("idle");
        for part in 0..64 {
            window.put(&buffer(&mut out), &bytes_at(1, part * LEN as i64, LEN)).expect("inside");
        }
        window.complete().expect("started");
        host.charge(Span::from_secs(5));
    } else {
        window.post(&group, Assert::default()).expect("none before");
        let began = host.now();
        window.wait().expect("posted");
        assert!(host.now() - began < Span::from_secs(1), "waited for an origin that computes");
        assert!((0..64).all(|part| own(&window, part * LEN, LEN) == out), "other bytes");
    }
    window.free().expect("an end");
}

/// Goal: at the end of an access epoch, all puts have been stored and all gets have returned. Method: each rank in turn puts to and
/// gets from the other, one operation and several of all lengths.
fn operations_complete_at_the_end_of_their_epoch(process: &Process) {
    const PART: usize = 70_000;
    let (world, me) = (process.world(), process.world().rank());
    let group = Group::new(vec![1 - me as u32]).expect("one");
    let mut memory = vec![0; 4 * PART];
    for window in both(world, &mut memory, 1) {
        for (turn, lens) in [&[5][..], &[PART], &[0, 1, 8, 8_100, 8_192, 30_000], &[]].into_iter().enumerate()
        {
            for origin in 0..2 {
                if me != origin {
                    set(&window, 2 * PART, &support::pattern(me, turn, PART));
                    window.post(&group, Assert::default()).expect("none before");
                    window.wait().expect("posted");
                    let mut begin = 0;
                    for (number, len) in lens.iter().enumerate() {
                        assert!(
                            own(&window, begin, *len) == support::pattern(origin, number, *len),
                            "{len} bytes"
                        );
                        begin += len;
                    }
                    continue;
                }
                window.start(&group, Assert::default()).expect("idle");
                let mut out: Vec<Vec<u8>> =
                    lens.iter().enumerate().map(|(number, len)| support::pattern(me, number, *len)).collect();
                let mut into: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
                let mut begin = 0;
                for (out, into) in out.iter_mut().zip(&mut into) {
                    let len = out.len();
                    window.put(&buffer(out), &bytes_at(1 - me, begin, len)).expect("inside");
                    window.get(&buffer(into), &bytes_at(1 - me, (2 * PART) as i64, len)).expect("inside");
                    begin += len as i64;
                }
                window.complete().expect("started");
                let theirs = support::pattern(1 - me, turn, PART);
                assert!(into.iter().all(|into| *into == theirs[..into.len()]), "turn {turn}");
            }
        }
        window.free().expect("an end");
    }
}

fn starts_match_posts(process: &Process) {
    let world = process.world();
    let others = Group::new(vec![1, 2]).expect("two");
    let first = Group::new(vec![0]).expect("one");
    let mut memory = vec![0; 16];
    for window in both(world, &mut memory, 8) {
        for round in 1..=5_u64 {
            let (group, ranks) = if world.rank() == 0 { (&others, vec![1, 2]) } else { (&first, vec![0]) };
            let mut value = (round * 10 + world.rank() as u64).to_ne_bytes();
            window.post(group, Assert::default()).expect("none before");
            window.start(group, Assert::default()).expect("idle");
            let place = i64::from(world.rank() == 2);
            for rank in ranks {
                window.put(&u64_buffer(&mut value), &u64_at(rank, place)).expect("inside");
            }
            window.complete().expect("started");
            if round.is_multiple_of(2) {
                window.wait().expect("posted");
            } else {
                while !window.test().expect("posted") {}
            }
            let expected: &[u64] = if world.rank() == 0 { &[1, 2] } else { &[0] };
            for (at, rank) in expected.iter().enumerate() {
                assert_eq!(word(&window, at * 8), round * 10 + rank, "round {round}");
            }
        }
        window.free().expect("an end");
    }
}

/// Rank 0 polls its memory and calls nothing until rank 1 has locked, accumulated, put and unlocked.
fn a_busy_target_delays_no_origin(process: &Process) {
    let world = process.world();
    let mut memory = vec![0; 64];
    for window in both(world, &mut memory, 8) {
        world.collective(&mpi::Collective::Barrier).expect("both");
        if world.rank() == 0 {
            let seen = process.host().poll("a put", None, || (word(&window, 8) == 1).then_some(()));
            assert_eq!(seen, Some(()));
            assert_eq!(word(&window, 0), 50);
        } else {
            let (mut five, mut one) = (5_u64.to_ne_bytes(), 1_u64.to_ne_bytes());
            window.lock(LockKind::Exclusive, 0, Assert::default()).expect("free");
            for _ in 0..10 {
                window.accumulate(&u64_buffer(&mut five), &u64_at(0, 0), &sum()).expect("inside");
            }
            window.flush(0).expect("locked");
            window.put(&u64_buffer(&mut one), &u64_at(0, 1)).expect("inside");
            window.unlock(0).expect("locked");
        }
        window.free().expect("an end");
    }
}

fn requests_complete_with_their_operations(process: &Process) {
    let world = process.world();
    let peer = 1 - world.rank();
    let window = allocated(world, 30_000, 1);
    window.lock_all(Assert::default()).expect("idle");
    let mut bytes = support::pattern(world.rank(), 1, 20_000);
    let mut put = window.rput(&buffer(&mut bytes), &bytes_at(peer, 5, 20_000)).expect("inside");
    assert_eq!(put.wait().class(), Class::SUCCESS);
    window.flush(peer).expect("locked");
    let mut back = vec![0; 20_000];
    let mut got = window.rget(&buffer(&mut back), &bytes_at(peer, 5, 20_000)).expect("inside");
    assert_eq!(got.wait().class(), Class::SUCCESS);
    assert!(back == bytes);
    let (mut add, mut was) = (3_u64.to_ne_bytes(), [1; 8]);
    let place = u64_at(peer, 24_000);
    let mut added = window.raccumulate(&u64_buffer(&mut add), &place, &sum()).expect("inside");
    added.wait();
    let mut fetched =
        window.rget_accumulate(&u64_buffer(&mut add), &u64_buffer(&mut was), &place, &sum()).expect("inside");
    fetched.wait();
    assert_eq!(u64::from_ne_bytes(was), 3);
    let nobody = window.rput(&buffer(&mut bytes), &bytes_at(PROC_NULL, 0, 20_000)).expect("nobody");
    drop(nobody);
    window.unlock_all().expect("locked");
    window.free().expect("an end");
}

/// All ranks count at all ranks, and each count is returned once.
fn accumulating_is_atomic(process: &Process) {
    const TIMES: usize = 25;
    let world = process.world();
    let mut memory = vec![0; 16];
    for window in both(world, &mut memory, 8) {
        let mut got = Vec::new();
        window.lock_all(Assert::default()).expect("idle");
        for time in 0..TIMES {
            for rank in 0..world.size() {
                let (mut one, mut was) = (1_u64.to_ne_bytes(), [0; 8]);
                let (one, was_buffer) = (u64_buffer(&mut one), u64_buffer(&mut was));
                if (time + rank as usize).is_multiple_of(3) {
                    window.accumulate(&one, &u64_at(rank, 1), &sum()).expect("inside");
                } else {
                    window.get_accumulate(&one, &was_buffer, &u64_at(rank, 1), &sum()).expect("inside");
                    got.push((rank, u64::from_ne_bytes(was)));
                }
            }
        }
        window.unlock_all().expect("locked");
        fence(&window);
        assert_eq!(word(&window, 8), (TIMES * world.size() as usize) as u64);
        for rank in 0..world.size() {
            let mine: Vec<u64> = got.iter().filter(|(of, _)| *of == rank).map(|(_, was)| *was).collect();
            assert!(mine.is_sorted_by(|a, b| a < b), "{mine:?}");
        }
        window.free().expect("an end");
    }
}

fn operators_reduce_at_the_target(process: &Process) {
    let world = process.world();
    let peer = 1 - world.rank();
    let window = allocated(world, 64, 4);
    let int = Datatype::from(Basic::Int);
    let of = |operator: Operator, there: i32, with: i32| {
        set(&window, 0, &there.to_ne_bytes());
        fence(&window);
        let mut bytes = with.to_ne_bytes();
        let mut was = [0; 4];
        let (origin, result) = (typed(&mut bytes, 1, &int), typed(&mut was, 1, &int));
        window.get_accumulate(&origin, &result, &at(peer, 0, 1, &int), &operator.into()).expect("inside");
        fence(&window);
        assert_eq!(i32::from_ne_bytes(was), there);
        own(&window, 0, 4).try_into().map(i32::from_ne_bytes).expect("four")
    };
    use Operator as O;
    let found =
        [(O::Sum, 8), (O::Prod, 15), (O::Min, 3), (O::Max, 5), (O::Band, 1), (O::Bor, 7), (O::Bxor, 6)];
    for (operator, expected) in found.into_iter().chain([(O::Replace, 3), (O::NoOp, 5), (O::Land, 1)]) {
        assert_eq!(of(operator, 5, 3), expected, "{operator:?}");
    }
    // A pair is followed by a gap in memory.
    let pair = Datatype::from(Basic::DoubleInt);
    let bytes = |value: f64, index: i32| [&value.to_ne_bytes()[..], &index.to_ne_bytes(), &[0; 4]].concat();
    set(&window, 0, &[bytes(2.5, 7), bytes(1.0, 3)].concat());
    fence(&window);
    let mut mine = [bytes(2.5, 4), bytes(3.0, 9)].concat();
    let origin = typed(&mut mine, 2, &pair);
    window.accumulate(&origin, &at(peer, 0, 2, &pair), &O::Minloc.into()).expect("inside");
    fence(&window);
    assert_eq!(
        (own(&window, 0, 12), own(&window, 16, 12)),
        (bytes(2.5, 4)[..12].to_vec(), bytes(1.0, 3)[..12].to_vec())
    );
    window.free().expect("an end");
}

fn accumulated_elements_may_have_gaps(process: &Process) {
    let world = process.world();
    let peer = 1 - world.rank();
    let short = Datatype::from(Basic::Short);
    let second = Datatype::vector(4, 1, 2, &short).expect("a vector");
    second.commit();
    let shorts =
        |values: &[i16]| -> Vec<u8> { values.iter().flat_map(|value| value.to_ne_bytes()).collect() };
    let mut memory = vec![0; 16];
    for window in both(world, &mut memory, 2) {
        set(&window, 0, &shorts(&[1, 2, 3, 4, 5, 6, 7, 8]));
        fence(&window);
        let mut mine = shorts(&[10, 20, 30, 40]);
        window.accumulate(&typed(&mut mine, 4, &short), &at(peer, 1, 1, &second), &sum()).expect("inside");
        fence(&window);
        assert_eq!(own(&window, 0, 16), shorts(&[1, 12, 3, 24, 5, 36, 7, 48]));
        window.free().expect("an end");
    }
}

/// Of several compare-and-swaps of a zero, exactly one succeeds.
fn only_one_compare_and_swap_succeeds(process: &Process) {
    let world = process.world();
    let me = world.rank() as u64 + 1;
    let window = allocated(world, 80, 8);
    fence(&window);
    for place in 0..10 {
        let (mut mine, mut zero, mut was) = (me.to_ne_bytes(), [0; 8], [0; 8]);
        let [mine, zero, result] = [&mut mine, &mut zero, &mut was].map(|bytes| u64_buffer(bytes));
        window.compare_and_swap(&mine, &zero, &result, &u64_at(1, place)).expect("inside");
        let mut after = [0; 8];
        let nothing = Buffer::empty();
        window
            .get_accumulate(&nothing, &u64_buffer(&mut after), &u64_at(1, place), &Operator::NoOp.into())
            .expect("inside");
        let (was, after) = (u64::from_ne_bytes(was), u64::from_ne_bytes(after));
        assert_eq!(after, if was == 0 { me } else { was }, "place {place}");
    }
    fence(&window);
    window.free().expect("an end");
}

fn dynamic_windows_access_attached_memory(process: &Process) {
    let world = process.world();
    let (me, peer) = (world.rank(), (world.rank() + 1) % 3);
    let window = Window::create_dynamic(world, Info::default()).expect("a window");
    assert_eq!((window.flavor(), window.base(), window.size()), (Flavor::Dynamic, 0, 0));
    let mut memory = [vec![0_u8; 1000], vec![0; 50]];
    let addresses = memory.each_mut().map(|part| part.as_mut_ptr().expose_provenance());
    for (address, size) in addresses.into_iter().zip([1000, 50]) {
        // SAFETY: the test keeps the memory until it has freed the window.
        unsafe { window.attach(address, size) }.expect("new");
        // SAFETY: the call is refused.
        let refused = unsafe { window.attach(address + 1, 2) }.expect_err("a part of it");
        assert_eq!(refused.class, Class::RMA_ATTACH);
    }
    let told = |address: usize| {
        send(world, address.to_ne_bytes().to_vec(), with((me + 2) % 3, 1));
        usize::from_ne_bytes(receive(world, 8, with(peer, 1)).0.try_into().expect("eight")) as i64
    };
    let theirs = addresses.map(told);
    window.lock_all(Assert::default()).expect("idle");
    let mut bytes = support::pattern(me, 5, 600);
    window.put(&buffer(&mut bytes), &bytes_at(peer, theirs[0] + 400, 600)).expect("attached");
    let mut two = 2_u64.to_ne_bytes();
    window.accumulate(&u64_buffer(&mut two), &u64_at(peer, theirs[1] + 8), &sum()).expect("attached");
    window.accumulate(&u64_buffer(&mut two), &u64_at(peer, theirs[1] + 8), &sum()).expect("attached");
    for (begin, len) in [(theirs[0] + 401, 600), (theirs[1] - 1, 1), (theirs[1] + 43, 8), (8, 8)] {
        let refused =
            window.put(&buffer(&mut bytes[..len]), &bytes_at(peer, begin, len)).expect_err("not attached");
        assert_eq!(refused.class, Class::RMA_RANGE, "{len} bytes at {begin:#x}");
    }
    window.unlock_all().expect("locked");
    fence(&window);
    assert!(memory[0][400..] == support::pattern((me + 2) % 3, 5, 600));
    assert_eq!(memory[1][8..16], 4_u64.to_ne_bytes());
    window.detach(addresses[0]).expect("attached");
    assert_eq!(window.detach(addresses[0]).expect_err("gone").class, Class::RMA_ATTACH);
    fence(&window);
    let refused =
        window.get(&buffer(&mut bytes), &bytes_at(peer, theirs[0], 600)).expect_err("not attached any more");
    assert_eq!(refused.class, Class::RMA_RANGE);
    window.get(&buffer(&mut bytes[..8]), &bytes_at(peer, theirs[1] + 8, 8)).expect("attached");
    fence(&window);
    assert_eq!(bytes[..8], 4_u64.to_ne_bytes());
    window.free().expect("an end");
}

/// The last of 1,024 regions is accessible, and no further one can be attached.
fn attached_regions_have_a_limit(process: &Process) {
    const MOST: usize = 1024;
    let world = process.world();
    let (me, peer) = (world.rank(), 1 - world.rank());
    let window = Window::create_dynamic(world, Info::default()).expect("a window");
    let mut memory = vec![0_u8; 2 * (MOST + 1)];
    let first = memory.as_mut_ptr().expose_provenance();
    // SAFETY: the test keeps the memory until it has freed the window.
    let attach = |region: usize| unsafe { window.attach(first + 2 * region, 1) };
    (0..MOST).for_each(|region| attach(region).expect("there is room"));
    assert_eq!(attach(MOST).expect_err("one too many").class, Class::RMA_ATTACH);
    send(world, first.to_ne_bytes().to_vec(), with(peer, 1));
    let theirs = usize::from_ne_bytes(receive(world, 8, with(peer, 1)).0.try_into().expect("eight")) as i64;
    fence(&window);
    let mut mark = [me as u8 + 1];
    for region in [0, MOST as i64 - 1] {
        window.put(&buffer(&mut mark), &bytes_at(peer, theirs + 2 * region, 1)).expect("attached");
    }
    let refused = window.put(&buffer(&mut mark), &bytes_at(peer, theirs + 1, 1)).expect_err("between two");
    assert_eq!(refused.class, Class::RMA_RANGE);
    fence(&window);
    assert_eq!([memory[0], memory[2 * MOST - 2]], [peer as u8 + 1; 2]);
    window.detach(first).expect("attached");
    attach(MOST).expect("there is room again");
    window.free().expect("an end");
}

fn wrong_arguments_are_named(process: &Process) {
    let world = process.world();
    let class = |result: mpi::Result<()>| result.err().map_or(Class::SUCCESS, |error| error.class);
    let create = |address, size, unit| {
        // SAFETY: the call is refused.
        class(unsafe { Window::create(world, address, size, unit, Info::default()) }.map(drop))
    };
    assert_eq!(create(8, -1, 1), Class::SIZE);
    assert_eq!(create(8, 1, 0), Class::DISP);
    assert_eq!(create(0, 1, 1), Class::BASE);
    let window = allocated(world, 100 + 50 * i64::from(world.rank()), 2);
    assert_eq!((window.size(), window.unit()), (100 + 50 * world.rank() as u64, 2));
    let mut bytes = [1; 200];
    let mut put = |len: usize, place: &TargetRange| class(window.put(&buffer(&mut bytes[..len]), place));
    fence(&window);
    assert_eq!(put(100, &bytes_at(0, 0, 100)), Class::SUCCESS);
    assert_eq!(put(150, &bytes_at(1, 0, 150)), Class::SUCCESS);
    for (len, place, expected) in [
        (101, bytes_at(0, 0, 101), Class::RMA_RANGE),
        (100, bytes_at(0, 1, 100), Class::RMA_RANGE),
        (1, bytes_at(0, i64::MAX, 1), Class::RMA_RANGE),
        (1, bytes_at(0, -1, 1), Class::DISP),
        (1, bytes_at(2, 0, 1), Class::RANK),
        (1, bytes_at(-1, 0, 1), Class::RANK),
        (1, bytes_at(PROC_NULL, -5, 1), Class::SUCCESS),
        (2, bytes_at(0, 0, 1), Class::TRUNCATE),
        (1, bytes_at(0, 0, 2), Class::TRUNCATE),
        (0, bytes_at(0, 0, 0), Class::SUCCESS),
    ] {
        assert_eq!(put(len, &place), expected, "{len} bytes to {place:?}");
    }
    let below = Datatype::hvector(2, 1, -8, &Basic::Byte.into()).expect("a vector");
    assert_eq!(put(2, &at(0, 4, 1, &below)), Class::TYPE);
    below.commit();
    assert_eq!(
        (put(2, &at(0, 4, 1, &below)), put(2, &at(0, 3, 1, &below))),
        (Class::SUCCESS, Class::RMA_RANGE)
    );
    let int = Datatype::from(Basic::Int);
    let mut four = [0; 4];
    let mut accumulate = |datatype: &Datatype, operator: Operator| {
        class(window.accumulate(&typed(&mut four, 1, datatype), &at(0, 0, 1, &int), &operator.into()))
    };
    assert_eq!(accumulate(&int, Operator::NoOp), Class::OP);
    assert_eq!(accumulate(&int, Operator::Minloc), Class::OP);
    assert_eq!(accumulate(&Basic::Float.into(), Operator::Sum), Class::TYPE);
    assert_eq!(accumulate(&int, Operator::Sum), Class::SUCCESS);
    let strangers = Group::new(vec![7]).expect("one");
    assert_eq!(class(window.start(&strangers, Assert::default())), Class::GROUP);
    assert_eq!(class(window.lock(LockKind::Shared, 9, Assert::default())), Class::RANK);
    fence(&window);
    window.free().expect("an end");
    assert_eq!(class(window.fence(Assert::default())), Class::WIN);
}

fn operations_out_of_epochs_are_refused(process: &Process) {
    let world = process.world();
    let window = allocated(world, 8, 1);
    let mut bytes = [0; 8];
    let origin = buffer(&mut bytes);
    let place = bytes_at(1, 0, 8);
    let class = |result: mpi::Result<()>| result.err().map_or(Class::SUCCESS, |error| error.class);
    let expected = Class::RMA_SYNC;
    assert_eq!(class(window.put(&origin, &place)), expected);
    for wrong in [
        window.complete(),
        window.wait(),
        window.unlock(1),
        window.unlock_all(),
        window.flush(1),
        window.flush_all(),
    ] {
        assert_eq!(class(wrong), expected);
    }
    assert_eq!(class(window.test().map(drop)), expected);
    fence(&window);
    assert_eq!(class(window.rput(&origin, &place).map(drop)), expected, "for locks only");
    window.lock(LockKind::Shared, 0, Assert::default()).expect("nothing happened behind the fence");
    assert_eq!(class(window.get(&origin, &place)), expected, "another target");
    assert_eq!(class(window.lock(LockKind::Shared, 0, Assert::default())), expected);
    assert_eq!(class(window.fence(Assert::default())), expected);
    assert_eq!(class(window.free()), expected);
    window.unlock(0).expect("locked");
    window.fence(Assert::NOSUCCEED).expect("idle");
    assert_eq!(class(window.get(&origin, &place)), expected);
    // Operations that were allowed in an epoch, and would complete immediately, are refused after it.
    let mut word = [0; 8];
    let (word, there) = (u64_buffer(&mut word), u64_at(1, 0));
    let operations = || {
        let put = class(window.put(&origin, &place));
        let add = class(window.accumulate(&word, &there, &sum()));
        [put, class(window.get(&origin, &place)), add, class(window.flush(1))]
    };
    for is_all in [true, false] {
        match is_all {
            true => window.lock_all(Assert::default()).expect("nothing has begun"),
            false => window.lock(LockKind::Shared, 1, Assert::default()).expect("nothing has begun"),
        }
        assert_eq!([operations(), operations()], [[Class::SUCCESS; 4]; 2]);
        match is_all {
            true => window.unlock_all().expect("locked"),
            false => window.unlock(1).expect("locked"),
        }
        assert_eq!(operations(), [expected; 4]);
    }
    window.fence(Assert::NOPRECEDE).expect("idle");
    let fenced = [Class::SUCCESS, Class::SUCCESS, Class::SUCCESS, expected];
    assert_eq!([operations(), operations()], [fenced; 2], "flushes are for locks");
    fence(&window);
    window.free().expect("an end");
}

fn a_window_alone(process: &Process) {
    let alone = process.comm_self();
    for window in
        [allocated(alone, 64, 1), Window::allocate_shared(alone, 64, 1, Info::default()).expect("a window")]
    {
        window.lock(LockKind::Exclusive, 0, Assert::default()).expect("free");
        let mut bytes = support::pattern(0, 3, 64);
        window.put(&buffer(&mut bytes), &bytes_at(0, 0, 64)).expect("inside");
        // Source and target within the window may overlap.
        // SAFETY: within the window.
        let inside = unsafe { Buffer::new(window.base(), 40, Basic::Byte.into()) }.expect("inside");
        window.put(&inside, &bytes_at(0, 10, 40)).expect("inside");
        window.unlock(0).expect("locked");
        assert_eq!(own(&window, 10, 40), bytes[..40]);
        window.free().expect("an end");
    }
    let empty = allocated(alone, 0, 1);
    fence(&empty);
    assert_eq!(empty.put(&Buffer::empty(), &bytes_at(0, 0, 0)), Ok(()));
    empty.free().expect("an end");
}

/// Values stored by one member are loaded by another.
fn members_share_memory(process: &Process) {
    let world = process.world();
    let me = world.rank();
    let window = Window::allocate_shared(world, 100 + i64::from(me), 1, Info::default()).expect("one host");
    let parts: Vec<_> = (0..world.size()).map(|rank| window.shared(rank).expect("a rank")).collect();
    for (rank, part) in parts.iter().enumerate() {
        assert_eq!(part.size, 100 + rank as u64);
        let next = parts.get(rank + 1);
        assert!(
            next.is_none_or(|next| next.address == part.address + part.size as usize),
            "one behind the other"
        );
    }
    assert_eq!(parts[me as usize].address, window.base());
    assert_eq!(window.shared(PROC_NULL).expect("the first").address, parts[0].address);
    fence(&window);
    set(&window, 0, &[me as u8 + 1; 100]);
    window.sync().expect("a window");
    fence(&window);
    for (rank, part) in parts.iter().enumerate() {
        let offset = part.address.wrapping_sub(window.base());
        assert_eq!(own(&window, offset, 100), [rank as u8 + 1; 100]);
    }
    fence(&window);
    let mut one = 1_u64.to_ne_bytes();
    window.accumulate(&u64_buffer(&mut one), &u64_at(2, 8), &sum()).expect("inside");
    fence(&window);
    if me == 2 {
        let before = u64::from_ne_bytes([3; 8]);
        assert_eq!(word(&window, 8), before + 3);
    }
    window.free().expect("an end");
}

/// Threads of both ranks add concurrently, in one window and one epoch.
fn threads_accumulate_concurrently(process: &Process) {
    const TIMES: u64 = 200;
    let window = allocated(process.world(), 16, 8);
    window.lock_all(Assert::default()).expect("idle");
    let add = || {
        let window = window.clone();
        let body = move || {
            let mut one = 1_u64.to_ne_bytes();
            for time in 0..TIMES {
                let rank = (time % 2) as i32;
                window.accumulate(&u64_buffer(&mut one), &u64_at(rank, 1), &sum()).expect("inside");
                window.flush(rank).expect("locked");
            }
        };
        process.host().spawn("adds", None, body).expect("a thread")
    };
    let threads = [add(), add()];
    threads.into_iter().for_each(verbs::host::Task::join);
    window.unlock_all().expect("locked");
    fence(&window);
    assert_eq!(word(&window, 8), 2 * TIMES);
    window.free().expect("an end");
}

/// The test's memory, for a call that does not use it after its return.
fn piece(bytes: &mut [u8]) -> Piece {
    // SAFETY: these calls return before the test accesses the memory again.
    unsafe { Piece::new(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }
}

/// Goal: immediate changes of integers are atomic with each other and with all other accumulates. Method: both members add by all
/// calls, one of which reduces two words together; no addition is lost, and neighbouring words are unchanged.
fn integers_are_added_by_all_calls(process: &Process) {
    const TIMES: u64 = 3000;
    let (window, mut at_once) = (allocated(process.world(), 32, 8), 0);
    window.lock_all(Assert::default()).expect("idle");
    for time in 0..TIMES {
        let (mut one, mut was) = ([1_u64.to_ne_bytes(); 2].concat(), [0; 8]);
        let single = piece(&mut one[..8]);
        let fetches = time.is_multiple_of(2).then(|| piece(&mut was));
        if time.is_multiple_of(5) {
            let reduction = (Operator::Sum, Basic::Uint64);
            if !time.is_multiple_of(2)
                || !window.try_accumulate(reduction, (Some(piece(&mut one)), None), 1, 1)
            {
                let (both, there) = (u64_buffer(&mut one), at(1, 1, 2, &Basic::Uint64.into()));
                window.accumulate(&both, &there, &sum()).expect("inside");
            }
        } else if time.is_multiple_of(3) {
            loop {
                let (mut expected, mut found) = ([0; 8], [0; 8]);
                let read = piece(&mut expected);
                if !window.try_integer_op(IntegerOp::None, (None, Some(read)), 8, 1, 1) {
                    continue;
                }
                let mut next = (u64::from_ne_bytes(expected) + 1).to_ne_bytes();
                let pieces = (piece(&mut next), piece(&mut expected), piece(&mut found));
                if window.try_compare_and_swap(pieces, 1, 1) && found == expected {
                    break;
                }
            }
        } else if window.try_integer_op(IntegerOp::Add, (Some(single), fetches), 8, 1, 1) {
            at_once += 1;
        } else {
            window.accumulate(&u64_buffer(&mut one[..8]), &u64_at(1, 1), &sum()).expect("inside");
        }
        assert!(window.try_flush(1) || window.flush(1).is_ok());
    }
    window.unlock_all().expect("locked");
    fence(&window);
    assert!(at_once > 0, "none went at once");
    let all = [0, 1, 2, 3].map(|place| word(&window, 8 * place));
    let sums = [0, 2 * TIMES, 2 * TIMES.div_ceil(5), 0];
    assert_eq!(all, if process.world().rank() == 1 { sums } else { [0; 4] });
    window.free().expect("an end");
}

#[test]
fn members_add_integers_concurrently() {
    in_threads("shm", 2, Connect::OnDemand, integers_are_added_by_all_calls);
}

/// Goal: each immediate change applies its operator to exactly the given bytes. Method: all changes on halves of words, whose
/// neighbours must stay unchanged.
fn integer_operations_match_operators(process: &Process) {
    let window = allocated(process.world(), 16, 4);
    window.lock_all(Assert::default()).expect("idle");
    let put = |place: usize, value: i32| set(&window, 4 * place, &value.to_ne_bytes());
    let get = |place: usize| own(&window, 4 * place, 4).try_into().map(i32::from_ne_bytes).expect("four");
    (0..4).for_each(|place| put(place, -1));
    window.put(&buffer(&mut [0; 4]), &bytes_at(0, 0, 4)).expect("inside");
    for (change, now) in [
        (IntegerOp::None, 12),
        (IntegerOp::Replace, -6),
        (IntegerOp::Add, 6),
        (IntegerOp::And, 12 & -6),
        (IntegerOp::Or, 12 | -6),
        (IntegerOp::Xor, 12 ^ -6),
    ] {
        put(1, 12);
        let (mut with, mut was) = ((-6_i32).to_ne_bytes(), [0; 4]);
        let pieces = (Some(piece(&mut with)), Some(piece(&mut was)));
        assert!(window.try_integer_op(change, pieces, 4, 0, 1), "{change:?}");
        assert_eq!((i32::from_ne_bytes(was), get(1)), (12, now), "{change:?}");
    }
    put(1, 3);
    for (expected, now) in [(4, 3), (3, 7)] {
        let (mut with, mut expected, mut was) = (7_i32.to_ne_bytes(), i32::to_ne_bytes(expected), [0; 4]);
        assert!(window.try_compare_and_swap((piece(&mut with), piece(&mut expected), piece(&mut was)), 0, 1));
        assert_eq!((i32::from_ne_bytes(was), get(1)), (3, now));
    }
    assert_eq!((get(2), get(3)), (-1, -1), "beside it");
    let mut one = 1_i32.to_ne_bytes();
    for (rank, place) in [(0, 4), (0, -1), (1, 0), (-1, 0)] {
        let is_done = window.try_integer_op(IntegerOp::Add, (Some(piece(&mut one)), None), 4, rank, place);
        assert!(!is_done, "rank {rank}, place {place}");
    }
    window.unlock_all().expect("locked");
    let is_done = window.try_integer_op(IntegerOp::Add, (Some(piece(&mut one)), None), 4, 0, 1);
    assert!(!is_done, "no epoch");
    window.free().expect("an end");
}

#[test]
fn fast_integer_operations_match_operators() {
    in_threads("shm", 1, Connect::OnDemand, integer_operations_match_operators);
}

/// Goal: elements reduced in place, immediately and on the general path, match the operator's result, and the former values are
/// returned; a call that one path does not support is left to the other. Method: all operators on types of several sizes, compared
/// with the operator applied to the test's own bytes.
fn reductions_match_operators(process: &Process) {
    const COUNT: usize = 21;
    let types =
        [Basic::Int8, Basic::Uint16, Basic::Int, Basic::Double, Basic::LongDouble, Basic::CDoubleComplex];
    let (window, mut reduced) = (allocated(process.world(), 16 * COUNT as i64 + 16, 1), 0);
    window.lock_all(Assert::default()).expect("idle");
    window.put(&buffer(&mut [0; 4]), &bytes_at(0, 0, 4)).expect("inside");
    for (basic, operator) in
        types.iter().flat_map(|basic| Operator::ALL.iter().map(move |operator| (*basic, *operator)))
    {
        let (datatype, op) = (Datatype::from(basic), Op::from(operator));
        let len = COUNT * datatype.size() as usize;
        // Small numbers of every kind: bytes of integers, and halves of floating point numbers.
        let bytes = |seed: usize| -> Vec<u8> {
            let number = |place: usize| (seed + 3 * place) % 7;
            match basic {
                Basic::Double | Basic::CDoubleComplex => {
                    (0..len / 8).flat_map(|place| (number(place) as f64 / 2.0).to_ne_bytes()).collect()
                }
                Basic::LongDouble => vec![0; len],
                _ => (0..len).map(|place| number(place) as u8).collect(),
            }
        };
        let (there, with) = (bytes(1), bytes(5));
        let mut expected = there.clone();
        let is_reduced = op.apply(&with, &mut expected, COUNT as i64, &datatype).is_ok();
        for at_once in [true, false] {
            set(&window, 0, &vec![0xa5; 16 * COUNT + 16]);
            set(&window, 8, &there);
            let (mut from, mut was) = (with.clone(), vec![0; len]);
            let is_done = if at_once {
                let pieces = (Some(piece(&mut from)), Some(piece(&mut was)));
                window.try_accumulate((operator, basic), pieces, 0, 8)
            } else {
                let (origin, result) =
                    (typed(&mut from, COUNT as i64, &datatype), typed(&mut was, COUNT as i64, &datatype));
                window.get_accumulate(&origin, &result, &at(0, 8, COUNT as i64, &datatype), &op).is_ok()
            };
            assert_eq!(is_done, is_reduced, "{operator:?} of {basic:?}, at once: {at_once}");
            if is_done {
                assert_eq!(
                    (own(&window, 8, len), was),
                    (expected.clone(), there.clone()),
                    "{operator:?} of {basic:?}"
                );
                reduced += 1;
            }
            let beside = [own(&window, 0, 8), own(&window, 8 + len, 8)].concat();
            assert_eq!(beside, [0xa5; 16], "beside {operator:?} of {basic:?}");
        }
    }
    assert!(reduced > 60, "{reduced} were reduced");
    let base = window.base();
    // SAFETY: in the window's memory.
    let inside = unsafe { Piece::new(base + 16, 16) };
    let sum = (Operator::Sum, Basic::Int);
    let mut bytes = vec![0; 16];
    for (from, into, rank, place) in [
        (Some(inside), None, 0, 8),
        (None, Some(inside), 0, 16),
        (Some(piece(&mut bytes)), Some(piece(&mut bytes)), 0, 8),
        (Some(piece(&mut bytes)), Some(piece(&mut bytes[..8])), 0, 8),
        (None, None, 0, 8),
        (Some(piece(&mut bytes)), None, 0, 16 * COUNT as i64 + 8),
        (Some(piece(&mut bytes)), None, 1, 8),
    ] {
        assert!(!window.try_accumulate(sum, (from, into), rank, place), "{from:?} {into:?} {rank} {place}");
    }
    assert!(!window.try_accumulate(
        (Operator::Minloc, Basic::DoubleInt),
        (Some(piece(&mut bytes)), None),
        0,
        8
    ));
    window.unlock_all().expect("locked");
    assert!(!window.try_accumulate(sum, (Some(piece(&mut bytes)), None), 0, 8), "no epoch");
    window.free().expect("an end");
}

#[test]
fn fast_reductions_match_operators() {
    in_threads("shm", 1, Connect::OnDemand, reductions_match_operators);
}

/// Goal: a flush orders earlier stores at the target before later loads, also on its fast path. Method: both members store in each
/// other's memory, flush, and load from their own: at least one sees the other's store.
fn flushes_come_before_loads(process: &Process) {
    const ROUNDS: usize = 20_000;
    const SLOW: usize = 24;
    const LINE: usize = 65;
    static COME: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    static SEEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let (window, me) = (allocated(process.world(), 8, 8), process.world().rank() as usize);
    let other = 1 - me as i32;
    let far: Vec<AtomicU64> = (0..1 << 20).map(AtomicU64::new).collect();
    let meet = |turn: usize| {
        COME[me].store(turn, Ordering::SeqCst);
        for look in 1_u32.. {
            if COME[1 - me].load(Ordering::SeqCst) >= turn {
                break;
            }
            if look.is_multiple_of(1 << 14) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    window.lock_all(Assert::default()).expect("idle");
    window.put(&buffer(&mut [0; 8]), &bytes_at(other, 0, 8)).expect("inside");
    for round in 1..=ROUNDS {
        let mut number = (round as u64).to_ne_bytes();
        let number = piece(&mut number);
        meet(3 * round);
        // Slow stores that delay the one under test.
        for line in 0..SLOW {
            far[(round * SLOW + line) * LINE % far.len()].store(round as u64, Ordering::Relaxed);
        }
        let is_done = match round % 2 {
            0 => window.try_put(number, other, 0),
            _ => window.try_integer_op(IntegerOp::Replace, (Some(number), None), 8, other, 0),
        };
        assert!(is_done, "the memory is mapped, and nobody else changes this one");
        assert!(window.try_flush(other) || window.flush(other).is_ok());
        SEEN[me].store(word(&window, 0), Ordering::Relaxed);
        meet(3 * round + 1);
        let seen = [0, 1].map(|member| SEEN[member].load(Ordering::Relaxed));
        assert!(seen.contains(&(round as u64)), "in round {round} both saw {seen:?}");
        meet(3 * round + 2);
    }
    window.unlock_all().expect("locked");
    fence(&window);
    window.free().expect("an end");
}

#[test]
fn flushed_stores_come_before_loads() {
    in_threads("shm", 2, Connect::OnDemand, flushes_come_before_loads);
}

#[test]
fn threads_of_members_add_concurrently() {
    for device in ["shm", "iwarp"] {
        in_threads(device, 2, Connect::OnDemand, threads_accumulate_concurrently);
    }
}

#[test]
fn members_of_one_host_share_memory() {
    for device in ["shm", "iwarp"] {
        in_threads(device, 3, Connect::OnDemand, members_share_memory);
    }
}

/// Members on several hosts share no memory, and all get the error.
#[test]
fn members_of_several_hosts_share_no_memory() {
    Play::new(2).run(|process| {
        let refused = Window::allocate_shared(process.world(), 8, 1, Info::default()).expect_err("two hosts");
        assert_eq!(refused.class, Class::RMA_SHARED);
    });
}
