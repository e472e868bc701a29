//! Forms of send: with immediate, with invalidate, inline, unsignaled.

use crate::Env;
use crate::harness::check::{
    Shadow, assert_same_bytes, expect_failure, expect_failure_among, expect_success, pattern,
};
use crate::harness::conn::{CAP, Conn, Setup, region};
use verbs::{Access, Error, MemoryKind, QpCap, SendOp, SendWr, WcOpcode, WcStatus};

/// All 32 bits of immediate data are delivered with the receive's completion.
pub(crate) fn immediate_data_arrives(env: &Env) {
    let c = Conn::new(env);
    for imm in [0, 1, 0x1234_5678, u32::MAX] {
        c.b.post_recv(1, &[c.b.host.sge(0, 100)]);
        c.a.post(&SendWr::new(2, SendOp::SendImm(imm), &[c.a.host.sge(0, 33)]));
        let wc = expect_success(c.b.next_received(), 1, WcOpcode::Recv);
        assert_eq!((wc.imm, wc.byte_len), (Some(imm), 33));
        expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    }
}

/// Immediate data with an empty message.
pub(crate) fn immediate_data_alone_arrives(env: &Env) {
    let c = Conn::new(env);
    c.b.post_recv(1, &[]);
    c.a.post(&SendWr::new(2, SendOp::SendImm(77), &[]));
    let wc = expect_success(c.b.next_received(), 1, WcOpcode::Recv);
    assert_eq!((wc.imm, wc.byte_len), (Some(77), 0));
}

/// A plain send after a send with immediate data has none.
pub(crate) fn send_after_immediate_has_no_immediate(env: &Env) {
    let c = Conn::new(env);
    for (op, imm) in [(SendOp::SendImm(5), Some(5)), (SendOp::Send, None)] {
        c.b.post_recv(1, &[c.b.host.sge(0, 8)]);
        c.a.post(&SendWr::new(2, op, &[c.a.host.sge(0, 8)]));
        assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).imm, imm);
        expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    }
}

/// Send with invalidate: the message arrives, the completion names the key, and the key is invalid from then on (IBA
/// 9.4.1.1.3).
pub(crate) fn invalidated_key_is_refused(env: &Env) {
    let c = Conn::new(env);
    let window = region(env, &c.b.pd, MemoryKind::Host, 256, Access::ALL);
    let shadow = Shadow::new(&window, 3);
    c.b.post_recv(1, &[c.b.host.sge(0, 64)]);
    c.a.post(&SendWr::new(2, SendOp::SendInv(window.rkey()), &[c.a.host.sge(0, 64)]));
    let wc = expect_success(c.b.next_received(), 1, WcOpcode::Recv);
    assert_eq!((wc.invalidated, wc.byte_len, wc.imm), (Some(window.rkey()), 64, None));
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    c.a.post(&SendWr::new(3, SendOp::Write(window.remote(0)), &[c.a.host.sge(0, 8)]));
    expect_failure(c.a.next_sent(), 3, WcStatus::RemAccessErr);
    shadow.check("behind a dead key");
}

/// Only the named key is invalidated: others of the same memory and domain stay valid.
pub(crate) fn invalidate_keeps_other_keys(env: &Env) {
    let c = Conn::new(env);
    let window = c.b.pd.reg_mr(c.b.host.buf(), c.b.host.access()).expect("a second region");
    c.b.post_recv(1, &[]);
    c.a.post(&SendWr::new(2, SendOp::SendInv(window.rkey()), &[]));
    assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).invalidated, Some(window.rkey()));
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    c.a.post(&SendWr::new(3, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 8)]));
    expect_success(c.a.next_sent(), 3, WcOpcode::Write);
    window.dereg().expect("an invalidated region can still be deregistered");
}

fn bad_invalidate(env: &Env, key_of: fn(&Env, &Conn) -> (u32, Option<verbs::Mr>)) {
    let c = Conn::new(env);
    let (key, _keep) = key_of(env, &c);
    c.b.post_recv(1, &[c.b.host.sge(0, 8)]);
    c.a.post(&SendWr::new(2, SendOp::SendInv(key), &[c.a.host.sge(0, 8)]));
    let legal = [WcStatus::RemAccessErr, WcStatus::RemOpErr, WcStatus::RemInvReqErr];
    expect_failure_among(c.a.next_sent(), 2, &legal);
    let wc = c.b.next_received();
    assert!(!wc.is_ok() && wc.wr_id == 1, "the receive cannot succeed: {wc:?}");
    c.a.wait_for_error();
    c.b.wait_for_error();
}

/// A key that never existed cannot be invalidated. The sender's status is one of three: IBA has a remote access or
/// operational error, RDMAP terminates with an invalid-STag error.
pub(crate) fn invalidating_an_unknown_key_fails(env: &Env) {
    bad_invalidate(env, |_, c| (c.b.host.rkey() ^ 0x5a5a_5a5a, None));
}

/// A key of another protection domain cannot be invalidated, and stays valid.
pub(crate) fn invalidating_a_foreign_key_fails(env: &Env) {
    bad_invalidate(env, |env, c| {
        let pd = c.b.device.alloc_pd().expect("another domain");
        let foreign = region(env, &pd, MemoryKind::Host, 64, Access::ALL);
        (foreign.rkey(), Some(foreign))
    });
}

/// Inline data of every length up to the limit arrives, and its source may be reused immediately.
pub(crate) fn inline_data_is_copied_at_the_call(env: &Env) {
    let c = Conn::new(env);
    let max = c.a.qp.init().cap.max_inline as usize;
    for len in [0, 1, 7, 8, 9, 31, 32, max / 2, max.saturating_sub(1), max] {
        let len = len.min(max);
        let mut source = pattern(len as u64, len);
        let mut far = Shadow::new(&c.b.host, 7);
        far.expect(100, &source);
        c.b.post_recv(1, &[c.b.host.sge(100, len as u32)]);
        c.a.post(&SendWr::inline(2, SendOp::Send, &source));
        source.fill(0xee);
        assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len as usize, len);
        expect_success(c.a.next_sent(), 2, WcOpcode::Send);
        far.check("inline data");
    }
}

/// Inline data is copied during the call even if the message has to wait for a receive.
pub(crate) fn inline_data_of_waiting_send_is_a_copy(env: &Env) {
    let c = Conn::new(env);
    let len = c.a.qp.init().cap.max_inline.min(24) as usize;
    let mut source = pattern(9, len);
    let want = source.clone();
    c.a.post(&SendWr::inline(2, SendOp::SendImm(1), &source));
    source.fill(0);
    c.b.post_recv(1, &[c.b.host.sge(0, 64)]);
    expect_success(c.b.next_received(), 1, WcOpcode::Recv);
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    assert_same_bytes("waiting inline data", &c.b.host.buf().to_vec(0..len).expect("inside"), &want);
}

/// One byte more than the queue pair's limit is refused by the call, and nothing is posted.
pub(crate) fn too_much_inline_data_is_refused(env: &Env) {
    let c = Conn::with_setup(env, &Setup { cap: QpCap { max_inline: 16, ..CAP }, ..Setup::default() });
    // A device may round the queue pair's limit up, as ibv_create_qp(3) allows, but not above its own.
    let over = env.a.attr().max_inline as usize + 1;
    let refusal = c.a.qp.post_send(&SendWr::inline(1, SendOp::Send, &vec![1; over]));
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
    c.no_more_sent("a refused request");
    c.check_traffic();
}

/// Operations that return data cannot use inline data (ibv_post_send(3): Send and RDMA Write only).
pub(crate) fn inline_read_or_atomic_is_refused(env: &Env) {
    let c = Conn::new(env);
    let remote = c.b.host.remote(0);
    let ops = [
        SendOp::Read(remote),
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::CompareSwap { remote, compare: 0, swap: 1 },
    ];
    for op in ops {
        let refusal = c.a.qp.post_send(&SendWr::inline(1, op, &[0; 8]));
        assert!(matches!(refusal, Err(Error::Invalid(_) | Error::Unsupported { .. })), "{op:?}: {refusal:?}");
    }
    c.check_traffic();
}

/// An unsignaled send has no completion at its sender, but arrives.
pub(crate) fn unsignaled_sends_have_no_completion(env: &Env) {
    let c = Conn::new(env);
    for i in 0..3 {
        c.b.post_recv(i, &[c.b.host.sge(0, 8)]);
    }
    for i in 0..2 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]).unsignaled());
    }
    c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(0, 8)]));
    for i in 0..3 {
        expect_success(c.b.next_received(), i, WcOpcode::Recv);
    }
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    c.no_more_sent("two unsignalled sends");
}

/// With `sq_sig_all` every request has a completion, whatever its flags (ibv_create_qp(3)).
pub(crate) fn sq_sig_all_signals_everything(env: &Env) {
    let c = Conn::with_setup(env, &Setup { sq_sig_all: true, ..Setup::default() });
    for i in 0..4 {
        c.b.post_recv(i, &[c.b.host.sge(0, 8)]);
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]).unsignaled());
    }
    c.a.post(&SendWr::new(4, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 8)]).unsignaled());
    for i in 0..4 {
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
    }
    expect_success(c.a.next_sent(), 4, WcOpcode::Write);
}

/// A list of requests is posted whole and in order (`Qp::post_sends`).
pub(crate) fn lists_are_posted_in_order(env: &Env) {
    let c = Conn::new(env);
    let near = Shadow::new(&c.a.host, 2);
    let sges: Vec<[verbs::Sge; 1]> = (0..10).map(|i| [c.a.host.sge(i * 64, 64)]).collect();
    let wrs: Vec<SendWr<'_>> =
        (0..10).map(|i| SendWr::new(i as u64, SendOp::SendImm(i as u32), &sges[i])).collect();
    for i in 0..10 {
        c.b.post_recv(i, &[c.b.host.sge(i * 64, 64)]);
    }
    c.a.qp.post_sends(&wrs).expect("ten requests");
    for i in 0..10 {
        assert_eq!(expect_success(c.b.next_received(), i, WcOpcode::Recv).imm, Some(i as u32));
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
    }
    assert_same_bytes("ten messages", &c.b.host.buf().to_vec(0..640).expect("inside"), &near.bytes(0, 640));
}

/// A list with an invalid request is posted up to that request, and the error contains the number of posted requests.
pub(crate) fn invalid_list_reports_posted_count(env: &Env) {
    let c = Conn::new(env);
    let max = env.a.attr().max_sge as usize;
    let one = [c.a.host.sge(0, 8)];
    let many = vec![c.a.host.sge(0, 8); max + 1];
    let wrs = [
        SendWr::new(0, SendOp::Send, &one),
        SendWr::new(1, SendOp::Send, &one),
        SendWr::new(2, SendOp::Send, &many),
        SendWr::new(3, SendOp::Send, &one),
    ];
    for i in 0..4 {
        c.b.post_recv(i, &[c.b.host.sge(0, 8)]);
    }
    let (posted, error) = c.a.qp.post_sends(&wrs).expect_err("too many pieces in the third");
    assert_eq!(posted, 2);
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
    for i in 0..2 {
        expect_success(c.b.next_received(), i, WcOpcode::Recv);
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
    }
    c.no_more_sent("requests behind the failed one");
}
