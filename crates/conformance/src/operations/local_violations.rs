//! Violations of local keys, ranges and rights: a local error, and no effect at the peer.

use super::remote_violations::Op;
use crate::Env;
use crate::harness::check::{Shadow, expect_failure, expect_success};
use crate::harness::conn::{Conn, region};
use verbs::{Access, MemoryKind, Mr, SendOp, SendWr, Sge, WcOpcode, WcStatus};

/// Every operation, on eight bytes at byte 1024 of the peer.
fn operations(env: &Env, c: &Conn) -> Vec<SendOp> {
    let remote = c.b.host.remote(1024);
    let mut ops: Vec<SendOp> =
        Op::supported(env, MemoryKind::Host).into_iter().map(|op| op.to_send_op(remote)).collect();
    ops.extend([SendOp::Send, SendOp::SendImm(3), SendOp::SendInv(c.b.host.rkey())]);
    ops
}

fn writes_locally(op: SendOp) -> bool {
    matches!(op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
}

/// The forbidden element, with the region that must stay registered meanwhile.
type MakeBadSge = fn(&Env, &Conn) -> (Sge, Option<Mr>);

/// Executes every operation that `which` selects on the forbidden element.
fn expect_operations_fail(env: &Env, which: fn(SendOp) -> bool, make_bad_sge: MakeBadSge) {
    let count = operations(env, &Conn::new(env)).len();
    for index in 0..count {
        let c = Conn::new(env);
        let op = operations(env, &c)[index];
        if which(op) {
            expect_operation_fails(env, &c, op, make_bad_sge);
        }
    }
}

fn expect_operation_fails(env: &Env, c: &Conn, op: SendOp, make_bad_sge: MakeBadSge) {
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    let (bad, _keep) = make_bad_sge(env, c);
    let data = [c.a.host.sge(8, 8)];
    c.b.post_recv(20, &[c.b.host.sge(2000, 64)]);
    c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(0)), &data));
    c.a.post(&SendWr::new(2, op, &[bad]));
    c.a.post(&SendWr::new(3, SendOp::Write(c.b.host.remote(64)), &data).unsignaled());
    c.a.post(&SendWr::new(4, SendOp::Send, &data));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    expect_failure(c.a.next_sent(), 2, WcStatus::LocProtErr);
    c.a.expect_sends_flushed([3, 4]);
    c.a.wait_for_error();
    far.expect(0, &near.bytes(8, 8));
    far.check(&format!("the peer's memory after {op:?}"));
    near.check("the own memory");
}

fn any_operation(_: SendOp) -> bool {
    true
}

/// A key that names nothing.
pub(crate) fn unknown_key_fails(env: &Env) {
    expect_operations_fail(env, any_operation, |_, c| {
        (Sge { lkey: c.a.host.lkey() ^ 0x2b5a_0001, ..c.a.host.sge(0, 8) }, None)
    });
}

/// A key of another protection domain.
pub(crate) fn key_of_other_domain_fails(env: &Env) {
    expect_operations_fail(env, any_operation, |env, c| {
        let pd = c.a.device.alloc_pd().expect("another domain");
        let mr = region(env, &pd, MemoryKind::Host, 64, Access::ALL);
        (mr.sge(0, 8), Some(mr))
    });
}

/// One byte past the end.
pub(crate) fn access_one_byte_past_the_end_fails(env: &Env) {
    expect_operations_fail(env, any_operation, |_, c| {
        (c.a.host.sge(c.a.host.buf().len() as u64 - 7, 8), None)
    });
}

/// One byte before the start.
pub(crate) fn access_one_byte_before_the_start_fails(env: &Env) {
    expect_operations_fail(env, any_operation, |_, c| {
        let mr = c.a.pd.reg_mr_range(c.a.host.buf(), 64..128, Access::LOCAL_WRITE).expect("a region");
        (mr.sge(1_u64.wrapping_neg(), 8), Some(mr))
    });
}

/// Address plus length overflows 64 bits.
pub(crate) fn overflowing_address_fails(env: &Env) {
    expect_operations_fail(env, any_operation, |_, c| {
        (Sge { addr: u64::MAX - 3, ..c.a.host.sge(0, 8) }, None)
    });
    expect_operations_fail(env, any_operation, |_, c| {
        (Sge { addr: u64::MAX - 7, ..c.a.host.sge(0, 8) }, None)
    });
}

/// A region that was deregistered.
pub(crate) fn deregistered_region_fails(env: &Env) {
    expect_operations_fail(env, any_operation, |_, c| {
        let mr = c.a.pd.reg_mr(c.a.host.buf(), Access::ALL & c.a.host.access()).expect("a region");
        let sge = mr.sge(0, 8);
        mr.dereg().expect("no request uses it");
        (sge, None)
    });
}

/// Results of reads and atomics need local write access (IBA 10.6.3.1).
pub(crate) fn results_need_local_write(env: &Env) {
    expect_operations_fail(env, writes_locally, |_, c| {
        let mr = c.a.pd.reg_mr(c.a.host.buf(), Access::REMOTE_READ).expect("a region that is not writable");
        (mr.sge(0, 8), Some(mr))
    });
}

/// Data that is only read locally needs no access right.
pub(crate) fn sources_need_no_right(env: &Env) {
    let c = Conn::new(env);
    let mr = c.a.pd.reg_mr(c.a.host.buf(), Access::empty()).expect("a region without rights");
    c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(0)), &[mr.sge(0, 100)]));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    c.b.post_recv(2, &[c.b.host.sge(0, 100)]);
    c.a.post(&SendWr::new(3, SendOp::Send, &[mr.sge(0, 100)]));
    expect_success(c.a.next_sent(), 3, WcOpcode::Send);
}

/// One bad element behind good ones fails the whole request, and no part of it is executed.
pub(crate) fn request_with_one_bad_piece_fails(env: &Env) {
    let max = env.a.attr().max_sge.min(3) as usize;
    for op in 0..3 {
        let c = Conn::new(env);
        let (near, far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
        let mut pieces = vec![c.a.host.sge(0, 8), c.a.host.sge(64, 100), c.a.host.sge(16 << 10, 1)];
        pieces.drain(..3 - max);
        let remote = c.b.host.remote(0);
        c.b.post_recv(20, &[c.b.host.sge(2000, 640)]);
        c.a.post(&SendWr::new(1, [SendOp::Send, SendOp::Write(remote), SendOp::Read(remote)][op], &pieces));
        expect_failure(c.a.next_sent(), 1, WcStatus::LocProtErr);
        c.a.wait_for_error();
        far.check("the peer's memory");
        near.check("the own memory");
    }
}

/// A receive into forbidden memory fails with a protection error, the sender with a remote operation error (IBA 9.9.3:
/// the responder's own fault), and nothing is written.
fn bad_receive(env: &Env, make_bad_sge: MakeBadSge) {
    let c = Conn::new(env);
    let far = Shadow::new(&c.b.host, 2);
    let (bad, _keep) = make_bad_sge(env, &c);
    c.b.post_recv(1, &[bad]);
    c.b.post_recv(2, &[c.b.host.sge(0, 64)]);
    c.a.post(&SendWr::new(3, SendOp::Send, &[c.a.host.sge(0, 8)]));
    expect_failure(c.b.next_received(), 1, WcStatus::LocProtErr);
    c.b.expect_receives_flushed([2]);
    expect_failure(c.a.next_sent(), 3, WcStatus::RemOpErr);
    c.a.wait_for_error();
    c.b.wait_for_error();
    far.check("the receiver's memory");
}

/// A receive with a wrong key.
pub(crate) fn receive_with_unknown_key_fails(env: &Env) {
    bad_receive(env, |_, c| (Sge { lkey: c.b.host.lkey() ^ 0x2b5a_0001, ..c.b.host.sge(0, 64) }, None));
}

/// A receive with a key of another domain.
pub(crate) fn receive_with_key_of_other_domain_fails(env: &Env) {
    bad_receive(env, |env, c| {
        let pd = c.b.device.alloc_pd().expect("another domain");
        let mr = region(env, &pd, MemoryKind::Host, 64, Access::ALL);
        (mr.sge(0, 64), Some(mr))
    });
}

/// A receive that begins before its region.
pub(crate) fn receive_out_of_bounds_fails(env: &Env) {
    bad_receive(env, |_, c| {
        let mr = c.b.pd.reg_mr_range(c.b.host.buf(), 64..128, Access::LOCAL_WRITE).expect("a region");
        (mr.sge(1_u64.wrapping_neg(), 64), Some(mr))
    });
}

/// A receive into memory without local write access.
pub(crate) fn receive_without_local_write_fails(env: &Env) {
    bad_receive(env, |_, c| {
        let mr = c.b.pd.reg_mr(c.b.host.buf(), Access::REMOTE_READ).expect("a region that is not writable");
        (mr.sge(0, 64), Some(mr))
    });
}

/// A receive into memory that was deregistered after the receive was posted.
pub(crate) fn receive_into_deregistered_region_fails(env: &Env) {
    bad_receive(env, |_, c| {
        let mr = c.b.pd.reg_mr(c.b.host.buf(), Access::LOCAL_WRITE).expect("a region");
        let sge = mr.sge(0, 64);
        mr.dereg().expect("no message uses it yet");
        (sge, None)
    });
}
