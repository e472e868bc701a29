//! Many connections that complete in one queue: who talks does not pay for the silent, and the silent are heard beside who talks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbs::{CmEvent, Cq, MemoryKind, SendOp};

use crate::raw::{device, join};
use crate::support::end::{End, deadline};
use crate::support::one_at_a_time;

/// More than pollers look at one by one.
const CROWD: usize = 12;
/// Polls before which a message is found, of most: before a few the device's thread is at the connection, or the system has not brought
/// them yet. What each is held to, the tests of `ready` show.
const POLLS: u32 = 64;
/// Polls after which a connection without news is no longer looked at.
const COLD: u32 = 1000;

/// Connections from ends of devices of their own to ends that share a device and its queues.
fn crowd(len: usize) -> (Vec<End>, Vec<End>, [Cq; 2]) {
    let shared = device();
    let pd = shared.alloc_pd().expect("a domain");
    let queues = [(); 2].map(|()| shared.create_cq(8192).expect("a completion queue"));
    let pairs = (0..CROWD).map(|_| {
        let [send_cq, recv_cq] = queues.clone();
        let (mut near, mut far) =
            (End::on(&device(), len), End::with(&shared, pd.clone(), send_cq, recv_cq, len));
        join(&mut near, &mut far);
        (near, far)
    });
    let (near, far) = pairs.unzip();
    (near, far, queues)
}

/// The middle one.
fn median(mut polls: Vec<u32>) -> u32 {
    polls.sort_unstable();
    polls[polls.len() / 2]
}

/// How many polls find a completion in the queue of receives.
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

/// Goal: a connection on which next to nothing happens does not starve beside one that is flooded. Method: while one has 64 KiB writes
/// without a pause, or short ones, messages come on others, each of which has been silent for long; the polls that find each are counted,
/// from when the message is in the receiver's socket on.
#[test]
fn who_is_silent_for_long_is_heard_beside_a_flood() {
    let _gate = one_at_a_time();
    const LEN: usize = 64 << 10;
    let (near, far, queues) = crowd(LEN);
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
                // So that the other side's question is answered.
                let began = Instant::now();
                while near[cold].send_cq.poll_one().expect("no overrun").is_none() {
                    assert!(queues[1].poll_one().expect("no overrun").is_none());
                    assert!(began.elapsed() < Duration::from_secs(10), "never completed");
                }
            }
            over.store(true, Ordering::Relaxed);
            // The flood's last writes are answered by who polls, as before.
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(5) {
                assert!(queues[1].poll_one().expect("no overrun").is_none());
            }
            let polls = median(polls);
            println!("heard after {polls} polls, beside writes of {size} bytes");
            assert!(polls <= POLLS, "{polls} polls");
        });
    }
}

/// Goal: a connection that has been busy, and that epoll does not tell of meanwhile, is heard after a long silence, and so is its end;
/// with a poller and without. Method: many messages one after another on one of many, silence of several lengths, one more message.
#[test]
fn who_was_loud_is_heard_after_a_silence() {
    let _gate = one_at_a_time();
    let (mut near, far, queues) = crowd(4096);
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
            // Nobody polls: who sleeps is woken by the device's thread.
            assert!(queues[1].wait(deadline()).expect("a message").is_ok());
        }
        near[busy].sent_ok(100);
    }
    assert!(median(polls) <= POLLS);
    let (last, gone) = (near.pop().expect("one"), far.last().expect("one"));
    let num = gone.qp.num();
    drop(last);
    let began = Instant::now();
    loop {
        assert!(queues[1].poll_one().expect("no overrun").is_none());
        match gone.cm.poll_event() {
            Some(CmEvent::Disconnected { qp_num }) if qp_num == num => break,
            Some(other) => panic!("{other:?}"),
            None => assert!(began.elapsed() < Duration::from_secs(10), "its end was not heard"),
        }
    }
}
