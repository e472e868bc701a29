//! Messages that arrive before their receive (IBA 9.7.5.2.8: receiver not ready).

use crate::Env;
use crate::harness::check::{Shadow, expect_failure, expect_success};
use crate::harness::conn::{Conn, Endpoint, Setup, connect};
use host::Span;
use verbs::{Error, QpState, RNR_PAUSE_MAX, RecvWr, SendOp, SendWr, SrqInit, WcOpcode, WcStatus};

/// A message without a receive waits, and is delivered once one is posted.
pub(crate) fn a_message_waits_for_its_receive(env: &Env) {
    let c = Conn::new(env);
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    c.a.post(&SendWr::new(1, SendOp::SendImm(4), &[c.a.host.sge(10, 100)]));
    c.no_more_sent("a message without a receive");
    far.check("nothing arrives without a receive");
    c.b.post_recv(2, &[c.b.host.sge(50, 100)]);
    assert_eq!(expect_success(c.b.next_received(), 2, WcOpcode::Recv).imm, Some(4));
    expect_success(c.a.next_sent(), 1, WcOpcode::Send);
    far.expect(50, &near.bytes(10, 100));
    far.check("the message that waited");
}

/// The receiver's calls suffice for delivery: the sender calls nothing meanwhile.
pub(crate) fn receiver_calls_suffice_for_delivery(env: &Env) {
    let c = Conn::new(env);
    for i in 0..20 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
    }
    for i in 0..20 {
        c.b.post_recv(i, &[c.b.host.sge(0, 8)]);
        expect_success(c.b.next_received(), i, WcOpcode::Recv);
    }
}

/// A write with immediate data waits for its receive, too.
pub(crate) fn a_write_with_immediate_waits(env: &Env) {
    let c = Conn::new(env);
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    c.a.post(&SendWr::new(1, SendOp::WriteImm(c.b.host.remote(7), 3), &[c.a.host.sge(0, 100)]));
    c.no_more_sent("a write with immediate without a receive");
    c.b.post_recv(2, &[]);
    expect_success(c.b.next_received(), 2, WcOpcode::RecvWriteImm);
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    far.expect(7, &near.bytes(0, 100));
    far.check("the write that waited");
}

/// Requests after a waiting message stay after it: a later write is not visible earlier.
pub(crate) fn requests_after_waiting_message_stay_in_order(env: &Env) {
    let c = Conn::new(env);
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    c.a.post(&SendWr::new(1, SendOp::Send, &[c.a.host.sge(0, 8)]));
    c.a.post(&SendWr::new(2, SendOp::Write(c.b.host.remote(100)), &[c.a.host.sge(0, 8)]));
    c.a.post(&SendWr::new(3, SendOp::Send, &[c.a.host.sge(8, 8)]));
    c.a.post(&SendWr::new(4, SendOp::Read(c.b.host.remote(200)), &[c.a.host.sge(64, 8)]));
    c.no_more_sent("everything waits behind the first");
    far.check("the write must wait behind the send");
    near.check("and so must the read");
    c.b.post_recv(5, &[c.b.host.sge(0, 8)]);
    expect_success(c.b.next_received(), 5, WcOpcode::Recv);
    expect_success(c.a.next_sent(), 1, WcOpcode::Send);
    expect_success(c.a.next_sent(), 2, WcOpcode::Write);
    c.no_more_sent("the second send still waits");
    far.expect(0, &near.bytes(0, 8));
    far.expect(100, &near.bytes(0, 8));
    far.check("one receive lets one message and the write through");
    c.b.post_recv(6, &[c.b.host.sge(16, 8)]);
    expect_success(c.b.next_received(), 6, WcOpcode::Recv);
    expect_success(c.a.next_sent(), 3, WcOpcode::Send);
    expect_success(c.a.next_sent(), 4, WcOpcode::Read);
}

fn gives_up(env: &Env, rnr_retry: u8, op: fn(&Conn) -> SendOp) {
    let mut setup = Setup::default();
    (setup.a.rnr_retry, setup.b.rnr_retry) = (rnr_retry, rnr_retry);
    let c = Conn::with_setup(env, &setup);
    c.a.post(&SendWr::new(1, op(&c), &[c.a.host.sge(0, 8)]));
    c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(0, 8)]).unsignaled());
    expect_failure(c.a.next_sent(), 1, WcStatus::RnrRetryExcErr);
    c.a.expect_sends_flushed([2]);
    c.a.wait_for_error();
}

/// Without retries the message fails, and requests after it are flushed.
pub(crate) fn rnr_retry_zero_fails_waiting_message(env: &Env) {
    gives_up(env, 0, |_| SendOp::Send);
    gives_up(env, 0, |c| SendOp::WriteImm(c.b.host.remote(0), 1));
}

/// A small number of retries is exhausted as well.
pub(crate) fn few_rnr_retries_are_exhausted(env: &Env) {
    gives_up(env, 2, |_| SendOp::Send);
}

/// The limit of retries is taken from the peer's connection parameters.
pub(crate) fn rnr_retry_limit_is_the_peers(env: &Env) {
    let mut setup = Setup::default();
    setup.b.rnr_retry = 0;
    let c = Conn::with_setup(env, &setup);
    c.b.post(&SendWr::new(1, SendOp::Send, &[c.b.host.sge(0, 8)]));
    env.waiter.no_completion(&c.b.send_cq, "the other end retries for ever");
    c.a.post_recv(2, &[c.a.host.sge(0, 8)]);
    expect_success(c.a.next_received(), 2, WcOpcode::Recv);
    expect_success(c.b.next_sent(), 1, WcOpcode::Send);
    c.a.post(&SendWr::new(3, SendOp::Send, &[c.a.host.sge(0, 8)]));
    expect_failure(c.a.next_sent(), 3, WcStatus::RnrRetryExcErr);
    c.a.wait_for_error();
}

/// A program's own limit replaces the peer's, whether it is set before or after connecting, and whether it is lower or
/// higher.
pub(crate) fn own_retry_limit_overrides_peers(env: &Env) {
    for before in [false, true] {
        let mut setup = Setup::default();
        (setup.a.rnr_retry, setup.b.rnr_retry) = (0, 7);
        let (a, b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
        let limit = || {
            a.qp.set_rnr_retry(0)?;
            b.qp.set_rnr_retry(7)
        };
        if before && matches!(limit(), Err(Error::Unsupported { .. })) {
            return;
        }
        connect(env, &a, &b, &setup);
        if !before && matches!(limit(), Err(Error::Unsupported { .. })) {
            return;
        }
        assert!(matches!(a.qp.set_rnr_retry(8), Err(Error::Limit { .. })));
        b.post(&SendWr::new(1, SendOp::Send, &[b.host.sge(0, 8)]));
        env.waiter.no_completion(&b.send_cq, "retries for ever");
        a.post_recv(2, &[a.host.sge(0, 8)]);
        expect_success(a.next_received(), 2, WcOpcode::Recv);
        expect_success(b.next_sent(), 1, WcOpcode::Send);
        a.post(&SendWr::new(3, SendOp::Send, &[a.host.sge(0, 8)]));
        expect_failure(a.next_sent(), 3, WcStatus::RnrRetryExcErr);
        a.wait_for_error();
    }
}

/// The receiver's pause applies between retries.
pub(crate) fn rnr_pause_applies_between_retries(env: &Env) {
    let mut setup = Setup::default();
    setup.b.rnr_retry = 6;
    let c = Conn::with_setup(env, &setup);
    match c.b.qp.set_rnr_pause(RNR_PAUSE_MAX) {
        Err(Error::Unsupported { .. }) => return,
        other => other.expect("a pause"),
    }
    let longer = c.b.qp.set_rnr_pause(RNR_PAUSE_MAX + Span::from_us(1));
    assert!(matches!(longer, Err(Error::Invalid(_))), "{longer:?}");
    c.a.post(&SendWr::new(1, SendOp::Send, &[c.a.host.sge(0, 8)]));
    env.waiter.no_completion(&c.a.send_cq, "within the pauses");
    c.b.post_recv(2, &[c.b.host.sge(0, 8)]);
    expect_success(c.b.next_received(), 2, WcOpcode::Recv);
    expect_success(c.a.next_sent(), 1, WcOpcode::Send);
}

/// A message does not fail for lack of a receive while the shared queue has receives and only room for completions is
/// missing.
pub(crate) fn full_completion_queue_is_not_rnr(env: &Env) {
    const MESSAGES: u64 = 200;
    if env.b.attr().max_srq == 0 {
        return;
    }
    let (mut setup, srq) = (Setup::default(), SrqInit { max_wr: MESSAGES as u32, max_sge: 1 });
    setup.b.rnr_retry = 0;
    let a = Endpoint::new(env, &env.a, &setup);
    let pd = env.b.alloc_pd().expect("a domain");
    let srq = pd.create_srq(srq).expect("a shared queue");
    let b = Endpoint::with_srq(env, &env.b, &setup, Some(&srq));
    connect(env, &a, &b, &setup);
    (0..MESSAGES).for_each(|i| srq.post_recv(&RecvWr::new(i, &[])).expect("room"));
    let mut sent = 0;
    for i in 0..MESSAGES {
        while let Err(why) = a.qp.post_send(&SendWr::new(i, SendOp::Send, &[])) {
            assert!(matches!(why, Error::QueueFull { .. }), "{why}");
            // The receiver frees one entry.
            expect_success(b.next_received(), sent, WcOpcode::Recv);
            sent += 1;
            let _ = a.send_cq.poll_one();
        }
    }
    for i in sent..MESSAGES {
        expect_success(b.next_received(), i, WcOpcode::Recv);
    }
    assert_eq!(a.qp.state(), QpState::ReadyToSend);
}

/// Without retries a message that finds a receive arrives.
pub(crate) fn rnr_retry_zero_delivers_if_receive_is_posted(env: &Env) {
    let mut setup = Setup::default();
    (setup.a.rnr_retry, setup.b.rnr_retry) = (0, 0);
    Conn::with_setup(env, &setup).check_traffic();
}

/// Both ends wait for each other's receives at the same time.
pub(crate) fn both_ends_may_wait_for_receives(env: &Env) {
    let c = Conn::new(env);
    for (end, id) in [(&c.a, 1), (&c.b, 2)] {
        end.post(&SendWr::new(id, SendOp::Send, &[end.host.sge(0, 8)]));
    }
    c.no_more_sent("both wait");
    for (end, id) in [(&c.a, 3), (&c.b, 4)] {
        end.post_recv(id, &[end.host.sge(64, 8)]);
    }
    expect_success(c.a.next_received(), 3, WcOpcode::Recv);
    expect_success(c.b.next_received(), 4, WcOpcode::Recv);
    expect_success(c.a.next_sent(), 1, WcOpcode::Send);
    expect_success(c.b.next_sent(), 2, WcOpcode::Send);
}

/// Many waiting messages are released one by one, in order.
pub(crate) fn waiting_messages_are_released_in_order(env: &Env) {
    let c = Conn::new(env);
    for i in 0..64 {
        c.a.post(&SendWr::new(i, SendOp::SendImm(i as u32), &[c.a.host.sge(0, i as u32)]));
    }
    for i in 0..64 {
        c.b.post_recv(i, &[c.b.host.sge(0, 64)]);
        let wc = expect_success(c.b.next_received(), i, WcOpcode::Recv);
        assert_eq!((wc.imm, u64::from(wc.byte_len)), (Some(i as u32), i));
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
    }
}
