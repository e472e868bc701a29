//! Every operation between every combination of host and NIC memory.

use super::read::check_read;
use super::write::check_write;
use crate::Env;
use crate::harness::check::{Shadow, expect_success};
use crate::harness::conn::Conn;
use verbs::{MemoryKind, SendOp, SendWr, WcOpcode};

/// Sizes and odd offsets for each combination.
const CASES: [(usize, (usize, usize)); 9] = [
    (0, (0, 0)),
    (1, (0, 1)),
    (8, (8, 16)),
    (9, (3, 5)),
    (64, (64, 0)),
    (255, (1, 2)),
    (4096, (0, 0)),
    (4097, (7, 9)),
    (16000, (100, 300)),
];

/// Sends between all kinds of memory.
pub(crate) fn sends_between_memory_kinds(env: &Env) {
    let c = Conn::with_nic(env);
    for (near, far) in c.placements() {
        for (len, at) in CASES {
            let source = Shadow::new(near, 1);
            let mut target = Shadow::new(far, 2);
            c.b.post_recv(1, &[far.sge(at.1 as u64, len as u32)]);
            c.a.post(&SendWr::new(2, SendOp::Send, &[near.sge(at.0 as u64, len as u32)]));
            assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len as usize, len);
            expect_success(c.a.next_sent(), 2, WcOpcode::Send);
            target.expect(at.1, &source.bytes(at.0, len));
            target.check("a send's target");
        }
    }
}

/// Writes between all kinds of memory.
pub(crate) fn writes_between_memory_kinds(env: &Env) {
    let c = Conn::with_nic(env);
    for (near, far) in c.placements() {
        CASES.into_iter().for_each(|(len, at)| check_write(&c, near, far, len, at));
    }
}

/// Writes with immediate data between all kinds of memory.
pub(crate) fn writes_with_immediate_between_memory_kinds(env: &Env) {
    let c = Conn::with_nic(env);
    for (near, far) in c.placements() {
        for (len, at) in CASES {
            let source = Shadow::new(near, 1);
            let mut target = Shadow::new(far, 2);
            c.b.post_recv(1, &[]);
            let wr_sge = [near.sge(at.0 as u64, len as u32)];
            c.a.post(&SendWr::new(2, SendOp::WriteImm(far.remote(at.1 as u64), 5), &wr_sge));
            let wc = expect_success(c.b.next_received(), 1, WcOpcode::RecvWriteImm);
            assert_eq!((wc.byte_len as usize, wc.imm), (len, Some(5)));
            expect_success(c.a.next_sent(), 2, WcOpcode::Write);
            target.expect(at.1, &source.bytes(at.0, len));
            target.check("a write's target");
        }
    }
}

/// Reads between all kinds of memory.
pub(crate) fn reads_between_memory_kinds(env: &Env) {
    let c = Conn::with_nic(env);
    for (near, far) in c.placements() {
        CASES.into_iter().for_each(|(len, at)| check_read(&c, near, far, len, at));
    }
}

/// One message gathered from both kinds and scattered to both.
pub(crate) fn host_and_nic_memory_mix_in_one_message(env: &Env) {
    let c = Conn::with_nic(env);
    let (Some(near_nic), Some(far_nic)) = (&c.a.nic, &c.b.nic) else {
        assert_eq!(env.kinds(&env.a), [MemoryKind::Host]);
        return;
    };
    let (host, nic) = (Shadow::new(&c.a.host, 1), Shadow::new(near_nic, 2));
    let (mut to_host, mut to_nic) = (Shadow::new(&c.b.host, 3), Shadow::new(far_nic, 4));
    c.b.post_recv(1, &[far_nic.sge(11, 150), c.b.host.sge(13, 250)]);
    c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(5, 200), near_nic.sge(7, 200)]));
    assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len, 400);
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    let bytes = [host.bytes(5, 200), nic.bytes(7, 200)].concat();
    to_nic.expect(11, &bytes[..150]);
    to_host.expect(13, &bytes[150..]);
    to_nic.check("the part on the NIC");
    to_host.check("the part in the host");
}
