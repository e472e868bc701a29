//! Ending connections (rdma_disconnect(3)).

use super::connect::endpoints;
use crate::Env;
use crate::harness::check::expect_success;
use crate::harness::conn::{Conn, Endpoint, Setup, connect};
use verbs::{
    CmEvent, ConnParam, Cq, Error, QpState, RecvWr, SendOp, SendWr, Srq, SrqInit, Wc, WcOpcode, WcStatus,
};

/// Both ends get exactly one event, both queue pairs are in error, and receives are flushed.
fn assert_ended(c: &Conn) {
    for end in [&c.a, &c.b] {
        end.waiter.disconnected(&end.cm, end.qp.num());
        assert_eq!(end.qp.state(), QpState::Error);
        end.expect_receives_flushed([1, 2]);
    }
    for end in [&c.a, &c.b] {
        end.waiter.no_event(&end.cm, "one Disconnected is enough");
    }
}

fn with_receives(env: &Env) -> Conn {
    let c = Conn::new(env);
    for end in [&c.a, &c.b] {
        end.post_recv(1, &[end.host.sge(0, 8)]);
        end.post_recv(2, &[end.host.sge(0, 8)]);
    }
    c
}

/// The connecting side disconnects.
pub(crate) fn the_active_side_disconnects(env: &Env) {
    let c = with_receives(env);
    c.a.cm.disconnect(&c.a.qp).expect("disconnect");
    assert_ended(&c);
}

/// The accepting side disconnects.
pub(crate) fn the_passive_side_disconnects(env: &Env) {
    let c = with_receives(env);
    c.b.cm.disconnect(&c.b.qp).expect("disconnect");
    assert_ended(&c);
}

/// Both sides disconnect at the same time: still one event each. The second call may find that the connection has
/// already ended; that is allowed.
pub(crate) fn both_sides_disconnect(env: &Env) {
    let c = with_receives(env);
    c.a.cm.disconnect(&c.a.qp).expect("disconnect");
    c.b.cm.disconnect(&c.b.qp).expect("a connection that ended was connected");
    assert_ended(&c);
}

/// A second disconnect of the same end does nothing.
pub(crate) fn second_disconnect_does_nothing(env: &Env) {
    let c = with_receives(env);
    c.a.cm.disconnect(&c.a.qp).expect("disconnect");
    c.a.cm.disconnect(&c.a.qp).expect("again");
    assert_ended(&c);
}

/// A queue pair that was never connected cannot be disconnected.
pub(crate) fn disconnect_of_unconnected_queue_pair_is_refused(env: &Env) {
    let (a, _) = endpoints(env);
    let refusal = a.cm.disconnect(&a.qp);
    assert!(matches!(refusal, Err(Error::WrongState { state: QpState::Init, .. })), "{refusal:?}");
}

/// Moving a queue pair to the error state disconnects the peer.
pub(crate) fn to_error_disconnects_the_peer(env: &Env) {
    let c = with_receives(env);
    c.a.qp.to_error();
    assert_eq!(c.a.qp.state(), QpState::Error);
    c.b.waiter.disconnected(&c.b.cm, c.b.qp.num());
    c.a.expect_receives_flushed([1, 2]);
    c.b.expect_receives_flushed([1, 2]);
}

/// Dropping a queue pair disconnects the peer; its own requests never complete.
pub(crate) fn dropping_a_queue_pair_disconnects(env: &Env) {
    for active in [true, false] {
        let c = with_receives(env);
        let (gone, left) = if active { (c.a, c.b) } else { (c.b, c.a) };
        let Endpoint { qp, recv_cq, .. } = gone;
        drop(qp);
        left.waiter.disconnected(&left.cm, left.qp.num());
        left.expect_receives_flushed([1, 2]);
        left.waiter.no_completion(&recv_cq, "a dropped queue pair completes nothing");
    }
}

/// Completions from before the end can still be polled after it.
pub(crate) fn completions_can_be_polled_after_disconnect(env: &Env) {
    let c = Conn::new(env);
    for i in 0..4 {
        c.b.post_recv(i, &[c.b.host.sge(0, 8)]);
    }
    for i in 0..3 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
    }
    for i in 0..3 {
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
    }
    c.a.cm.disconnect(&c.a.qp).expect("disconnect");
    c.b.waiter.disconnected(&c.b.cm, c.b.qp.num());
    for i in 0..3 {
        expect_success(c.b.next_received(), i, WcOpcode::Recv);
    }
    c.b.expect_receives_flushed([3]);
}

/// Software NICs know whether a queue pair has unpolled successful completions, of sends as well as receives, also
/// after the end of the connection. Flushed ones do not count.
pub(crate) fn has_completed_until_completions_are_polled(env: &Env) {
    let c = Conn::new(env);
    let below =
        env.a.name().trim_start_matches("check(").trim_start_matches("trace(").trim_start_matches("faults(");
    let knows = ["shm", "iwarp"].iter().any(|name| below.starts_with(name));
    (0..2).for_each(|i| c.b.post_recv(i, &[c.b.host.sge(0, 8)]));
    assert!(![&c.a, &c.b].iter().any(|end| end.qp.has_completed()), "nothing is completed");
    c.a.post(&SendWr::new(0, SendOp::Send, &[c.a.host.sge(0, 8)]));
    expect_success(c.b.next_received(), 0, WcOpcode::Recv);
    assert!(!c.b.qp.has_completed(), "the only message has been polled");
    c.b.cm.disconnect(&c.b.qp).expect("disconnect");
    c.a.waiter.disconnected(&c.a.cm, c.a.qp.num());
    assert_eq!(c.a.qp.has_completed(), knows, "the peer has received it");
    expect_success(c.a.next_sent(), 0, WcOpcode::Send);
    assert!(![&c.a, &c.b].iter().any(|end| end.qp.has_completed()), "a flushed receive does not count");
    c.b.expect_receives_flushed([1]);
}

/// Three ways to end a connection in order.
const LEAVES: [fn(Endpoint); 3] =
    [|end| end.cm.disconnect(&end.qp).expect("disconnect"), |end| end.qp.to_error(), |end| drop(end.qp)];

/// A peer receives messages and then ends the connection in order. Messages that it has received complete with success
/// at the sender; only messages without a receive are flushed.
pub(crate) fn messages_received_before_disconnect_complete(env: &Env) {
    for (round, leave) in (0..48).zip(LEAVES.into_iter().cycle()) {
        let (messages, waiting) = (1 + round % 5 * 7, if round % 2 == 0 { 0 } else { 3 });
        let c = Conn::new(env);
        (0..messages).for_each(|i| c.b.post_recv(i, &[c.b.host.sge(i * 8, 8)]));
        for i in 0..messages {
            let write = SendOp::Write(c.b.host.remote(1024));
            c.a.post(&SendWr::new(100, write, &[c.a.host.sge(0, 8)]).unsignaled());
            c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
        }
        for i in messages..messages + waiting {
            c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
        }
        let Conn { a, b } = c;
        (0..messages).for_each(|i| assert_eq!(b.next_received().wr_id, i));
        leave(b);
        for i in 0..messages {
            let wc = a.next_sent();
            assert!(wc.is_ok() && wc.wr_id == i, "round {round}, message {i} of {messages}: {wc:?}");
        }
        let failed = |_| a.next_sent();
        let failed: Vec<Wc> = (0..waiting).map(failed).collect();
        let ids: Vec<u64> = failed.iter().map(|wc| wc.wr_id).collect();
        assert!(
            failed.iter().all(|wc| !wc.is_ok()) && ids == (messages..messages + waiting).collect::<Vec<_>>()
        );
        a.waiter.disconnected(&a.cm, a.qp.num());
    }
}

/// Messages of each round of [`an_empty_queue_after_the_end_stays_empty`].
pub(crate) const MESSAGES: u64 = 60;

/// A connected pair whose far end has receives for all messages, of its own or shared; all messages are sent and
/// acknowledged. `None` if the device has no shared receive queues.
pub(crate) fn connect_and_send_all(env: &Env, is_shared: bool) -> Option<(Conn, Option<Srq>)> {
    let setup = Setup::default();
    let pd = env.b.alloc_pd().expect("a protection domain");
    if is_shared && env.b.attr().max_srq == 0 {
        return None;
    }
    let init = SrqInit { max_wr: MESSAGES as u32, max_sge: 1 };
    let srq = is_shared.then(|| pd.create_srq(init).expect("a shared receive queue"));
    let (a, b) = (Endpoint::new(env, &env.a, &setup), Endpoint::with_srq(env, &env.b, &setup, srq.as_ref()));
    for i in 0..MESSAGES {
        let room = [b.host.sge(i * 8, 8)];
        match &srq {
            Some(srq) => srq.post_recv(&RecvWr::new(i, &room)).expect("a shared receive"),
            None => b.post_recv(i, &room),
        }
    }
    connect(env, &a, &b, &setup);
    for i in 0..MESSAGES {
        a.post(&SendWr::new(i, SendOp::Send, &[a.host.sge(0, 8)]));
    }
    for i in 0..MESSAGES {
        expect_success(a.next_sent(), i, WcOpcode::Send);
    }
    Some((Conn { a, b }, srq))
}

/// The number of messages in a queue until it is found empty for the first time.
pub(crate) fn messages_until_empty(cq: &Cq) -> u64 {
    let (mut wcs, mut messages) = ([Wc::default(); 7], 0);
    loop {
        let some = cq.poll(&mut wcs).expect("a queue that works");
        messages += wcs[..some].iter().filter(|wc| wc.status == WcStatus::Success).count() as u64;
        if some == 0 {
            return messages;
        }
    }
}

/// A program that knows of the end of a connection, and then finds the queue empty, has received every acknowledged
/// message: it may destroy the queue pair.
pub(crate) fn an_empty_queue_after_the_end_stays_empty(env: &Env) {
    for round in 0..12 {
        let Some((c, _srq)) = connect_and_send_all(env, round % 2 == 1) else { continue };
        c.a.cm.disconnect(&c.a.qp).expect("disconnect");
        c.b.waiter.disconnected(&c.b.cm, c.b.qp.num());
        assert_eq!(messages_until_empty(&c.b.recv_cq), MESSAGES, "messages of round {round}");
    }
}

/// A connection that carried traffic reports `Established` and `Disconnected` at both ends, however short it was, and
/// however late its events are taken.
pub(crate) fn short_connection_is_reported_established_and_disconnected(env: &Env) {
    for round in 0..16 {
        let (a, b) = endpoints(env);
        let listener = b.cm.listen(env.addr(), 8).expect("a listener");
        a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
        let request = b.waiter.request(&b.cm);
        b.post_recv(1, &[b.host.sge(0, 8)]);
        b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
        a.waiter.established(&a.cm, a.qp.num());
        a.post(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
        expect_success(a.next_sent(), 2, WcOpcode::Send);
        match round % 2 {
            0 => a.cm.disconnect(&a.qp).expect("disconnect"),
            _ => drop(a),
        }
        let first = b.waiter.event(&b.cm, "Established");
        let num = b.qp.num();
        assert!(matches!(first, CmEvent::Established { qp_num, .. } if qp_num == num), "{first:?}");
        b.waiter.disconnected(&b.cm, num);
        expect_success(b.next_received(), 1, WcOpcode::Recv);
    }
}

/// A failed queue pair cannot be connected again; a new one in its place can.
pub(crate) fn a_new_queue_pair_reconnects(env: &Env) {
    let mut c = Conn::new(env);
    c.a.cm.disconnect(&c.a.qp).expect("disconnect");
    c.a.waiter.disconnected(&c.a.cm, c.a.qp.num());
    c.b.waiter.disconnected(&c.b.cm, c.b.qp.num());
    let listener = c.b.cm.listen(env.addr(), 1).expect("a listener");
    let refusal = c.a.cm.connect(&c.a.qp, listener.addr(), &ConnParam::default());
    assert!(matches!(refusal, Err(Error::WrongState { state: QpState::Error, .. })), "{refusal:?}");
    for _ in 0..5 {
        for end in [&mut c.a, &mut c.b] {
            end.qp = end.another_qp();
            end.cm = end.device.create_cm().expect("a channel without old events");
        }
        connect(env, &c.a, &c.b, &Setup::default());
        c.check_traffic();
    }
}

/// Events of one connection do not disturb another one on the same channels.
pub(crate) fn other_connections_are_unaffected_by_disconnect(env: &Env) {
    let c = Conn::new(env);
    let (near, far, param) = (c.a.another_qp(), c.b.another_qp(), ConnParam::default());
    crate::harness::conn::connect_qps(env, (&c.a.cm, &near, &param), (&c.b.cm, &far, &param));
    c.a.cm.disconnect(&near).expect("disconnect");
    c.a.waiter.disconnected(&c.a.cm, near.num());
    c.b.waiter.disconnected(&c.b.cm, far.num());
    c.check_traffic();
}

/// A connection outlives the channel that it came from, as far as the caller's handles are concerned.
pub(crate) fn connections_outlive_their_channel(env: &Env) {
    let mut c = Conn::new(env);
    c.a.cm = env.a.create_cm().expect("another channel");
    c.b.cm = env.b.create_cm().expect("another channel");
    c.check_traffic();
}
