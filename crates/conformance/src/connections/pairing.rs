//! Queue pairs whose numbers were exchanged out of band ([`verbs::pairing`]): both sides ask for the pair, in any
//! order.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};

use super::connect::{endpoints, own_ip, rejected};
use crate::Env;
use crate::harness::check::{Shadow, expect_failure, expect_success};
use crate::harness::conn::{Conn, Endpoint, Setup};
use verbs::pairing::{self, Offered, Pairing};
use verbs::{CmEvent, ConnParam, Device, Error, Qp, QpInit, QpState, SendOp, SendWr, WcOpcode, WcStatus};

/// Whether requests have room for the pairing's private data; rails of cards with little private data have not.
fn can_pair(env: &Env) -> bool {
    [&env.a, &env.b].iter().all(|device| device.attr().max_private_data >= pairing::PRIVATE_DATA)
}

/// One side: a channel whose connect requests are passed to a pairing, and a count of its events.
struct PairingSide {
    end: Endpoint,
    pairing: Pairing,
    /// Number of connected queue pairs.
    established: Cell<usize>,
}

impl PairingSide {
    #[track_caller]
    fn new(env: &Env, device: &Device, ip: IpAddr) -> Self {
        let end = Endpoint::new(env, device, &Setup::default());
        let pairing = Pairing::new(&end.cm, ip, 0).expect("a pairing");
        Self { end, pairing, established: Cell::new(0) }
    }

    /// The end that describes one of this side's queue pairs to the other side.
    fn end_of(&self, qp: &Qp) -> pairing::Endpoint {
        pairing::Endpoint { addr: self.pairing.addr(), qp_num: qp.reported_qp_num() }
    }

    #[track_caller]
    fn asks_for(&self, qp: &Qp, peer: pairing::Endpoint) {
        self.pairing.pair(qp, peer, &ConnParam::default()).expect("pair");
    }

    /// Takes the request for a queue pair that this side has not paired yet.
    #[track_caller]
    fn keep_request(&self) {
        let offered = self.pairing.offer(self.end.waiter.request(&self.end.cm));
        assert!(matches!(offered, Offered::Handled), "{offered:?}");
    }

    /// Handles all pending events; requests are for one of `qps`.
    #[track_caller]
    fn serve(&self, qps: &[&Qp]) {
        while let Some(event) = self.end.cm.poll_event() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    if let Offered::Matched(accept) = self.pairing.offer(request) {
                        let qp = qps
                            .iter()
                            .find(|qp| qp.reported_qp_num() == accept.qp_num)
                            .expect("a known number");
                        self.pairing.accept(qp, accept).expect("accept");
                    }
                }
                CmEvent::Established { qp_num, .. } => {
                    let ready = self.pairing.ready_qp(qp_num);
                    assert!(
                        ready.is_none_or(|num| qps.iter().any(|qp| qp.num() == num)),
                        "{qp_num}: {ready:?}"
                    );
                    self.established.set(self.established.get() + usize::from(ready.is_some()));
                }
                // The end of a replaced queue pair's connection.
                CmEvent::Disconnected { qp_num } if qps.iter().all(|qp| qp.num() != qp_num) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Replaces this side's queue pair.
    #[track_caller]
    fn replace_qp(&mut self) {
        self.pairing.release(&self.end.qp);
        let init =
            QpInit { reported_qp_num: Some(self.end.qp.reported_qp_num()), ..self.end.qp.init().clone() };
        self.end.qp = self.end.pd.create_qp(&init).expect("another queue pair");
    }
}

/// Two sides, with the connecting (lesser) one first. Either device may come first.
fn pairing_sides(env: &Env) -> (PairingSide, PairingSide) {
    let [a, b] = [(&env.a, own_ip(env)), (&env.b, env.addr().ip())]
        .map(|(device, ip)| PairingSide::new(env, device, ip));
    if a.end_of(&a.end.qp) < b.end_of(&b.end.qp) { (a, b) } else { (b, a) }
}

/// Waits until each side has `count` connections.
#[track_caller]
fn wait_connected(sides: [(&PairingSide, &[&Qp]); 2], count: usize) {
    sides[0].0.end.waiter.until("both ends connected", || {
        sides.iter().for_each(|(side, qps)| side.serve(qps));
        sides.iter().all(|(side, _)| side.established.get() == count).then_some(())
    });
}

/// Checks that the pair gets connected, and carries messages both ways.
#[track_caller]
fn assert_works(one: PairingSide, other: PairingSide) {
    wait_connected([(&one, &[&one.end.qp]), (&other, &[&other.end.qp])], 1);
    Conn { a: one.end, b: other.end }.check_traffic();
}

/// A side's numbers identify its port, sides with the same address have different ones, and a number is unique until it
/// is given back.
pub(crate) fn number_encodes_port_of_its_side(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let ip = env.addr().ip();
    let one = PairingSide::new(env, &env.b, ip);
    let gives = |side: &PairingSide| {
        let port = side.pairing.addr().port();
        let nums = [(); 3].map(|()| side.pairing.alloc_number().expect("a number"));
        for (i, num) in nums.iter().enumerate() {
            assert!(side.pairing.encodes_port() && pairing::port_of(*num) == Some(port), "{num:#x}");
            assert!(!nums[..i].contains(num), "{nums:?}");
        }
        nums
    };
    let nums = gives(&one);
    nums.iter().for_each(|num| one.pairing.free_number(*num));
    let other = PairingSide::new(env, &env.b, ip);
    assert_ne!(one.pairing.addr(), other.pairing.addr());
    gives(&other);
    let port = other.pairing.addr().port();
    drop(other);
    let start = u32::from(port - pairing::PORTS.start);
    let again = Pairing::new(&one.end.cm, ip, start).expect("a pairing");
    assert_eq!(again.addr().port(), port, "the port of one that has gone is free");
    for taken in 0..1 << 13 {
        assert!(again.alloc_number().is_ok(), "{taken}");
    }
    assert!(matches!(again.alloc_number(), Err(Error::Limit { limit: 0x2000, .. })));
}

/// The connecting side asks first, and its request waits for the other.
pub(crate) fn request_waits_until_pair_is_asked_for(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let (lesser, greater) = pairing_sides(env);
    lesser.asks_for(&lesser.end.qp, greater.end_of(&greater.end.qp));
    greater.keep_request();
    greater.asks_for(&greater.end.qp, lesser.end_of(&lesser.end.qp));
    assert_works(lesser, greater);
}

/// Both sides have asked for the pair before either handles an event, in both orders.
pub(crate) fn either_side_may_come_first(env: &Env) {
    if !can_pair(env) {
        return;
    }
    for lesser_first in [true, false] {
        let (lesser, greater) = pairing_sides(env);
        let ask =
            |side: &PairingSide, peer: &PairingSide| side.asks_for(&side.end.qp, peer.end_of(&peer.end.qp));
        if lesser_first {
            ask(&lesser, &greater);
            ask(&greater, &lesser);
        } else {
            ask(&greater, &lesser);
            ask(&lesser, &greater);
        }
        assert_works(lesser, greater);
    }
}

/// Pairs are not mixed up, although all pairs have the same two addresses and are asked for in opposite orders.
/// Method: each end sends its index.
pub(crate) fn many_pairs_are_not_mixed_up(env: &Env) {
    if !can_pair(env) {
        return;
    }
    const COUNT: usize = 12;
    let (one, other) = pairing_sides(env);
    let make = |side: &PairingSide| (0..COUNT).map(|_| side.end.another_qp()).collect::<Vec<_>>();
    let (ours, theirs) = (make(&one), make(&other));
    let pairs = || ours.iter().zip(&theirs);
    pairs().for_each(|(own, peer)| one.asks_for(own, other.end_of(peer)));
    pairs().rev().for_each(|(peer, own)| other.asks_for(own, one.end_of(peer)));
    let [all_ours, all_theirs] = [&ours, &theirs].map(|qps| qps.iter().collect::<Vec<_>>());
    wait_connected([(&one, &all_ours), (&other, &all_theirs)], COUNT);
    for (place, (from, to)) in (0_u32..).zip(pairs()) {
        to.post_recv(&verbs::RecvWr::new(place.into(), &[])).expect("room");
        from.post_send(&SendWr::new(1, SendOp::SendImm(place), &[])).expect("room");
        expect_success(one.end.next_sent(), 1, WcOpcode::Send);
        let wc = other.end.next_received();
        assert_eq!((wc.wr_id, wc.imm, wc.qp_num), (place.into(), Some(place), to.num()));
    }
}

/// Both ends of a pair may belong to one side.
pub(crate) fn two_qps_of_one_side_are_paired(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let side = PairingSide::new(env, &env.b, env.addr().ip());
    let (one, other) = (&side.end.qp, &side.end.another_qp());
    side.asks_for(one, side.end_of(other));
    side.asks_for(other, side.end_of(one));
    side.end.waiter.until("both ends connected", || {
        side.serve(&[one, other]);
        (side.established.get() == 2).then_some(())
    });
    assert_eq!([one.state(), other.state()], [QpState::ReadyToSend; 2]);
}

/// A queue pair may be connected to itself: it receives what it sends, accesses its own memory, and completions carry
/// only its number.
pub(crate) fn qp_is_connected_to_itself(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let side = PairingSide::new(env, &env.b, env.addr().ip());
    let (end, num) = (&side.end, side.end.qp.num());
    end.post_recv(1, &[end.host.sge(64, 64)]);
    side.asks_for(&end.qp, side.end_of(&end.qp));
    end.waiter.until("it is connected", || {
        side.serve(&[&end.qp]);
        (side.established.get() == 1).then_some(())
    });
    let mut memory = Shadow::new(&end.host, 7);
    end.post(&SendWr::new(2, SendOp::Send, &[end.host.sge(0, 64)]));
    let (sent, received) = (
        expect_success(end.next_sent(), 2, WcOpcode::Send),
        expect_success(end.next_received(), 1, WcOpcode::Recv),
    );
    assert_eq!([sent.qp_num, received.qp_num], [num; 2]);
    end.post(&SendWr::new(3, SendOp::Write(end.host.remote(128)), &[end.host.sge(0, 64)]));
    end.post(&SendWr::new(4, SendOp::Read(end.host.remote(0)), &[end.host.sge(192, 64)]));
    expect_success(end.next_sent(), 3, WcOpcode::Write);
    expect_success(end.next_sent(), 4, WcOpcode::Read);
    let first = memory.bytes(0, 64);
    [64, 128, 192].into_iter().for_each(|at| memory.expect(at, &first));
    memory.check("its own memory");
    let again = side.pairing.pair(&end.qp, side.end_of(&end.qp), &ConnParam::default());
    assert!(matches!(again, Err(Error::Invalid(_))), "{again:?}");
    end.post_recv(5, &[]);
    end.qp.to_error();
    end.post(&SendWr::new(6, SendOp::Send, &[]));
    let flushed = end.next_sent();
    expect_failure(flushed, 6, WcStatus::WrFlushErr);
    assert_eq!(flushed.qp_num, num);
    end.expect_receives_flushed([5]);
}

/// A peer that connects to a side's address with other private data is refused; requests for the channel's other
/// listeners are returned.
pub(crate) fn foreign_requests_are_refused_or_returned(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let side = PairingSide::new(env, &env.b, env.addr().ip());
    let listener = side.end.cm.listen(env.addr(), 1).expect("a listener");
    let connect = |to: SocketAddr| {
        let (stranger, _) = endpoints(env);
        stranger
            .cm
            .connect(&stranger.qp, to, &ConnParam::with_private_data(vec![7; pairing::PRIVATE_DATA as usize]))
            .expect("connect");
        (stranger, side.pairing.offer(side.end.waiter.request(&side.end.cm)))
    };
    let (stranger, offered) = connect(side.pairing.addr());
    assert!(matches!(offered, Offered::Handled), "{offered:?}");
    rejected(&stranger);
    let (friend, offered) = connect(listener.addr());
    let Offered::Other(request) = offered else { panic!("{offered:?}") };
    side.end.cm.accept(request, &side.end.qp, &ConnParam::default()).expect("accept");
    friend.waiter.established(&friend.cm, friend.qp.num());
}

/// A waiting request is refused when the queue pair that it is for is destroyed.
pub(crate) fn waiting_request_for_destroyed_qp_is_refused(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let (lesser, greater) = pairing_sides(env);
    lesser.asks_for(&lesser.end.qp, greater.end_of(&greater.end.qp));
    greater.keep_request();
    greater.pairing.forget(&greater.end.qp);
    rejected(&lesser.end);
    assert_eq!(lesser.end.qp.state(), QpState::Init);
}

/// A queue pair is destroyed after it has asked for a pair and before its peer has. Later ones, perhaps under the same
/// numbers, are connected to each other, and nothing of the former affects them.
pub(crate) fn reused_numbers_pair_new_qps(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let (lesser, greater) = pairing_sides(env);
    for _ in 0..3 {
        let (one, other) = (lesser.end.another_qp(), greater.end.another_qp());
        lesser.asks_for(&one, greater.end_of(&other));
        greater.keep_request();
        greater.pairing.forget(&other);
        drop(other);
        match lesser.end.waiter.event(&lesser.end.cm, "Rejected") {
            CmEvent::Rejected { qp_num, .. } => assert_eq!(qp_num, one.num()),
            other => panic!("expected Rejected, got {other:?}"),
        }
        // The other order: the requested queue pair is destroyed before any request for it.
        let other = greater.end.another_qp();
        greater.asks_for(&other, lesser.end_of(&one));
        greater.pairing.forget(&other);
    }
    let (one, other) = (lesser.end.another_qp(), greater.end.another_qp());
    lesser.asks_for(&one, greater.end_of(&other));
    greater.asks_for(&other, lesser.end_of(&one));
    wait_connected([(&lesser, &[&one]), (&greater, &[&other])], 1);
    other.post_recv(&verbs::RecvWr::new(3, &[])).expect("room");
    one.post_send(&SendWr::new(1, SendOp::SendImm(9), &[])).expect("room");
    assert_eq!(greater.end.next_received().imm, Some(9));
}

/// Waits for a request that no queue pair has been paired with yet. Disconnections of replaced queue pairs may be
/// reported before.
#[track_caller]
fn wait_for_request(side: &PairingSide) {
    loop {
        match side.end.waiter.event(&side.end.cm, "ConnectRequest") {
            CmEvent::ConnectRequest(request) => {
                let offered = side.pairing.offer(request);
                return assert!(matches!(offered, Offered::Handled), "{offered:?}");
            }
            CmEvent::Disconnected { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Both queue pairs of a connection are replaced under the same numbers and connected again, in every order of
/// replacing and connecting, also with a request that waits while the other side has its old queue pair.
pub(crate) fn pair_reconnects_in_any_order(env: &Env) {
    if !can_pair(env) {
        return;
    }
    let (mut lesser, mut greater) = pairing_sides(env);
    let (least, most) = (lesser.end_of(&lesser.end.qp), greater.end_of(&greater.end.qp));
    for round in 0..20 {
        match round % 5 {
            0 => {
                lesser.asks_for(&lesser.end.qp, most);
                greater.asks_for(&greater.end.qp, least);
            }
            1 => {
                greater.asks_for(&greater.end.qp, least);
                lesser.asks_for(&lesser.end.qp, most);
            }
            2 => {
                // The request arrives before the greater queue pair is replaced.
                lesser.asks_for(&lesser.end.qp, most);
                wait_for_request(&greater);
                greater.replace_qp();
                greater.asks_for(&greater.end.qp, least);
            }
            3 => {
                // The lesser one is replaced after its request: that request no longer counts.
                lesser.asks_for(&lesser.end.qp, most);
                wait_for_request(&greater);
                lesser.replace_qp();
                lesser.asks_for(&lesser.end.qp, most);
                wait_for_request(&greater);
                greater.asks_for(&greater.end.qp, least);
            }
            _ => {
                // The greater one is replaced after it asked for the pair, and asks again later.
                greater.asks_for(&greater.end.qp, least);
                greater.replace_qp();
                lesser.asks_for(&lesser.end.qp, most);
                wait_for_request(&greater);
                greater.asks_for(&greater.end.qp, least);
            }
        }
        wait_connected([(&lesser, &[&lesser.end.qp]), (&greater, &[&greater.end.qp])], round + 1);
        greater.end.post_recv(round as u64, &[]);
        lesser.end.post(&SendWr::new(round as u64, SendOp::SendImm(round as u32), &[]));
        assert_eq!(
            expect_success(greater.end.next_received(), round as u64, WcOpcode::Recv).imm,
            Some(round as u32)
        );
        expect_success(lesser.end.next_sent(), round as u64, WcOpcode::Send);
        if round % 2 == 0 {
            lesser.replace_qp();
            greater.replace_qp();
        } else {
            greater.replace_qp();
            lesser.replace_qp();
        }
    }
}
