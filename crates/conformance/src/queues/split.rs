//! Split receives: a receive takes the beginning of a longer message, and the program names memory for the rest.

use crate::Env;
use crate::harness::check::{Shadow, expect_failure, expect_success};
use crate::harness::conn::{Conn, Setup};
use verbs::{
    Access, Error, MemoryKind, QpInit, RecvWr, SendOp, SendWr, Sge, SrqInit, Wc, WcOpcode, WcStatus,
};

/// Bytes of a receive.
const SLOT: u32 = 64;
/// Bytes of a message, several segments of some devices.
const LONG: u32 = 150_000;
const LEN: usize = 400_000;

/// Two ends whose receives are split; `None` if the device has no such receives.
fn split(env: &Env) -> Option<Conn> {
    let supported = env.a.attr().split_receives && env.b.attr().split_receives;
    supported.then(|| Conn::with_setup(env, &Setup { split: true, len: LEN, ..Setup::default() }))
}

fn post_rest(c: &Conn, wr_id: u64, sges: &[Sge]) {
    c.b.qp.post_rest(&RecvWr::new(wr_id, sges)).unwrap_or_else(|e| panic!("the rest {wr_id}: {e}"));
}

fn send(c: &Conn, wr_id: u64, at: u64, len: u32) {
    c.a.post(&SendWr::new(wr_id, SendOp::Send, &[c.a.host.sge(at, len)]));
}

/// The next completion must be the beginning of a message in this receive.
#[track_caller]
fn expect_beginning(c: &Conn, wr_id: u64) {
    let wc = expect_success(c.b.next_received(), wr_id, WcOpcode::RecvBegin);
    assert_eq!(wc.byte_len, SLOT);
}

/// Starts a message of [`LONG`] bytes, whose beginning is delivered to a receive at 0.
#[track_caller]
fn begin(c: &Conn) {
    c.b.post_recv(1, &[c.b.host.sge(0, SLOT)]);
    send(c, 2, 0, LONG);
    expect_beginning(c, 1);
}

/// A device without split receives refuses queue pairs with them; no device splits those of a shared queue.
pub(crate) fn split_receives_follow_the_attribute(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    let cq = env.a.create_cq(64).expect("a completion queue");
    let made = pd.create_qp(&QpInit::new(&cq).split_receives());
    if !env.a.attr().split_receives {
        assert!(matches!(made, Err(Error::Unsupported { .. })), "{made:?}");
        return;
    }
    made.expect("a queue pair");
    let plain = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
    let rest = plain.post_rest(&RecvWr::new(1, &[]));
    assert!(matches!(rest, Err(Error::Invalid(_))), "{rest:?}");
    if env.a.attr().max_srq > 0 {
        let srq = pd.create_srq(SrqInit { max_wr: 8, max_sge: 1 }).expect("a shared queue");
        let made = pd.create_qp(&QpInit::new(&cq).srq(&srq).split_receives());
        assert!(matches!(made, Err(Error::Invalid(_))), "{made:?}");
    }
}

/// The receive gets the beginning, and nothing more arrives or completes until the rest has memory.
pub(crate) fn long_message_fills_its_receive_and_waits(env: &Env) {
    let Some(c) = split(env) else { return };
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    begin(&c);
    far.expect(0, &near.bytes(0, SLOT as usize));
    far.check("only the beginning has arrived");
    c.no_more_sent("the rest waits");
    c.b.waiter.no_completion(&c.b.recv_cq, "the rest waits");
    post_rest(&c, 3, &[c.b.host.sge(1000, LONG - SLOT)]);
    let wc = expect_success(c.b.next_received(), 3, WcOpcode::RecvRest);
    assert_eq!((wc.byte_len, wc.qp_num), (LONG - SLOT, c.b.qp.num()));
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    far.expect(1000, &near.bytes(SLOT as usize, (LONG - SLOT) as usize));
    far.check("all of it");
    c.check_traffic();
}

/// Messages that are not longer than their receives complete as on other queue pairs.
pub(crate) fn messages_that_fit_are_received_whole(env: &Env) {
    let Some(c) = split(env) else { return };
    for len in [0, 1, SLOT - 1, SLOT] {
        c.b.post_recv(1, &[c.b.host.sge(0, SLOT)]);
        send(&c, 2, 0, len);
        assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len, len);
        expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    }
    c.b.post_recv(1, &[]);
    send(&c, 2, 0, 0);
    assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len, 0);
}

/// Messages and writes arrive after an earlier message that waits for its rest.
pub(crate) fn messages_after_a_begun_one_wait(env: &Env) {
    let Some(c) = split(env) else { return };
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    for wr_id in 10..13 {
        c.b.post_recv(wr_id, &[c.b.host.sge(wr_id * 100, SLOT)]);
    }
    send(&c, 1, 0, LONG);
    send(&c, 2, 500, SLOT);
    c.a.post(&SendWr::new(3, SendOp::Write(c.b.host.remote(5000)), &[c.a.host.sge(0, 100)]));
    send(&c, 4, 0, SLOT + 1);
    expect_beginning(&c, 10);
    c.b.waiter.no_completion(&c.b.recv_cq, "the second message waits");
    far.expect(1000, &near.bytes(0, SLOT as usize));
    far.check("the write waits, too");
    post_rest(&c, 5, &[c.b.host.sge(10_000, LONG - SLOT)]);
    assert_eq!(expect_success(c.b.next_received(), 5, WcOpcode::RecvRest).byte_len, LONG - SLOT);
    expect_success(c.b.next_received(), 11, WcOpcode::Recv);
    expect_beginning(&c, 12);
    post_rest(&c, 6, &[c.b.host.sge(0, 1)]);
    assert_eq!(expect_success(c.b.next_received(), 6, WcOpcode::RecvRest).byte_len, 1);
    for wr_id in 1..5 {
        expect_success(c.a.next_sent(), wr_id, if wr_id == 3 { WcOpcode::Write } else { WcOpcode::Send });
    }
    far.expect(10_000, &near.bytes(SLOT as usize, (LONG - SLOT) as usize));
    far.expect(1100, &near.bytes(500, SLOT as usize));
    far.expect(5000, &near.bytes(0, 100));
    far.expect(1200, &near.bytes(0, SLOT as usize));
    far.expect(0, &near.bytes(SLOT as usize, 1));
    far.check("everything");
}

/// The immediate data of a long message come with its rest.
pub(crate) fn rest_carries_immediate_data(env: &Env) {
    let Some(c) = split(env) else { return };
    c.b.post_recv(1, &[c.b.host.sge(0, SLOT)]);
    c.a.post(&SendWr::new(2, SendOp::SendImm(77), &[c.a.host.sge(0, 5000)]));
    expect_beginning(&c, 1);
    post_rest(&c, 3, &[c.b.host.sge(100, 5000)]);
    let wc: Wc = expect_success(c.b.next_received(), 3, WcOpcode::RecvRest);
    assert_eq!((wc.imm, wc.byte_len), (Some(77), 5000 - SLOT));
}

/// The memory of the rest, and that of the receive, may have several elements; the memory of the rest may be longer.
pub(crate) fn rest_may_have_several_elements(env: &Env) {
    let Some(c) = split(env) else { return };
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    c.b.post_recv(1, &[c.b.host.sge(0, 10), c.b.host.sge(100, SLOT - 10)]);
    send(&c, 2, 0, LONG);
    expect_beginning(&c, 1);
    let parts = [(1000, 3), (2000, 70_000), (90_000, LONG)];
    let sges: Vec<Sge> = parts.iter().map(|(at, len)| c.b.host.sge(*at, *len)).collect();
    post_rest(&c, 3, &sges);
    expect_success(c.b.next_received(), 3, WcOpcode::RecvRest);
    far.expect(0, &near.bytes(0, 10));
    far.expect(100, &near.bytes(10, SLOT as usize - 10));
    let mut from = SLOT as usize;
    for (at, len) in parts {
        let len = (len as usize).min(LONG as usize - from);
        far.expect(at as usize, &near.bytes(from, len));
        from += len;
    }
    far.check("the pieces");
}

/// Memory for a rest is refused unless a beginning was delivered whose rest has none.
pub(crate) fn post_rest_without_a_beginning_is_refused(env: &Env) {
    let Some(c) = split(env) else { return };
    let rest = RecvWr { wr_id: 9, sges: &[c.b.host.sge(100, LONG)] };
    let refused = |why: &str| {
        let posted = c.b.qp.post_rest(&rest);
        assert!(matches!(posted, Err(Error::Invalid(_))), "{why}: {posted:?}");
    };
    refused("nothing has arrived");
    begin(&c);
    let many = vec![c.b.host.sge(0, 1); c.b.qp.init().cap.max_recv_sge as usize + 1];
    let posted = c.b.qp.post_rest(&RecvWr::new(9, &many));
    assert!(matches!(posted, Err(Error::Limit { .. })), "{posted:?}");
    c.b.qp.post_rest(&rest).expect("posted");
    refused("it has memory");
    expect_success(c.b.next_received(), 9, WcOpcode::RecvRest);
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    refused("it is complete");
    c.check_traffic();
}

/// A rest that is longer than its memory fails at both ends, and no byte is written outside the memory.
pub(crate) fn rest_longer_than_its_memory_fails(env: &Env) {
    let Some(c) = split(env) else { return };
    begin(&c);
    post_rest(&c, 3, &[c.b.host.sge(1000, LONG - SLOT - 1)]);
    expect_failure(c.b.next_received(), 3, WcStatus::LocLenErr);
    expect_failure(c.a.next_sent(), 2, WcStatus::RemInvReqErr);
    for end in [&c.a, &c.b] {
        end.wait_for_error();
    }
    assert_eq!(
        c.b.host.buf().to_vec(1000 + (LONG - SLOT) as usize - 1..LEN),
        Ok(vec![0; LEN - 1000 - (LONG - SLOT) as usize + 1])
    );
}

/// Memory that may not be written fails the rest.
pub(crate) fn rest_without_local_write_fails(env: &Env) {
    let Some(c) = split(env) else { return };
    let buf = env.alloc(&env.b, MemoryKind::Host, LONG as usize);
    let region = c.b.pd.reg_mr(&buf, Access::empty()).expect("a region");
    begin(&c);
    post_rest(&c, 3, &[region.sge(0, LONG)]);
    expect_failure(c.b.next_received(), 3, WcStatus::LocProtErr);
    c.a.wait_for_error();
    c.b.wait_for_error();
}

/// The rest of a message whose sender has ended since is still received, as it has been sent.
pub(crate) fn begun_message_survives_the_peers_end(env: &Env) {
    let Some(c) = split(env) else { return };
    c.b.post_recv(1, &[c.b.host.sge(0, SLOT)]);
    // Short enough that the network holds all of it.
    send(&c, 2, 0, 4000);
    expect_beginning(&c, 1);
    c.a.qp.to_error();
    post_rest(&c, 3, &[c.b.host.sge(100, 4000)]);
    assert_eq!(expect_success(c.b.next_received(), 3, WcOpcode::RecvRest).byte_len, 4000 - SLOT);
    c.b.wait_for_error();
}

/// In the error state the rest is flushed, whether its memory was posted before or is posted afterwards, and other receives as well.
pub(crate) fn rest_is_flushed_in_error_state(env: &Env) {
    let Some(c) = split(env) else { return };
    begin(&c);
    c.b.post_recv(4, &[]);
    c.b.qp.to_error();
    c.b.expect_receives_flushed([4]);
    post_rest(&c, 3, &[c.b.host.sge(100, LONG)]);
    let wc = c.b.next_received();
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (3, WcStatus::WrFlushErr, WcOpcode::RecvRest));
}
