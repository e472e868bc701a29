//! Completion queues.

use crate::Env;
use crate::harness::check::expect_success;
use crate::harness::conn::{Conn, Endpoint, Setup, connect};
use verbs::{Error, QpInit, SendOp, SendWr, Wc, WcOpcode};

/// Posts signaled writes with these numbers.
fn writes(c: &Conn, ids: std::ops::Range<u64>) {
    for i in ids {
        c.a.post(&SendWr::new(i, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 8)]));
    }
}

/// Polling an empty queue, or with an empty slice, returns nothing.
pub(crate) fn poll_of_empty_queue_returns_nothing(env: &Env) {
    let c = Conn::new(env);
    assert_eq!(c.a.send_cq.poll(&mut [Wc::default(); 4]), Ok(0));
    assert_eq!(c.a.send_cq.poll_one(), Ok(None));
    writes(&c, 0..1);
    assert_eq!(c.a.send_cq.poll(&mut []), Ok(0));
    expect_success(c.a.next_sent(), 0, WcOpcode::Write);
}

/// Completions may be polled in slices of any size: in order, each once.
pub(crate) fn poll_accepts_slices_of_any_size(env: &Env) {
    let c = Conn::new(env);
    for slice in [1, 2, 3, 7, 16, 100] {
        writes(&c, 0..60);
        let mut got = Vec::new();
        while got.len() < 60 {
            let mut wcs = vec![Wc::default(); slice];
            let n = env.waiter.until("completion", || {
                let n = c.a.send_cq.poll(&mut wcs).expect("no overrun");
                (n > 0).then_some(n)
            });
            assert!(n <= slice);
            got.extend(wcs[..n].iter().map(|wc| wc.wr_id));
        }
        assert_eq!(got, (0..60).collect::<Vec<u64>>());
    }
}

/// Entries of the slice beyond the returned number are not changed.
pub(crate) fn poll_leaves_rest_of_slice_unchanged(env: &Env) {
    let c = Conn::new(env);
    writes(&c, 0..1);
    let canary = Wc { wr_id: 0xabcd, byte_len: 77, imm: Some(1), ..Wc::default() };
    let mut wcs = [canary; 4];
    env.waiter.until("completion", || (c.a.send_cq.poll(&mut wcs).expect("no overrun") == 1).then_some(()));
    assert_eq!(wcs[1..], [canary; 3]);
}

/// Many queue pairs on one queue: all complete there, each in its own order.
pub(crate) fn many_queue_pairs_on_one_queue(env: &Env) {
    let setup = Setup::default();
    let shared = env.a.create_cq(2048).expect("a completion queue");
    let mut pairs = Vec::new();
    for _ in 0..8 {
        let (mut a, b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
        a.qp = a.pd.create_qp(&QpInit::new(&shared).cap(a.qp.init().cap)).expect("a queue pair");
        connect(env, &a, &b, &setup);
        pairs.push((a, b));
    }
    for i in 0..50 {
        for (a, b) in &pairs {
            a.post(&SendWr::new(i, SendOp::Write(b.host.remote(0)), &[a.host.sge(0, 8)]));
        }
    }
    let all: Vec<Wc> = (0..400).map(|_| env.waiter.completion(&shared, "one of 400")).collect();
    for (a, _) in &pairs {
        let ids: Vec<u64> = all.iter().filter(|wc| wc.qp_num == a.qp.num()).map(|wc| wc.wr_id).collect();
        assert_eq!(ids, (0..50).collect::<Vec<u64>>());
    }
}

/// Sends and receives complete on the queue that they were assigned, never on the other.
pub(crate) fn sends_and_receives_complete_on_their_queues(env: &Env) {
    let c = Conn::new(env);
    c.check_traffic();
    for end in [&c.a, &c.b] {
        assert_eq!((end.send_cq.poll_one(), end.recv_cq.poll_one()), (Ok(None), Ok(None)));
    }
}

/// The ring of a queue wraps many times without losing or repeating a completion.
pub(crate) fn cq_ring_wraps_without_loss(env: &Env) {
    let c = Conn::with_setup(env, &Setup { cqe: 16, ..Setup::default() });
    let mut next = 0;
    for round in 0..500_u64 {
        let burst = 1 + round % 15;
        writes(&c, next..next + burst);
        for i in next..next + burst {
            expect_success(c.a.next_sent(), i, WcOpcode::Write);
        }
        next += burst;
    }
}

/// Waiting and spinning both take completions, and both end at their deadline with their name.
pub(crate) fn wait_and_spin_end_at_their_deadline(env: &Env) {
    let c = Conn::new(env);
    writes(&c, 0..2);
    expect_success(c.a.send_cq.spin(env.waiter.deadline()).expect("a completion"), 0, WcOpcode::Write);
    expect_success(c.a.send_cq.wait(env.waiter.deadline()).expect("a completion"), 1, WcOpcode::Write);
    assert_eq!(c.a.send_cq.spin(env.waiter.short_time()), Err(Error::TimedOut { call: "Cq::spin" }));
    assert_eq!(c.a.send_cq.wait(env.waiter.short_time()), Err(Error::TimedOut { call: "Cq::wait" }));
    writes(&c, 2..3);
    expect_success(c.a.next_sent(), 2, WcOpcode::Write);
}

/// Different queues of a device have different numbers.
pub(crate) fn queues_have_distinct_numbers(env: &Env) {
    let queues: Vec<_> = (0..8).map(|_| env.a.create_cq(1).expect("a completion queue")).collect();
    let mut ids: Vec<u32> = queues.iter().map(verbs::Cq::id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8);
}

/// A completion queue lives as long as a queue pair uses it, even without a handle; a clone is the same queue.
pub(crate) fn clones_share_the_queue(env: &Env) {
    let mut c = Conn::new(env);
    let clone = c.a.send_cq.clone();
    writes(&c, 0..2);
    expect_success(env.waiter.completion(&clone, "the first"), 0, WcOpcode::Write);
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    drop(clone);
    c.a.send_cq = c.a.qp.init().send_cq.clone();
    c.check_traffic();
}

/// A queue is resized, if the NIC supports that, and loses no pending completion.
pub(crate) fn queue_is_resized(env: &Env) {
    let c = Conn::new(env);
    let cqe = c.a.send_cq.cqe();
    if let Err(Error::Unsupported { .. }) = c.a.send_cq.resize(cqe) {
        return;
    }
    for wrong in [0, env.a.attr().max_cqe.saturating_add(1)] {
        let refused = c.a.send_cq.resize(wrong);
        assert!(matches!(refused, Err(Error::Invalid(_) | Error::Limit { .. })), "{wrong}: {refused:?}");
    }
    writes(&c, 0..40);
    for i in 0..8 {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
    }
    c.a.send_cq.resize(cqe + 100).expect("more room");
    assert_eq!(c.a.send_cq.cqe(), cqe + 100);
    writes(&c, 40..80);
    for i in 8..80 {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
    }
    c.a.send_cq.resize(cqe).expect("nothing waits");
    writes(&c, 80..82);
    for i in 80..82 {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
    }
    assert_eq!(c.a.send_cq.poll_one(), Ok(None));
}

/// A queue cannot be resized to less than its pending completions of sends, receives and flushes. None is lost.
pub(crate) fn queue_cannot_shrink_below_pending(env: &Env) {
    let c = Conn::new(env);
    if let Err(Error::Unsupported { .. }) = c.a.send_cq.resize(c.a.send_cq.cqe()) {
        return;
    }
    (0..8).for_each(|i| c.b.post_recv(i, &[]));
    (0..3).for_each(|i| c.a.post_recv(i, &[]));
    for i in 0..5 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[]));
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
    }
    writes(&c, 0..6);
    c.a.cm.disconnect(&c.a.qp).expect("connected");
    c.a.wait_for_error();
    c.b.wait_for_error();
    for (cq, waiting) in [(&c.a.send_cq, 6), (&c.a.recv_cq, 3), (&c.b.recv_cq, 8)] {
        let cqe = cq.cqe();
        let refused = cq.resize(waiting - 1);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{waiting}: {refused:?}");
        assert_eq!((cq.cqe(), cq.resize(waiting)), (cqe, Ok(())));
        for i in 0..waiting {
            assert_eq!(env.waiter.completion(cq, "a pending completion").wr_id, u64::from(i));
        }
        assert_eq!(cq.poll_one(), Ok(None));
    }
}
