//! Peers that disappear at a bad moment.

use crate::Env;
use crate::harness::check::expect_success;
use crate::harness::conn::{Conn, Endpoint, Setup, connect};
use verbs::{ConnParam, QpState, SendOp, SendWr, WcOpcode};

/// A peer disappears while messages wait for its receives: they complete with errors, in order, and the connection
/// ends. (The first may report the peer's silence, or be flushed; the rest are flushed.)
pub(crate) fn waiting_sends_end_with_errors(env: &Env) {
    let c = Conn::new(env);
    for i in 0..10 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
    }
    let Conn { a, b } = c;
    drop(b);
    a.waiter.disconnected(&a.cm, a.qp.num());
    let first = a.next_sent();
    assert!(!first.is_ok() && first.wr_id == 0, "{first:?}");
    a.expect_sends_flushed(1..10);
    assert_eq!(a.qp.state(), QpState::Error);
}

/// Receives that were posted for a peer that disappears are flushed.
pub(crate) fn waiting_receives_are_flushed(env: &Env) {
    let c = Conn::new(env);
    (0..10).for_each(|i| c.a.post_recv(i, &[c.a.host.sge(0, 8)]));
    let Conn { a, b } = c;
    drop(b);
    a.waiter.disconnected(&a.cm, a.qp.num());
    a.expect_receives_flushed(0..10);
}

/// A message waits for a receive, its sender disappears, and the target polls all the time. The target notices: polling
/// also makes progress on the connection, and the message that it cannot take must not hide the end behind it.
pub(crate) fn a_poller_notices_that_a_waiting_sender_left(env: &Env) {
    let c = Conn::new(env);
    c.a.post(&SendWr::new(1, SendOp::Send, &[c.a.host.sge(0, 8)]));
    let Conn { a, b } = c;
    let look = || b.recv_cq.poll_one().expect("a queue that works");
    for _ in 0..1000 {
        assert_eq!(look(), None, "no receive is posted");
    }
    drop(a);
    b.waiter.until("error state", || {
        assert_eq!(look(), None, "no receive is posted");
        (b.qp.state() == QpState::Error).then_some(())
    });
    b.waiter.disconnected(&b.cm, b.qp.num());
}

/// The accepting side is destroyed as soon as it knows of the connection: the connecting side is connected or about to
/// be, and gets `Established` and `Disconnected`. Many rounds, since the order of events depends on timing.
pub(crate) fn acceptor_destroyed_right_after_accept(env: &Env) {
    let (mut a, mut b) = super::connect::endpoints(env);
    let listener = b.cm.listen(env.addr(), 8).expect("a listener");
    for round in 0..200 {
        (a.qp, b.qp) = (a.another_qp(), b.another_qp());
        if round % 2 == 0 {
            a.post_recv(round, &[a.host.sge(0, 8)]);
        }
        a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
        let request = b.waiter.request(&b.cm);
        b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
        b.waiter.established(&b.cm, b.qp.num());
        b.qp = b.another_qp();
        a.waiter.established(&a.cm, a.qp.num());
        a.waiter.disconnected(&a.cm, a.qp.num());
        if round % 2 == 0 {
            a.expect_receives_flushed(round..round + 1);
        }
    }
}

/// One connection's peer disappears; all others continue, on the same device, domain and channels.
pub(crate) fn other_connections_are_unaffected_by_peer_loss(env: &Env) {
    let stable = Conn::new(env);
    for _ in 0..10 {
        let c = Conn::new(env);
        c.a.post(&SendWr::new(1, SendOp::Send, &[c.a.host.sge(0, 8)]));
        stable.a.post(&SendWr::new(2, SendOp::Write(stable.b.host.remote(0)), &[stable.a.host.sge(0, 8)]));
        let Conn { a, b } = c;
        drop(b);
        assert!(!a.next_sent().is_ok());
        expect_success(stable.a.next_sent(), 2, WcOpcode::Write);
        stable.check_traffic();
    }
}

/// A peer that disappeared is replaced: the survivor connects to the replacement with a new queue pair.
pub(crate) fn survivor_reconnects_to_replacement(env: &Env) {
    let Conn { mut a, b } = Conn::new(env);
    drop(b);
    a.waiter.disconnected(&a.cm, a.qp.num());
    let b = Endpoint::new(env, &env.b, &Setup::default());
    a.qp = a.another_qp();
    connect(env, &a, &b, &Setup::default());
    Conn { a, b }.check_traffic();
}

/// Posting to a peer that is gone succeeds, and the request completes with an error.
pub(crate) fn posting_to_dead_peer_completes_with_error(env: &Env) {
    let Conn { a, b } = Conn::new(env);
    let remote = b.host.remote(0);
    drop(b);
    for (i, op) in [SendOp::Write(remote), SendOp::Read(remote), SendOp::Send].into_iter().enumerate() {
        a.post(&SendWr::new(i as u64, op, &[a.host.sge(0, 8)]).unsignaled());
    }
    for i in 0..3 {
        let wc = a.next_sent();
        assert!(!wc.is_ok() && wc.wr_id == i, "{wc:?}");
    }
    a.wait_for_error();
}

/// Two hundred connections in sequence leave no resources in use.
pub(crate) fn successive_connections_leak_nothing(env: &Env) {
    let (mut a, mut b) = super::connect::endpoints(env);
    for round in 0..200 {
        for end in [&mut a, &mut b] {
            end.qp = end.another_qp();
            end.cm = end.device.create_cm().expect("another channel");
        }
        connect(env, &a, &b, &Setup::default());
        a.post(&SendWr::new(round, SendOp::Write(b.host.remote(0)), &[a.host.sge(0, 8)]));
        expect_success(a.next_sent(), round, WcOpcode::Write);
    }
}

/// A peer's memory is destroyed before its queue pair: later requests for it fail, and nothing else happens.
pub(crate) fn request_to_destroyed_peer_memory_fails(env: &Env) {
    let Conn { a, b } = Conn::new(env);
    let Endpoint { host, qp, .. } = b;
    let remote = host.remote(0);
    a.post(&SendWr::new(1, SendOp::Write(remote), &[a.host.sge(0, 8)]));
    expect_success(a.next_sent(), 1, WcOpcode::Write);
    drop(host);
    a.post(&SendWr::new(2, SendOp::Write(remote), &[a.host.sge(0, 8)]));
    crate::harness::check::expect_failure(a.next_sent(), 2, verbs::WcStatus::RemAccessErr);
    drop(qp);
}
