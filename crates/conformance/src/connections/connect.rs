//! Setting up connections (rdma_connect(3), rdma_accept(3), rdma_reject(3)).

use std::net::IpAddr;

use crate::Env;
use crate::harness::check::{expect_success, pattern};
use crate::harness::conn::{Conn, Endpoint, Setup, connect};
use host::Span;
use verbs::{
    Cm, CmEvent, CmFailure, CmId, ConnInfo, ConnParam, Depths, Error, QpState, SendOp, SendWr, WcOpcode,
    WcStatus,
};

pub(crate) fn endpoints(env: &Env) -> (Endpoint, Endpoint) {
    (Endpoint::new(env, &env.a, &Setup::default()), Endpoint::new(env, &env.b, &Setup::default()))
}

/// The address of device `a`, as `b` sees it.
pub(crate) fn own_ip(env: &Env) -> IpAddr {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    b.waiter.request(&b.cm).info.peer.ip()
}

/// Waits for `ConnectFailed` of this end's queue pair.
#[track_caller]
pub(crate) fn failure(end: &Endpoint) -> CmFailure {
    match end.waiter.event(&end.cm, "ConnectFailed") {
        CmEvent::ConnectFailed { qp_num, why } if qp_num == end.qp.num() => why,
        other => panic!("expected ConnectFailed, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn rejected(end: &Endpoint) -> Vec<u8> {
    match end.waiter.event(&end.cm, "Rejected") {
        CmEvent::Rejected { qp_num, private_data } if qp_num == end.qp.num() => private_data,
        other => panic!("expected Rejected, got {other:?}"),
    }
}

/// Private data of zero bytes, one byte and the maximum arrives both ways.
pub(crate) fn private_data_arrives(env: &Env) {
    let max = env.a.attr().max_private_data.min(env.b.attr().max_private_data) as usize;
    assert!(max > 0, "some private data is possible on every NIC");
    for (there, back) in [(0, 0), (1, 0), (0, 1), (7, max), (max, max)] {
        let (a, b) = endpoints(env);
        let (hello, answer) = (pattern(1, there), pattern(2, back));
        let listener = b.cm.listen(env.addr(), 1).expect("a listener");
        let param = ConnParam::with_private_data(hello.clone());
        a.cm.connect(&a.qp, listener.addr(), &param).expect("connect");
        let request = b.waiter.request(&b.cm);
        assert_eq!(request.private_data, hello);
        assert_eq!(request.info.local, listener.addr());
        b.cm.accept(request, &b.qp, &ConnParam::with_private_data(answer.clone())).expect("accept");
        assert_eq!(a.waiter.established(&a.cm, a.qp.num()), answer);
        assert_eq!(b.waiter.established(&b.cm, b.qp.num()), [0; 0], "empty on the passive side");
    }
}

/// One byte more than the maximum is refused by the call; the queue pair can still be connected.
pub(crate) fn too_much_private_data_is_refused(env: &Env) {
    let (a, b) = endpoints(env);
    let over = ConnParam::with_private_data(vec![1; env.a.attr().max_private_data as usize + 1]);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    let refusal = a.cm.connect(&a.qp, listener.addr(), &over);
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
    assert_eq!(a.qp.state(), QpState::Init);
    connect(env, &a, &b, &Setup::default());
}

/// An accept with too much private data is an error, and the request is rejected.
pub(crate) fn accepting_with_too_much_rejects(env: &Env) {
    let (a, b) = endpoints(env);
    let over = ConnParam::with_private_data(vec![1; env.b.attr().max_private_data as usize + 1]);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let refusal = b.cm.accept(b.waiter.request(&b.cm), &b.qp, &over);
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
    rejected(&a);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Init, QpState::Init));
}

/// A rejection carries private data, and the queue pair is back in `Init`.
pub(crate) fn rejection_carries_private_data(env: &Env) {
    for len in [0, 1, env.b.attr().max_private_data as usize] {
        let (a, b) = endpoints(env);
        let listener = b.cm.listen(env.addr(), 1).expect("a listener");
        a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
        b.waiter.request(&b.cm).reject(&pattern(3, len)).expect("reject");
        assert_eq!(rejected(&a), pattern(3, len));
        assert_eq!(a.qp.state(), QpState::Init);
    }
}

/// Too much data in a rejection is an error, but it still rejects.
pub(crate) fn rejecting_with_too_much_still_rejects(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let over = vec![1; env.b.attr().max_private_data as usize + 1];
    let refusal = b.waiter.request(&b.cm).reject(&over);
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
    assert_eq!(rejected(&a), [0; 0]);
}

/// A request that is dropped unanswered is rejected.
pub(crate) fn dropping_a_request_rejects(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    drop(b.waiter.request(&b.cm));
    assert_eq!(rejected(&a), [0; 0]);
}

/// After a rejection the same queue pair can connect again, and receives posted before are kept.
pub(crate) fn a_rejected_queue_pair_connects_again(env: &Env) {
    let (a, b) = endpoints(env);
    a.post_recv(1, &[a.host.sge(0, 8)]);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    for _ in 0..3 {
        a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
        b.waiter.request(&b.cm).reject(&[]).expect("reject");
        rejected(&a);
    }
    connect(env, &a, &b, &Setup::default());
    b.post(&SendWr::new(2, SendOp::Send, &[b.host.sge(0, 8)]));
    expect_success(a.next_received(), 1, WcOpcode::Recv);
}

/// If the request is not answered within the time-out, the connection fails and the queue pair is back in `Init`.
pub(crate) fn an_unanswered_request_times_out(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    let param = ConnParam { timeout: Span::from_ms(50), ..ConnParam::default() };
    a.cm.connect(&a.qp, listener.addr(), &param).expect("connect");
    let request = b.waiter.request(&b.cm);
    assert_eq!(failure(&a), CmFailure::TimedOut);
    assert_eq!(a.qp.state(), QpState::Init);
    late_accept(&b, request);
}

/// Accepts after the connecting side has given up: the call fails, or a failed connection is reported as an event, or
/// (if the passive side notices only later) the connection is established and then ends.
fn late_accept(b: &Endpoint, request: verbs::ConnectRequest) {
    if b.cm.accept(request, &b.qp, &ConnParam::default()).is_err() {
        return;
    }
    match b.waiter.event(&b.cm, "the end of a late accept") {
        CmEvent::ConnectFailed { qp_num, .. } => assert_eq!(qp_num, b.qp.num()),
        CmEvent::Established { qp_num, .. } => b.waiter.disconnected(&b.cm, qp_num),
        other => panic!("expected the end of a late accept, got {other:?}"),
    }
    b.wait_for_error();
}

/// The connecting side disappears before the answer: the same set of outcomes.
pub(crate) fn accept_after_connecting_side_vanished(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let request = b.waiter.request(&b.cm);
    drop(a);
    late_accept(&b, request);
    let (a, b) = endpoints(env);
    connect(env, &a, &b, &Setup::default());
    Conn { a, b }.check_traffic();
}

/// A queue pair of the wrong device cannot accept; the request is rejected.
pub(crate) fn a_foreign_queue_pair_cannot_accept(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let foreign = a.another_qp();
    let refusal = b.cm.accept(b.waiter.request(&b.cm), &foreign, &ConnParam::default());
    assert!(matches!(refusal, Err(Error::Foreign { .. })), "{refusal:?}");
    rejected(&a);
    assert_eq!(foreign.state(), QpState::Init);
}

/// A queue pair of the wrong device cannot connect.
pub(crate) fn a_foreign_queue_pair_cannot_connect(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    let refusal = a.cm.connect(&b.qp, listener.addr(), &ConnParam::default());
    assert!(matches!(refusal, Err(Error::Foreign { .. })), "{refusal:?}");
    assert_eq!(b.qp.state(), QpState::Init);
}

/// The active side may send as soon as it has its `Established`; the passive side's receives, posted before its accept,
/// take the message, in whatever order the passive side polls its queues.
pub(crate) fn data_may_follow_established_immediately(env: &Env) {
    let (a, b) = endpoints(env);
    b.post_recv(1, &[b.host.sge(0, 8)]);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    b.cm.accept(b.waiter.request(&b.cm), &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    a.post(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
    expect_success(b.next_received(), 1, WcOpcode::Recv);
    expect_success(a.next_sent(), 2, WcOpcode::Send);
    b.waiter.established(&b.cm, b.qp.num());
}

/// The passive side may send as soon as it has its own `Established`.
pub(crate) fn the_passive_side_may_send_first(env: &Env) {
    let (a, b) = endpoints(env);
    a.post_recv(1, &[a.host.sge(0, 8)]);
    connect(env, &a, &b, &Setup::default());
    b.post(&SendWr::new(2, SendOp::Send, &[b.host.sge(0, 8)]));
    expect_success(a.next_received(), 1, WcOpcode::Recv);
    expect_success(b.next_sent(), 2, WcOpcode::Send);
}

/// A device connects to itself.
pub(crate) fn a_device_connects_to_itself(env: &Env) {
    let (near, far) =
        (Endpoint::new(env, &env.b, &Setup::default()), Endpoint::new(env, &env.b, &Setup::default()));
    connect(env, &near, &far, &Setup::default());
    Conn { a: near, b: far }.check_traffic();
}

/// Both ends in one protection domain, with one completion queue and one channel for everything.
pub(crate) fn both_ends_may_share_channel_and_queue(env: &Env) {
    let end = Endpoint::new(env, &env.b, &Setup::default());
    let (other, param) = (end.another_qp(), ConnParam::default());
    let listener = end.cm.listen(env.addr(), 1).expect("a listener");
    end.cm.connect(&end.qp, listener.addr(), &param).expect("connect");
    let request = end.waiter.request(&end.cm);
    end.cm.accept(request, &other, &param).expect("accept");
    let mut nums: Vec<u32> = (0..2)
        .map(|_| match end.waiter.event(&end.cm, "Established") {
            CmEvent::Established { qp_num, .. } => qp_num,
            event => panic!("expected Established, got {event:?}"),
        })
        .collect();
    let mut want = [end.qp.num(), other.num()];
    nums.sort_unstable();
    want.sort_unstable();
    assert_eq!(nums, want);
    end.post(&SendWr::new(1, SendOp::Write(end.host.remote(64)), &[end.host.sge(0, 8)]));
    expect_success(end.next_sent(), 1, WcOpcode::Write);
}

/// A wait for an event that does not come ends at its deadline, and names the call.
pub(crate) fn waiting_for_events_times_out(env: &Env) {
    let cm = env.a.create_cm().expect("a channel");
    assert_eq!(
        cm.get_event(env.waiter.short_time()).expect_err("nothing happens"),
        Error::TimedOut { call: "Cm::get_event" }
    );
    assert!(cm.poll_event().is_none());
}

/// The channel's descriptor is readable exactly while an event is pending.
pub(crate) fn the_descriptor_is_readable(env: &Env) {
    let (a, b) = endpoints(env);
    if b.cm.fd().is_none() {
        return assert_eq!(env.b.host().clock(), host::ClockKind::Virtual);
    }
    let readable = || crate::harness::check::readable(b.cm.fd()) == Some(true);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    assert!(!readable(), "readable without an event");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    env.waiter.until("readable descriptor", || readable().then_some(()));
    assert!(readable(), "stays so until the event is taken");
    let request = b.waiter.request(&b.cm);
    assert!(!readable(), "readable after the event");
    request.reject(&[]).expect("reject");
}

/// Waits for the `Established` of an end; returns its information.
#[track_caller]
fn established_info(end: &Endpoint) -> ConnInfo {
    match end.waiter.event(&end.cm, "Established") {
        CmEvent::Established { qp_num, info, .. } if qp_num == end.qp.num() => info,
        other => panic!("expected Established, got {other:?}"),
    }
}

/// Whether `reported` is a valid report of the peer's depths: the values in its parameters, the negotiated values, or
/// what this end may use there.
fn are_valid_depths(reported: Depths, peer: &ConnParam, own: &ConnParam) -> bool {
    let agreed = peer.responder_resources.min(own.initiator_depth);
    let serves =
        reported.responder_resources == peer.responder_resources || reported.responder_resources == agreed;
    let used =
        [peer.initiator_depth, peer.initiator_depth.min(own.responder_resources), own.responder_resources];
    serves && used.contains(&reported.initiator_depth)
}

/// The request and both events contain the addresses of both ends, and the depths of the peer's parameters. (A protocol
/// may transmit no depths, or only the negotiated ones.)
pub(crate) fn both_ends_report_addresses_and_depths(env: &Env) {
    let setup = Setup::default();
    let mut ports = Vec::new();
    let (ours, theirs) = (
        ConnParam { responder_resources: 3, initiator_depth: 5, rnr_retry: 3, ..ConnParam::default() },
        ConnParam { responder_resources: 7, initiator_depth: 2, ..ConnParam::default() },
    );
    for _ in 0..3 {
        let (a, b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
        let listener = b.cm.listen(env.addr(), 8).expect("a listener");
        a.cm.connect(&a.qp, listener.addr(), &ours).expect("connect");
        let request = env.waiter.request(&b.cm);
        let asked = request.info;
        assert_eq!(asked.local, listener.addr());
        assert!(asked.depths.is_none_or(|depths| depths == Depths::of(&ours)), "{asked:?}");
        let is_info_of = |info: &ConnInfo, num: u32, retries: u8| {
            info.qp_num.is_none_or(|peer| peer == num) && info.rnr_retry.is_none_or(|peer| peer == retries)
        };
        assert!(is_info_of(&asked, a.qp.num(), 3), "{asked:?}");
        b.cm.accept(request, &b.qp, &theirs).expect("accept");
        let (at_a, at_b) = (established_info(&a), established_info(&b));
        assert!(is_info_of(&at_a, b.qp.num(), 7) && is_info_of(&at_b, a.qp.num(), 3), "{at_a:?} {at_b:?}");
        assert_eq!((at_a.peer, at_b.local), (listener.addr(), listener.addr()));
        assert_eq!((at_a.local, at_b.peer), (at_b.peer, asked.peer), "each end is the peer of the other");
        assert!(!at_a.local.ip().is_unspecified());
        assert!(at_a.depths.is_none_or(|reported| are_valid_depths(reported, &theirs, &ours)), "{at_a:?}");
        assert!(at_b.depths.is_none_or(|reported| are_valid_depths(reported, &ours, &theirs)), "{at_b:?}");
        ports.push((at_a.local.port(), a, b));
    }
    ports.sort_by_key(|(port, ..)| *port);
    assert!(ports[0].0 > 0, "the port distinguishes connections");
    assert!(ports.windows(2).all(|pair| pair[0].0 != pair[1].0), "two connections have one port");
}

/// Two channels, and a connection between them without queue pairs, whose private data have been checked.
#[track_caller]
fn identifiers(env: &Env) -> ((Cm, CmId), (Cm, CmId)) {
    let (near, far) = (env.a.create_cm().expect("a channel"), env.b.create_cm().expect("a channel"));
    let listener = far.listen(env.addr(), 1).expect("a listener");
    let (hello, answer) = (pattern(5, 11), pattern(6, 7));
    let asks = near.connect_without_qp(listener.addr(), &ConnParam::with_private_data(hello.clone()));
    let asks = asks.expect("connect");
    let request = env.waiter.request(&far);
    assert_eq!(request.private_data, hello);
    let accepts = far.accept_without_qp(request, &ConnParam::with_private_data(answer.clone()));
    let accepts = accepts.expect("accept");
    assert_eq!(env.waiter.established(&near, asks.num()), answer);
    assert_eq!(env.waiter.established(&far, accepts.num()), [0; 0]);
    ((near, asks), (far, accepts))
}

/// Private data goes both ways without a queue pair, and each end notices when the other disconnects: by a call, which
/// both ends are notified of, or by dropping the last handle, which the other end is notified of.
pub(crate) fn connection_without_queue_pairs_is_made_and_ended(env: &Env) {
    for active_ends in [true, false] {
        let (mut ends, mut stays) = identifiers(env);
        if !active_ends {
            std::mem::swap(&mut ends, &mut stays);
        }
        ends.0.disconnect_id(&ends.1).expect("connected");
        env.waiter.disconnected(&ends.0, ends.1.num());
        env.waiter.disconnected(&stays.0, stays.1.num());

        let (mut goes, mut stays) = identifiers(env);
        if !active_ends {
            std::mem::swap(&mut goes, &mut stays);
        }
        drop(goes.1);
        env.waiter.disconnected(&stays.0, stays.1.num());
        env.waiter.no_event(&goes.0, "an end that is dropped hears nothing more");
    }
}

/// A queue pair may be connected to an end without one; its sends find no receive.
pub(crate) fn connection_without_queue_pair_at_one_end_is_made(env: &Env) {
    let setup = Setup::default();
    for with_qp in [true, false] {
        let (a, b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
        let listener = b.cm.listen(env.addr(), 1).expect("a listener");
        let param = ConnParam { rnr_retry: 0, ..ConnParam::default() };
        let id = if with_qp {
            a.cm.connect(&a.qp, listener.addr(), &param).expect("connect");
            b.cm.accept_without_qp(b.waiter.request(&b.cm), &param).expect("accept")
        } else {
            let id = a.cm.connect_without_qp(listener.addr(), &param).expect("connect");
            b.cm.accept(b.waiter.request(&b.cm), &b.qp, &param).expect("accept");
            id
        };
        let (paired, bare) = if with_qp { (&a, &b) } else { (&b, &a) };
        paired.waiter.established(&paired.cm, paired.qp.num());
        bare.waiter.established(&bare.cm, id.num());
        paired.post(&SendWr::new(1, SendOp::Send, &[paired.host.sge(0, 8)]));
        assert_ne!(paired.next_sent().status, WcStatus::Success);
        let _ = paired.cm.disconnect(&paired.qp);
        bare.waiter.disconnected(&bare.cm, id.num());
    }
}

/// A rejection and a failure both name the identifier; afterwards another one connects.
pub(crate) fn identifiers_are_rejected(env: &Env) {
    let (near, far) = (env.a.create_cm().expect("a channel"), env.b.create_cm().expect("a channel"));
    let listener = far.listen(env.addr(), 1).expect("a listener");
    let id = near.connect_without_qp(listener.addr(), &ConnParam::default()).expect("connect");
    env.waiter.request(&far).reject(b"no").expect("reject");
    match env.waiter.event(&near, "Rejected") {
        CmEvent::Rejected { qp_num, private_data } => {
            assert_eq!((qp_num, &*private_data), (id.num(), &b"no"[..]));
        }
        other => panic!("expected Rejected, got {other:?}"),
    }
    let addr = listener.addr();
    drop(listener);
    let id = near.connect_without_qp(addr, &ConnParam::default()).expect("connect");
    match env.waiter.event(&near, "ConnectFailed") {
        CmEvent::ConnectFailed { qp_num, why: CmFailure::Refused(_) } => assert_eq!(qp_num, id.num()),
        other => panic!("expected ConnectFailed, got {other:?}"),
    }
    let over = ConnParam::with_private_data(vec![1; env.a.attr().max_private_data as usize + 1]);
    let refusal = near.connect_without_qp(addr, &over).map(|id| id.num());
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
    identifiers(env);
}

/// Two hundred connections in sequence: each gets its own events, and none of another connection.
pub(crate) fn connections_without_queue_pair_leak_nothing(env: &Env) {
    let (near, far) = (env.a.create_cm().expect("a channel"), env.b.create_cm().expect("a channel"));
    let listener = far.listen(env.addr(), 4).expect("a listener");
    for round in 0..200_u8 {
        let asks = near.connect_without_qp(listener.addr(), &ConnParam::with_private_data([round]));
        let asks = asks.expect("connect");
        let request = env.waiter.request(&far);
        assert_eq!(request.private_data, [round]);
        let accepts = far.accept_without_qp(request, &ConnParam::default()).expect("accept");
        env.waiter.established(&near, asks.num());
        env.waiter.established(&far, accepts.num());
        drop(asks);
        env.waiter.disconnected(&far, accepts.num());
    }
}

/// A request is alive only while the connecting side waits for the answer.
pub(crate) fn request_is_not_alive_after_connecting_side_left(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let request = b.waiter.request(&b.cm);
    assert!(request.is_alive());
    drop(a);
    b.waiter.until("end of a request", || (!request.is_alive()).then_some(()));
}
