//! Threads that sleep on dispatchers and notification objects, in real time, where another thread must wake them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::support::{NONE, Pair, SOON, completion, connection, own_qual, request};
use dapl::{Cno, ConnectionKind, Ep, EpConfig, ErrorKind, Evd, EvdFlags, MemPriv, Psp, Rmr, Subtype};

/// Longer than any wait spins before it sleeps.
const ASLEEP: Duration = Duration::from_millis(30);

fn pair() -> Pair {
    let host = verbs::host::real::host();
    let open = || fabric::open("shm", &host).expect("a device");
    Pair::new(&open(), &open(), own_qual())
}

/// Goal: a thread that sleeps on a dispatcher for completions and connections gets connection events. Method: it sleeps on the
/// event source of the completion queue, which connections do not notify.
#[test]
fn sleeping_waiter_gets_connection_events() {
    let pair = pair();
    let evd = Evd::create(&pair.b.ia, 64, None, EvdFlags::all()).expect("a dispatcher");
    let config = EpConfig { recv_evd: Some(evd.clone()), connect_evd: Some(evd.clone()), ..pair.b.config() };
    let (a, b) = (pair.a.ep(), Ep::create(&pair.b.ia, config).expect("an endpoint"));
    let _psp = Psp::create(&pair.b.ia, pair.qual, &evd, false).expect("a service point");
    std::thread::scope(|scope| {
        let (pair, b, evd) = (&pair, &b, &evd);
        scope.spawn(move || {
            let arrived = request(evd);
            b.post_recv(&pair.b.piece(0, 8), 5, NONE).expect("posted");
            arrived.cr.accept(Some(b), &[]).expect("accepted");
            // The message is sent long after the connection is established.
            connection(evd, b, ConnectionKind::Established);
            assert_eq!(completion(evd).cookie, 5);
            connection(evd, b, ConnectionKind::Disconnected);
        });
        std::thread::sleep(ASLEEP);
        a.connect(pair.b.address(), pair.qual, SOON, &[]).expect("started");
        connection(&pair.a.connect, &a, ConnectionKind::Established);
        std::thread::sleep(ASLEEP);
        a.post_send(&pair.a.piece(0, 8), 1, NONE).expect("posted");
        std::thread::sleep(ASLEEP);
        a.disconnect(dapl::Close::Graceful).expect("started");
    });
}

#[test]
fn second_waiter_fails_and_unwaitable_wakes_the_first() {
    let pair = pair();
    std::thread::scope(|scope| {
        let evd = &pair.a.recv;
        let first = scope.spawn(move || evd.wait(SOON, 1));
        std::thread::sleep(ASLEEP);
        assert_eq!(evd.wait(SOON, 1).expect_err("another thread waits").subtype, Subtype::EvdInUse);
        assert_eq!(evd.check_unused().expect_err("another thread waits").subtype, Subtype::EvdInUse);
        evd.set_unwaitable();
        let woken = first.join().expect("no panic").expect_err("unwaitable");
        assert_eq!(woken.subtype, Subtype::EvdUnwaitable);
    });
}

#[test]
fn cno_wakes_its_sleeping_waiter() {
    let pair = pair();
    let cno = Cno::create(&pair.b.ia, None).expect("a notification object");
    pair.b.recv.modify_cno(Some(&cno)).expect("set");
    let (a, b) = pair.connected();
    b.post_recv(&pair.b.piece(0, 8), 5, NONE).expect("posted");
    std::thread::scope(|scope| {
        let (cno, evd) = (&cno, &pair.b.recv);
        let waiter = scope.spawn(move || {
            assert_eq!(cno.wait(SOON).expect("woken"), evd.label());
            evd.dequeue().expect("the event that woke it");
        });
        std::thread::sleep(ASLEEP);
        assert_eq!(cno.wait(SOON).expect_err("another thread waits").subtype, Subtype::CnoInUse);
        a.post_send(&pair.a.piece(0, 8), 1, NONE).expect("posted");
        waiter.join().expect("no panic");
    });
}

#[test]
fn agent_is_called_for_each_trigger() {
    let pair = pair();
    let (sender, receiver) = mpsc::channel();
    let agent = Box::new(move |evd| sender.send(evd).expect("the test listens"));
    let cno = Cno::create(&pair.b.ia, Some(agent)).expect("a notification object");
    pair.b.recv.modify_cno(Some(&cno)).expect("set");
    assert_eq!(cno.wait(SOON).expect_err("the agent waits").kind, ErrorKind::InvalidState);
    let (a, b) = pair.connected();
    for n in 0..3 {
        b.post_recv(&pair.b.piece(0, 8), n, NONE).expect("posted");
        a.post_send(&pair.a.piece(0, 8), n, NONE).expect("posted");
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)).expect("called"), pair.b.recv.label());
        pair.b.recv.dequeue().expect("the event of the notification");
    }
}

/// Goal: concurrent posts to one endpoint lose no request. Method: each thread counts its completions by cookie.
#[test]
fn concurrent_posts_complete_in_order_per_thread() {
    const EACH: u64 = 2_000;
    let pair = pair();
    let (a, _b) = pair.connected();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (pair, a) = (&pair, &a);
            scope.spawn(move || {
                for n in 0..EACH {
                    let (piece, to) = (pair.a.piece(0, 8), pair.b.lmr.remote(0));
                    while a.post_rdma_write(&piece, thread << 32 | n, to, 8, NONE).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; 3];
        for _ in 0..3 * EACH {
            let event = completion(&pair.a.request);
            let thread = (event.cookie >> 32) as usize;
            assert_eq!(event.cookie & 0xFFFF_FFFF, next[thread], "in the order of each thread");
            next[thread] += 1;
        }
    });
}

/// Goal: a bind is not lost if another thread takes the completion of the request before it at that moment. Method: one thread
/// posts a write and a bind, the other takes both events, a little later in each round; a lost bind would be reported only with
/// the next request.
#[test]
fn bind_is_reported_when_it_races_a_completion() {
    const ROUNDS: u64 = 20_000;
    let pair = pair();
    let (_a, b) = pair.connected();
    let rmr = Rmr::create(&pair.b.pz);
    let (posted, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let host = &pair.b.host;
    let wait_for = |number: &AtomicU64, at_least: u64| {
        let look = || (number.load(Ordering::Acquire) >= at_least).then_some(());
        host.poll("the other thread", host.after(SOON.expect("a span")), look)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                if wait_for(&posted, round + 1).is_none() {
                    return;
                }
                (0..round % 256).for_each(|_| std::hint::spin_loop());
                for _ in 0..2 {
                    let take = || pair.b.request.dequeue().ok();
                    if host.poll("an event", host.after(SOON.expect("a span")), take).is_none() {
                        return;
                    }
                }
                taken.store(round + 1, Ordering::Release);
            }
        });
        for round in 0..ROUNDS {
            b.post_rdma_write(&pair.b.piece(0, 8), 1, pair.a.lmr.remote(0), 8, NONE).expect("posted");
            posted.store(round + 1, Ordering::Release);
            let nothing = pair.b.lmr.segment(0, 0);
            rmr.bind(&b, &pair.b.lmr, nothing, MemPriv::empty(), 2, NONE).expect("unbound");
            assert!(wait_for(&taken, round + 1).is_some(), "an event of round {round} did not arrive");
        }
    });
}
