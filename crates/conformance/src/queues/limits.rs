//! Full queues and exceeded limits: refused by the call, with nothing posted.

use crate::Env;
use crate::harness::check::expect_success;
use crate::harness::conn::{CAP, Conn, Endpoint, Setup, connect};
use verbs::{AsyncEvent, Data, Error, QpCap, QpState, RecvWr, SendFlags, SendOp, SendWr, Sge, WcOpcode};

/// Posts until the queue is full; returns the number of posted requests.
#[track_caller]
fn fill(end: &Endpoint, queue: &str, at_least: u32, mut post: impl FnMut(u64) -> verbs::Result<()>) -> u32 {
    for i in 0..u64::from(end.device.attr().max_qp_wr) * 4 {
        match post(i) {
            Ok(()) => {}
            Err(Error::QueueFull { queue: which, depth }) => {
                assert_eq!((which, u64::from(depth)), (queue, i), "the error names the queue and its depth");
                assert!(i >= u64::from(at_least), "full after {i} of {at_least}");
                return depth;
            }
            Err(e) => panic!("request {i}: {e}"),
        }
    }
    panic!("the {queue} queue never fills");
}

fn small(depth: u32) -> Setup {
    let cap = QpCap { max_send_wr: depth, max_recv_wr: depth, ..CAP };
    Setup { cap, cqe: 4096, ..Setup::default() }
}

/// A full send queue refuses requests, which have no effect. (A NIC may have rounded the depth up, as ibv_create_qp(3)
/// allows; its error then reports that depth.)
pub(crate) fn post_send_to_full_queue_is_refused(env: &Env) {
    for asked in [1, 3, 16] {
        let c = Conn::with_setup(env, &small(asked));
        let data = [c.a.host.sge(0, 8)];
        let depth = fill(&c.a, "send", asked, |i| c.a.qp.post_send(&SendWr::new(i, SendOp::Send, &data)));
        let more = c.a.qp.post_send(&SendWr::new(99, SendOp::Send, &data));
        assert!(matches!(more, Err(Error::QueueFull { .. })), "{more:?}");
        for i in 0..u64::from(depth) {
            c.b.post_recv(0, &[c.b.host.sge(0, 8)]);
            expect_success(c.a.next_sent(), i, WcOpcode::Send);
            expect_success(c.b.next_received(), 0, WcOpcode::Recv);
        }
        c.no_more_sent("refused requests");
        c.check_traffic();
    }
}

/// A slot is freed when its completion is polled, not before (ibv_post_send(3), ibv_poll_cq(3)).
pub(crate) fn polling_frees_slots(env: &Env) {
    let c = Conn::with_setup(env, &small(8));
    let data = [c.a.host.sge(0, 8)];
    let write = |i| SendWr::new(i, SendOp::Write(c.b.host.remote(0)), &data);
    let depth = u64::from(fill(&c.a, "send", 8, |i| c.a.qp.post_send(&write(i))));
    for i in 0..100 {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
        c.a.post(&write(i + depth));
        let more = c.a.qp.post_send(&write(0));
        assert!(matches!(more, Err(Error::QueueFull { .. })), "one slot was free, not two: {more:?}");
    }
}

/// A list longer than the queue is posted as far as it fits.
pub(crate) fn list_longer_than_the_queue_is_posted_until_full(env: &Env) {
    let c = Conn::with_setup(env, &small(8));
    let data = [c.a.host.sge(0, 8)];
    let op = SendOp::Write(c.b.host.remote(0));
    let depth = u64::from(fill(&c.a, "send", 8, |i| c.a.qp.post_send(&SendWr::new(i, op, &data))));
    for i in 0..depth {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
    }
    let wrs: Vec<SendWr<'_>> = (0..depth + 3).map(|i| SendWr::new(i, op, &data)).collect();
    let (posted, error) = c.a.qp.post_sends(&wrs).expect_err("three more than fit");
    assert_eq!((posted as u64, error), (depth, Error::QueueFull { queue: "send", depth: depth as u32 }));
    for i in 0..depth {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
    }
    c.no_more_sent("requests that did not fit");
}

/// The slot of an unsignaled request is freed when the completion of a later signaled one is polled.
pub(crate) fn unsignaled_slots_are_freed_together(env: &Env) {
    let c = Conn::with_setup(env, &small(8));
    let data = [c.a.host.sge(0, 8)];
    let write = |i| SendWr::new(i, SendOp::Write(c.b.host.remote(0)), &data);
    let depth = u64::from(fill(&c.a, "send", 8, |i| c.a.qp.post_send(&write(i))));
    for i in 0..depth {
        expect_success(c.a.next_sent(), i, WcOpcode::Write);
    }
    for round in 0..10 {
        for i in 0..depth - 1 {
            c.a.post(&write(i).unsignaled());
        }
        c.a.post(&write(1000 + round));
        let more = c.a.qp.post_send(&write(0));
        assert!(matches!(more, Err(Error::QueueFull { .. })), "{more:?}");
        expect_success(c.a.next_sent(), 1000 + round, WcOpcode::Write);
    }
}

/// A full receive queue refuses receives; polling a consumed one makes room.
pub(crate) fn post_recv_to_full_queue_is_refused(env: &Env) {
    for asked in [1, 5] {
        let c = Conn::with_setup(env, &small(asked));
        let room = [c.b.host.sge(0, 8)];
        let depth = fill(&c.b, "receive", asked, |i| c.b.qp.post_recv(&RecvWr::new(i, &room)));
        for i in 0..u64::from(depth) * 3 {
            c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
            expect_success(c.a.next_sent(), i, WcOpcode::Send);
            expect_success(c.b.next_received(), i, WcOpcode::Recv);
            c.b.post_recv(i + u64::from(depth), &room);
        }
    }
}

/// The receive queue of an unconnected queue pair fills in the same way.
pub(crate) fn unconnected_receive_queue_fills(env: &Env) {
    let end = Endpoint::new(env, &env.a, &small(4));
    let room = [end.host.sge(0, 8)];
    fill(&end, "receive", 4, |i| end.qp.post_recv(&RecvWr::new(i, &room)));
}

/// Flushed requests occupy their slots until they are polled, too: the queue cannot overrun by flushing.
pub(crate) fn queues_fill_in_the_error_state(env: &Env) {
    let c = Conn::with_setup(env, &small(4));
    c.a.qp.to_error();
    let data = [c.a.host.sge(0, 8)];
    let depth = fill(&c.a, "send", 4, |i| c.a.qp.post_send(&SendWr::new(i, SendOp::Send, &data)));
    c.a.expect_sends_flushed(0..u64::from(depth));
    c.a.post(&SendWr::new(77, SendOp::Send, &data));
    c.a.expect_sends_flushed([77]);
}

/// One element more than the limit of the queue pair (which a NIC may have rounded up, at most to the device's limit)
/// is refused on both queues.
pub(crate) fn too_many_pieces_are_refused(env: &Env) {
    let c = Conn::new(env);
    let over = vec![c.a.host.sge(0, 8); env.a.attr().max_sge as usize + 1];
    let ops = [SendOp::Send, SendOp::Write(c.b.host.remote(0)), SendOp::Read(c.b.host.remote(0))];
    for op in ops {
        let refusal = c.a.qp.post_send(&SendWr::new(1, op, &over));
        assert!(matches!(refusal, Err(Error::Limit { .. })), "{op:?}: {refusal:?}");
    }
    let refusal = c.a.qp.post_recv(&RecvWr::new(1, &over));
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
    c.check_traffic();
}

/// The maximum number of elements that the device allows works.
pub(crate) fn maximum_number_of_pieces_works(env: &Env) {
    let max = env.a.attr().max_sge.min(env.b.attr().max_sge);
    let cap = QpCap { max_send_sge: max, max_recv_sge: max, ..CAP };
    let c = Conn::with_setup(env, &Setup { cap, ..Setup::default() });
    let near = crate::harness::check::Shadow::new(&c.a.host, 1);
    let mut far = crate::harness::check::Shadow::new(&c.b.host, 2);
    let piece = |i: u32| (u64::from(i) * 17, 1 + i % 13);
    let from: Vec<Sge> = (0..max).map(piece).map(|(at, len)| c.a.host.sge(at, len)).collect();
    let to: Vec<Sge> = (0..max).map(piece).map(|(at, len)| c.b.host.sge(at, len)).collect();
    c.b.post_recv(1, &to);
    c.a.post(&SendWr::new(2, SendOp::Send, &from));
    expect_success(c.b.next_received(), 1, WcOpcode::Recv);
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    (0..max).map(piece).for_each(|(at, len)| far.expect(at as usize, &near.bytes(at as usize, len as usize)));
    far.check("as many pieces as there may be");
}

/// A message longer than the device's maximum is refused by the call, before its keys are checked.
pub(crate) fn message_beyond_device_limit_is_refused(env: &Env) {
    let max = env.a.attr().max_msg_size;
    let pieces = env.a.attr().max_sge.min(4) as usize;
    let c = Conn::new(env);
    let over: Vec<Sge> = vec![c.a.host.sge(0, u32::MAX); pieces];
    if pieces as u64 * u64::from(u32::MAX) <= max {
        // No request can be too long then; it fails for its range instead.
        c.a.post(&SendWr::new(1, SendOp::Write(c.b.host.remote(0)), &over));
        crate::harness::check::expect_failure(c.a.next_sent(), 1, verbs::WcStatus::LocProtErr);
        return;
    }
    for op in [SendOp::Send, SendOp::Write(c.b.host.remote(0)), SendOp::Read(c.b.host.remote(0))] {
        let refusal = c.a.qp.post_send(&SendWr::new(1, op, &over));
        assert!(matches!(refusal, Err(Error::Limit { .. })), "{op:?}: {refusal:?}");
    }
    c.check_traffic();
}

/// More completions than the completion queue holds: it returns the error from then on, also reports it as an
/// asynchronous event, and its queue pairs have failed (IBA 11.6.3.1). Completions from before may or may not be
/// pollable.
pub(crate) fn overrun_of_send_cq_is_reported(env: &Env) {
    let c = Conn::with_setup(env, &Setup { cqe: 4, ..Setup::default() });
    let cqe = c.a.send_cq.cqe();
    assert!(cqe >= 4);
    let data = [c.a.host.sge(0, 8)];
    let posted = (0..=u64::from(cqe) + 1)
        .take_while(|&i| c.a.qp.post_send(&SendWr::new(i, SendOp::Write(c.b.host.remote(0)), &data)).is_ok())
        .count();
    assert!(posted > cqe as usize, "the send queue is deeper than the completion queue");
    c.a.waiter.async_event(&env.a, AsyncEvent::CqError { cq: c.a.send_cq.id() });
    let error = (0..=cqe).find_map(|_| c.a.send_cq.poll_one().err());
    assert_eq!(error, Some(Error::CqOverrun { cqe }));
    assert_eq!(c.a.send_cq.poll_one(), Err(Error::CqOverrun { cqe }), "from then on always");
    c.a.wait_for_error();
    assert_eq!(
        c.a.send_cq.wait(env.waiter.short_time()),
        Err(Error::CqOverrun { cqe }),
        "the wait ends immediately"
    );
}

/// A completion queue of receives overruns: the receiver's queue pair has failed, and its peer is disconnected. Sends
/// whose completions were lost at the receiver may have succeeded or not; those before have.
pub(crate) fn overrun_of_recv_cq_is_reported(env: &Env) {
    let (large, small) = (Setup::default(), Setup { cqe: 4, ..Setup::default() });
    let c = Conn { a: Endpoint::new(env, &env.a, &large), b: Endpoint::new(env, &env.b, &small) };
    connect(env, &c.a, &c.b, &large);
    let cqe = c.b.recv_cq.cqe();
    for i in 0..u64::from(cqe) + 2 {
        let posted = c.b.qp.post_recv(&RecvWr::new(i, &[c.b.host.sge(0, 8)]));
        posted.expect("the receive queue is deeper than the completion queue");
    }
    for i in 0..u64::from(cqe) + 2 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(0, 8)]));
    }
    c.a.waiter.async_event(&env.b, AsyncEvent::CqError { cq: c.b.recv_cq.id() });
    c.b.wait_for_error();
    c.a.waiter.disconnected(&c.a.cm, c.a.qp.num());
    for i in 0..u64::from(cqe) {
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
    }
    let error = (0..=cqe).find_map(|_| c.b.recv_cq.poll_one().err());
    assert_eq!(error, Some(Error::CqOverrun { cqe }));
}

/// A completion queue holds the reported number of entries.
pub(crate) fn cq_holds_its_reported_entries(env: &Env) {
    for asked in [1, 7, 64] {
        let c = Conn::with_setup(env, &Setup { cqe: asked, ..Setup::default() });
        assert!(c.a.send_cq.cqe() >= asked);
        for round in 0..20 {
            for i in 0..u64::from(asked) {
                let data = [c.a.host.sge(0, 8)];
                c.a.post(&SendWr::new(round * 100 + i, SendOp::Write(c.b.host.remote(0)), &data));
            }
            for i in 0..u64::from(asked) {
                expect_success(c.a.next_sent(), round * 100 + i, WcOpcode::Write);
            }
        }
        assert_eq!(c.a.qp.state(), QpState::ReadyToSend);
    }
}

/// A refused request leaves no trace: the next one completes alone.
pub(crate) fn refused_request_has_no_effect(env: &Env) {
    let c = Conn::new(env);
    let over = vec![c.a.host.sge(0, 8); env.a.attr().max_sge as usize + 1];
    for _ in 0..1000 {
        let wr = SendWr { wr_id: 1, op: SendOp::Send, data: Data::Sges(&over), flags: SendFlags::SIGNALED };
        c.a.qp.post_send(&wr).expect_err("too many pieces");
    }
    c.check_traffic();
    c.no_more_sent("a thousand refusals");
}
