//! Shared receive queues (IBA 10.2.9; ibv_create_srq(3)).

use crate::Env;
use crate::harness::check::{expect_failure, expect_success};
use crate::harness::conn::{Endpoint, Setup, connect};
use verbs::{
    AsyncEvent, Device, Error, Qp, QpState, RecvWr, SendOp, SendWr, Sge, Srq, SrqInit, WcOpcode, WcStatus,
};

/// Connections from `a` to `b` that share `b`'s receives; all ends of `b` use one protection domain.
struct SrqConns {
    srq: Srq,
    senders: Vec<Endpoint>,
    receivers: Vec<Endpoint>,
}

fn connect_to_srq(env: &Env, init: SrqInit, count: usize) -> Option<SrqConns> {
    let pd = env.b.alloc_pd().expect("a protection domain");
    if env.b.attr().max_srq == 0 {
        let refusal = pd.create_srq(init).expect_err("shared receive queues from a device without");
        assert!(matches!(refusal, Error::Unsupported { .. } | Error::Limit { .. }), "{refusal:?}");
        return None;
    }
    let srq = pd.create_srq(init).expect("a shared receive queue");
    let setup = Setup::default();
    let receivers: Vec<Endpoint> =
        (0..count).map(|_| Endpoint::with_srq(env, &env.b, &setup, Some(&srq))).collect();
    let senders: Vec<Endpoint> = (0..count).map(|_| Endpoint::new(env, &env.a, &setup)).collect();
    senders.iter().zip(&receivers).for_each(|(a, b)| connect(env, a, b, &setup));
    Some(SrqConns { srq, senders, receivers })
}

const SRQ_INIT: SrqInit = SrqInit { max_wr: 64, max_sge: 2 };

impl SrqConns {
    #[track_caller]
    fn post(&self, wr_id: u64, len: u32) {
        let room = [self.receivers[0].host.sge(wr_id * 64, len)];
        self.srq.post_recv(&RecvWr::new(wr_id, &room)).expect("a shared receive");
    }

    #[track_caller]
    fn send(&self, from: usize, wr_id: u64) {
        let end = &self.senders[from];
        end.post(&SendWr::new(wr_id, SendOp::SendImm(wr_id as u32), &[end.host.sge(0, 8)]));
        expect_success(end.next_sent(), wr_id, WcOpcode::Send);
    }
}

/// Messages of two queue pairs consume the shared receives in the order of arrival; each completion names the queue
/// pair that consumed the receive.
pub(crate) fn two_queue_pairs_take_shared_receives(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 2) else { return };
    (0..20).for_each(|i| s.post(i, 64));
    for i in 0..20 {
        let from = (i % 3 % 2) as usize;
        s.send(from, i);
        let wc = expect_success(s.receivers[from].next_received(), i, WcOpcode::Recv);
        assert_eq!((wc.qp_num, wc.imm), (s.receivers[from].qp.num(), Some(i as u32)));
    }
}

/// A message waits when the shared queue is empty, and takes the next receive that is posted.
pub(crate) fn message_waits_for_shared_receive(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 2) else { return };
    for end in &s.senders {
        end.post(&SendWr::new(1, SendOp::Send, &[end.host.sge(0, 8)]));
        env.waiter.no_completion(&end.send_cq, "no receive is posted");
    }
    s.post(5, 64);
    s.post(6, 64);
    let mut got: Vec<u64> = s.receivers.iter().map(|end| end.next_received()).map(|wc| wc.wr_id).collect();
    got.sort_unstable();
    assert_eq!(got, [5, 6]);
    for end in &s.senders {
        expect_success(end.next_sent(), 1, WcOpcode::Send);
    }
}

/// Memory of a shared receive is checked only where bytes are written, as for any other receive.
pub(crate) fn shared_recv_ignores_bad_lkey_where_no_byte_lands(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 2) else { return };
    let bad = Sge { addr: 8, length: 64, lkey: 0 };
    let good = s.receivers[0].host.sge(0, 8);
    let cases: [(&[Sge], u32); 3] = [(&[bad], 0), (&[good, bad], 8), (&[good, bad], 1)];
    for (from, (pieces, len)) in [0, 1, 0].into_iter().zip(cases) {
        s.srq.post_recv(&RecvWr::new(5, pieces)).expect("a shared receive");
        let sender = &s.senders[from];
        sender.post(&SendWr::new(6, SendOp::Send, &[sender.host.sge(0, len)]));
        assert_eq!(expect_success(s.receivers[from].next_received(), 5, WcOpcode::Recv).byte_len, len);
        expect_success(sender.next_sent(), 6, WcOpcode::Send);
    }
}

/// A full shared queue refuses receives; polling a consumed one makes room.
pub(crate) fn post_to_full_shared_queue_is_refused(env: &Env) {
    let Some(s) = connect_to_srq(env, SrqInit { max_wr: 4, max_sge: 1 }, 1) else { return };
    let mut depth = 0_u64;
    let error = loop {
        match s.srq.post_recv(&RecvWr::new(depth, &[s.receivers[0].host.sge(0, 64)])) {
            Ok(()) => depth += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(error, Error::QueueFull { queue: "shared receive", depth: depth as u32 });
    assert!(depth >= 4);
    for i in 0..depth * 3 {
        s.send(0, i);
        expect_success(s.receivers[0].next_received(), i, WcOpcode::Recv);
        s.srq.post_recv(&RecvWr::new(i + depth, &[s.receivers[0].host.sge(0, 64)])).expect("room again");
    }
}

/// Receives are posted to the shared queue, not to its queue pairs.
pub(crate) fn post_recv_to_queue_pair_with_srq_is_refused(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 1) else { return };
    let refusal = s.receivers[0].qp.post_recv(&RecvWr::new(1, &[]));
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
}

/// Too many elements in a shared receive are refused.
pub(crate) fn too_many_pieces_are_refused(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 1) else { return };
    let over = vec![s.receivers[0].host.sge(0, 8); env.b.attr().max_sge as usize + 1];
    let refusal = s.srq.post_recv(&RecvWr::new(1, &over));
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
}

/// Falling below the limit causes one event and disarms (ibv_modify_srq(3)).
pub(crate) fn srq_limit_is_reported_once(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 1) else { return };
    (0..6).for_each(|i| s.post(i, 64));
    s.srq.arm_limit(4).expect("within its size");
    for i in 0..2 {
        s.send(0, i);
        s.receivers[0].next_received();
        assert_eq!(env.b.poll_async_event(), None, "four are left after the second");
    }
    s.send(0, 2);
    let event = AsyncEvent::SrqLimitReached { srq: s.srq.id() };
    s.senders[0].waiter.async_event(&env.b, event.clone());
    s.send(0, 3);
    s.receivers[0].next_received();
    assert_eq!(env.b.poll_async_event(), None, "the limit was disarmed");
    s.srq.arm_limit(2).expect("armed again");
    s.send(0, 4);
    s.senders[0].waiter.async_event(&env.b, event);
}

/// Reading the limit: it is set until it is reported, then 0 until it is armed again (ibv_query_srq(3)).
pub(crate) fn reported_srq_limit_reads_zero(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 1) else { return };
    (0..4).for_each(|i| s.post(i, 64));
    assert_eq!(s.srq.limit(), 0);
    for round in 0..3 {
        s.srq.arm_limit(4).expect("within its size");
        assert_eq!(s.srq.limit(), 4, "four are left");
        s.send(0, round);
        expect_success(s.receivers[0].next_received(), round, WcOpcode::Recv);
        s.senders[0].waiter.async_event(&env.b, AsyncEvent::SrqLimitReached { srq: s.srq.id() });
        assert_eq!(s.srq.limit(), 0, "it was reported");
        s.post(4 + round, 64);
    }
    s.srq.arm_limit(3).expect("within its size");
    s.srq.arm_limit(0).expect("disarmed");
    assert_eq!(s.srq.limit(), 0);
}

/// A limit of zero disarms; one above the size is refused.
pub(crate) fn srq_limit_zero_disarms_and_excess_is_refused(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 1) else { return };
    (0..2).for_each(|i| s.post(i, 64));
    s.srq.arm_limit(2).expect("within its size");
    s.srq.arm_limit(0).expect("disarmed");
    s.send(0, 0);
    s.receivers[0].next_received();
    assert_eq!(env.b.poll_async_event(), None);
    let refusal = s.srq.arm_limit(SRQ_INIT.max_wr + 1);
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
}

/// A queue pair that fails or is destroyed leaves the shared receives to the others; they are not flushed.
pub(crate) fn failed_queue_pair_leaves_shared_receives(env: &Env) {
    let Some(mut s) = connect_to_srq(env, SRQ_INIT, 3) else { return };
    (0..4).for_each(|i| s.post(i, 64));
    s.receivers[0].qp.to_error();
    env.waiter.no_completion(&s.receivers[0].recv_cq, "shared receives are not flushed");
    drop((s.senders.swap_remove(1), s.receivers.swap_remove(1)));
    for i in 0..4 {
        s.send(1, i);
        expect_success(s.receivers[1].next_received(), i, WcOpcode::Recv);
    }
}

/// All completions of a queue pair in the error state, which can be polled when its last receive was reported.
fn drained(end: &Endpoint) -> usize {
    std::iter::from_fn(|| end.recv_cq.poll_one().expect("no overrun")).count()
}

/// Waits until a queue pair reports its last receive. Events of shm about a leaving peer may come before.
#[track_caller]
fn expect_last_wqe_reached(env: &Env, device: &Device, qp: &Qp) {
    let wanted = AsyncEvent::LastWqeReached { qp_num: qp.num() };
    let is_last = |event: &AsyncEvent| matches!(event, AsyncEvent::LastWqeReached { .. });
    let found = env.waiter.until("last receive", || device.poll_async_event().filter(is_last));
    assert_eq!(found, wanted);
}

/// Checks that no queue pair of the device has a last receive to report.
#[track_caller]
fn expect_no_last_wqe_reached(device: &Device) {
    while let Some(event) = device.poll_async_event() {
        assert!(!matches!(event, AsyncEvent::LastWqeReached { .. }), "{event:?}");
    }
}

/// A queue pair in the error state reports once that all receives it has taken are completed: filled ones can be polled
/// then, and the rest stay for others (IBA 11.6.3.1).
pub(crate) fn the_last_receive_is_reported_once(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 2) else { return };
    (0..6).for_each(|i| s.post(i, 64));
    (0..3).for_each(|i| s.send(0, i));
    let failing = &s.receivers[0];
    failing.qp.to_error();
    expect_last_wqe_reached(env, &env.b, &failing.qp);
    assert_eq!(drained(failing), 3, "what was received");
    failing.qp.to_error();
    env.waiter.no_completion(&failing.recv_cq, "nothing is left");
    expect_no_last_wqe_reached(&env.b);
    s.send(1, 3);
    expect_success(s.receivers[1].next_received(), 3, WcOpcode::Recv);
}

/// A queue pair also reports its last receive when the peer ends the connection; a queue pair that is destroyed reports
/// nothing.
pub(crate) fn the_last_receive_is_reported_when_the_peer_leaves(env: &Env) {
    let Some(mut s) = connect_to_srq(env, SRQ_INIT, 2) else { return };
    (0..2).for_each(|i| s.post(i, 64));
    s.send(0, 0);
    drop(s.receivers.pop());
    drop(s.senders.swap_remove(0));
    expect_last_wqe_reached(env, &env.b, &s.receivers[0].qp);
    assert_eq!(drained(&s.receivers[0]), 1);
    env.waiter.no_completion(&s.receivers[0].recv_cq, "nothing is left");
    // The other one was destroyed.
    expect_no_last_wqe_reached(&env.b);
}

/// A queue pair's own receives are flushed instead, without this event.
pub(crate) fn no_last_receive_without_a_shared_queue(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 1) else { return };
    s.senders[0].post_recv(1, &[]);
    s.senders[0].qp.to_error();
    expect_failure(s.senders[0].next_received(), 1, WcStatus::WrFlushErr);
    expect_last_wqe_reached(env, &env.b, &s.receivers[0].qp);
    expect_no_last_wqe_reached(&env.a);
}

/// A message too long for a shared receive fails only its own queue pair.
pub(crate) fn too_long_message_fails_only_its_queue_pair(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 2) else { return };
    s.post(0, 4);
    s.post(1, 64);
    s.senders[0].post(&SendWr::new(7, SendOp::Send, &[s.senders[0].host.sge(0, 8)]));
    expect_failure(s.receivers[0].next_received(), 0, WcStatus::LocLenErr);
    expect_failure(s.senders[0].next_sent(), 7, WcStatus::RemInvReqErr);
    s.send(1, 8);
    expect_success(s.receivers[1].next_received(), 1, WcOpcode::Recv);
    assert_eq!(s.receivers[1].qp.state(), QpState::ReadyToSend);
}

/// Sizes of zero and beyond the device's limits are refused.
pub(crate) fn srq_sizes_are_checked(env: &Env) {
    let Some(s) = connect_to_srq(env, SRQ_INIT, 1) else { return };
    let (pd, attr) = (s.srq.pd(), env.b.attr());
    for init in [SrqInit { max_wr: 0, max_sge: 1 }, SrqInit { max_wr: 1, max_sge: 0 }] {
        assert!(matches!(pd.create_srq(init), Err(Error::Invalid(_))), "{init:?}");
    }
    let over = [
        SrqInit { max_wr: attr.max_srq_wr.saturating_add(1), max_sge: 1 },
        SrqInit { max_wr: 1, max_sge: attr.max_sge.saturating_add(1) },
    ];
    for init in over {
        assert!(matches!(pd.create_srq(init), Err(Error::Limit { .. })), "{init:?}");
    }
}
