//! RDMA read.

use super::send_recv::{ROOM, SIZES};
use crate::Env;
use crate::harness::check::{Shadow, expect_success};
use crate::harness::conn::{Conn, Setup};
use verbs::{Access, Mr, SendFlags, SendOp, SendWr, Sge, WcOpcode};

pub(crate) fn check_read(c: &Conn, near: &Mr, far: &Mr, len: usize, at: (usize, usize)) {
    let mut sink = Shadow::new(near, 1);
    let source = Shadow::new(far, 2);
    c.a.post(&SendWr::new(5, SendOp::Read(far.remote(at.1 as u64)), &[near.sge(at.0 as u64, len as u32)]));
    let wc = expect_success(c.a.next_sent(), 5, WcOpcode::Read);
    assert_eq!((wc.byte_len as usize, wc.qp_num), (len, c.a.qp.num()));
    sink.expect(at.0, &source.bytes(at.1, len));
    sink.check("the sink");
    source.check("the source");
}

/// Every size is read completely, and no surrounding byte changes.
pub(crate) fn every_size_arrives(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: ROOM, ..Setup::default() });
    for len in SIZES {
        check_read(&c, &c.a.host, &c.b.host, len, (64, 128));
    }
}

/// Every combination of small misalignments.
pub(crate) fn every_alignment_arrives(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: 512, ..Setup::default() });
    for near in 0..9 {
        for far in 0..9 {
            for len in [1, 8, 15, 64, 129] {
                check_read(&c, &c.a.host, &c.b.host, len, (near + 1, far));
            }
        }
    }
}

/// A read of 16 MiB returns every byte.
pub(crate) fn sixteen_mebibytes_arrive(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: (16 << 20) + 64, ..Setup::default() });
    check_read(&c, &c.a.host, &c.b.host, (16 << 20) + 5, (3, 7));
}

/// The first and the last byte of a region can be read.
pub(crate) fn the_whole_region_can_be_read(env: &Env) {
    let c = Conn::new(env);
    let len = c.b.host.buf().len();
    check_read(&c, &c.a.host, &c.b.host, len, (0, 0));
    check_read(&c, &c.a.host, &c.b.host, 1, (0, len - 1));
    check_read(&c, &c.a.host, &c.b.host, 1, (len - 1, 0));
}

/// Read data may be scattered, also to zero-length elements.
pub(crate) fn pieces_are_scattered(env: &Env) {
    let c = Conn::new(env);
    let max = env.a.attr().max_sge.min(4) as usize;
    let pieces = [(9_usize, 100_u32), (5000, 1), (33, 0), (700, 1999)];
    let mut near = Shadow::new(&c.a.host, 3);
    let far = Shadow::new(&c.b.host, 4);
    let sges: Vec<Sge> = pieces[..max].iter().map(|&(at, len)| c.a.host.sge(at as u64, len)).collect();
    c.a.post(&SendWr::new(1, SendOp::Read(c.b.host.remote(77)), &sges));
    let mut from = 77;
    for &(at, len) in &pieces[..max] {
        near.expect(at, &far.bytes(from, len as usize));
        from += len as usize;
    }
    assert_eq!(expect_success(c.a.next_sent(), 1, WcOpcode::Read).byte_len as usize, from - 77);
    near.check("scattered");
}

/// A read of zero bytes succeeds.
pub(crate) fn empty_reads_succeed(env: &Env) {
    let c = Conn::new(env);
    let near = Shadow::new(&c.a.host, 4);
    for (id, sges) in [(1, &[][..]), (2, &[c.a.host.sge(7, 0)][..])] {
        c.a.post(&SendWr::new(id, SendOp::Read(c.b.host.remote(0)), sges));
        assert_eq!(expect_success(c.a.next_sent(), id, WcOpcode::Read).byte_len, 0);
    }
    near.check("empty reads");
}

/// A region with only the remote read right can be read.
pub(crate) fn read_needs_remote_read_only(env: &Env) {
    let c = Conn::new(env);
    let far = c.b.pd.reg_mr(c.b.host.buf(), Access::REMOTE_READ).expect("a region to read");
    check_read(&c, &c.a.host, &far, 100, (0, 0));
}

/// A read sees the writes that were posted before it (IBA 9.5: no fence is needed for that order).
pub(crate) fn a_read_sees_earlier_writes(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: ROOM, ..Setup::default() });
    for (i, len) in SIZES.into_iter().filter(|&l| l <= ROOM / 2 && l > 0).enumerate() {
        let mut near = Shadow::new(&c.a.host, i as u64);
        let (from, to) = ([c.a.host.sge(0, len as u32)], [c.a.host.sge((ROOM / 2) as u64, len as u32)]);
        c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(9)), &from).unsignaled());
        c.a.post(&SendWr::new(2, SendOp::Read(c.b.host.remote(9)), &to));
        expect_success(c.a.next_sent(), 2, WcOpcode::Read);
        near.expect(ROOM / 2, &near.bytes(0, len));
        near.check("read back");
    }
}

/// A fenced request starts only when earlier reads are complete: the data read can be sent (IBA 10.8.3.3).
pub(crate) fn a_fence_waits_for_reads(env: &Env) {
    let c = Conn::new(env);
    for round in 0..50_u64 {
        let mut far = Shadow::new(&c.b.host, round);
        c.a.host.buf().fill(0);
        c.a.post(&SendWr::new(1, SendOp::Read(c.b.host.remote(0)), &[c.a.host.sge(0, 4000)]).unsignaled());
        let echo = [c.a.host.sge(0, 4000)];
        c.a.post(&SendWr::new(2, SendOp::Write(c.b.host.remote(8000)), &echo).with(SendFlags::FENCE));
        expect_success(c.a.next_sent(), 2, WcOpcode::Write);
        far.expect(8000, &far.bytes(0, 4000));
        far.check("sent on behind a fence");
    }
}

/// Reads beyond the maximum of outstanding ones are executed nevertheless, in order (IBA 9.4.6: the requester holds the
/// rest back).
pub(crate) fn reads_beyond_the_limit_are_held_back(env: &Env) {
    let mut setup = Setup::default();
    for param in [&mut setup.a, &mut setup.b] {
        (param.initiator_depth, param.responder_resources) = (1, 1);
    }
    let c = Conn::with_setup(env, &setup);
    let far = Shadow::new(&c.b.host, 1);
    for i in 0..64 {
        c.a.post(&SendWr::new(i, SendOp::Read(c.b.host.remote(i * 100)), &[c.a.host.sge(i * 100, 100)]));
    }
    for i in 0..64 {
        expect_success(c.a.next_sent(), i, WcOpcode::Read);
    }
    let got = c.a.host.buf().to_vec(0..6400).expect("inside");
    crate::harness::check::assert_same_bytes("64 reads", &got, &far.bytes(0, 6400));
}

/// Reads in both directions at the same time.
pub(crate) fn both_directions_at_once(env: &Env) {
    let c = Conn::new(env);
    let (mut a, mut b) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    for i in 0..32 {
        c.a.post(&SendWr::new(i, SendOp::Read(c.b.host.remote(0)), &[c.a.host.sge(5000, 4096)]));
        c.b.post(&SendWr::new(i, SendOp::Read(c.a.host.remote(0)), &[c.b.host.sge(5000, 4096)]));
    }
    for i in 0..32 {
        expect_success(c.a.next_sent(), i, WcOpcode::Read);
        expect_success(c.b.next_sent(), i, WcOpcode::Read);
    }
    a.expect(5000, &b.bytes(0, 4096));
    b.expect(5000, &a.bytes(0, 4096));
    a.check("at a");
    b.check("at b");
}

/// The peer's processor is not involved: no call is made on its side between post and completion.
pub(crate) fn read_completes_without_peer_calls(env: &Env) {
    let c = Conn::new(env);
    for i in 0..1000 {
        c.a.post(&SendWr::new(i, SendOp::Read(c.b.host.remote(0)), &[c.a.host.sge(0, 8)]));
        expect_success(c.a.next_sent(), i, WcOpcode::Read);
    }
    assert!(c.b.recv_cq.poll_one().expect("no overrun").is_none());
    assert!(c.b.send_cq.poll_one().expect("no overrun").is_none());
}
