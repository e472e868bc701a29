//! Queue pairs that replace others under the same number ([`verbs::QpInit::reported_qp_num`]), as `IBV_QPS_RESET` of
//! ibv_modify_qp(3) needs it.

use super::connect::{endpoints, own_ip};
use crate::Env;
use crate::harness::check::{Shadow, expect_failure, expect_success, pattern};
use crate::harness::conn::{Conn, Endpoint, Setup};
use verbs::{CmEvent, ConnParam, QpInit, RecvWr, SendOp, SendWr, SrqInit, WcOpcode, WcStatus};

/// Replaces this end's queue pair.
#[track_caller]
fn replace_qp(end: &mut Endpoint) {
    let init = QpInit { reported_qp_num: Some(end.qp.reported_qp_num()), ..end.qp.init().clone() };
    end.qp = end.pd.create_qp(&init).expect("another queue pair");
}

/// Waits until this end is connected to the queue pair whose reported number is `peer`. Disconnections of replaced
/// queue pairs may be reported before.
#[track_caller]
fn established(env: &Env, end: &Endpoint, peer: u32) {
    let num = end.qp.num();
    loop {
        match env.waiter.event(&end.cm, "Established") {
            CmEvent::Established { qp_num, info, .. } if qp_num == num => {
                assert!(info.qp_num.is_none_or(|said| said == peer), "{info:?}, wanted {peer}");
                return;
            }
            CmEvent::Disconnected { qp_num } if qp_num != num => {}
            other => panic!("expected Established of {num}, got {other:?}"),
        }
    }
}

/// Connects `a` to `b`; connections of their former queue pairs may still report their end.
#[track_caller]
fn connect(env: &Env, a: &Endpoint, b: &Endpoint) {
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let request = loop {
        match env.waiter.event(&b.cm, "ConnectRequest") {
            CmEvent::ConnectRequest(request) => break request,
            CmEvent::Disconnected { qp_num } if qp_num != b.qp.num() => {}
            other => panic!("expected ConnectRequest, got {other:?}"),
        }
    };
    assert!(request.is_alive());
    assert!(request.info.qp_num.is_none_or(|said| said == a.qp.reported_qp_num()), "{:?}", request.info);
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    established(env, a, b.qp.reported_qp_num());
    established(env, b, a.qp.reported_qp_num());
}

#[track_caller]
fn assert_empty(env: &Env, end: &Endpoint, why: &str) {
    env.waiter.no_completion(&end.send_cq, why);
    env.waiter.no_completion(&end.recv_cq, why);
}

/// Completions of every kind carry the reported number; events carry the device's number.
pub(crate) fn completions_carry_the_reported_number(env: &Env) {
    let (mut a, mut b) = endpoints(env);
    let (of_a, of_b) = (a.qp.num(), b.qp.num());
    assert_eq!((a.qp.reported_qp_num(), b.qp.reported_qp_num()), (of_a, of_b));
    for _ in 0..3 {
        [&mut a, &mut b].into_iter().for_each(replace_qp);
        assert_eq!((a.qp.reported_qp_num(), b.qp.reported_qp_num()), (of_a, of_b));
        assert!(a.qp.num() != of_a && b.qp.num() != of_b, "{:?} {:?}", a.qp, b.qp);
        connect(env, &a, &b);
        (0..3).for_each(|i| b.post_recv(i, &[b.host.sge(0, 64)]));
        a.post(&SendWr::new(7, SendOp::SendImm(1), &[a.host.sge(0, 8)]));
        a.post(&SendWr::new(8, SendOp::WriteImm(b.host.remote(0), 2), &[a.host.sge(0, 8)]));
        a.post(&SendWr::new(9, SendOp::Read(b.host.remote(0)), &[a.host.sge(0, 8)]));
        for (id, opcode) in [(7, WcOpcode::Send), (8, WcOpcode::Write), (9, WcOpcode::Read)] {
            assert_eq!(expect_success(a.next_sent(), id, opcode).qp_num, of_a);
        }
        for (id, opcode) in [(0, WcOpcode::Recv), (1, WcOpcode::RecvWriteImm)] {
            assert_eq!(expect_success(b.next_received(), id, opcode).qp_num, of_b);
        }
        b.cm.disconnect(&b.qp).expect("connected");
        b.wait_for_error();
        b.post(&SendWr::new(10, SendOp::Send, &[]));
        for (wc, id) in [(b.next_received(), 2), (b.next_sent(), 10)] {
            expect_failure(wc, id, WcStatus::WrFlushErr);
            assert_eq!(wc.qp_num, of_b);
        }
    }
}

/// Unpolled completions, requests and receives are dropped with the queue pair.
pub(crate) fn replaced_qp_leaves_nothing(env: &Env) {
    for b_first in [false, true] {
        let Conn { mut a, mut b } = Conn::new(env);
        (0..8).for_each(|i| b.post_recv(i, &[b.host.sge(0, 64)]));
        (0..8).for_each(|i| a.post_recv(i, &[a.host.sge(0, 64)]));
        // Some complete at both ends and are not polled; others find no receive.
        (0..12).for_each(|i| a.post(&SendWr::new(i, SendOp::Send, &[a.host.sge(0, 8)])));
        (0..4).for_each(|i| b.post(&SendWr::new(i, SendOp::Write(a.host.remote(64)), &[b.host.sge(0, 8)])));
        expect_success(b.next_received(), 0, WcOpcode::Recv);
        let (first, second) = if b_first { (&mut b, &mut a) } else { (&mut a, &mut b) };
        replace_qp(first);
        assert_empty(env, first, "the first end is another");
        replace_qp(second);
        assert_empty(env, second, "the second end is another");
        connect(env, &a, &b);
        assert_empty(env, &a, "nothing has been posted");
        assert_empty(env, &b, "nothing has been posted");
        Conn { a, b }.check_traffic();
    }
}

/// A message that waited for a receive never arrives at the next queue pair, which has receives.
pub(crate) fn a_message_that_waits_never_reaches_the_next(env: &Env) {
    for replaces_a in [true, false] {
        let Conn { mut a, mut b } = Conn::new(env);
        (0..4).for_each(|i| a.post(&SendWr::new(i, SendOp::SendImm(99), &[a.host.sge(0, 8)])));
        env.waiter.no_completion(&a.send_cq, "there are no receives");
        if replaces_a {
            replace_qp(&mut a);
        }
        replace_qp(&mut b);
        (0..6).for_each(|i| b.post_recv(i, &[b.host.sge(0, 64)]));
        env.waiter.no_completion(&b.recv_cq, "it is not connected");
        if replaces_a {
            connect(env, &a, &b);
        } else {
            a.sends_flushed_or_failed(0..4);
            replace_qp(&mut a);
            connect(env, &a, &b);
        }
        env.waiter.no_completion(&b.recv_cq, "nothing has been sent");
        a.post(&SendWr::new(5, SendOp::SendImm(5), &[a.host.sge(0, 8)]));
        assert_eq!(expect_success(b.next_received(), 0, WcOpcode::Recv).imm, Some(5));
        expect_success(a.next_sent(), 5, WcOpcode::Send);
    }
}

impl Endpoint {
    /// These requests complete with errors, the first ones perhaps with a reason other than a flush.
    #[track_caller]
    fn sends_flushed_or_failed(&self, ids: std::ops::Range<u64>) {
        for id in ids {
            let wc = self.next_sent();
            assert!(wc.wr_id == id && wc.status != WcStatus::Success, "{wc:?}");
        }
    }
}

/// In many rounds, with either end replaced first and requests in flight, data and completions belong to the current
/// round.
pub(crate) fn rounds_in_any_order(env: &Env) {
    const ROUNDS: u64 = 24;
    let Conn { mut a, mut b } = Conn::new(env);
    for round in 0..ROUNDS {
        let bytes = pattern(round, 64);
        a.host.buf().write(0, &bytes).expect("room");
        (0..4).for_each(|i| b.post_recv(round << 8 | i, &[b.host.sge(64 * i, 64)]));
        // More sends than receives, and read responses that are not polled.
        (0..6).for_each(|i| a.post(&SendWr::new(round << 8 | i, SendOp::Send, &[a.host.sge(0, 64)])));
        for i in 0..round % 5 {
            let wc = expect_success(b.next_received(), round << 8 | i, WcOpcode::Recv);
            assert_eq!(wc.byte_len, 64);
            assert_eq!(b.host.buf().to_vec(64 * i as usize..64 * i as usize + 64), Ok(bytes.clone()));
        }
        if round % 2 == 0 {
            b.post(&SendWr::new(round << 8, SendOp::Read(a.host.remote(0)), &[b.host.sge(1024, 4096)]));
        }
        match round % 4 {
            0 => [&mut a, &mut b].into_iter().for_each(replace_qp),
            1 => [&mut b, &mut a].into_iter().for_each(replace_qp),
            2 => {
                // One side ends the connection in order.
                a.cm.disconnect(&a.qp).expect("connected");
                [&mut a, &mut b].into_iter().for_each(replace_qp);
            }
            _ => {
                // Replaced twice in a row.
                replace_qp(&mut b);
                [&mut b, &mut a].into_iter().for_each(replace_qp);
            }
        }
        match round % 3 {
            // An address that reaches `b` also reaches `a` if both are on one machine.
            0 if own_ip(env) == env.addr().ip() => connect(env, &b, &a),
            _ => connect(env, &a, &b),
        }
    }
    Conn { a, b }.check_traffic();
}

/// A shared receive queue regains its full capacity after a queue pair that consumed some receives was destroyed.
pub(crate) fn a_shared_queue_loses_no_room(env: &Env) {
    const ROOM: u32 = 16;
    if env.b.attr().max_srq == 0 {
        return;
    }
    let setup = Setup::default();
    let pd = env.b.alloc_pd().expect("a domain");
    let srq = pd.create_srq(SrqInit { max_wr: ROOM, max_sge: 1 }).expect("a shared queue");
    let (mut a, mut b) =
        (Endpoint::new(env, &env.a, &setup), Endpoint::with_srq(env, &env.b, &setup, Some(&srq)));
    let (mut posted, mut used) = (0, 0);
    for round in 0..12_u64 {
        connect(env, &a, &b);
        let post = |id| srq.post_recv(&RecvWr::new(id, &[b.host.sge(0, 64)])).expect("there is room");
        (posted..used + 6).for_each(post);
        posted = used + 6;
        (0..4).for_each(|i| a.post(&SendWr::new(i, SendOp::SendImm(round as u32), &[a.host.sge(0, 8)])));
        // Half of the receives are polled. The others have arrived: the sender has its completions.
        for i in 0..2 {
            let wc = expect_success(b.next_received(), used + i, WcOpcode::Recv);
            assert_eq!((wc.imm, wc.qp_num), (Some(round as u32), b.qp.reported_qp_num()));
        }
        for i in 0..4 {
            expect_success(a.next_sent(), i, WcOpcode::Send);
        }
        used += 4;
        [&mut b, &mut a].into_iter().for_each(replace_qp);
    }
}

/// Other queue pairs on the same completion queues continue meanwhile, and lose nothing.
pub(crate) fn other_queue_pairs_continue(env: &Env) {
    let c = Conn::new(env);
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    let mut next = 0;
    let (mut a, mut b) = (sharing_queues(env, &c.a), sharing_queues(env, &c.b));
    for round in 0..16 {
        connect(env, &a, &b);
        (0..8).for_each(|i| {
            c.a.post(&SendWr::new(next + i, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 64)]))
        });
        (0..4).for_each(|i| b.post_recv(1 << 32 | i, &[]));
        (0..4).for_each(|i| a.post(&SendWr::new(1 << 32 | i, SendOp::Send, &[]).unsignaled()));
        if round % 2 == 0 {
            [&mut a, &mut b].into_iter().for_each(replace_qp);
        } else {
            [&mut b, &mut a].into_iter().for_each(replace_qp);
        }
        (8..16).for_each(|i| {
            c.a.post(&SendWr::new(next + i, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 64)]))
        });
        for i in 0..16 {
            assert_eq!(expect_success(c.a.next_sent(), next + i, WcOpcode::Write).qp_num, c.a.qp.num());
        }
        next += 16;
        assert_empty(env, &c.b, "its queue pair has received nothing");
    }
    far.expect(0, &near.bytes(0, 64));
    far.check("the other's writes");
    c.check_traffic();
}

/// An end with its own channel, whose queue pair shares the completion queues of another end.
fn sharing_queues(env: &Env, like: &Endpoint) -> Endpoint {
    let own = Endpoint::new(env, &like.device, &Setup::default());
    let (pd, send_cq, recv_cq) = (like.pd.clone(), like.send_cq.clone(), like.recv_cq.clone());
    Endpoint { pd, send_cq, recv_cq, qp: like.another_qp(), ..own }
}
