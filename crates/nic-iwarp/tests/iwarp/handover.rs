//! Pollers and the NIC thread take turns at driving connections.

use std::time::{Duration, Instant};

use verbs::{MemoryKind, SendOp};

use crate::limits::{device_threads_ns, device_threads_share};
use crate::mixed_traffic::{KINDS, MixedTraffic};
use crate::raw::{connect_ends, device};
use crate::support::child::Child;
use crate::support::endpoint::{Endpoint, deadline};
use crate::support::one_at_a_time;

/// Goal: whichever thread drives a connection, nothing is lost, duplicated or wrong, and nothing waits for a poll
/// that does not come. Method: two processes use all operations together and switch at random, about every
/// millisecond, between polling, computing, sleeping, waiting, and sleeping in poll(2) on a channel; with several
/// device configurations.
#[test]
fn pollers_and_thread_take_turns_under_load() {
    let _gate = one_at_a_time();
    for round in 0..KINDS {
        let mut traffic = MixedTraffic::new(round);
        let listener = traffic.end().listen();
        let mut child = Child::start("mixed_traffic");
        let (seed, peer_seed) = (round * 2 + 1, round * 2 + 2);
        child.send_line(format!("{} {peer_seed} {seed} 2500 {round}", listener.addr().port()));
        traffic.end().accept();
        let count = traffic.run(seed, peer_seed, Duration::from_millis(2500));
        let said = child.recv_line();
        assert_eq!(said, format!("{} {}", count.received, count.sent), "what one sent the other received");
        println!("{count:?}");
        let all = [count.written, count.read, count.added, count.sent];
        assert!(all.iter().all(|&n| n > 20), "{count:?}");
        child.send_line("end");
        child.end();
    }
}

/// Goal: one-sided operations complete while the target's program does nothing. Method: the target has polled, so
/// that the NIC thread has left the connection to it, and then does not poll for half a second, in which everything
/// must complete.
#[test]
fn one_sided_operations_complete_without_target_program() {
    let _gate = one_at_a_time();
    let (mut near, mut far) = (Endpoint::on(&device(), 64 << 10), Endpoint::on(&device(), 64 << 10));
    connect_ends(&mut near, &mut far);
    let mut longest = Duration::ZERO;
    for round in 0..20_u64 {
        let spins = Instant::now();
        while spins.elapsed() < Duration::from_millis(5) {
            assert!(far.recv_cq.poll_one().expect("no overrun").is_none());
            assert!(far.send_cq.poll_one().expect("no overrun").is_none());
        }
        let began = Instant::now();
        for (step, op) in [
            SendOp::Write(near.peer.host),
            SendOp::Read(near.peer.host),
            SendOp::FetchAdd { remote: near.peer.nic, add: 1 },
            SendOp::CompareSwap { remote: near.peer.nic, compare: round + 1, swap: round + 1 },
        ]
        .into_iter()
        .enumerate()
        {
            let len = if step < 2 { 64 << 10 } else { 8 };
            near.post(step as u64, op, MemoryKind::Host, 0, len);
            near.sent_ok(step as u64);
        }
        longest = longest.max(began.elapsed());
    }
    println!("four one-sided operations on a target that stopped polling: {longest:?} at most");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    assert_eq!(far.nic.buf().to_vec(0..8).expect("inside"), 20_u64.to_ne_bytes());
}

/// Goal: data that arrives before a queue pair is destroyed is received, as on a card. Method: the target has polled,
/// so that the NIC thread has left the connection to it; a message arrives, and the queue pair is destroyed.
#[test]
fn data_before_destroy_is_received() {
    let _gate = one_at_a_time();
    for round in 0..10 {
        let (mut near, mut far) = (Endpoint::on(&device(), 4096), Endpoint::on(&device(), 4096));
        connect_ends(&mut near, &mut far);
        far.post_recv(round, MemoryKind::Host, 0, 64);
        let spins = Instant::now();
        while spins.elapsed() < Duration::from_millis(5) {
            assert!(far.recv_cq.poll_one().expect("no overrun").is_none());
        }
        near.post(round, SendOp::Send, MemoryKind::Host, 0, 64);
        drop(far);
        near.sent_ok(round);
    }
}

/// Goal: a thread that sleeps in poll(2) on a channel's descriptor, after having polled, is woken by new data and not
/// spuriously.
#[test]
fn sleepers_on_a_descriptor_are_woken() {
    let _gate = one_at_a_time();
    let device = device();
    let channel = device.create_comp_channel().expect("a channel");
    let pd = device.alloc_pd().expect("a domain");
    let queue = device.create_cq(64).expect("a completion queue");
    let reporting = device.create_cq_with(64, &channel).expect("a completion queue");
    let (mut far, mut near) =
        (Endpoint::with(&device, pd, queue, reporting, 4096), Endpoint::on(&self::device(), 4096));
    connect_ends(&mut near, &mut far);
    let sleep = |ms: i64| {
        let fd = channel.fd().expect("a descriptor");
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
        rustix::event::poll(&mut fds, Some(&limit)).expect("poll(2)") > 0
    };
    for round in 0..50 {
        far.post_recv(round, MemoryKind::Host, 0, 64);
        for _ in 0..round * 20 {
            assert!(far.recv_cq.poll_one().expect("no overrun").is_none());
        }
        far.recv_cq.req_notify(false).expect("armed");
        if round % 10 == 0 {
            assert!(!sleep(5), "nothing has arrived");
        }
        let sender = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(1));
                near.post(round, SendOp::Send, MemoryKind::Host, 0, 64);
            });
            sleep(10_000)
        });
        assert!(sender, "round {round}: asleep although a message came");
        let event = channel.poll_event().expect("an event");
        assert_eq!(event, far.recv_cq.id());
        assert_eq!(far.received().wr_id, round);
        near.sent_ok(round);
    }
}

/// Goal: an idle device sleeps: its thread uses almost no processor time, even with a connection that was just
/// polled.
#[test]
fn thread_of_idle_device_sleeps() {
    let _gate = one_at_a_time();
    let (mut near, mut far) = (Endpoint::on(&device(), 4096), Endpoint::on(&device(), 4096));
    let idle = |what: &str| {
        // Wait until the thread has stopped to watch the connection.
        std::thread::sleep(Duration::from_millis(100));
        let share = device_threads_share(std::process::id());
        println!("{what}: {:.3} % of a processor for two idle devices", share * 100.0);
        assert!(share < 0.3, "{what}: {share}");
    };
    idle("unconnected");
    connect_ends(&mut near, &mut far);
    idle("connected");
    for id in 0..1000 {
        near.post(id, SendOp::Write(near.peer.host), MemoryKind::Host, 0, 4096);
        near.sent_ok(id);
        assert!(far.recv_cq.poll_one().expect("no overrun").is_none());
    }
    idle("after traffic");
    assert!(device_threads_ns(std::process::id()) > 0, "the measurement includes the NIC thread");
    // A message without a receive.
    near.post(1, SendOp::Send, MemoryKind::Host, 0, 8);
    idle("with a waiting message");
    far.post_recv(1, MemoryKind::Host, 0, 8);
    near.sent_ok(1);
    assert!(far.recv_cq.wait(deadline()).is_ok_and(|wc| wc.is_ok()));
}
