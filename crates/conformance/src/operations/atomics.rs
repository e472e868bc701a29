//! Compare-and-swap and fetch-and-add (IBA 9.4.5). Values are in the byte order of the machine.

use crate::Env;
use crate::harness::check;
use crate::harness::check::{Shadow, expect_failure, expect_failure_among, expect_success};
use crate::harness::conn::{Conn, Setup, connect_qps};
use verbs::{AtomicCap, ConnParam, Error, MemoryKind, Mr, RemoteAddr, SendOp, SendWr, WcOpcode, WcStatus};

/// Whether device `b` supports atomics on memory of this kind; otherwise checks that they are refused.
fn is_supported_or_refused(env: &Env, c: &Conn, far: &Mr) -> bool {
    let attr = env.b.attr();
    let cap = if far.buf().kind() == MemoryKind::Nic { attr.atomic_cap_dm } else { attr.atomic_cap };
    if cap != AtomicCap::None {
        return true;
    }
    let wr_sge = [c.a.host.sge(0, 8)];
    match c.a.qp.post_send(&SendWr::new(1, SendOp::FetchAdd { remote: far.remote(0), add: 1 }, &wr_sge)) {
        Ok(()) => {
            let legal = [WcStatus::RemInvReqErr, WcStatus::RemAccessErr, WcStatus::RemOpErr];
            expect_failure_among(c.a.next_sent(), 1, &legal);
        }
        Err(e) => assert!(matches!(e, Error::Unsupported { .. } | Error::Limit { .. }), "{e:?}"),
    }
    false
}

/// Runs `body` for every combination of memory for the result and memory with atomics for the target.
fn for_each_memory_kind(env: &Env, body: fn(&Conn, &Mr, &Mr)) {
    for far in 0..env.kinds(&env.b).len() {
        let probe = Conn::with_nic(env);
        let target = probe.b.regions().nth(far).expect("as many regions as kinds");
        if is_supported_or_refused(env, &probe, target) {
            probe.a.regions().for_each(|near| body(&probe, near, target));
        }
    }
}

/// A connection if atomics on host memory are supported.
fn connect_for_host_atomics(env: &Env) -> Option<Conn> {
    let c = Conn::new(env);
    is_supported_or_refused(env, &c, &c.b.host).then_some(c)
}

fn cas(remote: RemoteAddr, compare: u64, swap: u64) -> SendOp {
    SendOp::CompareSwap { remote, compare, swap }
}

fn add(remote: RemoteAddr, add: u64) -> SendOp {
    SendOp::FetchAdd { remote, add }
}

/// Executes an atomic and compares all memory of both ends.
fn atomic(c: &Conn, near: &Mr, far: &Mr, op: SendOp, old: u64, new: u64) {
    let (mut sink, mut target) = (Shadow::new(near, 1), Shadow::new(far, 2));
    far.buf().write(64, &old.to_ne_bytes()).expect("inside");
    c.a.post(&SendWr::new(3, op, &[near.sge(24, 8)]));
    let opcode =
        if matches!(op, SendOp::FetchAdd { .. }) { WcOpcode::FetchAdd } else { WcOpcode::CompareSwap };
    assert_eq!(expect_success(c.a.next_sent(), 3, opcode).byte_len, 8);
    sink.expect(24, &old.to_ne_bytes());
    target.expect(64, &new.to_ne_bytes());
    sink.check("the result");
    target.check("the target");
}

/// A compare-and-swap whose comparison succeeds swaps, and returns the old value.
pub(crate) fn matching_comparison_swaps(env: &Env) {
    for_each_memory_kind(env, |c, near, far| {
        for (old, new) in [(0, 1), (1 << 63, u64::MAX), (0x0102_0304_0506_0708, 0)] {
            atomic(c, near, far, cas(far.remote(64), old, new), old, new);
        }
    });
}

/// A compare-and-swap whose comparison fails changes nothing, and returns the old value.
pub(crate) fn failed_comparison_changes_nothing(env: &Env) {
    for_each_memory_kind(env, |c, near, far| {
        for (old, compare) in [(0, 1), (1, 0), (1 << 32, 0), (0x0102_0304_0506_0708, 0x0807_0605_0403_0201)] {
            atomic(c, near, far, cas(far.remote(64), compare, 99), old, old);
        }
    });
}

/// Fetch-and-add adds 64 bits, carrying through all bits, and returns the old value.
pub(crate) fn fetch_and_add_adds(env: &Env) {
    for_each_memory_kind(env, |c, near, far| {
        for (old, plus) in [(0, 1), (5, 0), (0xffff_ffff, 1), (1, 1 << 63), (10, 10_u64.wrapping_neg())] {
            atomic(c, near, far, add(far.remote(64), plus), old, old.wrapping_add(plus));
        }
    });
}

/// Fetch-and-add wraps around at 64 bits.
pub(crate) fn fetch_and_add_wraps(env: &Env) {
    for_each_memory_kind(env, |c, near, far| {
        atomic(c, near, far, add(far.remote(64), 1), u64::MAX, 0);
        atomic(c, near, far, add(far.remote(64), u64::MAX), 1, 0);
    });
}

/// The first and the last word of a region are part of it.
pub(crate) fn first_and_last_word_are_accessible(env: &Env) {
    let Some(c) = connect_for_host_atomics(env) else { return };
    let last = c.b.host.buf().len() as u64 - 8;
    for at in [0, last] {
        let mut far = Shadow::new(&c.b.host, 1);
        let old = u64::from_ne_bytes(far.bytes(at as usize, 8).try_into().expect("eight bytes"));
        c.a.post(&SendWr::new(1, add(c.b.host.remote(at), 7), &[c.a.host.sge(0, 8)]));
        expect_success(c.a.next_sent(), 1, WcOpcode::FetchAdd);
        far.expect(at as usize, &old.wrapping_add(7).to_ne_bytes());
        far.check("a word at the end");
    }
}

/// A target that is not aligned to 8 bytes is an invalid request, and nothing is written (IBA 9.4.5,
/// 9.7.4.1.6).
pub(crate) fn unaligned_targets_are_refused(env: &Env) {
    if connect_for_host_atomics(env).is_none() {
        return;
    }
    for at in [1, 2, 4, 7, 12] {
        for which in 0..2 {
            let c = Conn::new(env);
            let (near, far) = (Shadow::new(&c.a.host, 1), Shadow::new(&c.b.host, 2));
            let remote = c.b.host.remote(64 + at);
            let op = if which == 0 { cas(remote, 0, 1) } else { add(remote, 1) };
            c.a.post(&SendWr::new(3, op, &[c.a.host.sge(0, 8)]));
            expect_failure(c.a.next_sent(), 3, WcStatus::RemInvReqErr);
            c.a.wait_for_error();
            near.check("no result");
            far.check("nothing is written");
        }
    }
}

/// The result may be stored at any alignment. (IBA 11.4.1.1 has one element.)
pub(crate) fn result_address_may_be_unaligned(env: &Env) {
    let Some(c) = connect_for_host_atomics(env) else { return };
    for at in [1, 3, 9, 100] {
        let mut near = Shadow::new(&c.a.host, 5);
        c.b.host.buf().write(0, &77_u64.to_ne_bytes()).expect("inside");
        c.a.post(&SendWr::new(1, add(c.b.host.remote(0), 1), &[c.a.host.sge(at, 8)]));
        expect_success(c.a.next_sent(), 1, WcOpcode::FetchAdd);
        near.expect(at as usize, &77_u64.to_ne_bytes());
        near.check("the result");
    }
}

/// Local memory of any other length than 8 is refused: by the call or by a local error. The target is not changed.
pub(crate) fn result_length_other_than_8_is_refused(env: &Env) {
    if connect_for_host_atomics(env).is_none() {
        return;
    }
    for len in [0, 1, 4, 7, 9, 16] {
        let c = Conn::new(env);
        let far = Shadow::new(&c.b.host, 2);
        match c.a.qp.post_send(&SendWr::new(1, add(c.b.host.remote(0), 1), &[c.a.host.sge(0, len)])) {
            Err(e) => assert!(matches!(e, Error::Invalid(_) | Error::Limit { .. }), "{len}: {e:?}"),
            Ok(()) => {
                let legal = [WcStatus::LocLenErr, WcStatus::LocProtErr, WcStatus::LocQpOpErr];
                expect_failure_among(c.a.next_sent(), 1, &legal);
            }
        }
        far.check("a result of the wrong length");
    }
}

/// Increments from both ends, pipelined, add up: none is lost, and every old value is returned exactly once.
pub(crate) fn increments_from_both_ends_add_up(env: &Env) {
    let Some(c) = connect_for_host_atomics(env) else { return };
    let target = c.b.host.remote(0);
    c.b.host.buf().fill(0);
    // b accesses its own region through a connection to itself.
    let (near, far) = (c.b.another_qp(), c.b.another_qp());
    let (other, param) = (env.b.create_cm().expect("another channel"), ConnParam::default());
    connect_qps(env, (&other, &near, &param), (&c.b.cm, &far, &param));
    let rounds = 500;
    let mut seen = Vec::new();
    for _ in 0..rounds {
        c.a.post(&SendWr::new(1, add(target, 1), &[c.a.host.sge(0, 8)]));
        near.post_send(&SendWr::new(2, add(target, 1), &[c.b.host.sge(64, 8)])).expect("a second adder");
        expect_success(c.a.next_sent(), 1, WcOpcode::FetchAdd);
        expect_success(c.b.next_sent(), 2, WcOpcode::FetchAdd);
        for (mr, at) in [(&c.a.host, 0), (&c.b.host, 64)] {
            let bytes = mr.buf().to_vec(at..at + 8).expect("inside");
            seen.push(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..2 * rounds).collect::<Vec<u64>>());
}

/// Pipelined atomics see each other's results, in order.
pub(crate) fn pipelined_atomics_are_ordered(env: &Env) {
    let Some(c) = connect_for_host_atomics(env) else { return };
    c.b.host.buf().fill(0);
    for i in 0..64 {
        c.a.post(&SendWr::new(i, cas(c.b.host.remote(8), i, i + 1), &[c.a.host.sge(i * 8, 8)]));
    }
    for i in 0..64 {
        expect_success(c.a.next_sent(), i, WcOpcode::CompareSwap);
        let old = c.a.host.buf().to_vec(i as usize * 8..i as usize * 8 + 8).expect("inside");
        check::assert_same_bytes("each sees the one before", &old, &i.to_ne_bytes());
    }
    assert_eq!(c.b.host.buf().to_vec(8..16).expect("inside"), 64_u64.to_ne_bytes());
}

/// The processor's own atomics are atomic with those of peers if the device reports that (`AtomicCap::Global`).
pub(crate) fn processor_atomics_mix_with_remote_atomics(env: &Env) {
    let Some(c) = connect_for_host_atomics(env) else { return };
    if env.b.attr().atomic_cap != AtomicCap::Global {
        // Otherwise only the sum of alternating additions is guaranteed.
        assert_eq!(env.b.attr().atomic_cap, AtomicCap::Hca);
    }
    c.b.host.buf().fill(0);
    let word = c.b.host.buf().word(0).expect("aligned");
    for i in 0..100 {
        c.a.post(&SendWr::new(i, add(c.b.host.remote(0), 1), &[c.a.host.sge(0, 8)]));
        if env.b.attr().atomic_cap == AtomicCap::Global {
            word.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            expect_success(c.a.next_sent(), i, WcOpcode::FetchAdd);
        } else {
            expect_success(c.a.next_sent(), i, WcOpcode::FetchAdd);
            word.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        }
    }
    assert_eq!(word.load(std::sync::atomic::Ordering::Acquire), 200);
}

/// Atomics count as outstanding reads; those beyond the limit are held back, not lost.
pub(crate) fn atomics_beyond_the_limit_are_held_back(env: &Env) {
    let mut setup = Setup::default();
    for param in [&mut setup.a, &mut setup.b] {
        (param.initiator_depth, param.responder_resources) = (1, 1);
    }
    let c = Conn::with_setup(env, &setup);
    if !is_supported_or_refused(env, &c, &c.b.host) {
        return;
    }
    c.b.host.buf().fill(0);
    for i in 0..100 {
        let wr_sge = [c.a.host.sge(0, 8)];
        let wr = SendWr::new(i, add(c.b.host.remote(0), 1), &wr_sge);
        c.a.post(&if i == 99 { wr } else { wr.unsignaled() });
    }
    expect_success(c.a.next_sent(), 99, WcOpcode::FetchAdd);
    assert_eq!(c.b.host.buf().to_vec(0..8).expect("inside"), 100_u64.to_ne_bytes());
}
