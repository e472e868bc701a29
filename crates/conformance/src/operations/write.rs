//! RDMA write, with and without immediate data.

use super::send_recv::{ROOM, SIZES};
use crate::Env;
use crate::harness::check::{Shadow, expect_success, pattern};
use crate::harness::conn::{Conn, Setup};
use verbs::{DmAccess, MemoryKind, Mr, SendOp, SendWr, Sge, WcOpcode, WriteOrder};

pub(crate) fn check_write(c: &Conn, near: &Mr, far: &Mr, len: usize, at: (usize, usize)) {
    let source = Shadow::new(near, 1);
    let mut target = Shadow::new(far, 2);
    let wr_sge = [near.sge(at.0 as u64, len as u32)];
    c.a.post(&SendWr::new(5, SendOp::Write(far.remote(at.1 as u64)), &wr_sge));
    let wc = expect_success(c.a.next_sent(), 5, WcOpcode::Write);
    assert_eq!(wc.qp_num, c.a.qp.num());
    target.expect(at.1, &source.bytes(at.0, len));
    target.check("the target");
    source.check("the source");
}

/// Every size arrives completely, no surrounding byte changes, and no receive is consumed.
pub(crate) fn every_size_arrives(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: ROOM, ..Setup::default() });
    c.b.post_recv(1, &[]);
    for len in SIZES {
        check_write(&c, &c.a.host, &c.b.host, len, (64, 128));
    }
    env.waiter.no_completion(&c.b.recv_cq, "a write consumes no receive");
}

/// Every combination of small misalignments.
pub(crate) fn every_alignment_arrives(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: 512, ..Setup::default() });
    for near in 0..9 {
        for far in 0..9 {
            for len in [1, 8, 15, 64, 129] {
                check_write(&c, &c.a.host, &c.b.host, len, (near, far + 1));
            }
        }
    }
}

/// A write of 16 MiB delivers every byte.
pub(crate) fn sixteen_mebibytes_arrive(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: (16 << 20) + 64, ..Setup::default() });
    check_write(&c, &c.a.host, &c.b.host, (16 << 20) + 5, (3, 7));
}

/// The first and the last byte of a region can be written.
pub(crate) fn the_whole_region_can_be_written(env: &Env) {
    let c = Conn::new(env);
    let len = c.b.host.buf().len();
    check_write(&c, &c.a.host, &c.b.host, len, (0, 0));
    check_write(&c, &c.a.host, &c.b.host, 1, (0, len - 1));
    check_write(&c, &c.a.host, &c.b.host, 1, (len - 1, 0));
}

/// Elements are gathered in order, including zero-length ones.
pub(crate) fn pieces_are_gathered(env: &Env) {
    let c = Conn::new(env);
    let max = env.a.attr().max_sge.min(4) as usize;
    let pieces = [(9, 100), (5000, 1), (33, 0), (700, 1999)];
    let near = Shadow::new(&c.a.host, 3);
    let mut far = Shadow::new(&c.b.host, 4);
    let sges: Vec<Sge> = pieces[..max].iter().map(|&(at, len)| c.a.host.sge(at, len)).collect();
    let bytes: Vec<u8> =
        pieces[..max].iter().flat_map(|&(at, len)| near.bytes(at as usize, len as usize)).collect();
    c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(77)), &sges));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    far.expect(77, &bytes);
    far.check("gathered");
}

/// Inline data needs no registration.
pub(crate) fn inline_data_is_written(env: &Env) {
    let c = Conn::new(env);
    let mut far = Shadow::new(&c.b.host, 4);
    for len in [0, 1, 8, 13, c.a.qp.init().cap.max_inline as usize] {
        let len = len.min(c.a.qp.init().cap.max_inline as usize);
        let mut bytes = pattern(len as u64 + 40, len);
        far.expect(len + 3, &bytes);
        c.a.post(&SendWr::inline(1, SendOp::Write(c.b.host.remote(len as u64 + 3)), &bytes));
        bytes.fill(0);
        expect_success(c.a.next_sent(), 1, WcOpcode::Write);
        far.check("inline data");
    }
}

/// A write of zero bytes succeeds, even at the region's very end. (Whether it would succeed with a wrong key is left
/// open: by IBA 9.7.4.1.7 the key of an empty write is not checked, other NICs check it.)
pub(crate) fn empty_writes_succeed(env: &Env) {
    let c = Conn::new(env);
    let far = Shadow::new(&c.b.host, 4);
    for (id, at) in [(1, 0), (2, 100), (3, c.b.host.buf().len() as u64)] {
        c.a.post(&SendWr::new(id, SendOp::Write(c.b.host.remote(at)), &[]));
        expect_success(c.a.next_sent(), id, WcOpcode::Write);
        c.a.post(&SendWr::new(id, SendOp::Write(c.b.host.remote(at)), &[c.a.host.sge(0, 0)]));
        expect_success(c.a.next_sent(), id, WcOpcode::Write);
    }
    far.check("empty writes");
}

/// Writes to the same place take effect in the order of posting.
pub(crate) fn later_write_overwrites_earlier_one(env: &Env) {
    let c = Conn::new(env);
    for i in 0..100_u64 {
        c.a.host.buf().write(i as usize * 8, &i.to_le_bytes()).expect("inside");
        let wr_sge = [c.a.host.sge(i * 8, 8)];
        let wr = SendWr::new(i, SendOp::Write(c.b.host.remote(16)), &wr_sge);
        c.a.post(&if i == 99 { wr } else { wr.unsignaled() });
    }
    expect_success(c.a.next_sent(), 99, WcOpcode::Write);
    assert_eq!(c.b.host.buf().to_vec(16..24).expect("inside"), 99_u64.to_le_bytes());
}

/// Once a write has completed at its initiator, the target's owner sees the data without a completion.
pub(crate) fn completed_write_is_visible_at_target(env: &Env) {
    let c = Conn::new(env);
    c.b.host.buf().fill(0);
    c.a.host.buf().fill(9);
    c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(100)), &[c.a.host.sge(0, 1)]).unsignaled());
    let byte = c.b.host.buf().byte(100).expect("inside");
    env.waiter
        .until("byte of a write", || (byte.load(std::sync::atomic::Ordering::Acquire) == 9).then_some(()));
}

/// Write with immediate: the data is visible when the receive completes, with the bytes written (IBA 11.4.2.1), and the
/// receive's own memory is unchanged.
pub(crate) fn write_with_immediate_delivers(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: ROOM, ..Setup::default() });
    for (i, len) in SIZES.into_iter().enumerate() {
        let near = Shadow::new(&c.a.host, i as u64);
        let mut far = Shadow::new(&c.b.host, 200 + i as u64);
        c.b.post_recv(1, &[c.b.host.sge(0, 64)]);
        let wr_sge = [c.a.host.sge(3, len as u32)];
        c.a.post(&SendWr::new(2, SendOp::WriteImm(c.b.host.remote(65), i as u32), &wr_sge));
        let wc = expect_success(c.b.next_received(), 1, WcOpcode::RecvWriteImm);
        assert_eq!((wc.imm, wc.byte_len as usize), (Some(i as u32), len));
        assert_eq!((wc.qp_num, wc.invalidated), (c.b.qp.num(), None));
        far.expect(65, &near.bytes(3, len));
        far.check("write with immediate");
        expect_success(c.a.next_sent(), 2, WcOpcode::Write);
    }
}

/// A write with immediate consumes a receive of any size, even one without elements.
pub(crate) fn write_imm_accepts_receive_of_any_size(env: &Env) {
    let c = Conn::new(env);
    c.b.post_recv(1, &[]);
    c.a.post(&SendWr::new(2, SendOp::WriteImm(c.b.host.remote(0), 7), &[c.a.host.sge(0, 4096)]));
    assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::RecvWriteImm).byte_len, 4096);
    expect_success(c.a.next_sent(), 2, WcOpcode::Write);
}

/// No byte of a write with immediate is written to its receive, so the receive's memory is not checked.
pub(crate) fn write_imm_ignores_bad_lkey_of_its_receive(env: &Env) {
    let c = Conn::new(env);
    for (len, id) in [0, 8, 4096].into_iter().zip(0..) {
        c.b.post_recv(id, &[Sge { addr: 8, length: 64, lkey: 0 }]);
        c.a.post(&SendWr::new(9, SendOp::WriteImm(c.b.host.remote(0), 7), &[c.a.host.sge(0, len)]));
        assert_eq!(expect_success(c.b.next_received(), id, WcOpcode::RecvWriteImm).byte_len, len);
        expect_success(c.a.next_sent(), 9, WcOpcode::Write);
    }
}

/// Write with immediate accepts inline data.
pub(crate) fn write_with_immediate_inline(env: &Env) {
    let c = Conn::new(env);
    let mut far = Shadow::new(&c.b.host, 1);
    let bytes = pattern(5, c.a.qp.init().cap.max_inline.min(19) as usize);
    c.b.post_recv(1, &[]);
    c.a.post(&SendWr::inline(2, SendOp::WriteImm(c.b.host.remote(50), 9), &bytes));
    let wc = expect_success(c.b.next_received(), 1, WcOpcode::RecvWriteImm);
    assert_eq!((wc.byte_len as usize, wc.imm), (bytes.len(), Some(9)));
    far.expect(50, &bytes);
    far.check("inline write with immediate");
}

/// A plain write followed by a send: when the receive completes, the write's data is visible (IBA 9.5).
pub(crate) fn send_completion_implies_earlier_writes(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: 1 << 20, ..Setup::default() });
    for round in 0..8 {
        let near = Shadow::new(&c.a.host, round);
        c.b.post_recv(1, &[]);
        let half = [c.a.host.sge(0, 512 << 10)];
        c.a.post(&SendWr::new(2, SendOp::Write(c.b.host.remote(0)), &half).unsignaled());
        c.a.post(&SendWr::new(3, SendOp::Send, &[]));
        expect_success(c.b.next_received(), 1, WcOpcode::Recv);
        let got = c.b.host.buf().to_vec(0..512 << 10).expect("inside");
        crate::harness::check::assert_same_bytes("announced data", &got, &near.bytes(0, 512 << 10));
        expect_success(c.a.next_sent(), 3, WcOpcode::Send);
    }
}

/// Writes in both directions at the same time do not disturb each other.
pub(crate) fn both_directions_at_once(env: &Env) {
    let c = Conn::new(env);
    let (a, b) = (pattern(1, 4096), pattern(2, 4096));
    c.a.host.buf().write(0, &a).expect("inside");
    c.b.host.buf().write(0, &b).expect("inside");
    for i in 0..32 {
        c.a.post(&SendWr::new(i, SendOp::Write(c.b.host.remote(4096)), &[c.a.host.sge(0, 4096)]));
        c.b.post(&SendWr::new(i, SendOp::Write(c.a.host.remote(4096)), &[c.b.host.sge(0, 4096)]));
    }
    for i in 0..32 {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
        expect_success(c.b.next_sent(), i, WcOpcode::Write);
    }
    crate::harness::check::assert_same_bytes(
        "at b",
        &c.b.host.buf().to_vec(0..8192).expect("inside"),
        &[b.clone(), a.clone()].concat(),
    );
    crate::harness::check::assert_same_bytes(
        "at a",
        &c.a.host.buf().to_vec(0..8192).expect("inside"),
        &[a, b].concat(),
    );
}

/// If the attributes guarantee an order, a poller that sees the last byte of a write sees all of it, and all earlier
/// writes.
pub(crate) fn visible_last_byte_implies_whole_write(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: 1 << 20, nic: true, ..Setup::default() });
    for far in c.b.regions().filter(|far| can_poll(env, far)) {
        for (round, len) in [1, 8, 4095, 4096, 100_001, 1 << 19].into_iter().enumerate() {
            let (source, before) = (pattern(round as u64 + 1, len), pattern(round as u64 + 50, 64));
            let last = source[len - 1].max(1);
            far.buf().fill(0);
            c.a.host.buf().write(0, &source).expect("inside");
            c.a.host.buf().write(len - 1, &[last]).expect("inside");
            c.a.host.buf().write(len, &before).expect("inside");
            let early = [c.a.host.sge(len as u64, 64)];
            c.a.post(&SendWr::new(1, SendOp::Write(far.remote(600_000)), &early).unsignaled());
            c.a.post(&SendWr::new(2, SendOp::Write(far.remote(3)), &[c.a.host.sge(0, len as u32)]));
            let byte = far.buf().byte(len + 2).expect("inside");
            env.waiter.until("last byte of a write", || {
                (byte.load(std::sync::atomic::Ordering::Acquire) == last).then_some(())
            });
            crate::harness::check::assert_same_bytes(
                "all of it",
                &far.buf().to_vec(3..len + 2).expect("inside"),
                &source[..len - 1],
            );
            crate::harness::check::assert_same_bytes(
                "before it",
                &far.buf().to_vec(600_000..600_064).expect("inside"),
                &before,
            );
            expect_success(c.a.next_sent(), 2, WcOpcode::Write);
        }
    }
}

/// Whether the processor may poll for the last byte of a write into this region of `b`.
pub(crate) fn can_poll(env: &Env, far: &Mr) -> bool {
    let attr = env.b.attr();
    match far.buf().kind() {
        MemoryKind::Host => attr.write_order == WriteOrder::LastByteLast,
        MemoryKind::Nic => {
            attr.write_order_dm == WriteOrder::LastByteLast && attr.dm_access == DmAccess::Coherent
        }
    }
}
