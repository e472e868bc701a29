//! The behaviour of endpoints, dispatchers and regions: each body runs on shared memory in real time and on a modelled card in
//! virtual time, there twice, with the same trace.

mod sleepers;
mod support;

use dapl::{
    Close, Cno, CompletionFlags, ConnectionKind, Dto, DtoStatus, Ep, EpConfig, EpState, Error, ErrorKind,
    Evd, EvdFlags, Event, Lmr, MemPriv, Psp, Rmr, Rsp, Srq, SrqAttr, Subtype,
};
use support::{BYTES, NEVER, NONE, Pair, QUAL, SOON, Side, completion, connection, own_qual, request};
use verbs::host::world::{self, Ended, World};

type Body = fn(&Pair);

fn on_shm(body: Body) {
    let host = verbs::host::real::host();
    let open = || fabric::open("shm", &host).expect("a device");
    body(&Pair::new(&open(), &open(), own_qual()));
}

fn in_a_world(body: Body) -> Ended {
    in_a_world_of("model:mt23108-vapi", body)
}

fn in_a_world_of(card: &'static str, body: Body) -> Ended {
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let (a, b) = (world.add_node("a"), world.add_node("b"));
    let hosts = [a.host(), b.host()];
    let rank = move || {
        let [a, b] = hosts.map(|host| fabric::open(card, &host).expect("a card"));
        body(&Pair::new(&a, &b, QUAL));
    };
    world.spawn("driver", &[&a, &b], rank).expect("a fiber");
    world.run().unwrap_or_else(|failure| panic!("{failure}"))
}

/// Defines a test on each kind of time for each body.
macro_rules! bodies {
    ($($name:ident)*) => {
        mod shm { $(#[test] fn $name() { super::on_shm(super::$name); })* }
        mod model {
            $(#[test] fn $name() {
                let (once, again) = (super::in_a_world(super::$name), super::in_a_world(super::$name));
                assert_eq!(once, again, "the same seed gave another world");
            })*
        }
    };
}

bodies! {
    messages_arrive_with_cookies_and_lengths
    rdma_moves_data_both_ways
    an_endpoint_lives_through_several_connections
    suppressed_requests_report_no_events
    unsignalled_completions_wake_no_waiter
    wait_returns_at_its_threshold
    only_solicited_messages_wake
    one_dispatcher_takes_all_streams
    cno_wait_returns_the_dispatcher_with_events
    reject_passes_private_data
    connect_without_a_listener_is_rejected
    reserved_and_provider_points
    rdma_without_rights_breaks_the_connection
    posted_receives_are_flushed
    a_bound_region_is_reachable_until_it_is_unbound
    binds_complete_after_earlier_requests
    suppressed_binds_report_no_events
    shared_receives_complete_at_the_target_endpoint
    adapters_share_a_buffer
    objects_in_use_are_not_freed
    wrong_states_and_arguments_have_distinct_errors
    software_events_fill_a_queue
    threads_post_to_one_endpoint
}

fn messages_arrive_with_cookies_and_lengths(pair: &Pair) {
    let (a, b) = pair.connected();
    for (n, len) in [0_u32, 1, 8, 97, 4096, 30_000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|at| (at as usize + n) as u8).collect();
        pair.a.put(0, &bytes);
        b.post_recv(&pair.b.piece(32_768, 32_768), u64::MAX - n as u64, NONE).expect("posted");
        a.post_send(&pair.a.piece(0, len), n as u64, NONE).expect("posted");
        let got = completion(&pair.b.recv);
        assert_eq!((got.ep, got.cookie, got.length), (b.label(), u64::MAX - n as u64, len));
        assert_eq!((got.status, got.operation), (DtoStatus::Success, Dto::Receive));
        let sent = completion(&pair.a.request);
        assert_eq!((sent.ep, sent.cookie, sent.length), (a.label(), n as u64, len));
        assert_eq!((sent.status, sent.operation), (DtoStatus::Success, Dto::Send));
        assert_eq!(pair.b.get(32_768, len as usize), bytes);
    }
    assert_eq!((a.state(), a.idle()), (EpState::Connected, (true, true)));
}

fn rdma_moves_data_both_ways(pair: &Pair) {
    let (a, _b) = pair.connected();
    pair.a.put(0, b"written");
    pair.b.put(500, b"to be read");
    let pieces = [pair.a.lmr.segment(0, 3), pair.a.lmr.segment(3, 4)];
    a.post_rdma_write(&pieces, 1, pair.b.lmr.remote(100), 7, NONE).expect("posted");
    a.post_rdma_read(&pair.a.piece(200, 10), 2, pair.b.lmr.remote(500), 10, NONE).expect("posted");
    let (write, read) = (completion(&pair.a.request), completion(&pair.a.request));
    assert_eq!((write.cookie, write.operation, write.length), (1, Dto::RdmaWrite, 7));
    assert_eq!((read.cookie, read.operation, read.length), (2, Dto::RdmaRead, 10));
    assert_eq!(pair.b.get(100, 7), b"written");
    assert_eq!(pair.a.get(200, 10), b"to be read");
    let longer = a.post_rdma_write(&pair.a.piece(0, 8), 3, pair.b.lmr.remote(0), 7, NONE);
    assert_eq!(longer, Err(Error::new(ErrorKind::LengthError, Subtype::None)));
}

fn an_endpoint_lives_through_several_connections(pair: &Pair) {
    let (a, b) = (pair.a.ep(), pair.b.ep());
    for round in 0..3_u64 {
        pair.connect(&a, &b);
        b.post_recv(&pair.b.piece(0, 8), round, NONE).expect("posted");
        a.post_send(&pair.a.piece(0, 8), round, NONE).expect("posted");
        assert_eq!(completion(&pair.b.recv).cookie, round);
        assert_eq!(completion(&pair.a.request).cookie, round);
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        first.disconnect(if round == 1 { Close::Abrupt } else { Close::Graceful }).expect("started");
        connection(&pair.a.connect, &a, ConnectionKind::Disconnected);
        connection(&pair.b.connect, &b, ConnectionKind::Disconnected);
        assert_eq!(second.disconnect(Close::Abrupt), Ok(()), "it is disconnected already");
        assert_eq!((a.state(), b.state()), (EpState::Disconnected, EpState::Disconnected));
        for ep in [&a, &b] {
            ep.reset().expect("usable again");
            assert_eq!(ep.state(), EpState::Unconnected);
        }
    }
    assert!(pair.a.connect.dequeue().is_err(), "one event for each connection's end");
}

fn suppressed_requests_report_no_events(pair: &Pair) {
    let (a, b) = pair.connected();
    // Many times the depth of the queue, and no thread polls for completions.
    for n in 0..2_000_u64 {
        pair.a.put(0, &n.to_ne_bytes());
        let to = pair.b.lmr.remote(8 * (n % 8));
        loop {
            match a.post_rdma_write(&pair.a.piece(0, 8), n, to, 8, CompletionFlags::SUPPRESS) {
                Ok(()) => break,
                Err(full) => assert_eq!(full.kind, ErrorKind::InsufficientResources, "{full}"),
            }
        }
    }
    b.post_recv(&pair.b.piece(1000, 8), 5, NONE).expect("posted");
    a.post_send(&pair.a.piece(0, 8), 77, NONE).expect("posted");
    assert_eq!(completion(&pair.a.request).cookie, 77, "only the last request reports an event");
    assert_eq!(completion(&pair.b.recv).cookie, 5);
    // Earlier writes have arrived when the message has.
    assert_eq!(pair.b.get(8 * (1_999 % 8), 8), 1_999_u64.to_ne_bytes());
    assert!(pair.a.request.dequeue().is_err());
}

fn unsignalled_completions_wake_no_waiter(pair: &Pair) {
    let (a, b) = pair.connected();
    b.post_recv(&pair.b.piece(0, 8), 1, CompletionFlags::UNSIGNALLED).expect("posted");
    b.post_recv(&pair.b.piece(8, 8), 2, CompletionFlags::UNSIGNALLED).expect("posted");
    b.post_recv(&pair.b.piece(16, 8), 3, NONE).expect("posted");
    let timed_out = pair.b.recv.wait(NEVER, 1).expect_err("no event has arrived");
    assert_eq!(timed_out.kind, ErrorKind::TimeoutExpired);
    a.post_send(&pair.a.piece(0, 8), 1, NONE).expect("posted");
    completion(&pair.a.request);
    // It has arrived before the call, so it counts.
    assert_eq!(completion(&pair.b.recv).cookie, 1);
    a.post_send(&pair.a.piece(0, 8), 2, NONE).expect("posted");
    a.post_send(&pair.a.piece(0, 8), 3, NONE).expect("posted");
    assert_eq!(completion(&pair.b.recv).cookie, 2);
    assert_eq!(completion(&pair.b.recv).cookie, 3);
}

fn wait_returns_at_its_threshold(pair: &Pair) {
    let (a, b) = pair.connected();
    for n in 0..5 {
        b.post_recv(&pair.b.piece(8 * n, 8), n, NONE).expect("posted");
    }
    for n in 0..4 {
        a.post_send(&pair.a.piece(0, 8), n, NONE).expect("posted");
    }
    let (event, more) = pair.b.recv.wait(SOON, 3).expect("three");
    let Event::Dto(event) = event else { panic!("{event:?}") };
    assert!(event.cookie == 0 && more >= 2, "{more} more");
    for n in 1..4 {
        assert_eq!(completion(&pair.b.recv).cookie, n);
    }
    assert_eq!(pair.b.recv.wait(NEVER, 2).expect_err("too few").kind, ErrorKind::TimeoutExpired);
    a.post_send(&pair.a.piece(0, 8), 4, NONE).expect("posted");
    assert_eq!(pair.b.recv.wait(NEVER, 2).expect_err("one").kind, ErrorKind::TimeoutExpired);
    assert_eq!(completion(&pair.b.recv).cookie, 4, "it was not lost");
    for wrong in [0, 65] {
        assert_eq!(pair.b.recv.wait(NEVER, wrong).expect_err("beyond").subtype, Subtype::Arg3);
    }
}

fn only_solicited_messages_wake(pair: &Pair) {
    let a = pair.a.ep();
    let mut attr = pair.b.attr();
    attr.recv_completion_flags = CompletionFlags::SOLICITED_WAIT;
    let b = Ep::create(&pair.b.ia, EpConfig { attr: Some(attr), ..pair.b.config() }).expect("an endpoint");
    assert!(pair.b.recv.query().solicited);
    pair.connect(&a, &b);
    for n in 0..3 {
        b.post_recv(&pair.b.piece(8 * n, 8), n, NONE).expect("posted");
    }
    assert_eq!(pair.b.recv.wait(NEVER, 1).expect_err("nothing").kind, ErrorKind::TimeoutExpired);
    a.post_send(&pair.a.piece(0, 8), 0, CompletionFlags::SOLICITED_WAIT).expect("posted");
    assert_eq!(completion(&pair.b.recv).cookie, 0);
    a.post_send(&pair.a.piece(0, 8), 1, NONE).expect("posted");
    a.post_send(&pair.a.piece(0, 8), 2, CompletionFlags::SOLICITED_WAIT).expect("posted");
    assert_eq!(completion(&pair.b.recv).cookie, 1, "in order, once one of them woke");
    assert_eq!(completion(&pair.b.recv).cookie, 2);
}

fn one_dispatcher_takes_all_streams(pair: &Pair) {
    let everything = EvdFlags::all();
    let evd = Evd::create(&pair.b.ia, 64, None, everything).expect("a dispatcher");
    let config = EpConfig {
        recv_evd: Some(evd.clone()),
        request_evd: Some(evd.clone()),
        connect_evd: Some(evd.clone()),
        ..pair.b.config()
    };
    let (a, b) = (pair.a.ep(), Ep::create(&pair.b.ia, config).expect("an endpoint"));
    let psp = Psp::create(&pair.b.ia, pair.qual, &evd, false).expect("a service point");
    a.connect(pair.b.address(), pair.qual, SOON, &[]).expect("started");
    let arrived = request(&evd);
    assert_eq!((arrived.sp, arrived.conn_qual), (psp.label(), pair.qual));
    b.post_recv(&pair.b.piece(0, 8), 9, NONE).expect("posted");
    arrived.cr.accept(Some(&b), &[]).expect("accepted");
    connection(&pair.a.connect, &a, ConnectionKind::Established);
    a.post_send(&pair.a.piece(0, 8), 1, NONE).expect("posted");
    // In either order: the message is not delayed until this side's event of the connection.
    let mut seen = [false; 2];
    for _ in 0..2 {
        match evd.wait(SOON, 1).expect("an event").0 {
            Event::Connection { kind: ConnectionKind::Established, .. } => seen[0] = true,
            Event::Dto(event) => seen[1] = event.cookie == 9,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((seen, b.state()), ([true; 2], EpState::Connected));
    b.post_rdma_write(&pair.b.piece(0, 8), 10, pair.a.lmr.remote(0), 8, NONE).expect("posted");
    assert_eq!(completion(&evd).cookie, 10);
    a.disconnect(Close::Graceful).expect("started");
    connection(&evd, &b, ConnectionKind::Disconnected);
}

fn cno_wait_returns_the_dispatcher_with_events(pair: &Pair) {
    let cno = Cno::create(&pair.b.ia, None).expect("a notification object");
    pair.b.recv.modify_cno(Some(&cno)).expect("set");
    pair.b.connect.modify_cno(Some(&cno)).expect("set");
    assert_eq!(cno.wait(NEVER).expect_err("nothing").kind, ErrorKind::TimeoutExpired);
    let (a, b) = (pair.a.ep(), pair.b.ep());
    let _psp = Psp::create(&pair.b.ia, pair.qual, &pair.b.cr, false).expect("a service point");
    a.connect(pair.b.address(), pair.qual, SOON, &[]).expect("started");
    request(&pair.b.cr).cr.accept(Some(&b), &[]).expect("accepted");
    assert_eq!(cno.wait(SOON).expect("the connection"), pair.b.connect.label());
    connection(&pair.b.connect, &b, ConnectionKind::Established);
    connection(&pair.a.connect, &a, ConnectionKind::Established);
    for n in 0..3 {
        b.post_recv(&pair.b.piece(0, 8), n, NONE).expect("posted");
        a.post_send(&pair.a.piece(0, 8), n, NONE).expect("posted");
        assert_eq!(cno.wait(SOON).expect("a message"), pair.b.recv.label());
        let Event::Dto(event) = pair.b.recv.dequeue().expect("it is there") else { panic!() };
        assert_eq!(event.cookie, n);
    }
    assert_eq!(cno.wait(NEVER).expect_err("all is taken").kind, ErrorKind::TimeoutExpired);
    pair.b.recv.disable();
    b.post_recv(&pair.b.piece(0, 8), 7, NONE).expect("posted");
    a.post_send(&pair.a.piece(0, 8), 7, NONE).expect("posted");
    assert_eq!(cno.wait(NEVER).expect_err("it is disabled").kind, ErrorKind::TimeoutExpired);
    assert_eq!(completion(&pair.b.recv).cookie, 7, "and has its events all the same");
    assert_eq!(cno.release().expect_err("dispatchers report to it").subtype, Subtype::CnoInUse);
}

fn reject_passes_private_data(pair: &Pair) {
    let a = pair.a.ep();
    let _psp = Psp::create(&pair.b.ia, pair.qual, &pair.b.cr, false).expect("a service point");
    a.post_recv(&pair.a.piece(0, 8), 3, NONE).expect("posted");
    a.connect(pair.b.address(), pair.qual, SOON, &[]).expect("started");
    let cr = request(&pair.b.cr).cr;
    cr.reject(b"too late").expect("rejected");
    assert_eq!(cr.reject(&[]), Err(Error::handle(Subtype::HandleCr)), "once");
    let said = connection(&pair.a.connect, &a, ConnectionKind::PeerRejected);
    assert_eq!(&said[..8], b"too late");
    assert_eq!(a.state(), EpState::Disconnected);
    assert_eq!(completion(&pair.a.recv).status, DtoStatus::Flushed);
    a.reset().expect("usable again");
    let b = pair.b.ep();
    drop(_psp);
    pair.connect(&a, &b);
}

fn connect_without_a_listener_is_rejected(pair: &Pair) {
    let a = pair.a.ep();
    a.connect(pair.b.address(), pair.qual + 7, SOON, &[]).expect("started");
    connection(&pair.a.connect, &a, ConnectionKind::NonPeerRejected);
    assert_eq!(a.state(), EpState::Disconnected);
    let again = a.connect(pair.b.address(), pair.qual, SOON, &[]);
    assert_eq!(again, Err(Error::state(Subtype::EpDisconnected)), "not before it is reset");
}

fn reserved_and_provider_points(pair: &Pair) {
    let (a, b) = (pair.a.ep(), pair.b.ep());
    let rsp = Rsp::create(&pair.b.ia, pair.qual, &b, &pair.b.cr).expect("a reserved point");
    assert_eq!(b.state(), EpState::Reserved);
    a.connect(pair.b.address(), pair.qual, SOON, &[]).expect("started");
    let arrived = request(&pair.b.cr);
    assert_eq!((arrived.sp, b.state()), (rsp.label(), EpState::PassiveConnectionPending));
    let other = pair.b.ep();
    assert_eq!(arrived.cr.accept(Some(&other), &[]), Err(Error::handle(Subtype::HandleEp)), "it has its own");
    arrived.cr.accept(None, &[]).expect("accepted");
    connection(&pair.b.connect, &b, ConnectionKind::Established);
    connection(&pair.a.connect, &a, ConnectionKind::Established);
    drop(rsp);

    let a = pair.a.ep();
    let psp = Psp::create_any(&pair.b.ia, &pair.b.cr, true).expect("a service point");
    a.connect(pair.b.address(), psp.conn_qual(), SOON, &[]).expect("started");
    let cr = request(&pair.b.cr).cr;
    let made = cr.local_ep().expect("an endpoint created for the request");
    assert_eq!(made.state(), EpState::UnconfiguredTentative);
    let config = pair.b.config();
    made.modify(|given| *given = config).expect("configured");
    made.post_recv(&pair.b.piece(0, 8), 4, NONE).expect("posted");
    cr.accept(None, &[]).expect("accepted");
    connection(&pair.b.connect, &made, ConnectionKind::Established);
    connection(&pair.a.connect, &a, ConnectionKind::Established);
    a.post_send(&pair.a.piece(0, 8), 1, NONE).expect("posted");
    assert_eq!(completion(&pair.b.recv).cookie, 4);
}

fn rdma_without_rights_breaks_the_connection(pair: &Pair) {
    let (a, b) = pair.connected();
    let local = Lmr::create(&pair.b.pz, pair.b.lmr.buf(), MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE);
    let local = local.expect("a region");
    a.post_rdma_write(&pair.a.piece(0, 8), 1, local.remote(0), 8, NONE).expect("posted");
    a.post_send(&pair.a.piece(0, 8), 2, NONE).expect("posted");
    let (refused, flushed) = (completion(&pair.a.request), completion(&pair.a.request));
    assert_eq!((refused.cookie, refused.status), (1, DtoStatus::RemoteAccess));
    assert_eq!((flushed.cookie, flushed.status), (2, DtoStatus::Flushed));
    connection(&pair.a.connect, &a, ConnectionKind::Broken);
    match pair.b.connect.wait(SOON, 1).expect("an event").0 {
        Event::Connection { ep, kind: ConnectionKind::Broken | ConnectionKind::Disconnected, .. } => {
            assert_eq!(ep, b.label());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.state(), EpState::Disconnected);
}

fn posted_receives_are_flushed(pair: &Pair) {
    let (a, b) = pair.connected();
    for n in 0..4 {
        b.post_recv(&pair.b.piece(0, 8), n, NONE).expect("posted");
    }
    assert_eq!((b.posted_recvs(), b.idle().0), (4, false));
    a.disconnect(Close::Abrupt).expect("started");
    for n in 0..4 {
        let event = completion(&pair.b.recv);
        assert_eq!((event.cookie, event.status), (n, DtoStatus::Flushed));
    }
    connection(&pair.b.connect, &b, ConnectionKind::Disconnected);
    // A reset flushes the receives of an endpoint that was never connected.
    let lone = pair.a.ep();
    lone.post_recv(&pair.a.piece(0, 8), 9, NONE).expect("posted");
    lone.reset().expect("reset");
    assert_eq!(completion(&pair.a.recv).status, DtoStatus::Flushed);
    assert!(lone.idle().0);
}

fn a_bound_region_is_reachable_until_it_is_unbound(pair: &Pair) {
    let (a, b) = pair.connected();
    let local = Lmr::create(&pair.b.pz, pair.b.lmr.buf(), MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE);
    let local = local.expect("a region");
    let rmr = Rmr::create(&pair.b.pz);
    b.post_rdma_write(&pair.b.piece(0, 8), 1, pair.a.lmr.remote(0), 8, NONE).expect("posted");
    let part = local.segment(100, 50);
    let context = rmr.bind(&b, &local, part, MemPriv::REMOTE_WRITE, 2, NONE).expect("bound");
    assert_eq!(completion(&pair.b.request).cookie, 1, "requests before the bind complete before it");
    match pair.b.request.wait(SOON, 1).expect("the bind").0 {
        Event::RmrBind { rmr: label, cookie: 2, status: DtoStatus::Success } => {
            assert_eq!(label, rmr.label())
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(local.check_unused().expect_err("a bound region").subtype, Subtype::LmrInUse);
    let remote = dapl::RemoteAddr { addr: part.addr, rkey: context };
    pair.a.put(0, b"through it");
    a.post_rdma_write(&pair.a.piece(0, 10), 3, remote, 10, NONE).expect("posted");
    assert_eq!(completion(&pair.a.request).status, DtoStatus::Success);
    assert_eq!(pair.b.get(100, 10), b"through it");
    let outside = local.segment(BYTES as u64 - 10, 20);
    assert_eq!(
        rmr.bind(&b, &local, outside, MemPriv::REMOTE_READ, 4, NONE).expect_err("outside").subtype,
        Subtype::Arg3
    );
    let nothing = local.segment(0, 0);
    rmr.bind(&b, &local, nothing, MemPriv::empty(), 5, CompletionFlags::SUPPRESS).expect("unbound");
    assert_eq!(local.check_unused(), Ok(()));
    a.post_rdma_write(&pair.a.piece(0, 10), 6, remote, 10, NONE).expect("posted");
    assert_eq!(completion(&pair.a.request).status, DtoStatus::RemoteAccess);
}

fn binds_complete_after_earlier_requests(pair: &Pair) {
    let (_a, b) = pair.connected();
    let rmr = Rmr::create(&pair.b.pz);
    for threshold in [3, 1] {
        for cookie in [1, 2] {
            b.post_rdma_write(&pair.b.piece(0, 8), cookie, pair.a.lmr.remote(0), 8, NONE).expect("posted");
        }
        let part = pair.b.lmr.segment(100, 50);
        rmr.bind(&b, &pair.b.lmr, part, MemPriv::REMOTE_WRITE, 3, NONE).expect("bound");
        let next = |threshold| pair.b.request.wait(SOON, threshold).expect("an event").0;
        let first = next(threshold);
        assert!(matches!(first, Event::Dto(event) if event.cookie == 1), "{first:?}");
        assert_eq!(completion(&pair.b.request).cookie, 2);
        let last = next(1);
        assert!(matches!(last, Event::RmrBind { cookie: 3, .. }), "{last:?}");
    }
}

fn suppressed_binds_report_no_events(pair: &Pair) {
    let (_a, b) = pair.connected();
    let rmr = Rmr::create(&pair.b.pz);
    let part = pair.b.lmr.segment(100, 50);
    let bind = |cookie, flags| {
        rmr.bind(&b, &pair.b.lmr, part, MemPriv::REMOTE_WRITE, cookie, flags).expect("bound");
    };
    b.post_rdma_write(&pair.b.piece(0, 8), 1, pair.a.lmr.remote(0), 8, NONE).expect("posted");
    bind(2, CompletionFlags::SUPPRESS);
    bind(3, NONE);
    assert_eq!(completion(&pair.b.request).cookie, 1);
    let next = pair.b.request.wait(SOON, 1).expect("an event").0;
    assert!(matches!(next, Event::RmrBind { cookie: 3, .. }), "{next:?}");
}

fn shared_receives_complete_at_the_target_endpoint(pair: &Pair) {
    let attr = SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    let srq = Srq::create(&pair.b.pz, attr).expect("a shared queue");
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let config = EpConfig { srq: Some(srq.clone()), ..pair.b.config() };
            let (a, b) = (pair.a.ep(), Ep::create(&pair.b.ia, config).expect("an endpoint"));
            pair.connect(&a, &b);
            (a, b)
        })
        .collect();
    for n in 0..4 {
        srq.post_recv(&pair.b.piece(8 * n, 8), 100 + n).expect("posted");
    }
    let mut seen = Vec::new();
    for n in 0..4_u64 {
        let (a, b) = &ends[n as usize % 2];
        a.post_send(&pair.a.piece(0, 8), n, NONE).expect("posted");
        assert_eq!(completion(&pair.a.request).cookie, n);
        let event = completion(&pair.b.recv);
        assert_eq!((event.ep, event.length), (b.label(), 8));
        seen.push(event.cookie);
    }
    assert_eq!((seen, srq.query().available), (vec![100, 101, 102, 103], 0));
    assert_eq!(srq.check_unused().expect_err("endpoints use it").subtype, Subtype::SrqInUse);
    assert!(ends[0].1.post_recv(&pair.b.piece(0, 8), 1, NONE).is_err(), "its receives are shared");
    for round in 0..20 {
        srq.post_recv(&pair.b.piece(0, 8), round).expect("there is room again");
        ends[0].0.post_send(&pair.a.piece(0, 8), round, NONE).expect("posted");
        assert_eq!(completion(&pair.b.recv).cookie, round);
        completion(&pair.a.request);
    }
}

fn adapters_share_a_buffer(pair: &Pair) {
    let second = Side::new(pair.a.adapter.device());
    let shared = Lmr::create(&second.pz, pair.a.lmr.buf(), MemPriv::all()).expect("the same memory");
    assert_ne!(shared.rmr_context(), pair.a.lmr.rmr_context());
    let (_a, b) = pair.connected();
    pair.b.put(0, b"for both");
    b.post_rdma_write(&pair.b.piece(0, 8), 1, pair.a.lmr.remote(40), 8, NONE).expect("posted");
    assert_eq!(completion(&pair.b.request).status, DtoStatus::Success);
    assert_eq!(shared.buf().to_vec(40..48).expect("inside"), b"for both");
    assert_eq!(shared.free(), Ok(()));
    assert_eq!(pair.a.get(40, 8), b"for both");
}

fn objects_in_use_are_not_freed(pair: &Pair) {
    let ep = pair.a.ep();
    let side = &pair.a;
    assert_eq!(side.pz.check_unused(), Err(Error::state(Subtype::PzInUse)));
    assert_eq!(side.recv.check_unused(), Err(Error::state(Subtype::EvdInUse)));
    assert_eq!(side.ia.check_unused(Some(&side.async_evd)), Err(Error::state(Subtype::IaInUse)));
    drop(ep);
    assert_eq!(side.recv.check_unused(), Ok(()));
    let psp = Psp::create(&side.ia, pair.qual, &side.cr, false).expect("a service point");
    assert_eq!(side.cr.check_unused(), Err(Error::state(Subtype::EvdInUse)));
    let taken = Psp::create(&side.ia, pair.qual, &side.cr, false).expect_err("taken");
    assert_eq!(taken.kind, ErrorKind::ConnQualInUse, "{taken}");
    drop(psp);
    drop(Psp::create(&side.ia, pair.qual, &side.cr, false).expect("free again"));
    assert_eq!(side.cr.check_unused(), Ok(()));
}

fn wrong_states_and_arguments_have_distinct_errors(pair: &Pair) {
    let (side, other) = (&pair.a, &pair.b);
    let ep = side.ep();
    let piece = side.piece(0, 8);
    assert_eq!(ep.post_send(&piece, 1, NONE).expect_err("not connected").subtype, Subtype::EpUnconnected);
    assert_eq!(ep.disconnect(Close::Abrupt), Err(Error::state(Subtype::EpUnconnected)));
    let pieces = [piece[0]; 100];
    assert_eq!(ep.post_recv(&pieces, 1, NONE), Err(Error::argument(Subtype::Arg2)));
    assert_eq!(ep.connect(other.address(), 0, SOON, &[]), Err(Error::argument(Subtype::Arg3)));
    assert_eq!(
        ep.connect(other.address(), pair.qual, Some(verbs::host::Span::ZERO), &[]),
        Err(Error::argument(Subtype::Arg4))
    );
    let long = vec![0; side.ia.attr().max_private_data as usize + 1];
    assert_eq!(ep.connect(other.address(), pair.qual, SOON, &long), Err(Error::argument(Subtype::Arg5)));

    let wrong = |config: EpConfig| Ep::create(&side.ia, config).expect_err("refused").subtype;
    assert_eq!(wrong(EpConfig { recv_evd: Some(side.cr.clone()), ..side.config() }), Subtype::HandleEvdRecv);
    assert_eq!(
        wrong(EpConfig { request_evd: Some(other.request.clone()), ..side.config() }),
        Subtype::HandleEvdRequest
    );
    assert_eq!(
        wrong(EpConfig { connect_evd: Some(side.recv.clone()), ..side.config() }),
        Subtype::HandleEvdConn
    );
    assert_eq!(wrong(EpConfig { pz: Some(other.pz.clone()), ..side.config() }), Subtype::HandlePz);
    let mut attr = side.attr();
    attr.max_request_dtos = 0;
    assert_eq!(wrong(EpConfig { attr: Some(attr), ..side.config() }), Subtype::Arg6);

    let bare = Ep::create(&side.ia, EpConfig::default()).expect("an endpoint without queues");
    assert_eq!(bare.state(), EpState::UnconfiguredUnconnected);
    assert_eq!(bare.post_recv(&piece, 1, NONE).expect_err("no zone").subtype, Subtype::EpUnconfigured);
    bare.modify(|given| *given = side.config()).expect("configured");
    assert_eq!((bare.state(), bare.post_recv(&piece, 1, NONE)), (EpState::Unconnected, Ok(())));
    assert_eq!(Evd::create(&side.ia, 0, None, EvdFlags::DTO).expect_err("none").subtype, Subtype::Arg2);
    assert_eq!(
        Psp::create(&side.ia, pair.qual, &side.recv, false).expect_err("no").subtype,
        Subtype::HandleEvdCr
    );
}

fn software_events_fill_a_queue(pair: &Pair) {
    let evd = Evd::create(&pair.a.ia, 3, None, EvdFlags::SOFTWARE).expect("a dispatcher");
    for n in 0..3 {
        evd.post_software(n).expect("room");
    }
    assert_eq!(evd.post_software(3), Err(Error::new(ErrorKind::QueueFull, Subtype::None)));
    evd.resize(4).expect("larger");
    evd.post_software(3).expect("room");
    assert!(evd.resize(3).is_err(), "it holds four events");
    for n in 0..4 {
        assert!(matches!(evd.wait(SOON, 1).expect("one").0, Event::Software(found) if found == n));
    }
    evd.set_unwaitable();
    assert_eq!(evd.wait(SOON, 1).expect_err("unwaitable").subtype, Subtype::EvdUnwaitable);
    evd.clear_unwaitable();
    assert_eq!(
        evd.wait(Some(verbs::host::Span::ZERO), 1).expect_err("empty").kind,
        ErrorKind::TimeoutExpired
    );
    assert_eq!(evd.dequeue().expect_err("empty").kind, ErrorKind::QueueEmpty);
    assert_eq!(pair.a.recv.post_software(1), Err(Error::argument(Subtype::Arg1)));
}

fn threads_post_to_one_endpoint(pair: &Pair) {
    const EACH: u64 = 300;
    let (a, b) = pair.connected();
    let host = pair.a.host.clone();
    let piece = pair.a.piece(0, 8);
    let remote = pair.b.lmr.remote(0);
    let tasks: Vec<_> = (0..3_u64)
        .map(|thread| {
            let (a, host) = (a.clone(), host.clone());
            let body = move || {
                for n in 0..EACH {
                    let cookie = thread << 32 | n;
                    let posted = host.poll("room", None, || {
                        match a.post_rdma_write(&piece, cookie, remote, 8, CompletionFlags::SUPPRESS) {
                            Err(error) if error.kind == ErrorKind::InsufficientResources => None,
                            posted => Some(posted),
                        }
                    });
                    posted.expect("no hang").expect("posted");
                }
            };
            pair.a.host.spawn("poster", None, body).expect("a thread")
        })
        .collect();
    tasks.into_iter().for_each(verbs::host::Task::join);
    assert_eq!((a.state(), b.state()), (EpState::Connected, EpState::Connected));
}

/// Goal: threads may post to the same endpoint also if a post lets other threads run. Method: a card whose doorbells wait for
/// earlier ones; a spinning lock would spin forever there, so the world has a thread of its own and a time limit.
#[test]
fn threads_post_to_one_endpoint_of_a_card_whose_doorbells_wait() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        sender.send(in_a_world_of("model:connectx-multihca", threads_post_to_one_endpoint))
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the test ends");
}
