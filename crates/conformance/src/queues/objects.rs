//! Lifetime of objects: limits, zero sizes, objects of other devices, every order of dropping.

use crate::Env;
use crate::harness::check::expect_success;
use crate::harness::conn::{CAP, Conn, Endpoint, Setup};
use verbs::{Access, Buf, Error, MemoryKind, QpCap, QpInit, SendOp, SendWr, WcOpcode};

/// Attributes are consistent: every supported object has a limit above zero.
pub(crate) fn attributes_are_consistent(env: &Env) {
    for device in [&env.a, &env.b] {
        let attr = device.attr();
        let some = [attr.max_qp, attr.max_qp_wr, attr.max_sge, attr.max_cq, attr.max_cqe, attr.max_mr];
        assert!(some.iter().all(|&n| n > 0), "{attr:?}");
        assert!(attr.max_mr_size >= 1 << 20 && attr.max_msg_size >= 1 << 20, "{attr:?}");
        assert!(attr.max_private_data > 0 && attr.max_rd_atomic > 0 && attr.ports > 0, "{attr:?}");
        assert_eq!(attr.max_srq == 0, attr.max_srq_wr == 0, "{attr:?}");
        assert!(!device.name().is_empty());
    }
}

/// Queue pairs without queue entries, or without elements, are refused.
pub(crate) fn queue_pairs_without_entries_are_refused(env: &Env) {
    let (pd, cq) = (env.a.alloc_pd().expect("a domain"), env.a.create_cq(4).expect("a queue"));
    for cap in [
        QpCap { max_send_wr: 0, ..CAP },
        QpCap { max_recv_wr: 0, ..CAP },
        QpCap { max_send_sge: 0, ..CAP },
        QpCap { max_recv_sge: 0, ..CAP },
    ] {
        let refusal = pd.create_qp(&QpInit::new(&cq).cap(cap));
        assert!(matches!(refusal, Err(Error::Invalid(_))), "{cap:?}: {refusal:?}");
    }
}

/// Queue pairs beyond each of the device's limits are refused; at the limit they are created.
pub(crate) fn queue_pairs_beyond_limits_are_refused(env: &Env) {
    let (pd, cq) = (env.a.alloc_pd().expect("a domain"), env.a.create_cq(4).expect("a queue"));
    let (attr, cap) = (env.a.attr(), QpCap { max_inline: 0, ..CAP });
    for cap in [
        QpCap { max_send_wr: attr.max_qp_wr.saturating_add(1), ..cap },
        QpCap { max_recv_wr: attr.max_qp_wr.saturating_add(1), ..cap },
        QpCap { max_send_sge: attr.max_sge.saturating_add(1), ..cap },
        QpCap { max_recv_sge: attr.max_sge.saturating_add(1), ..cap },
        QpCap { max_inline: attr.max_inline.saturating_add(1), ..cap },
    ] {
        let refusal = pd.create_qp(&QpInit::new(&cq).cap(cap));
        assert!(matches!(refusal, Err(Error::Limit { .. })), "{cap:?}: {refusal:?}");
    }
    for cap in [
        QpCap { max_send_wr: attr.max_qp_wr, ..cap },
        QpCap { max_recv_wr: attr.max_qp_wr, ..cap },
        QpCap { max_send_sge: attr.max_sge, max_recv_sge: attr.max_sge, ..cap },
        QpCap { max_inline: attr.max_inline, ..cap },
    ] {
        pd.create_qp(&QpInit::new(&cq).cap(cap)).unwrap_or_else(|e| panic!("at the limit, {cap:?}: {e}"));
    }
}

/// Completion queues with zero or too many entries are refused.
pub(crate) fn completion_queue_sizes_are_checked(env: &Env) {
    let none = env.a.create_cq(0);
    assert!(matches!(none, Err(Error::Invalid(_) | Error::Limit { .. })), "{none:?}");
    let many = env.a.create_cq(env.a.attr().max_cqe.saturating_add(1));
    assert!(matches!(many, Err(Error::Limit { .. })), "{many:?}");
    for size in [1, 2, 3, 100] {
        assert!(env.a.create_cq(size).expect("a queue").cqe() >= size);
    }
}

/// NIC memory: zeroed, of the requested size, and refused beyond the capacity.
pub(crate) fn nic_memory_is_zeroed(env: &Env) {
    if !env.kinds(&env.a).contains(&MemoryKind::Nic) {
        return;
    }
    for len in [1, 64, 4095, 8192] {
        let buf = env.a.alloc_dm(len).expect("NIC memory");
        assert_eq!(buf.len(), len);
        assert_eq!(buf.to_vec(0..len).expect("inside"), vec![0; len]);
        buf.fill(0xff);
    }
    let over = usize::try_from(env.a.attr().max_dm_size).unwrap_or(usize::MAX).saturating_add(1);
    let refusal = env.a.alloc_dm(over);
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
    let none = env.a.alloc_dm(0);
    assert!(matches!(none, Err(Error::Invalid(_) | Error::Limit { .. })), "{none:?}");
}

/// NIC memory reports its kind.
pub(crate) fn nic_memory_reports_its_kind(env: &Env) {
    for kind in env.kinds(&env.a) {
        assert_eq!(env.alloc(&env.a, kind, 64).kind(), kind);
    }
}

/// Freed NIC memory can be allocated again, many times the device's size in total.
pub(crate) fn nic_memory_is_freed(env: &Env) {
    if !env.kinds(&env.a).contains(&MemoryKind::Nic) {
        return;
    }
    let len = (env.a.attr().max_dm_size / 8).clamp(64, 1 << 20) as usize;
    for _ in 0..(env.a.attr().max_dm_size / len as u64 * 2).min(2000) {
        env.a.alloc_dm(len).expect("freed before");
    }
}

/// Allocations of NIC memory do not overlap.
pub(crate) fn nic_memory_is_disjoint(env: &Env) {
    if !env.kinds(&env.a).contains(&MemoryKind::Nic) {
        return;
    }
    let pieces: Vec<Buf> = (0..8).map(|i| env.a.alloc_dm(100 + i).expect("NIC memory")).collect();
    pieces.iter().zip(1..).for_each(|(buf, byte)| buf.fill(byte));
    for (i, buf) in pieces.iter().enumerate() {
        assert_eq!(buf.to_vec(0..buf.len()).expect("inside"), vec![i as u8 + 1; 100 + i]);
    }
}

/// Queues of another device are refused.
pub(crate) fn foreign_queues_are_refused(env: &Env) {
    let pd = env.a.alloc_pd().expect("a domain");
    let (own, foreign) = (env.a.create_cq(4).expect("a queue"), env.b.create_cq(4).expect("a queue"));
    for init in
        [QpInit::new(&foreign), QpInit::new(&own).recv_cq(&foreign), QpInit::new(&foreign).recv_cq(&own)]
    {
        let refusal = pd.create_qp(&init);
        assert!(matches!(refusal, Err(Error::Foreign { .. })), "{refusal:?}");
    }
    if env.b.attr().max_srq > 0 {
        let other = env.b.alloc_pd().expect("a domain");
        let srq = other.create_srq(verbs::SrqInit { max_wr: 4, max_sge: 1 }).expect("a shared queue");
        let refusal = pd.create_qp(&QpInit::new(&own).srq(&srq));
        assert!(matches!(refusal, Err(Error::Foreign { .. })), "{refusal:?}");
    }
}

/// NIC memory of another device cannot be registered.
pub(crate) fn foreign_nic_memory_is_refused(env: &Env) {
    if !env.kinds(&env.b).contains(&MemoryKind::Nic) {
        return;
    }
    let foreign = env.b.alloc_dm(64).expect("NIC memory");
    let refusal = env.a.alloc_pd().expect("a domain").reg_mr(&foreign, Access::LOCAL_WRITE);
    assert!(matches!(refusal, Err(Error::Foreign { .. })), "{refusal:?}");
}

/// Objects may be dropped in any order; the remaining ones keep what they need. Method: all orders of five.
pub(crate) fn objects_drop_in_any_order(env: &Env) {
    for order in permutations(5) {
        let Conn { a, b } = Conn::new(env);
        a.post_recv(1, &[a.host.sge(0, 8)]);
        a.post(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
        let Endpoint { pd, send_cq, recv_cq, cm, qp, host, .. } = a;
        let mut objects: Vec<Option<Box<dyn std::any::Any>>> = vec![
            Some(Box::new(pd)),
            Some(Box::new((send_cq, recv_cq))),
            Some(Box::new(cm)),
            Some(Box::new(qp)),
            Some(Box::new(host)),
        ];
        for index in order {
            objects[index] = None;
        }
        b.waiter.disconnected(&b.cm, b.qp.num());
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(n - 1);
    shorter
        .iter()
        .flat_map(|p| {
            (0..n).map(move |at| {
                let mut longer = p.clone();
                longer.insert(at, n - 1);
                longer
            })
        })
        .collect()
}

/// A queue pair keeps its domain and completion queues alive without any other handle.
pub(crate) fn queue_pair_keeps_its_domain_and_queues(env: &Env) {
    let mut c = Conn::new(env);
    let (send_cq, recv_cq) = (c.a.qp.init().send_cq.clone(), c.a.qp.init().recv_cq.clone());
    c.a.pd = env.a.alloc_pd().expect("another domain");
    (c.a.send_cq, c.a.recv_cq) = (send_cq, recv_cq);
    c.check_traffic();
}

/// Many objects are created and dropped without using up resources. The counts exceed the size of most tables.
pub(crate) fn created_and_dropped_objects_leak_nothing(env: &Env) {
    let end = Endpoint::new(env, &env.a, &Setup::default());
    for _ in 0..2000 {
        let cq = env.a.create_cq(16).expect("a queue");
        let pd = env.a.alloc_pd().expect("a domain");
        pd.create_qp(&QpInit::new(&cq).cap(QpCap { max_send_wr: 4, max_recv_wr: 4, ..end.qp.init().cap }))
            .expect("a queue pair");
    }
}

/// Many queue pairs exist at the same time, with distinct numbers.
pub(crate) fn many_queue_pairs_have_distinct_numbers(env: &Env) {
    let end = Endpoint::new(env, &env.a, &Setup::default());
    let count = env.a.attr().max_qp.saturating_sub(8).min(256);
    let pairs: Vec<_> = (0..count).map(|_| end.another_qp()).collect();
    let mut nums: Vec<u32> = pairs.iter().map(verbs::Qp::num).collect();
    nums.sort_unstable();
    nums.dedup();
    assert_eq!(nums.len(), count as usize);
}

/// Several connections with all their objects work on the same device.
pub(crate) fn connections_share_a_device(env: &Env) {
    let conns: Vec<Conn> = (0..4).map(|_| Conn::new(env)).collect();
    conns.iter().for_each(Conn::check_traffic);
    let c = &conns[0];
    c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(0)), &[c.a.host.sge(0, 8)]));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    for other in &conns[1..] {
        assert_eq!(other.a.send_cq.poll_one(), Ok(None), "completions stay on their queue");
    }
}
