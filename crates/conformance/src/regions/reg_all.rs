//! Regions of all memory ([`verbs::Pd::reg_all`]): accessible memory, and requests to unmapped addresses.

use crate::Env;
use crate::harness::check::{assert_same_bytes, expect_failure, expect_success, pattern};
use crate::harness::conn::{Conn, Endpoint};
use verbs::{Access, Buf, Error, ImplicitMr, RemoteAddr, SendOp, SendWr, WcOpcode, WcStatus};

/// Registers all memory of an end with these rights, or returns `None` if the device does not support that.
#[track_caller]
fn all_memory(end: &Endpoint, access: Access) -> Option<ImplicitMr> {
    let possible = end.device.attr().implicit_mr.is_some_and(|most| most.contains(access));
    // SAFETY: the tests name memory of buffers that they keep, or unmapped memory where they expect an error.
    match unsafe { end.pd.reg_all(access) } {
        Ok(mr) => {
            assert!(possible, "a region with more rights than the attributes say");
            assert_eq!(mr.access(), access);
            Some(mr)
        }
        Err(refusal) => {
            assert!(!possible && matches!(refusal, Error::Unsupported { .. }), "{refusal:?}");
            None
        }
    }
}

fn random_buf(seed: u64, len: usize) -> Buf {
    let buf = Buf::alloc(len).expect("memory");
    buf.write(0, &pattern(seed, len)).expect("inside");
    buf
}

/// Unregistered memory, including later mappings, can be used in every kind of request.
pub(crate) fn all_memory_is_local_memory(env: &Env) {
    let c = Conn::with_nic(env);
    let (Some(near), Some(far)) =
        (all_memory(&c.a, Access::LOCAL_WRITE), all_memory(&c.b, Access::LOCAL_WRITE))
    else {
        return;
    };
    for (round, len) in [8, 96, 97, 5000].into_iter().enumerate() {
        let (source, back, there) = (random_buf(round as u64, len), random_buf(9, len), random_buf(8, len));
        let want = pattern(round as u64, len);
        for target in c.b.regions() {
            let sge = [near.sge(source.addr(), len as u32)];
            c.a.post(&SendWr::new(1, SendOp::Write(target.remote(5)), &sge));
            expect_success(c.a.next_sent(), 1, WcOpcode::Write);
            assert_same_bytes("written", &target.buf().to_vec(5..5 + len).expect("inside"), &want);
            back.fill(0);
            let sge = [near.sge(back.addr(), len as u32)];
            c.a.post(&SendWr::new(2, SendOp::Read(target.remote(5)), &sge));
            expect_success(c.a.next_sent(), 2, WcOpcode::Read);
            assert_same_bytes("read", &back.to_vec(0..len).expect("inside"), &want);
        }
        c.b.post_recv(3, &[far.sge(there.addr(), len as u32)]);
        c.a.post(&SendWr::new(4, SendOp::Send, &[near.sge(source.addr(), len as u32)]));
        expect_success(c.a.next_sent(), 4, WcOpcode::Send);
        expect_success(c.b.next_received(), 3, WcOpcode::Recv);
        assert_same_bytes("received", &there.to_vec(0..len).expect("inside"), &want);
    }
}

/// With remote rights, peers can write and read unregistered memory.
pub(crate) fn peers_reach_all_memory(env: &Env) {
    let c = Conn::new(env);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let Some(all) = all_memory(&c.b, access) else { return };
    for len in [1, 64, 100_000] {
        let there = Buf::alloc(len + 2).expect("memory that came later");
        let len = len.min(c.a.host.buf().len());
        c.a.host.buf().write(0, &pattern(len as u64, len)).expect("inside");
        let remote = all.remote(there.addr() + 1);
        c.a.post(&SendWr::new(1, SendOp::Write(remote), &[c.a.host.sge(0, len as u32)]));
        expect_success(c.a.next_sent(), 1, WcOpcode::Write);
        let got = there.to_vec(0..len + 2).expect("inside");
        assert_same_bytes("written", &got[1..=len], &pattern(len as u64, len));
        assert_eq!((got[0], got[len + 1]), (0, 0), "no byte next to it");
        c.a.host.buf().fill(0);
        c.a.post(&SendWr::new(2, SendOp::Read(remote), &[c.a.host.sge(0, len as u32)]));
        expect_success(c.a.next_sent(), 2, WcOpcode::Read);
        assert_same_bytes("read", &c.a.host.buf().to_vec(0..len).expect("inside"), &pattern(len as u64, len));
    }
}

/// Atomics can access it, too.
pub(crate) fn atomics_reach_all_memory(env: &Env) {
    let c = Conn::new(env);
    let Some(all) = all_memory(&c.b, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC) else { return };
    let there = Buf::alloc(16).expect("memory");
    let word = there.word(8).expect("aligned");
    let remote = all.remote(there.addr() + 8);
    c.a.post(&SendWr::new(1, SendOp::FetchAdd { remote, add: 5 }, &[c.a.host.sge(0, 8)]));
    expect_success(c.a.next_sent(), 1, WcOpcode::FetchAdd);
    c.a.post(&SendWr::new(2, SendOp::CompareSwap { remote, compare: 5, swap: 7 }, &[c.a.host.sge(8, 8)]));
    expect_success(c.a.next_sent(), 2, WcOpcode::CompareSwap);
    let old = |at| c.a.host.buf().word(at).expect("aligned").load(std::sync::atomic::Ordering::Acquire);
    assert_eq!((old(0), old(8), word.load(std::sync::atomic::Ordering::Acquire)), (0, 5, 7));
}

/// A peer's request to an unmapped address fails, and the owner survives. (The first page is never mapped.)
pub(crate) fn request_to_unmapped_address_fails(env: &Env) {
    for (addr, len) in [(8, 8), (8, 5000), (u64::MAX - 64, 8), (u64::MAX, 1)] {
        for reads in [false, true] {
            let c = Conn::new(env);
            let Some(all) = all_memory(&c.b, Access::ALL) else { return };
            let remote = all.remote(addr);
            let op = if reads { SendOp::Read(remote) } else { SendOp::Write(remote) };
            c.a.post(&SendWr::new(1, op, &[c.a.host.sge(0, len)]));
            expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
        }
    }
    let c = Conn::new(env);
    let Some(all) = all_memory(&c.b, Access::ALL) else { return };
    let op = SendOp::FetchAdd { remote: all.remote(64), add: 1 };
    c.a.post(&SendWr::new(1, op, &[c.a.host.sge(0, 8)]));
    expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
}

/// Without remote rights, the region's key gives peers no access; with one right, it gives only that one.
pub(crate) fn region_of_all_memory_grants_given_rights_only(env: &Env) {
    let there = random_buf(1, 64);
    let refused = |c: &Conn, all: &ImplicitMr, op: fn(RemoteAddr) -> SendOp| {
        c.a.post(&SendWr::new(1, op(all.remote(there.addr())), &[c.a.host.sge(0, 8)]));
        expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
    };
    let c = Conn::new(env);
    if let Some(all) = all_memory(&c.b, Access::LOCAL_WRITE) {
        refused(&c, &all, SendOp::Write);
    }
    let c = Conn::new(env);
    if let Some(all) = all_memory(&c.b, Access::REMOTE_READ) {
        refused(&c, &all, SendOp::Write);
    }
    let c = Conn::new(env);
    if let Some(all) = all_memory(&c.b, Access::LOCAL_WRITE | Access::REMOTE_WRITE) {
        refused(&c, &all, SendOp::Read);
    }
    assert_same_bytes("untouched", &there.to_vec(0..64).expect("inside"), &pattern(1, 64));
    // SAFETY: the call is refused.
    let impossible = unsafe { env.a.alloc_pd().expect("a domain").reg_all(Access::REMOTE_WRITE) };
    assert!(matches!(impossible, Err(Error::Invalid(_))), "{impossible:?}");
}

/// Its key is invalid after deregistration, for peers and for its owner.
pub(crate) fn key_is_invalid_after_deregistration(env: &Env) {
    let there = random_buf(1, 64);
    let c = Conn::new(env);
    if let Some(all) = all_memory(&c.b, Access::ALL) {
        let remote = all.remote(there.addr());
        all.dereg().expect("no request uses it");
        c.a.post(&SendWr::new(1, SendOp::Write(remote), &[c.a.host.sge(0, 8)]));
        expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
    }
    let c = Conn::new(env);
    if let Some(all) = all_memory(&c.a, Access::empty()) {
        let sge = [all.sge(there.addr(), 8)];
        drop(all);
        c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(0)), &sge));
        expect_failure(c.a.next_sent(), 1, WcStatus::LocProtErr);
    }
}
