//! Regions that are not simply mapped memory at its own address: at other addresses ([`verbs::Pd::reg_mr_at`]), changed
//! ones ([`verbs::Pd::rereg_mr`]), and memory that is mapped on demand ([`verbs::Buf::on_demand`]).

use std::ptr::NonNull;

use crate::Env;
use crate::harness::check::{expect_failure, expect_success};
use crate::harness::conn::Conn;
use verbs::{Access, Buf, Error, Mr, SendOp, SendWr, WcOpcode, WcStatus};

/// Whether a registration is refused because the attributes deny it; otherwise the region.
#[track_caller]
fn if_offered<T: std::fmt::Debug>(is_offered: bool, made: verbs::Result<T>) -> Option<T> {
    match made {
        Ok(made) => {
            assert!(is_offered, "done, although the attributes deny it");
            Some(made)
        }
        Err(refusal) => {
            assert!(!is_offered && matches!(refusal, Error::Unsupported { .. }), "{refusal:?}");
            None
        }
    }
}

fn write(c: &Conn, wr_id: u64, target: &Mr, at: u64) {
    c.a.post(&SendWr::new(wr_id, SendOp::Write(target.remote(at)), &[c.a.host.sge(0, 8)]));
}

/// Requests of both sides use the address that was given, and no other; the address 0 makes offsets of it.
pub(crate) fn region_at_another_address_is_used_by_it(env: &Env) {
    for base in [0, 4096, 1 << 47, u64::MAX - 64] {
        let c = Conn::new(env);
        let buf = Buf::alloc(64).expect("memory");
        let offered = env.b.attr().regions.any_address;
        let Some(mr) = if_offered(offered, c.b.pd.reg_mr_at(&buf, base, Access::ALL)) else { return };
        assert_eq!(mr.addr(), base);
        c.a.host.buf().fill(7);
        write(&c, 1, &mr, 56);
        expect_success(c.a.next_sent(), 1, WcOpcode::Write);
        assert_eq!(
            (buf.to_vec(55..57).expect("inside"), buf.to_vec(63..64).expect("inside")),
            (vec![0, 7], vec![7])
        );
        c.b.post(&SendWr::new(2, SendOp::Write(c.a.host.remote(100)), &[mr.sge(56, 8)]));
        expect_success(c.b.next_sent(), 2, WcOpcode::Write);
        assert_eq!(c.a.host.buf().to_vec(100..108).expect("inside"), [7; 8]);
        write(&c, 3, &mr, 57);
        expect_failure(c.a.next_sent(), 3, WcStatus::RemAccessErr);
    }
}

/// Addresses that wrap are refused, and the address of the memory itself is then outside.
pub(crate) fn own_address_is_outside_of_a_region_at_another_one(env: &Env) {
    let c = Conn::new(env);
    let buf = Buf::alloc(64).expect("memory");
    let offered = env.b.attr().regions.any_address;
    let Some(mr) = if_offered(offered, c.b.pd.reg_mr_at(&buf, 4096, Access::ALL)) else { return };
    let wraps = c.b.pd.reg_mr_at(&buf, u64::MAX - 62, Access::ALL);
    assert!(matches!(wraps, Err(Error::Invalid(_))), "{wraps:?}");
    let mut remote = mr.remote(0);
    remote.addr = buf.addr();
    c.a.post(&SendWr::new(1, SendOp::Write(remote), &[c.a.host.sge(0, 8)]));
    expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
}

/// A region with other rights has the same keys; requests that used it before are refused.
pub(crate) fn changed_rights_apply_to_the_same_keys(env: &Env) {
    let c = Conn::new(env);
    let buf = Buf::alloc(64).expect("memory");
    let mut mr = c.b.pd.reg_mr(&buf, Access::ALL).expect("a region");
    let keys = (mr.lkey(), mr.rkey());
    write(&c, 1, &mr, 0);
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    let offered = env.b.attr().regions.rereg;
    if if_offered(offered, c.b.pd.rereg_mr(&mut mr, None, Some(Access::REMOTE_READ))).is_none() {
        return;
    }
    assert_eq!(((mr.lkey(), mr.rkey()), mr.access()), (keys, Access::REMOTE_READ));
    c.a.post(&SendWr::new(2, SendOp::Read(mr.remote(0)), &[c.a.host.sge(0, 8)]));
    expect_success(c.a.next_sent(), 2, WcOpcode::Read);
    let refusal = c.b.pd.rereg_mr(&mut mr, None, Some(Access::REMOTE_WRITE));
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
    write(&c, 3, &mr, 0);
    expect_failure(c.a.next_sent(), 3, WcStatus::RemAccessErr);
}

/// A region in another domain is refused to queue pairs of the first one, and works again after it came back.
pub(crate) fn changed_domain_applies(env: &Env) {
    let other = env.b.alloc_pd().expect("a domain");
    for comes_back in [true, false] {
        let c = Conn::new(env);
        let mut mr = c.b.pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
        write(&c, 1, &mr, 0);
        expect_success(c.a.next_sent(), 1, WcOpcode::Write);
        if if_offered(env.b.attr().regions.rereg, other.rereg_mr(&mut mr, None, None)).is_none() {
            return;
        }
        if comes_back {
            c.b.pd.rereg_mr(&mut mr, None, None).expect("the first domain");
        }
        write(&c, 2, &mr, 0);
        if comes_back {
            expect_success(c.a.next_sent(), 2, WcOpcode::Write);
        } else {
            expect_failure(c.a.next_sent(), 2, WcStatus::RemAccessErr);
        }
    }
    let foreign = env.a.alloc_pd().expect("a domain");
    let pd = env.b.alloc_pd().expect("a domain");
    let mut mr = pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
    let refusal = foreign.rereg_mr(&mut mr, None, None);
    assert!(matches!(refusal, Err(Error::Foreign { .. } | Error::Unsupported { .. })), "{refusal:?}");
}

/// A region of other memory has the same keys, the memory's own address, and nothing of the former memory.
pub(crate) fn changed_memory_replaces_the_former(env: &Env) {
    let c = Conn::new(env);
    let (first, second) = (Buf::alloc(64).expect("memory"), Buf::alloc(128).expect("memory"));
    let mut mr = c.b.pd.reg_mr(&first, Access::ALL).expect("a region");
    let (rkey, former) = (mr.rkey(), mr.remote(0));
    write(&c, 1, &mr, 0);
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    if if_offered(env.b.attr().regions.rereg, c.b.pd.rereg_mr(&mut mr, Some(&second), None)).is_none() {
        return;
    }
    assert_eq!((mr.rkey(), mr.addr(), mr.buf().len()), (rkey, second.addr(), 128));
    c.a.host.buf().fill(9);
    write(&c, 2, &mr, 120);
    expect_success(c.a.next_sent(), 2, WcOpcode::Write);
    assert_eq!(second.to_vec(119..128).expect("inside"), [0, 9, 9, 9, 9, 9, 9, 9, 9]);
    c.a.post(&SendWr::new(3, SendOp::Write(former), &[c.a.host.sge(0, 8)]));
    expect_failure(c.a.next_sent(), 3, WcStatus::RemAccessErr);
}

/// Memory that is mapped on demand can be registered before it is mapped; requests then access what is mapped.
pub(crate) fn memory_on_demand_may_be_mapped_later(env: &Env) {
    let page = Buf::alloc(4096).expect("memory");
    let c = Conn::new(env);
    let base = NonNull::new(page.as_ptr()).expect("an address");
    // SAFETY: no references to it are made.
    let buf = unsafe { Buf::from_program(base, page.len()) }.on_demand();
    let offered = env.b.attr().regions.on_demand;
    let Some(mr) = if_offered(offered, c.b.pd.reg_mr(&buf, Access::ALL)) else { return };
    write(&c, 1, &mr, 8);
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    // The first page of a process is never mapped.
    let nothing = NonNull::new(std::ptr::without_provenance_mut(64)).expect("an address");
    // SAFETY: as above.
    let buf = unsafe { Buf::from_program(nothing, 64) };
    let refusal = c.b.pd.reg_mr(&buf, Access::ALL);
    assert!(matches!(refusal, Err(Error::Memory { .. })), "{refusal:?}");
    let unmapped = c.b.pd.reg_mr(&buf.on_demand(), Access::ALL).expect("a region without memory");
    write(&c, 2, &unmapped, 0);
    expect_failure(c.a.next_sent(), 2, WcStatus::RemAccessErr);
}
