//! Many connections that complete in one queue: active ones do not pay for idle ones, and idle ones do not starve.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbs::{CmEvent, Cq, MemoryKind, SendOp};

use crate::raw::{connect_ends, device};
use crate::support::endpoint::{Endpoint, deadline};
use crate::support::one_at_a_time;

/// More connections than pollers drive one by one.
const CROWD: usize = 12;
/// Limit on the median number of polls until a message is found. Single messages may take longer: the NIC thread may
/// hold the connection, or the system may not have delivered the message yet. The unit tests of `ready` check the
/// exact limits.
const POLLS: u32 = 64;
/// Number of polls after which a connection without events is no longer polled.
const COLD: u32 = 1000;

/// Connections between endpoints on separate devices and endpoints that share a device and its queues.
fn connect_many(len: usize) -> (Vec<Endpoint>, Vec<Endpoint>, [Cq; 2]) {
    let shared = device();
    let pd = shared.alloc_pd().expect("a domain");
    let queues = [(); 2].map(|()| shared.create_cq(8192).expect("a completion queue"));
    let pairs = (0..CROWD).map(|_| {
        let [send_cq, recv_cq] = queues.clone();
        let (mut near, mut far) =
            (Endpoint::on(&device(), len), Endpoint::with(&shared, pd.clone(), send_cq, recv_cq, len));
        connect_ends(&mut near, &mut far);
        (near, far)
    });
    let (near, far) = pairs.unzip();
    (near, far, queues)
}

/// The median.
fn median(mut polls: Vec<u32>) -> u32 {
    polls.sort_unstable();
    polls[polls.len() / 2]
}

/// Counts the polls until a completion is in the queue of receives.
fn polls_until_received(queues: &[Cq; 2]) -> u32 {
    let began = Instant::now();
    let mut polls = 0;
    loop {
        polls += 1;
        if queues[1].poll_one().expect("no overrun").is_some() {
            return polls;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "nothing after {polls} polls");
    }
}

/// Goal: an almost idle connection does not starve next to a flooded one. Method: one connection receives 64 KiB
/// writes without pause, or short ones. Meanwhile messages arrive on others, each idle for a long time. The test
/// counts the polls that find each message, starting when it is in the receiver's socket.
#[test]
fn quiet_connection_is_served_during_flood() {
    let _gate = one_at_a_time();
    const LEN: usize = 64 << 10;
    let (near, far, queues) = connect_many(LEN);
    for size in [LEN as u32, 8] {
        let (over, hot) = (AtomicBool::new(false), &near[0]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut open = 0;
                while !over.load(Ordering::Relaxed) || open > 0 {
                    while open < 64 && !over.load(Ordering::Relaxed) {
                        hot.post(open, SendOp::Write(hot.peer.host), MemoryKind::Host, 0, size);
                        open += 1;
                    }
                    let wc = hot.send_cq.spin(deadline()).expect("a completion");
                    assert!(wc.is_ok(), "{wc:?}");
                    open -= 1;
                }
            });
            let mut polls = Vec::new();
            for round in 0..200 {
                let cold = 1 + round % (CROWD - 1);
                for _ in 0..round % 3 * 20 {
                    assert!(queues[1].poll_one().expect("no overrun").is_none());
                }
                far[cold].post_recv(round as u64, MemoryKind::Host, 0, 64);
                near[cold].post(round as u64, SendOp::Send, MemoryKind::Host, 0, 64);
                polls.push(polls_until_received(&queues));
                // Poll, so that the other side's flush marker is answered.
                let began = Instant::now();
                while near[cold].send_cq.poll_one().expect("no overrun").is_none() {
                    assert!(queues[1].poll_one().expect("no overrun").is_none());
                    assert!(began.elapsed() < Duration::from_secs(10), "never completed");
                }
            }
            over.store(true, Ordering::Relaxed);
            // The flood's last writes are answered by polls, as before.
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(5) {
                assert!(queues[1].poll_one().expect("no overrun").is_none());
            }
            let polls = median(polls);
            println!("found after {polls} polls, next to writes of {size} bytes");
            assert!(polls <= POLLS, "{polls} polls");
        });
    }
}

/// Goal: a connection that was busy, and has therefore left the epoll set, is noticed again after a long silence, and
/// so is its close, with and without a poller. Method: many messages in sequence on one of many connections, silences
/// of several lengths, one more message.
#[test]
fn formerly_busy_connection_is_served_after_silence() {
    let _gate = one_at_a_time();
    let (mut near, far, queues) = connect_many(4096);
    let mut polls = Vec::new();
    for round in 0..24_usize {
        let busy = round % CROWD;
        let say = |number: u64| {
            far[busy].post_recv(number, MemoryKind::Host, 0, 64);
            near[busy].post(number, SendOp::Send, MemoryKind::Host, 0, 64);
        };
        for number in 0..100 {
            say(number);
            polls_until_received(&queues);
            let began = Instant::now();
            while near[busy].send_cq.poll_one().expect("no overrun").is_none() {
                assert!(queues[1].poll_one().expect("no overrun").is_none());
                assert!(began.elapsed() < Duration::from_secs(10), "never completed");
            }
        }
        for _ in 0..COLD * (round as u32 % 3) {
            assert!(queues[1].poll_one().expect("no overrun").is_none());
        }
        say(100);
        if round % 2 == 0 {
            polls.push(polls_until_received(&queues));
        } else {
            // Nobody polls: the NIC thread wakes the waiting thread.
            assert!(queues[1].wait(deadline()).expect("a message").is_ok());
        }
        near[busy].sent_ok(100);
    }
    assert!(median(polls) <= POLLS);
    let (last, gone) = (near.pop().expect("a connection"), far.last().expect("a connection"));
    let num = gone.qp.num();
    drop(last);
    let began = Instant::now();
    loop {
        assert!(queues[1].poll_one().expect("no overrun").is_none());
        match gone.cm.poll_event() {
            Some(CmEvent::Disconnected { qp_num }) if qp_num == num => break,
            Some(other) => panic!("{other:?}"),
            None => assert!(began.elapsed() < Duration::from_secs(10), "its end was not noticed"),
        }
    }
}
