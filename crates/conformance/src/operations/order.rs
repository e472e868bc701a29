//! The order of completions, and flushing (IBA 10.3.1, 10.8.3).

use crate::Env;
use crate::harness::check::{expect_failure, expect_success};
use crate::harness::conn::Conn;
use verbs::{QpState, RemoteAddr, SendOp, SendWr, Wc, WcOpcode, WcStatus};

/// A request that will fail at the peer.
fn write_with_bad_rkey(c: &Conn) -> SendOp {
    SendOp::Write(RemoteAddr { rkey: c.b.host.rkey() ^ 0x2b5a_0001, ..c.b.host.remote(0) })
}

/// Sends, writes and reads of very different sizes complete in the order of posting.
pub(crate) fn completions_come_in_order(env: &Env) {
    let c = Conn::with_setup(env, &crate::harness::conn::Setup { len: 1 << 20, ..Default::default() });
    let remote = c.b.host.remote(0);
    for round in 0..8 {
        c.b.post_recv(round, &[c.b.host.sge(0, 1 << 20)]);
        let sizes = [1 << 20, 8, 300_000, 1, 65_536, 0];
        for (i, len) in sizes.into_iter().enumerate() {
            let op = [SendOp::Write(remote), SendOp::Read(remote)][i % 2];
            c.a.post(&SendWr::new(round * 10 + i as u64, op, &[c.a.host.sge(0, len)]));
        }
        c.a.post(&SendWr::new(round * 10 + 6, SendOp::Send, &[c.a.host.sge(0, 1 << 20)]));
        for i in 0..6 {
            let opcode = [WcOpcode::Write, WcOpcode::Read][i % 2];
            expect_success(c.a.next_sent(), round * 10 + i as u64, opcode);
        }
        expect_success(c.a.next_sent(), round * 10 + 6, WcOpcode::Send);
        expect_success(c.b.next_received(), round, WcOpcode::Recv);
    }
}

/// A signaled request's completion implies that all unsignaled requests before it are complete, too.
pub(crate) fn completion_implies_earlier_unsignaled_requests(env: &Env) {
    let c = Conn::new(env);
    c.a.host.buf().fill(7);
    c.b.host.buf().fill(0);
    for i in 0..63 {
        let data = [c.a.host.sge(0, 100)];
        c.a.post(&SendWr::new(i, SendOp::Write(c.b.host.remote(i * 100)), &data).unsignaled());
    }
    c.a.post(&SendWr::new(63, SendOp::Write(c.b.host.remote(6300)), &[c.a.host.sge(0, 100)]));
    expect_success(c.a.next_sent(), 63, WcOpcode::Write);
    assert_eq!(c.b.host.buf().to_vec(0..6400).expect("inside"), vec![7; 6400]);
    c.no_more_sent("63 unsignalled writes");
}

/// Most requests are unsignaled, then one fails: completions before it are successes, its own gives the reason, and
/// every request after it is flushed with an entry of its own, signaled or not (IBA 10.7.3.1).
pub(crate) fn unsignaled_requests_are_flushed_with_entries(env: &Env) {
    let c = Conn::new(env);
    let data = [c.a.host.sge(0, 8)];
    let good = SendOp::Write(c.b.host.remote(0));
    c.a.post(&SendWr::new(1, good, &data).unsignaled());
    c.a.post(&SendWr::new(2, good, &data));
    c.a.post(&SendWr::new(3, good, &data).unsignaled());
    c.a.post(&SendWr::new(4, write_with_bad_rkey(&c), &data).unsignaled());
    for i in 5..10 {
        let wr = SendWr::new(i, good, &data);
        c.a.post(&if i % 2 == 0 { wr } else { wr.unsignaled() });
    }
    expect_success(c.a.next_sent(), 2, WcOpcode::Write);
    expect_failure(c.a.next_sent(), 4, WcStatus::RemAccessErr);
    c.a.expect_sends_flushed(5..10);
    c.no_more_sent("ten requests have completed");
}

/// `to_error` flushes posted receives in order.
pub(crate) fn receives_are_flushed_in_order(env: &Env) {
    let c = Conn::new(env);
    for i in 0..20 {
        c.a.post_recv(i, &[c.a.host.sge(0, 8)]);
    }
    c.a.qp.to_error();
    assert_eq!(c.a.qp.state(), QpState::Error);
    c.a.expect_receives_flushed(0..20);
    env.waiter.no_completion(&c.a.recv_cq, "each receive is flushed once");
}

/// `to_error` flushes sends that wait for a receive at the peer, in order.
pub(crate) fn waiting_sends_are_flushed_in_order(env: &Env) {
    let c = Conn::new(env);
    for i in 0..20 {
        let data = [c.a.host.sge(0, 8)];
        let wr = SendWr::new(i, SendOp::Send, &data);
        c.a.post(&if i % 3 == 0 { wr.unsignaled() } else { wr });
    }
    c.a.qp.to_error();
    c.a.expect_sends_flushed(0..20);
    assert_eq!(c.a.qp.state(), QpState::Error);
}

/// Requests posted in the error state are accepted and flushed, on both queues.
pub(crate) fn posting_in_error_flushes(env: &Env) {
    let c = Conn::new(env);
    c.a.qp.to_error();
    for i in 0..10 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
        c.a.post_recv(100 + i, &[c.a.host.sge(0, 8)]);
    }
    c.a.expect_sends_flushed(0..10);
    c.a.expect_receives_flushed(100..110);
}

/// A queue pair that never connected can be moved to the error state; its receives are flushed.
pub(crate) fn to_error_flushes_unconnected_queue_pair(env: &Env) {
    let (a, _) = crate::connections::connect::endpoints(env);
    for i in 0..3 {
        a.post_recv(i, &[a.host.sge(0, 8)]);
    }
    a.qp.to_error();
    assert_eq!(a.qp.state(), QpState::Error);
    a.expect_receives_flushed(0..3);
    a.post(&SendWr::new(9, SendOp::Send, &[a.host.sge(0, 8)]));
    a.expect_sends_flushed([9]);
}

/// Calling `to_error` twice flushes once.
pub(crate) fn to_error_twice_flushes_once(env: &Env) {
    let c = Conn::new(env);
    c.a.post_recv(1, &[c.a.host.sge(0, 8)]);
    c.a.qp.to_error();
    c.a.qp.to_error();
    c.a.expect_receives_flushed([1]);
    env.waiter.no_completion(&c.a.recv_cq, "flushed once");
}

/// A failed completion names its request and queue pair, also with several queue pairs on one queue.
pub(crate) fn failed_completion_names_request_and_queue_pair(env: &Env) {
    let c = Conn::new(env);
    let other = c.a.another_qp();
    c.a.post_recv(1, &[]);
    other.post_recv(&verbs::RecvWr::new(2, &[])).expect("post");
    other.to_error();
    let wc = c.a.next_received();
    assert_eq!((wc.wr_id, wc.qp_num, wc.status), (2, other.num(), WcStatus::WrFlushErr));
    c.a.qp.to_error();
    let wc = c.a.next_received();
    assert_eq!((wc.wr_id, wc.qp_num, wc.status), (1, c.a.qp.num(), WcStatus::WrFlushErr));
}

/// Send and receive completions on one shared queue: each kind in its own order, none lost.
pub(crate) fn sends_and_receives_share_a_completion_queue(env: &Env) {
    let setup = crate::harness::conn::Setup::default();
    let mut ends = crate::connections::connect::endpoints(env);
    for end in [&mut ends.0, &mut ends.1] {
        let init = verbs::QpInit::new(&end.send_cq).cap(end.qp.init().cap);
        end.qp = end.pd.create_qp(&init).expect("a queue pair on one queue");
    }
    crate::harness::conn::connect(env, &ends.0, &ends.1, &setup);
    let (a, b) = ends;
    for i in 0..32 {
        for end in [&a, &b] {
            end.post_recv(1000 + i, &[end.host.sge(i * 8, 8)]);
        }
    }
    for i in 0..32 {
        a.post(&SendWr::new(i, SendOp::Send, &[a.host.sge(0, 8)]));
        b.post(&SendWr::new(i, SendOp::Send, &[b.host.sge(0, 8)]));
    }
    for end in [&a, &b] {
        let all: Vec<Wc> = (0..64).map(|_| end.next_sent()).collect();
        let ids = |op| all.iter().filter(move |wc| wc.opcode == op).map(|wc| wc.wr_id).collect::<Vec<_>>();
        assert!(all.iter().all(Wc::is_ok));
        assert_eq!(ids(WcOpcode::Send), (0..32).collect::<Vec<u64>>());
        assert_eq!(ids(WcOpcode::Recv), (1000..1032).collect::<Vec<u64>>());
    }
}
