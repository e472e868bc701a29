//! Load and store on a peer's NIC memory ([`verbs::Qp::map`]).

use std::sync::atomic::Ordering;

use crate::Env;
use crate::harness::check::{assert_same_bytes, expect_success, pattern};
use crate::harness::conn::{Conn, Endpoint, region};
use verbs::{Access, Buf, Error, MemoryKind, Mr, SendOp, SendWr, WcOpcode};

/// Maps the peer's NIC memory, from `at` on; `None` if the device does not support that, or has no NIC memory.
#[track_caller]
fn mapped(end: &Endpoint, far: Option<&Mr>, at: u64, len: usize) -> Option<Buf> {
    match end.qp.map(far?.remote(at), len) {
        Ok(buf) => {
            assert_eq!((buf.len(), buf.kind()), (len, MemoryKind::Nic));
            Some(buf)
        }
        Err(refusal) => {
            assert!(matches!(refusal, Error::Unsupported { .. }), "{refusal:?}");
            assert!(!end.device.attr().maps_peers, "the device says that it maps");
            None
        }
    }
}

/// Each end loads what the other stores, in exactly the mapped bytes.
pub(crate) fn stores_arrive_at_both_ends(env: &Env) {
    let c = Conn::with_nic(env);
    let Some(there) = mapped(&c.a, c.b.nic.as_ref(), 128, 256) else { return };
    let owners = c.b.nic.as_ref().expect("mapped").buf();
    owners.fill(0);
    there.write(0, &pattern(3, 256)).expect("inside");
    assert_same_bytes("stored by the peer", &owners.to_vec(128..384).expect("inside"), &pattern(3, 256));
    assert_eq!(owners.to_vec(127..128).expect("inside"), [0]);
    assert_eq!(owners.to_vec(384..385).expect("inside"), [0]);
    owners.word(136).expect("aligned").store(77, Ordering::Release);
    assert_eq!(there.word(8).expect("aligned").fetch_add(1, Ordering::AcqRel), 77);
    assert_eq!(owners.word(136).expect("aligned").load(Ordering::Acquire), 78);
}

/// Requests and stores access the same bytes.
pub(crate) fn requests_and_stores_access_the_same_bytes(env: &Env) {
    let c = Conn::with_nic(env);
    let Some(there) = mapped(&c.a, c.b.nic.as_ref(), 0, 512) else { return };
    let far = c.b.nic.as_ref().expect("mapped");
    c.a.host.buf().write(0, &pattern(5, 512)).expect("inside");
    c.a.post(&SendWr::new(1, SendOp::Write(far.remote(0)), &[c.a.host.sge(0, 512)]));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    assert_same_bytes("written, then loaded", &there.to_vec(0..512).expect("inside"), &pattern(5, 512));
    there.write(0, &pattern(6, 512)).expect("inside");
    c.a.post(&SendWr::new(2, SendOp::Read(far.remote(0)), &[c.a.host.sge(0, 512)]));
    expect_success(c.a.next_sent(), 2, WcOpcode::Read);
    assert_same_bytes("stored, then read", &c.a.host.buf().to_vec(0..512).expect("inside"), &pattern(6, 512));
}

/// A wrong key, a range that ends outside and a missing right are refused; so is host memory.
pub(crate) fn map_without_right_is_refused(env: &Env) {
    let c = Conn::with_nic(env);
    assert!(matches!(c.a.qp.map(c.b.host.remote(0), 0), Err(Error::Invalid(_))));
    assert!(matches!(c.a.qp.map(c.b.host.remote(0), 64), Err(Error::Unsupported { .. })));
    if mapped(&c.a, c.b.nic.as_ref(), 0, 64).is_none() {
        return;
    }
    let far = c.b.nic.as_ref().expect("mapped");
    let len = far.buf().len();
    let stranger = env.b.alloc_pd().expect("a domain");
    let other = region(env, &stranger, MemoryKind::Nic, 64, Access::ALL);
    let one_way = region(env, &c.b.pd, MemoryKind::Nic, 64, Access::ALL - Access::REMOTE_READ);
    let mut wrong = far.remote(0);
    wrong.rkey ^= 1;
    for (remote, len) in [
        (wrong, 8),
        (far.remote(0), len + 1),
        (far.remote(len as u64), 1),
        (far.remote(u64::MAX), 8),
        (other.remote(0), 8),
        (one_way.remote(0), 8),
    ] {
        let refusal = c.a.qp.map(remote, len);
        assert!(matches!(refusal, Err(Error::Invalid(_))), "{remote:?}+{len}: {refusal:?}");
    }
    c.a.qp.map(far.remote(len as u64 - 1), 1).expect("the last byte");
}

/// A queue pair without a connection cannot map.
pub(crate) fn map_of_unconnected_queue_pair_is_refused(env: &Env) {
    let c = Conn::with_nic(env);
    if mapped(&c.a, c.b.nic.as_ref(), 0, 64).is_none() {
        return;
    }
    let remote = c.b.nic.as_ref().expect("mapped").remote(0);
    let lonely = c.a.another_qp();
    assert!(matches!(lonely.map(remote, 8), Err(Error::WrongState { .. })));
    c.a.cm.disconnect(&c.a.qp).expect("connected");
    c.a.wait_for_error();
    assert!(matches!(c.a.qp.map(remote, 8), Err(Error::WrongState { .. })));
}

/// The mapping survives deregistration and the end of the connection.
pub(crate) fn mapping_outlives_region_and_connection(env: &Env) {
    let c = Conn::with_nic(env);
    let Some(there) = mapped(&c.a, c.b.nic.as_ref(), 0, 64) else { return };
    let Conn { a, mut b } = c;
    let far = b.nic.take().expect("mapped");
    let owners = far.buf().clone();
    far.dereg().expect("no access is in progress");
    drop(a);
    there.write(0, &pattern(1, 64)).expect("inside");
    assert_same_bytes("still shared", &owners.to_vec(0..64).expect("inside"), &pattern(1, 64));
    drop((b, owners));
    there.fill(1);
}
