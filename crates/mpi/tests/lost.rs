//! Peers that go without a word: whatever waits for them ends with an error, and nothing hangs.

mod support;

use mpi::{ANY_TAG, Class, Mode, Process, Request};
use support::{buffer, receive, send, with};
use verbs::host::world::{self, World};

/// Rank 1 vanishes: its device goes with all that it has. Ranks 0 and 2 wait for it in every way.
fn survivors(process: &Process) {
    let world = process.world();
    let (mut byte, mut large) = ([0; 1], vec![0; 100_000]);
    let mut others = [[0; 1]; 2];
    let [any, named] = &mut others;
    let mut receives = world.ireceive(buffer(&mut byte), with(1, 5)).expect("begun");
    let mut from_any = world.ireceive(buffer(any), with(mpi::ANY_SOURCE, 6)).expect("begun");
    let mut long = world.isend(Mode::Standard, &buffer(&mut large), with(1, 7)).expect("begun");
    let mut healthy = world.ireceive(buffer(named), with(2 - world.rank(), 8)).expect("begun");
    // Rank 1 has heard of both, and goes.
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
    // The others go on.
    send(world, vec![3], with(2 - world.rank(), 8));
    assert_eq!(healthy.wait().bytes, 1);
    assert_eq!(Request::wait_all(&mut [&mut healthy]).len(), 1);
}

#[test]
fn what_waits_for_a_lost_process_fails() {
    use std::net::{IpAddr, Ipv4Addr};
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let board = mpi::Board::new(3);
    for rank in 0..3 {
        let node = world.node("node");
        let (host, board) = (node.host(), board.clone());
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
            let process = Process::start(&host, &config, board.seat(rank, &host)).expect("a job");
            if rank == 1 {
                (0..2).for_each(|_| drop(receive(process.world(), 1, with(mpi::ANY_SOURCE, 1))));
                return;
            }
            survivors(&process);
        };
        world.rank(&format!("rank-{rank}"), &[&node], body).expect("a rank");
    }
    world.run().unwrap_or_else(|failure| panic!("{failure}"));
}
