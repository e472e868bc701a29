//! Violations of a peer's keys, ranges and rights: an error completion at the initiator, both queue pairs in the error
//! state, later requests flushed in order, earlier ones executed, and no byte written.

use crate::Env;
use crate::harness::check::{Shadow, assert_same_bytes, expect_failure, expect_success, pattern};
use crate::harness::conn::{Conn, Setup, rights};
use verbs::{
    Access, AsyncEvent, AtomicCap, Buf, DmAccess, MemoryKind, Mr, RemoteAddr, SendOp, SendWr, WcOpcode,
    WcStatus,
};

/// Every operation that accesses remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write,
    WriteImm,
    Read,
    Cas,
    Add,
}

impl Op {
    pub(crate) const ALL: [Self; 5] = [Self::Write, Self::WriteImm, Self::Read, Self::Cas, Self::Add];

    /// A request that would change eight bytes if it were allowed.
    pub(crate) fn to_send_op(self, remote: RemoteAddr) -> SendOp {
        match self {
            Self::Write => SendOp::Write(remote),
            Self::WriteImm => SendOp::WriteImm(remote, 1),
            Self::Read => SendOp::Read(remote),
            Self::Cas => SendOp::CompareSwap { remote, compare: 0, swap: 1 },
            Self::Add => SendOp::FetchAdd { remote, add: 1 },
        }
    }

    pub(crate) fn required_access(self) -> Access {
        match self {
            Self::Write | Self::WriteImm => Access::REMOTE_WRITE,
            Self::Read => Access::REMOTE_READ,
            Self::Cas | Self::Add => Access::REMOTE_ATOMIC,
        }
    }

    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::Cas | Self::Add)
    }

    /// The operations that device `b` supports on memory of this kind; the group `atomics` checks that the others are
    /// refused.
    pub(crate) fn supported(env: &Env, kind: MemoryKind) -> Vec<Self> {
        let attr = env.b.attr();
        let cap = if kind == MemoryKind::Nic { attr.atomic_cap_dm } else { attr.atomic_cap };
        Self::ALL.into_iter().filter(|op| !op.is_atomic() || cap != AtomicCap::None).collect()
    }
}

/// Size of the memory that must not change; regions of it begin at byte 64 and end at byte 64 + 1023.
const TARGET_LEN: usize = 2048;
const REGION: std::ops::Range<usize> = 64..64 + 1023;

/// The target of the forbidden request, with the regions that must stay registered meanwhile.
type MakeBadTarget = fn(&Conn, Op, &Buf) -> (RemoteAddr, Vec<Mr>);

fn register(c: &Conn, buf: &Buf, access: Access) -> Mr {
    let access = access & rights(&c.b.device, buf.kind());
    c.b.pd.reg_mr_range(buf, REGION, access).expect("a region")
}

/// Tries every operation on every kind of memory.
fn expect_operations_fail(env: &Env, make_bad_target: MakeBadTarget) {
    for kind in env.kinds(&env.b) {
        for op in Op::supported(env, kind) {
            expect_operation_fails(env, kind, op, make_bad_target);
        }
    }
}

fn expect_operation_fails(env: &Env, kind: MemoryKind, op: Op, make_bad_target: MakeBadTarget) {
    let c = Conn::new(env);
    let target = env.alloc(&env.b, kind, TARGET_LEN);
    let before = pattern(77, TARGET_LEN);
    target.write(0, &before).expect("inside");
    let (near, mut far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
    let (remote, _keep) = make_bad_target(&c, op, &target);
    let (good, data) = (c.b.host.remote(100), [c.a.host.sge(8, 8)]);
    c.b.post_recv(20, &[c.b.host.sge(0, 64)]);
    c.b.post_recv(21, &[c.b.host.sge(0, 64)]);
    c.a.post(&SendWr::new(1, SendOp::Write(good), &data));
    c.a.post(&SendWr::new(2, op.to_send_op(remote), &data));
    c.a.post(&SendWr::new(3, SendOp::Write(good.offset(8)), &data).unsignaled());
    c.a.post(&SendWr::new(4, SendOp::Send, &data));
    c.a.post(&SendWr::new(5, SendOp::Read(good), &data));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    expect_failure(c.a.next_sent(), 2, WcStatus::RemAccessErr);
    c.a.expect_sends_flushed([3, 4, 5]);
    c.a.wait_for_error();
    c.a.post(&SendWr::new(6, SendOp::Send, &data));
    c.a.expect_sends_flushed([6]);
    c.b.wait_for_error();
    c.b.expect_receives_flushed([20, 21]);
    far.expect(100, &near.bytes(8, 8));
    far.check("the target's other memory");
    near.check("the initiator's memory");
    let after = target.to_vec(0..TARGET_LEN).expect("inside");
    assert_same_bytes(&format!("{op:?} on forbidden {kind:?} memory"), &after, &before);
}

/// A key that names nothing.
pub(crate) fn unknown_key_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        let remote = RemoteAddr { rkey: mr.rkey() ^ 0x2b5a_0001, ..mr.remote(0) };
        (remote, vec![mr])
    });
}

/// The key zero and the key of all ones.
pub(crate) fn keys_zero_and_all_ones_fail(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        assert_ne!(mr.rkey(), 0, "an uninitialized key is often zero");
        (RemoteAddr { rkey: 0, ..mr.remote(0) }, vec![mr])
    });
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        (RemoteAddr { rkey: !0, ..mr.remote(0) }, vec![mr])
    });
}

/// A key of another protection domain of the same device.
pub(crate) fn key_of_other_domain_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let pd = c.b.device.alloc_pd().expect("another domain");
        let mr = pd.reg_mr_range(buf, REGION, rights(&c.b.device, buf.kind())).expect("a region");
        (mr.remote(0), vec![mr])
    });
}

/// Seven bytes inside, one beyond the end. (The region has 1023 bytes, so that atomics stay aligned.)
pub(crate) fn access_one_byte_past_the_end_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        (mr.remote(1016), vec![mr])
    });
}

/// All eight bytes right after the end.
pub(crate) fn access_right_after_the_end_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        (mr.remote(1024), vec![mr])
    });
}

/// One byte before the start; eight for atomics, so that they stay aligned.
pub(crate) fn access_one_byte_before_the_start_fails(env: &Env) {
    expect_operations_fail(env, |c, op, buf| {
        let mr = register(c, buf, Access::ALL);
        let back: u64 = if op.is_atomic() { 8 } else { 1 };
        (mr.remote(0).offset(back.wrapping_neg()), vec![mr])
    });
}

/// The neighbouring bytes are registered with the same rights, but under another key.
pub(crate) fn access_into_adjacent_region_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        let next = c.b.pd.reg_mr_range(buf, REGION.end..TARGET_LEN, mr.access()).expect("the neighbour");
        (mr.remote(1016), vec![mr, next])
    });
}

/// The right that the operation needs is missing, all others are present.
pub(crate) fn missing_right_fails(env: &Env) {
    expect_operations_fail(env, |c, op, buf| {
        let mr = register(c, buf, Access::ALL - op.required_access());
        (mr.remote(0), vec![mr])
    });
}

/// No remote right at all, as for a plain local buffer.
pub(crate) fn region_without_remote_rights_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::LOCAL_WRITE);
        (mr.remote(0), vec![mr])
    });
}

/// The region has been deregistered.
pub(crate) fn deregistered_region_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        let remote = mr.remote(0);
        mr.dereg().expect("no request uses it");
        (remote, Vec::new())
    });
}

/// The region has been deregistered and the same bytes registered again: the old key stays invalid.
pub(crate) fn stale_key_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let remote = register(c, buf, Access::ALL).remote(0);
        let again = register(c, buf, Access::ALL);
        assert_ne!(again.rkey(), remote.rkey, "a key must not be reused immediately");
        (remote, vec![again])
    });
}

/// Address plus length overflows 64 bits.
pub(crate) fn overflowing_address_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        (RemoteAddr { addr: u64::MAX - 7, rkey: mr.rkey() }, vec![mr])
    });
    expect_operations_fail(env, |c, op, buf| {
        let mr = register(c, buf, Access::ALL);
        let addr = if op.is_atomic() { u64::MAX - 15 } else { u64::MAX - 3 };
        (RemoteAddr { addr, rkey: mr.rkey() }, vec![mr])
    });
}

/// A virtual address for zero-based NIC memory, an offset for host memory: both are out of bounds.
pub(crate) fn address_of_other_memory_kind_fails(env: &Env) {
    expect_operations_fail(env, |c, _, buf| {
        let mr = register(c, buf, Access::ALL);
        // If the processor has no address for it, any will do.
        let host = if buf.access() == DmAccess::Copy { 4096 } else { buf.addr() };
        let addr = if buf.kind() == MemoryKind::Nic { host } else { 0 };
        let addr = if addr == mr.addr() { addr + 4096 } else { addr };
        (RemoteAddr { addr, rkey: mr.rkey() }, vec![mr])
    });
}

/// Only the last byte of a long message is outside: no byte is written. (A NIC that segments messages checks every
/// segment; the API requires that the whole range is checked first, as IBA 9.7.4.1.7 does by the length in the first
/// packet.)
pub(crate) fn long_message_is_checked_before_it_is_written(env: &Env) {
    for read in [false, true] {
        let c = Conn::with_setup(env, &Setup { len: 1 << 20, ..Setup::default() });
        let (near, far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
        let remote = c.b.host.remote(1);
        let op = if read { SendOp::Read(remote) } else { SendOp::Write(remote) };
        c.a.post(&SendWr::new(1, op, &[c.a.host.sge(0, 1 << 20)]));
        expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
        near.check("the initiator's memory");
        far.check("the target's memory");
    }
}

/// The target's owner gets an asynchronous event (IBA 11.6.3.2, affiliated asynchronous error).
pub(crate) fn the_target_gets_an_asynchronous_event(env: &Env) {
    let c = Conn::new(env);
    let remote = RemoteAddr { rkey: c.b.host.rkey() ^ 0x2b5a_0001, ..c.b.host.remote(0) };
    c.a.post(&SendWr::new(1, SendOp::Write(remote), &[c.a.host.sge(0, 8)]));
    expect_failure(c.a.next_sent(), 1, WcStatus::RemAccessErr);
    c.a.waiter.async_event(&env.b, AsyncEvent::QpAccessError { qp_num: c.b.qp.num() });
}

/// Other connections of both devices are not affected.
pub(crate) fn other_connections_are_unaffected_by_violation(env: &Env) {
    let (bad, good) = (Conn::new(env), Conn::new(env));
    let remote = RemoteAddr { rkey: bad.b.host.rkey() ^ 0x2b5a_0001, ..bad.b.host.remote(0) };
    bad.a.post(&SendWr::new(1, SendOp::Write(remote), &[bad.a.host.sge(0, 8)]));
    expect_failure(bad.a.next_sent(), 1, WcStatus::RemAccessErr);
    good.check_traffic();
}

/// Every subset of rights allows exactly the operations it names: each operation with each subset.
pub(crate) fn region_grants_exactly_its_rights(env: &Env) {
    let ops = Op::supported(env, MemoryKind::Host);
    for bits in 0..16 {
        let access = Access::from_bits_truncate(bits) & rights(&env.b, MemoryKind::Host);
        // IBA 10.6.3.1: a region that peers may write must be locally writable, too.
        let legal = access.contains(Access::LOCAL_WRITE)
            || !access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        for &op in &ops {
            let c = Conn::new(env);
            let Ok(mr) = c.b.pd.reg_mr(c.b.host.buf(), access) else {
                assert!(!legal, "{access:?} was refused");
                continue;
            };
            assert!(legal, "{access:?} was not refused");
            c.b.post_recv(9, &[]);
            c.a.post(&SendWr::new(1, op.to_send_op(mr.remote(0)), &[c.a.host.sge(0, 8)]));
            let want = if access.contains(op.required_access()) {
                WcStatus::Success
            } else {
                WcStatus::RemAccessErr
            };
            let got = c.a.next_sent().status;
            assert_eq!(got, want, "{op:?} with {access:?}");
        }
    }
}
