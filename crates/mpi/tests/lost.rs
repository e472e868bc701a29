//! Peers that vanish without notice: operations that wait for them end with an error, and nothing hangs.

mod support;

use std::net::{IpAddr, Ipv4Addr};

use mpi::{ANY_TAG, Class, Collective, Mode, Process, Request};
use support::{buffer, in_threads, receive, send, with};
use verbs::host::world::{self, World};

/// Rank 1 vanishes together with its device. Ranks 0 and 2 wait for it in every way.
fn survivors(process: &Process) {
    let world = process.world();
    let (mut byte, mut large) = ([0; 1], vec![0; 100_000]);
    let mut others = [[0; 1]; 2];
    let [any, named] = &mut others;
    let mut receives = world.ireceive(buffer(&mut byte), with(1, 5)).expect("begun");
    let mut from_any = world.ireceive(buffer(any), with(mpi::ANY_SOURCE, 6)).expect("begun");
    let mut long = world.isend(Mode::Standard, &buffer(&mut large), with(1, 7)).expect("begun");
    let mut healthy = world.ireceive(buffer(named), with(2 - world.rank(), 8)).expect("begun");
    // Rank 1 receives both messages, and vanishes.
    send(world, vec![1], with(1, 1));
    for request in [&mut receives, &mut from_any, &mut long] {
        assert_eq!(request.wait().class(), Class::PROC_ABORTED);
    }
    assert_eq!(
        world.receive(buffer(&mut byte), with(1, ANY_TAG)).expect("valid").class(),
        Class::PROC_ABORTED
    );
    assert_eq!(world.probe(with(1, 1)).expect_err("it is lost").class, Class::PROC_ABORTED);
    let refused = world.send(Mode::Standard, &buffer(&mut byte), with(1, 1)).expect_err("it is lost");
    assert!(refused.class == Class::PROC_ABORTED && refused.text.contains("process 1"), "{refused}");
    // The others continue.
    send(world, vec![3], with(2 - world.rank(), 8));
    assert_eq!(healthy.wait().bytes, 1);
    assert_eq!(Request::wait_all(&mut [&mut healthy]).len(), 1);
}

/// Goal: messages that a process stored in a ring before it vanished are received, and no more is awaited. Method: the ring is in
/// its second lap when rank 1 vanishes, and rank 0 receives the last 800 messages afterwards.
#[test]
fn data_of_a_lost_process_remains() {
    const SENT: u64 = 2000;
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
    let leaver = move || {
        let process = goes();
        (0..SENT).for_each(|number| send(process.world(), number.to_ne_bytes().to_vec(), with(0, 1)));
    };
    let leaver = host.spawn("leaver", None, leaver).expect("a thread");
    let process = start(0)();
    let next = || {
        let mut room = [0; 8];
        let status = process.world().receive(buffer(&mut room), with(1, 1)).expect("valid");
        (status.class(), u64::from_ne_bytes(room))
    };
    (0..SENT - 800).for_each(|number| assert_eq!(next(), (Class::SUCCESS, number)));
    leaver.join();
    (SENT - 800..SENT).for_each(|number| assert_eq!(next(), (Class::SUCCESS, number)));
    assert_eq!(next().0, Class::PROC_ABORTED);
}

/// Goal: a collective operation without messages ends with an error when an awaited member is lost, whichever member owns the
/// memory. Method: one of three vanishes after a few operations; the others wait for it in each way. The owner of the memory
/// removes it, depending on scheduling before another member has seen that all have entered.
#[test]
fn members_that_share_memory_do_not_wait_for_a_lost_one() {
    for leaver in [0, 1, 0, 0, 0, 0, 0, 0] {
        let (host, kvs) = (verbs::host::real::host(), mpi::LocalKvs::new(3));
        let run = |rank: u32| {
            let (host, kvs) = (host.clone(), kvs.clone());
            move || {
                let device = fabric::open("shm", &host).expect("a device");
                let address = Ipv4Addr::LOCALHOST.into();
                let ports = vec![mpi::Port { device, address, fabric: "shm".into() }];
                let config = mpi::Config { ports, node: "n".into(), ..mpi::Config::default() };
                let process = Process::start(&host, &config, kvs.bootstrap(rank, &host)).expect("a job");
                let meet = || process.world().collective(&Collective::Barrier);
                (0..2).for_each(|_| meet().expect("all are there"));
                let last = meet().map_err(|error| error.class);
                let takes_memory = leaver == 0 && rank != leaver;
                assert!(last == Ok(()) || takes_memory && last == Err(Class::PROC_ABORTED), "{last:?}");
                if rank != leaver {
                    without(&process, leaver as i32);
                }
            }
        };
        let ranks: Vec<_> =
            (0..3).map(|rank| host.spawn("rank", None, run(rank)).expect("a thread")).collect();
        ranks.into_iter().for_each(verbs::host::Task::join);
    }
}

/// Goal: a sendrecv to a lost process fails while the receive's source sends nothing. Method: rank 1 vanishes before any process
/// connects to it, and rank 0 waits for rank 2.
#[test]
fn a_pair_fails_when_its_send_does() {
    let (host, kvs) = (verbs::host::real::host(), mpi::LocalKvs::new(3));
    let meeting = std::sync::Arc::new(std::sync::Barrier::new(3));
    let run = |rank: u32| {
        let (host, kvs, meeting) = (host.clone(), kvs.clone(), meeting.clone());
        move || {
            let device = fabric::open("iwarp", &host).expect("a device");
            let address = Ipv4Addr::LOCALHOST.into();
            let ports = vec![mpi::Port { device, address, fabric: "iwarp".into() }];
            let config = mpi::Config { ports, node: "n".into(), ..mpi::Config::default() };
            let mut process =
                Some(Process::start(&host, &config, kvs.bootstrap(rank, &host)).expect("a job"));
            drop(config);
            if rank == 1 {
                process = None;
            }
            meeting.wait();
            if let Some(process) = process.as_ref().filter(|_| rank == 0) {
                let (mut given, mut got) = ([1], [0]);
                let (given, got) = (buffer(&mut given), buffer(&mut got));
                let status = process.world().sendrecv(&given, with(1, 0), got, with(2, 0)).expect("valid");
                assert_eq!(status.class(), Class::PROC_ABORTED);
            }
            meeting.wait();
        }
    };
    let ranks: Vec<_> = (0..3).map(|rank| host.spawn("rank", None, run(rank)).expect("a thread")).collect();
    ranks.into_iter().for_each(verbs::host::Task::join);
}

fn without(process: &Process, leaver: i32) {
    let world = process.world();
    let (mut given, mut got) = ([1; 8], [0; 8]);
    let lost = |call: &Collective| world.collective(call).expect_err("one is gone").class;
    assert_eq!(lost(&Collective::Barrier), Class::PROC_ABORTED);
    let op = || datatypes::Operator::Sum.into();
    let typed = |bytes: &mut [u8]| support::typed(bytes, 1, &datatypes::Basic::Uint64.into());
    let call = Collective::Allreduce { input: Some(typed(&mut given)), output: typed(&mut got), op: op() };
    assert_eq!(lost(&call), Class::PROC_ABORTED);
    assert_eq!(lost(&Collective::Bcast { buffer: buffer(&mut got), root: leaver }), Class::PROC_ABORTED);
    let mut long = [vec![1; 100_000], vec![0; 100_000]];
    let [given, got] = &mut long;
    let typed =
        |bytes: &mut [u8]| support::typed(bytes, bytes.len() as i64 / 8, &datatypes::Basic::Uint64.into());
    let call = Collective::Allreduce { input: Some(typed(given)), output: typed(got), op: op() };
    assert_eq!(lost(&call), Class::PROC_ABORTED);
    let call = Collective::Allgather {
        input: Some(buffer(&mut given[..30_000])),
        output: buffer(&mut got[..90_000]),
    };
    assert_eq!(lost(&call), Class::PROC_ABORTED);
    let mut got = [0; 8];
    if world.rank() == 2 {
        // Data that the lost member does not take keep their slots, so that the slots run out.
        assert_eq!(lost(&Collective::Bcast { buffer: buffer(given), root: 2 }), Class::PROC_ABORTED);
        let give = |bytes: &mut [u8]| world.collective(&Collective::Bcast { buffer: buffer(bytes), root: 2 });
        let ended = (0..10).find_map(|_| give(&mut got).err());
        assert_eq!(ended.map(|error| error.class), Some(Class::PROC_ABORTED));
    }
}

/// Goal: no process waits forever for the peer's part of a long message, and an incomplete message is not reported as received.
/// Method: the receiver or the sender vanishes when messages that both copy have started, before or after a part of its own.
#[test]
fn shared_copies_end_when_one_process_is_lost() {
    const LEN: usize = 3 << 20;
    for (leaver, progress) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 3)] {
        let (host, kvs) = (verbs::host::real::host(), mpi::LocalKvs::new(2));
        let run = |rank: u32| {
            let (host, kvs) = (host.clone(), kvs.clone());
            move || {
                let device = fabric::open("shm", &host).expect("a device");
                let address = Ipv4Addr::LOCALHOST.into();
                let ports = vec![mpi::Port { device, address, fabric: "shm".into() }];
                let config = mpi::Config { ports, node: "n".into(), ..mpi::Config::default() };
                let process = Process::start(&host, &config, kvs.bootstrap(rank, &host)).expect("a job");
                let (world, peer) = (process.world(), 1 - rank as i32);
                // Both processes are connected.
                send(world, vec![1], with(peer, 1));
                receive(world, 1, with(peer, 1));
                let mut bytes: Vec<Vec<u8>> = (0..12)
                    .map(|number| if rank == 1 { support::pattern(1, number, LEN) } else { vec![0; LEN] })
                    .collect();
                let begin = |bytes: &mut Vec<u8>| match rank {
                    0 => world.ireceive(buffer(bytes), with(1, 2)).expect("begun"),
                    _ => world.isend(Mode::Standard, &buffer(bytes), with(0, 2)).expect("begun"),
                };
                let mut requests: Vec<Request> = bytes.iter_mut().map(begin).collect();
                if rank == leaver {
                    (0..progress).for_each(|_| process.progress());
                    // The memory must stay as long as the peer may access it: access to the memory of a process that has exited is
                    // refused.
                    std::mem::forget(bytes);
                    return;
                }
                for (number, request) in requests.iter_mut().enumerate() {
                    match request.wait().class() {
                        Class::SUCCESS if rank == 0 => {
                            assert!(bytes[number] == support::pattern(1, number, LEN))
                        }
                        class => assert!([Class::SUCCESS, Class::PROC_ABORTED].contains(&class), "{class:?}"),
                    }
                }
            }
        };
        let ranks: Vec<_> =
            (0..2).map(|rank| host.spawn("rank", None, run(rank)).expect("a thread")).collect();
        ranks.into_iter().for_each(verbs::host::Task::join);
    }
}

#[test]
fn operations_waiting_for_a_lost_process_fail() {
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let kvs = mpi::LocalKvs::new(3);
    for rank in 0..3 {
        let node = world.add_node("node");
        let (host, kvs) = (node.host(), kvs.clone());
        let body = move || {
            let device = fabric::open("model:mt23108-vapi", &host).expect("a card");
            let address =
                device.attr().port_addrs.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let ports = vec![mpi::Port { device, address, fabric: "card".into() }];
            let config = mpi::Config {
                ports,
                connect: mpi::Connect::OnDemand,
                node: "n".into(),
                ..mpi::Config::default()
            };
            let process = Process::start(&host, &config, kvs.bootstrap(rank, &host)).expect("a job");
            if rank == 1 {
                (0..2).for_each(|_| drop(receive(process.world(), 1, with(mpi::ANY_SOURCE, 1))));
                return;
            }
            survivors(&process);
        };
        world.spawn(&format!("rank-{rank}"), &[&node], body).expect("a fiber");
    }
    world.run().unwrap_or_else(|failure| panic!("{failure}"));
}

/// Goal: waiting for a lock held by a lost process, and operations on its memory, fail. Rank 1 vanishes while it holds rank 0's
/// lock; ranks 0 and 2 request it.
#[test]
fn locks_of_a_lost_process_are_not_waited_for() {
    use mpi::{Assert, Info, LockKind, Window};
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let kvs = mpi::LocalKvs::new(3);
    for rank in 0..3 {
        let node = world.add_node("node");
        let (host, kvs) = (node.host(), kvs.clone());
        let body = move || {
            let device = fabric::open("model:mt23108-vapi", &host).expect("a card");
            let address = device.attr().port_addrs.first().copied().expect("a port");
            let ports = vec![mpi::Port { device, address, fabric: "card".into() }];
            let config = mpi::Config { ports, node: "n".into(), ..mpi::Config::default() };
            let process = Process::start(&host, &config, kvs.bootstrap(rank, &host)).expect("a job");
            let window = Window::allocate(process.world(), 8, 1, Info::default()).expect("a window");
            if rank == 1 {
                window.lock(LockKind::Exclusive, 0, Assert::default()).expect("free");
                [0, 2].into_iter().for_each(|other| send(process.world(), vec![1], with(other, 1)));
                // Both have received the message.
                [0, 2].into_iter().for_each(|other| drop(receive(process.world(), 1, with(other, 1))));
                return;
            }
            receive(process.world(), 1, with(1, 1));
            send(process.world(), vec![1], with(1, 1));
            for kind in [LockKind::Exclusive, LockKind::Shared] {
                let refused = window.lock(kind, 0, Assert::default()).expect_err("nobody gives it back");
                assert_eq!(refused.class, Class::PROC_ABORTED, "{refused}");
            }
            let refused = window.lock(LockKind::Shared, 1, Assert::default()).expect_err("it is gone");
            assert_eq!(refused.class, Class::PROC_ABORTED, "{refused}");
            assert_eq!(window.free().expect_err("not with all").class, Class::PROC_ABORTED);
        };
        world.spawn(&format!("rank-{rank}"), &[&node], body).expect("a fiber");
    }
    world.run().unwrap_or_else(|failure| panic!("{failure}"));
}

/// Goal: a process that computes longer than a device's timeout for peers is not considered lost by processes that wait for it.
/// Method: the others send it their first messages meanwhile, so that there is no connection yet.
fn first_message_to_one_who_is_away(process: &Process) {
    if process.world().rank() == 0 {
        std::thread::sleep(std::time::Duration::from_secs(12));
    }
    process.world().collective(&Collective::Barrier).expect("it comes");
}

#[test]
fn a_computing_process_is_not_considered_lost() {
    for device in ["shm", "iwarp"] {
        in_threads(device, 3, mpi::Connect::OnDemand, first_message_to_one_who_is_away);
    }
}
