//! Listening: ports, many simultaneous requests, dropped listeners (rdma_listen(3)).

use std::net::SocketAddr;

use super::connect::{endpoints, failure, rejected};
use crate::Env;
use crate::harness::conn::{Conn, Endpoint, Setup, connect};
use verbs::{CmEvent, CmFailure, ConnParam, Error, Qp, QpState, SendOp, SendWr, Wc};

/// An address of device `b` without a listener.
fn dead_address(env: &Env) -> SocketAddr {
    let cm = env.b.create_cm().expect("a channel");
    cm.listen(env.addr(), 1).expect("a listener").addr()
}

/// Without a listener the connection is refused, and the queue pair is back in `Init`.
pub(crate) fn connect_without_listener_is_refused(env: &Env) {
    let (a, b) = endpoints(env);
    let addr = dead_address(env);
    a.cm.connect(&a.qp, addr, &ConnParam::default()).expect("the answer comes as an event");
    let why = failure(&a);
    assert_eq!(why, CmFailure::Refused(addr));
    assert_eq!(a.qp.state(), QpState::Init);
    connect(env, &a, &b, &Setup::default());
}

/// A dropped listener accepts no more connections; existing ones live on.
pub(crate) fn connect_to_dropped_listener_is_refused(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 4).expect("a listener");
    connect_through(&a, &b, listener.addr());
    let addr = listener.addr();
    drop(listener);
    let late = Endpoint::new(env, &env.a, &Setup::default());
    late.cm.connect(&late.qp, addr, &ConnParam::default()).expect("the answer comes as an event");
    assert_eq!(failure(&late), CmFailure::Refused(addr));
    Conn { a, b }.check_traffic();
}

/// Connects `a` to `b`, which listens at `addr`.
fn connect_through(a: &Endpoint, b: &Endpoint, addr: SocketAddr) {
    a.cm.connect(&a.qp, addr, &ConnParam::default()).expect("connect");
    b.cm.accept(b.waiter.request(&b.cm), &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    b.waiter.established(&b.cm, b.qp.num());
}

/// For port 0 the device chooses a port, a different one each time.
pub(crate) fn port_zero_chooses_a_free_port(env: &Env) {
    let cm = env.b.create_cm().expect("a channel");
    let (one, two) = (
        cm.listen(env.addr(), 1).expect("a first listener"),
        cm.listen(env.addr(), 1).expect("a second listener"),
    );
    assert_ne!(one.addr().port(), 0);
    assert_ne!(one.addr().port(), two.addr().port());
    assert_eq!(one.addr().ip(), env.addr().ip());
}

/// A port in use is refused by the call, and is free again when its listener is dropped. Other programs on this host
/// may take a free port before this test does, so it tries several.
pub(crate) fn second_listener_on_a_port_is_refused(env: &Env) {
    let cm = env.b.create_cm().expect("a channel");
    let other = env.b.create_cm().expect("another channel");
    let is_free_again = (0..8).any(|_| {
        let one = cm.listen(env.addr(), 1).expect("a listener");
        let addr = one.addr();
        for cm in [&cm, &other] {
            let refusal = cm.listen(addr, 1);
            assert!(matches!(refusal, Err(Error::Address { .. })), "{refusal:?}");
        }
        drop(one);
        other.listen(addr, 1).is_ok()
    });
    assert!(is_free_again);
}

/// As many requests as the backlog may wait; each can then be answered, in the order of arrival.
pub(crate) fn requests_of_the_backlog_wait_in_order(env: &Env) {
    let count = 16;
    let b = Endpoint::new(env, &env.b, &Setup::default());
    let listener = b.cm.listen(env.addr(), count).expect("a listener");
    let actives: Vec<Endpoint> = (0..count).map(|_| Endpoint::new(env, &env.a, &Setup::default())).collect();
    for (i, a) in actives.iter().enumerate() {
        let param = ConnParam::with_private_data([i as u8]);
        a.cm.connect(&a.qp, listener.addr(), &param).expect("connect");
    }
    let requests: Vec<_> = (0..count).map(|_| b.waiter.request(&b.cm)).collect();
    let mut passive = Vec::new();
    for request in requests {
        let (active, qp) = (usize::from(request.private_data[0]), b.another_qp());
        b.cm.accept(request, &qp, &ConnParam::default()).expect("accept");
        actives[active].waiter.established(&actives[active].cm, actives[active].qp.num());
        b.waiter.established(&b.cm, qp.num());
        passive.push(qp);
    }
}

/// Waiting requests may be answered in any order, and differently.
pub(crate) fn requests_are_answered_in_any_order(env: &Env) {
    let b = Endpoint::new(env, &env.b, &Setup::default());
    let listener = b.cm.listen(env.addr(), 3).expect("a listener");
    let actives: Vec<Endpoint> = (0..3).map(|_| Endpoint::new(env, &env.a, &Setup::default())).collect();
    let mut requests = Vec::new();
    for (i, a) in actives.iter().enumerate() {
        let param = ConnParam::with_private_data([i as u8]);
        a.cm.connect(&a.qp, listener.addr(), &param).expect("connect");
        requests.push(b.waiter.request(&b.cm));
        assert_eq!(requests[i].private_data, [i as u8]);
    }
    requests.pop().expect("three").reject(b"later").expect("reject");
    drop(requests.remove(0));
    b.cm.accept(requests.remove(0), &b.qp, &ConnParam::default()).expect("accept");
    assert_eq!(rejected(&actives[2]), b"later");
    assert_eq!(rejected(&actives[0]), [0; 0]);
    actives[1].waiter.established(&actives[1].cm, actives[1].qp.num());
    b.waiter.established(&b.cm, b.qp.num());
}

/// Requests that the program has not taken yet are answered when their listener and its channel are dropped: rejected,
/// as rdma_destroy_id(3) does, or failed.
pub(crate) fn dropped_listener_answers_waiting_requests(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    drop((listener, b));
    match a.waiter.event(&a.cm, "an answer") {
        CmEvent::Rejected { qp_num, .. } | CmEvent::ConnectFailed { qp_num, .. } => {
            assert_eq!(qp_num, a.qp.num());
        }
        other => panic!("expected a rejection or a failure, got {other:?}"),
    }
    assert_eq!(a.qp.state(), QpState::Init);
}

/// A request that was taken can still be accepted after its listener was dropped.
pub(crate) fn a_taken_request_outlives_its_listener(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let request = b.waiter.request(&b.cm);
    drop(listener);
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    b.waiter.established(&b.cm, b.qp.num());
    Conn { a, b }.check_traffic();
}

/// 64 connections are started before the first is answered, and each then carries data.
pub(crate) fn sixty_four_connections_can_be_pending(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 64).expect("a listener");
    let near: Vec<Qp> = (0..64).map(|_| a.another_qp()).collect();
    for (i, qp) in near.iter().enumerate() {
        a.cm.connect(qp, listener.addr(), &ConnParam::with_private_data([i as u8])).expect("connect");
    }
    let requests: Vec<_> = (0..64).map(|_| b.waiter.request(&b.cm)).collect();
    let mut far: Vec<Qp> = Vec::new();
    for request in requests {
        let qp = b.another_qp();
        let answer = ConnParam::with_private_data(request.private_data.clone());
        b.cm.accept(request, &qp, &answer).expect("accept");
        b.waiter.established(&b.cm, qp.num());
        far.push(qp);
    }
    for _ in 0..64 {
        match a.waiter.event(&a.cm, "one of 64") {
            CmEvent::Established { qp_num, private_data, .. } => {
                assert_eq!(near[usize::from(private_data[0])].num(), qp_num);
            }
            other => panic!("expected Established, got {other:?}"),
        }
    }
    for (i, qp) in near.iter().enumerate() {
        let (data, at) = ([a.host.sge(i as u64 * 8, 8)], i as u64 * 8);
        a.host.buf().write(i * 8, &at.to_le_bytes()).expect("inside");
        qp.post_send(&SendWr::new(at, SendOp::Write(b.host.remote(at)), &data)).expect("post");
    }
    let mut done: Vec<u64> = (0..64).map(|_| a.next_sent()).filter(Wc::is_ok).map(|wc| wc.wr_id).collect();
    done.sort_unstable();
    assert_eq!(done, (0..64).map(|i| i * 8).collect::<Vec<u64>>());
    let want: Vec<u8> = (0..64_u64).flat_map(|i| (i * 8).to_le_bytes()).collect();
    crate::harness::check::assert_same_bytes(
        "64 writes",
        &b.host.buf().to_vec(0..512).expect("inside"),
        &want,
    );
}
