//! Behaviour of modelled cards: costs, contention, two ports, several users, holes, changed values.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use nic_model::Config;
use verbs::host::world::{self, World};
use verbs::host::{Host, Span};
use verbs::{
    Access, Buf, CmEvent, ConnParam, Cq, Device, Error, MemoryKind, Mr, Qp, QpCap, QpInit, RecvWr, SendOp,
    SendWr, SrqInit, WcStatus,
};

/// Runs a body in one rank that runs on two machines with a card each.
fn on_two(options: &[(&str, &str)], body: impl FnOnce(&Device, &Device) + Send + 'static) {
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let (a, b) = (world.add_node("a"), world.add_node("b"));
    let config = Config::new("mt23108-nicmem", options).expect("a machine");
    let hosts = [a.host(), b.host()];
    let run = move || {
        let open = |host: &Host| nic_model::open(host, &config).expect("a card");
        body(&open(&hosts[0]), &open(&hosts[1]));
    };
    world.spawn("driver", &[&a, &b], run).expect("a fiber");
    world.run().unwrap_or_else(|failure| panic!("{failure}"));
}

/// One end of a connection.
struct Endpoint {
    device: Device,
    cq: Cq,
    qp: Qp,
    mr: Mr,
}

fn create_endpoint(device: &Device, kind: MemoryKind, len: usize) -> Endpoint {
    let pd = device.alloc_pd().expect("a domain");
    let cq = device.create_cq(4096).expect("a queue");
    let cap = QpCap { max_send_wr: 1024, max_recv_wr: 1024, ..QpCap::default() };
    let qp = pd.create_qp(&QpInit::new(&cq).cap(cap)).expect("a queue pair");
    let buf = match kind {
        MemoryKind::Host => Buf::alloc(len),
        MemoryKind::Nic => device.alloc_dm(len),
    };
    let mr = pd.reg_mr(&buf.expect("memory"), Access::ALL).expect("a region");
    Endpoint { device: device.clone(), cq, qp, mr }
}

/// Connects two ends by a port of the second end's card.
fn connect(a: &Endpoint, b: &Endpoint, port: usize) {
    let (near, far) = (a.device.create_cm().expect("a channel"), b.device.create_cm().expect("a channel"));
    let listener = far.listen(SocketAddr::new(b.device.attr().port_addrs[port], 0), 1).expect("a listener");
    near.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let CmEvent::ConnectRequest(request) = far.get_event(None).expect("an event") else {
        panic!("no request")
    };
    assert_eq!(request.info.peer.ip(), a.device.attr().port_addrs[port]);
    far.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    for cm in [near, far] {
        assert!(matches!(cm.get_event(None).expect("an event"), CmEvent::Established { .. }));
    }
}

fn pair(a: &Device, b: &Device, kinds: [MemoryKind; 2], len: usize, port: usize) -> (Endpoint, Endpoint) {
    let (near, far) = (create_endpoint(a, kinds[0], len), create_endpoint(b, kinds[1], len));
    connect(&near, &far, port);
    (near, far)
}

/// Total rate of simultaneous writes from these ends to their peers, in MB/s.
fn stream(host: &Host, ends: &[(&Endpoint, &Endpoint)], size: u32, count: u64) -> f64 {
    let begin = host.now();
    for i in 0..count {
        for (near, far) in ends {
            let wr_sge = [near.mr.sge(0, size)];
            let wr = SendWr::new(i, SendOp::Write(far.mr.remote(0)), &wr_sge);
            near.qp.post_send(&if i + 1 == count { wr } else { wr.unsignaled() }).expect("post");
        }
    }
    for (near, _) in ends {
        assert!(near.cq.spin(None).expect("a completion").is_ok());
    }
    (u64::from(size) * count * ends.len() as u64) as f64 / (host.now() - begin).as_secs_f64() / 1e6
}

#[track_caller]
fn near(got: f64, want: f64, percent: f64) {
    assert!((got / want - 1.0).abs() * 100.0 < percent, "{got:.1} is not within {percent} % of {want}");
}

const LEN: usize = 1 << 20;

/// Copies within a card, by a connection to itself, compared with the paper: NM-029 to NM-032.
#[test]
fn a_card_copies_as_published() {
    use MemoryKind::{Host as H, Nic as N};
    for (kinds, want) in [([H, H], 468.0), ([N, N], 927.0), ([N, H], 956.0), ([H, N], 886.0)] {
        on_two(&[], move |a, _| {
            let (near_end, far) = pair(a, a, kinds, LEN, 0);
            near(stream(a.host(), &[(&near_end, &far)], 1 << 20, 20), want, 2.0);
        });
    }
}

/// One port: NM-043 to NM-046; two ports: NM-067 to NM-070.
#[test]
fn ports_reach_the_published_rates() {
    use MemoryKind::{Host as H, Nic as N};
    for (kinds, one, two) in
        [([H, H], 886.0, 855.0), ([N, N], 944.0, 1686.0), ([N, H], 944.0, 961.0), ([H, N], 886.0, 855.0)]
    {
        on_two(&[], move |a, b| {
            let (first, second) = (pair(a, b, kinds, LEN, 0), pair(a, b, kinds, LEN, 1));
            let first = (&first.0, &first.1);
            near(stream(a.host(), &[first], 1 << 20, 20), one, 1.0);
            near(stream(a.host(), &[first, (&second.0, &second.1)], 1 << 20, 20), two, 2.0);
        });
    }
}

/// Two connections of one port share it; the second one costs nothing.
#[test]
fn connections_of_a_port_share_it() {
    on_two(&[], |a, b| {
        let kinds = [MemoryKind::Host; 2];
        let pairs: Vec<(Endpoint, Endpoint)> = (0..8).map(|_| pair(a, b, kinds, LEN, 0)).collect();
        let all: Vec<(&Endpoint, &Endpoint)> = pairs.iter().map(|(near, far)| (near, far)).collect();
        near(stream(a.host(), &all, 64 << 10, 40), 886.0, 1.5);
    });
}

/// Changed values have effect: at twice the bus clock the link is the limit.
#[test]
fn changed_value_changes_the_measured_rate() {
    on_two(&[("bus.clock_mhz", "266")], |a, b| {
        let (first, second) = pair(a, b, [MemoryKind::Host; 2], LEN, 0);
        near(stream(a.host(), &[(&first, &second)], 1 << 20, 20), 944.0, 1.0);
    });
    on_two(&[("link.rate_mbps", "100")], |a, b| {
        let (first, second) = pair(a, b, [MemoryKind::Host; 2], LEN, 0);
        near(stream(a.host(), &[(&first, &second)], 1 << 20, 4), 94.4, 1.0);
    });
}

/// More pages than the translation cache holds, each used repeatedly.
#[test]
fn a_small_translation_cache_slows_streams_down() {
    let rate = Arc::new(Mutex::new([0.0; 2]));
    for (i, entries) in ["1024", "16"].into_iter().enumerate() {
        let rate = rate.clone();
        on_two(&[("translation.cache_entries", entries)], move |a, b| {
            let (first, second) = pair(a, b, [MemoryKind::Host; 2], LEN, 0);
            rate.lock().expect("no panic")[i] = stream(a.host(), &[(&first, &second)], 1 << 20, 20);
        });
    }
    let [large, small] = *rate.lock().expect("no panic");
    assert!(large > 1.05 * small, "{large:.0} and {small:.0} MB/s");
}

/// Goal: if the card is notified of receives, each notification occupies the bus. Method: ten receives, whose
/// doorbells take 5000 clocks each, and a write behind them.
#[test]
fn notifications_of_the_card_occupy_the_bus() {
    let spent = Arc::new(Mutex::new([Span::ZERO; 2]));
    for (i, notified) in ["false", "true"].into_iter().enumerate() {
        let spent = spent.clone();
        on_two(&[("completion.notify_flag", notified), ("doorbell.pio_clocks", "5000")], move |a, b| {
            let (first, second) = pair(a, b, [MemoryKind::Host; 2], 1 << 16, 0);
            for i in 0..10 {
                second.qp.post_recv(&RecvWr::new(i, &[second.mr.sge(0, 8)])).expect("post");
            }
            let begin = a.host().now();
            stream(a.host(), &[(&first, &second)], 8, 1);
            spent.lock().expect("no panic")[i] = a.host().now() - begin;
        });
    }
    let [silent, notified] = *spent.lock().expect("no panic");
    // 50,000 clocks at 133 MHz are 376 us, minus the time of the posts and the initiator's own doorbell.
    assert!(notified > silent + Span::from_us(300), "{notified:?} and {silent:?}");
}

/// Goal: descriptors fetched ahead cost a stream nothing if they arrive while the engine waits for a
/// message's first read. Method: messages of two packets, with descriptors of 80 bytes and of 528.
#[test]
fn descriptors_are_fetched_while_the_engine_waits() {
    let rates = Arc::new(Mutex::new([0.0; 4]));
    for (i, [idle, bytes]) in
        [["true", "64"], ["true", "512"], ["false", "64"], ["false", "512"]].into_iter().enumerate()
    {
        let rates = rates.clone();
        on_two(&[("descriptor.idle_flag", idle), ("descriptor.send_bytes", bytes)], move |a, b| {
            let (first, second) = pair(a, b, [MemoryKind::Host; 2], LEN, 0);
            rates.lock().expect("no panic")[i] = stream(a.host(), &[(&first, &second)], 4096, 500);
        });
    }
    let [small, large, before, after] = *rates.lock().expect("no panic");
    assert!((large / small - 1.0).abs() < 0.03, "{small:.0} and {large:.0} MB/s");
    assert!(after / before < 0.96, "{before:.0} and {after:.0} MB/s");
}

/// Calls take the time given by the machine file.
#[test]
fn calls_cost_the_times_of_the_machine_file() {
    on_two(&[], |a, b| {
        let (first, second) = pair(a, b, [MemoryKind::Host; 2], 1 << 16, 0);
        let host = a.host();
        let cost = |call: &mut dyn FnMut()| {
            let begin = host.now();
            call();
            host.now() - begin
        };
        let (sges, none) = (
            [first.mr.sge(0, 8), first.mr.sge(8, 8), first.mr.sge(16, 8)],
            SendOp::Write(second.mr.remote(0)),
        );
        let send = |sges| first.qp.post_send(&SendWr::new(1, none, sges)).expect("post");
        assert_eq!(cost(&mut || send(&sges[..1])), Span::from_ns(720));
        assert_eq!(cost(&mut || send(&sges)), Span::from_ns(720 + 100), "two pieces more");
        let receive = || first.qp.post_recv(&RecvWr::new(1, &[])).expect("post");
        assert_eq!(cost(&mut || receive()), Span::from_ns(560));
        assert_eq!(
            cost(&mut || assert!(second.cq.poll_one().expect("no overrun").is_none())),
            Span::from_ns(280)
        );
        host.charge(Span::from_us(50));
        assert_eq!(
            cost(&mut || assert!(first.cq.poll_one().expect("no overrun").is_some())),
            Span::from_ns(1080)
        );
        let pd = a.alloc_pd().expect("a domain");
        let buf = Buf::alloc(3 * 4096).expect("memory");
        let mut mr = None;
        let register = &mut || mr = Some(pd.reg_mr(&buf, Access::empty()).expect("a region"));
        assert_eq!(cost(register), Span::from_ns(73_060 + 2 * 300));
        assert_eq!(cost(&mut || drop(mr.take())), Span::from_ns(82_050 + 2 * 200));
    });
}

/// With `payload=hole` only the ends of each message are copied, in the time of the whole message.
#[test]
fn hole_copies_message_ends_in_the_same_time() {
    let times = Arc::new(Mutex::new(Vec::new()));
    for payload in ["bytes", "hole"] {
        let times = times.clone();
        on_two(&[("payload", payload)], move |a, b| {
            let (first, second) = pair(a, b, [MemoryKind::Host; 2], LEN, 0);
            first.mr.buf().fill(7);
            let begin = a.host().now();
            first
                .qp
                .post_send(&SendWr::new(1, SendOp::Write(second.mr.remote(0)), &[first.mr.sge(0, 100_000)]))
                .expect("post");
            assert!(first.cq.wait(None).expect("a completion").is_ok());
            first
                .qp
                .post_send(&SendWr::new(
                    2,
                    SendOp::Read(second.mr.remote(0)),
                    &[first.mr.sge(500_000, 100_000)],
                ))
                .expect("post");
            assert!(first.cq.wait(None).expect("a completion").is_ok());
            times.lock().expect("no panic").push(a.host().now() - begin);
            for (buf, at) in [(second.mr.buf(), 0), (first.mr.buf(), 500_000)] {
                let bytes = buf.to_vec(at..at + 100_000).expect("inside");
                let inner = if payload == "bytes" || at > 0 { 7 } else { 0 };
                assert!(bytes[..64].iter().chain(&bytes[100_000 - 64..]).all(|&byte| byte == 7));
                assert!(bytes[64..100_000 - 64].iter().all(|&byte| byte == inner), "{payload} at {at}");
            }
        });
    }
    let times = times.lock().expect("no panic");
    assert_eq!(times[0], times[1]);
}

/// Two programs on one machine use the same card: they share its rate, but not their objects.
#[test]
fn several_users_share_a_card() {
    let mut world = World::new(world::Config::default());
    let nodes = [world.add_node("a"), world.add_node("b")];
    let config = Config::new("mt23108-nicmem", &[]).expect("a machine");
    let rates = Arc::new(Mutex::new(Vec::new()));
    for user in 0..2 {
        let (hosts, config, rates) = ([nodes[0].host(), nodes[1].host()], config.clone(), rates.clone());
        let body = move || {
            let [a, b] = hosts.map(|host| nic_model::open(&host, &config).expect("a card"));
            let (first, second) = pair(&a, &b, [MemoryKind::Host; 2], LEN, 0);
            let until = Span::from_ms(50);
            a.host().charge(until);
            let rate = stream(a.host(), &[(&first, &second)], 1 << 20, 20);
            rates.lock().expect("no panic").push(rate);
            let end = a.host().after(Span::from_ms(200));
            a.host().poll("the other", end, || None::<()>);
            let other = nic_model::open(a.host(), &config).expect("the same card");
            let foreign = other.alloc_pd().expect("a domain").create_qp(&QpInit::new(&first.cq)).map(drop);
            assert!(matches!(foreign, Err(Error::Foreign { .. })), "{foreign:?}");
        };
        world.spawn(&format!("user {user}"), &[&nodes[0], &nodes[1]], body).expect("a fiber");
    }
    world.run().unwrap_or_else(|failure| panic!("{failure}"));
    let sum: f64 = rates.lock().expect("no panic").iter().sum();
    near(sum, 886.0, 5.0);
}

/// Goal: cards reach each other if their values are equal, however these were written, and only then.
#[test]
fn cards_of_other_values_cannot_be_reached() {
    for (written, reached) in [("133.0", true), ("133.5", false)] {
        let mut world = World::new(world::Config::default());
        let (a, b) = (world.add_node("a"), world.add_node("b"));
        let hosts = [a.host(), b.host()];
        let run = move || {
            let open = |host: &Host, options: &[(&str, &str)]| {
                let config = Config::new("mt23108-vapi", options).expect("a machine");
                nic_model::open(host, &config).expect("a card")
            };
            let (a, b) = (open(&hosts[0], &[]), open(&hosts[1], &[("bus.clock_mhz", written)]));
            let (near, far) = (a.create_cm().expect("a channel"), b.create_cm().expect("a channel"));
            let addr = SocketAddr::new(b.attr().port_addrs[0], 7);
            let _listener = far.listen(addr, 1).expect("a listener");
            let here = create_endpoint(&a, MemoryKind::Host, 64);
            near.connect(&here.qp, addr, &ConnParam::default()).expect("connect");
            if reached {
                assert!(matches!(far.get_event(None), Ok(CmEvent::ConnectRequest(_))));
            } else {
                assert!(matches!(near.get_event(None), Ok(CmEvent::ConnectFailed { .. })));
            }
        };
        world.spawn("driver", &[&a, &b], run).expect("a fiber");
        world.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Goal: limits apply per card. Method: the maximum number of shared receive queues on each of two cards,
/// then one more; destroying one makes room for another, only on its card.
#[test]
fn objects_are_limited_per_card() {
    on_two(&[], |a, b| {
        let domains = [a, b].map(|device| device.alloc_pd().expect("a domain"));
        let limit = a.attr().max_srq;
        let create = |card: usize| domains[card].create_srq(SrqInit { max_wr: 1, max_sge: 1 });
        let mut queues =
            [0, 1].map(|card| (0..limit).map(|_| create(card).expect("room")).collect::<Vec<_>>());
        for card in 0..2 {
            let refusal = create(card).map(drop);
            assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
        }
        queues[1].pop();
        assert!(create(0).is_err() && create(1).is_ok());
    });
}

/// A cut cable: requests fail after their retries, and the idle side is notified as well.
#[test]
fn a_cut_cable_ends_connections_at_both_ends() {
    on_two(&[("faults.cut_us", "5000"), ("faults.cut_node", "1")], |a, b| {
        let (first, second) = pair(a, b, [MemoryKind::Host; 2], 4096, 0);
        let (third, fourth) = pair(a, b, [MemoryKind::Host; 2], 4096, 1);
        let host = a.host();
        second.qp.post_recv(&RecvWr::new(5, &[])).expect("post");
        host.poll("the cut", Some(verbs::host::Time::ZERO + Span::from_us(5001)), || None::<()>);
        let data = [first.mr.sge(0, 8)];
        first.qp.post_send(&SendWr::new(1, SendOp::Write(second.mr.remote(0)), &data)).expect("post");
        first.qp.post_send(&SendWr::new(2, SendOp::Send, &data).unsignaled()).expect("post");
        let [one, two] = [(); 2].map(|()| first.cq.wait(None).expect("a completion"));
        assert_eq!((one.wr_id, one.status), (1, WcStatus::RetryExcErr));
        assert_eq!((two.wr_id, two.status), (2, WcStatus::WrFlushErr));
        assert!(host.now() - verbs::host::Time::ZERO > Span::from_ms(5 + 7 * 2), "after seven retries");
        assert_eq!(second.cq.wait(None).expect("a flush").status, WcStatus::WrFlushErr);
        let data = [third.mr.sge(0, 8)];
        third.qp.post_send(&SendWr::new(1, SendOp::Write(fourth.mr.remote(0)), &data)).expect("post");
        assert!(third.cq.wait(None).expect("a completion").is_ok(), "the other port's cable is whole");
    });
}

#[test]
fn open_on_a_real_time_host_fails() {
    let config = Config::new("mt23108-vapi", &[]).expect("a machine");
    let refusal = nic_model::open(&verbs::host::real::host(), &config).map(drop);
    assert!(matches!(&refusal, Err(Error::Invalid(why)) if why.contains("virtual time")), "{refusal:?}");
}

/// A deadlock of programs ends with a report instead of hanging: the card generates no endless events.
#[test]
fn deadlock_ends_with_a_report() {
    let mut world = World::new(world::Config::default());
    let node = world.add_node("a");
    let (host, config) = (node.host(), Config::new("mt23108-vapi", &[]).expect("a machine"));
    let body = move || {
        let device = nic_model::open(&host, &config).expect("a card");
        let (near_end, far) = pair(&device, &device, [MemoryKind::Host; 2], 4096, 0);
        near_end
            .qp
            .post_send(&SendWr::new(1, SendOp::Write(far.mr.remote(0)), &[near_end.mr.sge(0, 8)]))
            .expect("post");
        for _ in 0..2 {
            near_end.cq.wait(None).expect("one completion only");
        }
    };
    world.spawn("rank", &[&node], body).expect("a fiber");
    let failure = world.run().expect_err("a deadlock").to_string();
    assert!(failure.contains("Cq::wait"), "{failure}");
}

/// Goal: rails are separate. Method: two cards in each of two machines; each card reaches only the card with
/// its number, and refuses addresses of the other rail. A machine that dies takes both rails down.
#[test]
fn rails_reach_only_equal_rails() {
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let (a, b) = (world.add_node("a"), world.add_node("b"));
    let hosts = [a.host(), b.host()];
    let run = move || {
        let open = |host: &Host, rail: &str| {
            let config = Config::new(&format!("connectx-multihca@{rail}"), &[]).expect("a rail");
            nic_model::open(host, &config).expect("a card")
        };
        let [near, far] = [&hosts[0], &hosts[1]].map(|host| [open(host, "0"), open(host, "1")]);
        for rail in 0..2 {
            let (one, other) = (
                create_endpoint(&near[rail], MemoryKind::Host, 64),
                create_endpoint(&far[rail], MemoryKind::Host, 64),
            );
            connect(&one, &other, 0);
        }
        let wrong = SocketAddr::new(far[1].attr().port_addrs[0], 7);
        let lost = create_endpoint(&near[0], MemoryKind::Host, 64);
        let cm = near[0].create_cm().expect("a channel");
        let why = cm.connect(&lost.qp, wrong, &ConnParam::default()).expect_err("another rail's").to_string();
        assert!(why.contains("rail"), "{why}");
        let own = SocketAddr::new(near[1].attr().port_addrs[0], 0);
        assert!(matches!(cm.listen(own, 1), Err(Error::Address { .. })));
        let beyond = Config::new("connectx-multihca@2", &[]).expect_err("two").to_string();
        assert!(beyond.contains("2 rails"), "{beyond}");
    };
    world.spawn("driver", &[&a, &b], run).expect("a fiber");
    world.run().unwrap_or_else(|failure| panic!("{failure}"));
}
