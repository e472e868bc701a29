//! Registration of memory (IBA 10.6; ibv_reg_mr(3), ibv_reg_dm_mr(3)).

use crate::Env;
use crate::harness::check::{Shadow, expect_failure, expect_success};
use crate::harness::conn::{Conn, region};
use verbs::{Access, Buf, Error, MemoryKind, SendOp, SendWr, WcOpcode, WcStatus};

/// A region's address is the virtual one for host memory, zero for NIC memory; two regions have different keys.
pub(crate) fn region_address_follows_memory_kind(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    for kind in env.kinds(&env.a) {
        let buf = env.alloc(&env.a, kind, 4096);
        let (all, part) =
            (pd.reg_mr(&buf, Access::LOCAL_WRITE), pd.reg_mr_range(&buf, 100..300, Access::empty()));
        let (all, part) = (all.expect("a region of all bytes"), part.expect("a part"));
        assert_eq!(all.addr(), if kind == MemoryKind::Host { buf.addr() } else { 0 });
        assert_eq!(part.addr(), if kind == MemoryKind::Host { buf.addr() + 100 } else { 0 });
        assert_eq!((part.buf().len(), part.access()), (200, Access::empty()));
        assert_ne!((all.lkey(), all.rkey()), (part.lkey(), part.rkey()));
    }
}

/// Remote write or atomic access without local write access is refused (IBA 10.6.3.1).
pub(crate) fn remote_write_without_local_write_is_refused(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    for kind in env.kinds(&env.a) {
        let buf = env.alloc(&env.a, kind, 64);
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::ALL - Access::LOCAL_WRITE] {
            let refusal = pd.reg_mr(&buf, access);
            assert!(matches!(refusal, Err(Error::Invalid(_))), "{access:?}: {refusal:?}");
        }
    }
}

/// Ranges that are empty or end outside are refused.
pub(crate) fn empty_and_outside_ranges_are_refused(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    for kind in env.kinds(&env.a) {
        let buf = env.alloc(&env.a, kind, 64);
        for range in [0..65, 64..65, 10..10, 0..usize::MAX] {
            let refusal = pd.reg_mr_range(&buf, range.clone(), Access::empty());
            assert!(
                matches!(refusal, Err(Error::Limit { .. } | Error::Invalid(_))),
                "{range:?}: {refusal:?}"
            );
        }
        pd.reg_mr_range(&buf, 63..64, Access::empty()).expect("the last byte");
    }
}

/// A region over a slice covers exactly the slice: its first and last byte, and none next to them.
pub(crate) fn region_of_a_slice_covers_exactly_the_slice(env: &Env) {
    for kind in env.kinds(&env.b) {
        for (at, want) in [(0, true), (199, true), (200, false)] {
            let c = Conn::new(env);
            let all = region(env, &c.b.pd, kind, 4096, Access::ALL);
            let mut shadow = Shadow::new(&all, 3);
            let slice = all.buf().slice(100..300).expect("inside");
            let part = c.b.pd.reg_mr(&slice, all.access()).expect("a slice");
            c.a.host.buf().fill(0x11);
            c.a.post(&SendWr::new(1, SendOp::Write(part.remote(at)), &[c.a.host.sge(0, 1)]));
            if want {
                expect_success(c.a.next_sent(), 1, WcOpcode::Write);
                shadow.expect(100 + at as usize, &[0x11]);
            } else {
                expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
            }
            shadow.check("around a slice");
        }
    }
}

/// Regions may overlap, each with its own rights.
pub(crate) fn overlapping_regions_keep_their_rights(env: &Env) {
    let c = Conn::new(env);
    let (buf, access) = (c.b.host.buf(), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let writable = c.b.pd.reg_mr_range(buf, 0..200, access).expect("a region");
    let readable = c.b.pd.reg_mr_range(buf, 100..300, Access::REMOTE_READ).expect("a region over it");
    c.a.post(&SendWr::new(1, SendOp::Write(writable.remote(150)), &[c.a.host.sge(0, 8)]));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    c.a.post(&SendWr::new(2, SendOp::Read(readable.remote(50)), &[c.a.host.sge(64, 8)]));
    expect_success(c.a.next_sent(), 2, WcOpcode::Read);
    let bytes = c.a.host.buf().to_vec(0..72).expect("inside");
    assert_eq!(bytes[..8], bytes[64..]);
    c.a.post(&SendWr::new(3, SendOp::Write(readable.remote(50)), &[c.a.host.sge(0, 8)]));
    expect_failure(c.a.next_sent(), 3, WcStatus::RemAccessErr);
}

/// One of two regions over the same bytes is deregistered: the other still works.
pub(crate) fn dereg_keeps_overlapping_region(env: &Env) {
    let c = Conn::new(env);
    let other = c.b.pd.reg_mr(c.b.host.buf(), c.b.host.access()).expect("a second region");
    other.dereg().expect("no request uses it");
    c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 8)]));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
}

/// Registering again yields new keys, so that an old leaked key does not soon give access to other memory.
pub(crate) fn reregistered_memory_gets_new_keys(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    for kind in env.kinds(&env.a) {
        let buf = env.alloc(&env.a, kind, 64);
        let mut keys: Vec<u32> =
            (0..64).map(|_| pd.reg_mr(&buf, Access::REMOTE_READ).expect("a region").rkey()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 64, "a key came back within 64 registrations");
    }
}

/// Regions that exist at the same time have distinct keys.
pub(crate) fn keys_are_distinct(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    let buf = Buf::alloc(64).expect("memory");
    let count = env.a.attr().max_mr.saturating_sub(16).min(1000);
    let regions: Vec<_> =
        (0..count).map(|_| pd.reg_mr(&buf, Access::REMOTE_READ).expect("a region")).collect();
    for key in [verbs::Mr::lkey, verbs::Mr::rkey] {
        let mut keys: Vec<u32> = regions.iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count as usize);
    }
}

/// Registering and deregistering repeatedly uses up no resources.
pub(crate) fn registered_and_deregistered_regions_leak_nothing(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    for kind in env.kinds(&env.a) {
        let buf = env.alloc(&env.a, kind, 4096);
        for _ in 0..5000 {
            pd.reg_mr(&buf, Access::LOCAL_WRITE).expect("a region").dereg().expect("no request uses it");
        }
    }
}

/// Deregistering does not change the memory.
pub(crate) fn dereg_does_not_change_memory(env: &Env) {
    let c = Conn::new(env);
    for kind in env.kinds(&env.b) {
        let mr = region(env, &c.b.pd, kind, 100, Access::ALL);
        let (buf, want) = (mr.buf().clone(), crate::harness::check::pattern(9, 100));
        c.a.host.buf().write(0, &want).expect("inside");
        c.a.post(&SendWr::new(1, SendOp::Write(mr.remote(0)), &[c.a.host.sge(0, 100)]));
        expect_success(c.a.next_sent(), 1, WcOpcode::Write);
        mr.dereg().expect("no request uses it");
        assert_eq!(buf.to_vec(0..100).expect("inside"), want);
    }
}

/// A region keeps its memory even when every other handle is dropped.
pub(crate) fn regions_keep_their_memory(env: &Env) {
    let c = Conn::new(env);
    for kind in env.kinds(&env.b) {
        let mr = region(env, &c.b.pd, kind, 4096, Access::ALL);
        for len in [64, 4096] {
            drop(env.alloc(&env.b, kind, len));
        }
        c.a.post(&SendWr::new(1, SendOp::Write(mr.remote(0)), &[c.a.host.sge(0, 4096)]));
        expect_success(c.a.next_sent(), 1, WcOpcode::Write);
        let want = c.a.host.buf().to_vec(0..4096).expect("inside");
        assert_eq!(mr.buf().to_vec(0..4096).expect("inside"), want);
    }
}

/// Memory registered on two devices is accessible through both.
pub(crate) fn host_memory_works_on_two_devices(env: &Env) {
    let c = Conn::new(env);
    let here = c.a.pd.reg_mr(c.b.host.buf(), Access::LOCAL_WRITE).expect("host memory of anybody");
    c.a.host.buf().fill(1);
    c.b.host.buf().fill(2);
    c.a.post(&SendWr::new(1, SendOp::Read(c.b.host.remote(0)), &[here.sge(1000, 100)]));
    expect_success(c.a.next_sent(), 1, WcOpcode::Read);
    c.a.post(&SendWr::new(2, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 8)]));
    expect_success(c.a.next_sent(), 2, WcOpcode::Write);
    assert_eq!(here.buf().to_vec(0..9).expect("inside"), [1, 1, 1, 1, 1, 1, 1, 1, 2]);
}
