//! Measures a modelled card: latencies and rates of writes for each memory placement, and the cost of
//! simulating them.
//!
//! `cargo run --release -p nic-model --example card_speed -- mt23108-nicmem bus.clock_mhz=266`

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use nic_model::Config;
use verbs::host::world::{self, World};
use verbs::host::{EventCount, Host, Span};
use verbs::{
    Access, Buf, CmEvent, ConnParam, Cq, Device, MemoryKind, Mr, Pd, Qp, QpCap, QpInit, RecvWr, RemoteAddr,
    SendOp, SendWr, Wc,
};

const LEN: usize = 1 << 20;
const ROUNDS: u64 = 20;

/// One end of a connection: a source of data and a sink for the peer's data.
struct Endpoint {
    cq: Cq,
    qp: Qp,
    source: Mr,
    sink: Mr,
    peer: RemoteAddr,
}

fn memory(pd: &Pd, kind: MemoryKind) -> Mr {
    let buf = match kind {
        MemoryKind::Host => Buf::alloc(LEN),
        MemoryKind::Nic => pd.device().alloc_dm(LEN),
    };
    pd.reg_mr(&buf.expect("memory"), Access::ALL).expect("a region")
}

/// Connects to the peer, or accepts from it, by this port.
fn create_endpoint(device: &Device, kinds: [MemoryKind; 2], port: usize, active: bool) -> Endpoint {
    let pd = device.alloc_pd().expect("a domain");
    let [source, sink] = kinds.map(|kind| memory(&pd, kind));
    let cq = device.create_cq(4096).expect("a queue");
    let cap = QpCap { max_send_wr: 1024, max_recv_wr: 1024, ..QpCap::default() };
    let qp = pd.create_qp(&QpInit::new(&cq).cap(cap)).expect("a queue pair");
    let cm = device.create_cm().expect("a channel");
    let mut hello = sink.addr().to_le_bytes().to_vec();
    hello.extend(sink.rkey().to_le_bytes());
    let param = ConnParam::with_private_data(hello);
    let number = 7000 + port as u16;
    let theirs = if active {
        device.host().charge(Span::from_ms(1));
        let [net, p, high, _] = match device.attr().port_addrs[port] {
            std::net::IpAddr::V4(ip) => ip.octets(),
            std::net::IpAddr::V6(_) => unreachable!("modelled cards have IPv4 addresses"),
        };
        cm.connect(&qp, SocketAddr::from(([net, p, high, 2], number)), &param).expect("connect");
        match cm.get_event(None).expect("an event") {
            CmEvent::Established { private_data, .. } => private_data,
            other => panic!("{other:?}"),
        }
    } else {
        let addr = SocketAddr::new(device.attr().port_addrs[port], number);
        let _listener = cm.listen(addr, 1).expect("a listener");
        let CmEvent::ConnectRequest(request) = cm.get_event(None).expect("an event") else {
            panic!("no request")
        };
        let data = request.private_data.clone();
        cm.accept(request, &qp, &param).expect("accept");
        assert!(matches!(cm.get_event(None).expect("an event"), CmEvent::Established { .. }));
        data
    };
    let addr = u64::from_le_bytes(theirs[..8].try_into().expect("eight bytes"));
    let rkey = u32::from_le_bytes(theirs[8..12].try_into().expect("four bytes"));
    Endpoint { cq, qp, source, sink, peer: RemoteAddr { addr, rkey } }
}

/// Half a round trip of 8-byte writes, in microseconds.
fn write_latency(host: &Host, end: &Endpoint, first: bool) -> f64 {
    let begin = host.now();
    let word = end.sink.buf().word(64).expect("inside");
    for round in 1..=ROUNDS {
        let wait =
            || host.poll("the peer's write", None, || (word.load(Ordering::Acquire) == round).then_some(()));
        let write = || {
            end.source.buf().write(0, &round.to_ne_bytes()).expect("inside");
            let wr_sge = [end.source.sge(0, 8)];
            end.qp
                .post_send(&SendWr::new(round, SendOp::Write(end.peer.offset(64)), &wr_sge).unsignaled())
                .expect("post");
        };
        if first {
            write();
            wait();
        } else {
            wait();
            write();
        }
    }
    (host.now() - begin).as_ns_f64() / 2e3 / ROUNDS as f64
}

/// Half a round trip of 8-byte sends, in microseconds.
fn send_latency(host: &Host, end: &Endpoint, first: bool) -> f64 {
    let receive = |id| end.qp.post_recv(&RecvWr::new(id, &[end.sink.sge(128, 8)])).expect("post");
    receive(0);
    // Until the peer has posted a receive, too.
    host.charge(Span::from_ms(1));
    let begin = host.now();
    for round in 0..ROUNDS {
        let wait = || {
            end.cq.spin(None).expect("a receive");
            receive(round + 1);
        };
        let wr_sge = [end.source.sge(0, 8)];
        let send =
            || end.qp.post_send(&SendWr::new(round, SendOp::Send, &wr_sge).unsignaled()).expect("post");
        if first {
            send();
            wait();
        } else {
            wait();
            send();
        }
    }
    (host.now() - begin).as_ns_f64() / 2e3 / ROUNDS as f64
}

/// Simultaneous streams of writes from all ends, in MB/s.
fn stream(host: &Host, ends: &[Endpoint], size: u32, count: u64) -> f64 {
    let begin = host.now();
    for end in ends {
        for i in 0..count {
            let wr_sge = [end.source.sge(0, size)];
            let wr = SendWr::new(i, SendOp::Write(end.peer), &wr_sge);
            end.qp.post_send(&if i + 1 == count { wr } else { wr.unsignaled() }).expect("post");
        }
    }
    for end in ends {
        let wc: Wc = end.cq.spin(None).expect("a completion");
        assert!(wc.is_ok(), "{wc:?}");
    }
    (u64::from(size) * count * ends.len() as u64) as f64 / (host.now() - begin).as_secs_f64() / 1e6
}

/// The measurement of one world.
#[derive(Clone, Copy)]
struct Job {
    kinds: [MemoryKind; 2],
    ports: usize,
    both: bool,
    what: fn(&Host, &[Endpoint], bool) -> f64,
}

fn run(config: &Config, job: Job) -> (f64, u64) {
    let mut world = World::new(world::Config::default());
    let nodes = [world.add_node("a"), world.add_node("b")];
    let results = Arc::new(Mutex::new(Vec::new()));
    for (i, node) in nodes.iter().enumerate() {
        let (host, config, results) = (node.host(), config.clone(), results.clone());
        let body = move || {
            let device = nic_model::open(&host, &config).expect("a card");
            let ends: Vec<Endpoint> =
                (0..job.ports).map(|port| create_endpoint(&device, job.kinds, port, i == 0)).collect();
            let result = if i == 0 || job.both { (job.what)(&host, &ends, i == 0) } else { 0.0 };
            results.lock().expect("no panic").push(result);
            // All objects stay until the peer has finished, too.
            let until = host.after(Span::from_secs(2));
            host.wait("the end", &EventCount::new(), until, || None::<()>);
        };
        world.spawn(&format!("rank {i}"), &[node], body).expect("a fiber");
    }
    let ended = world.run().unwrap_or_else(|failure| panic!("{failure}"));
    let results = results.lock().expect("no panic").clone();
    (results.iter().sum(), ended.events)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let machine = args.next().unwrap_or_else(|| "mt23108-nicmem".to_owned());
    let options: Vec<String> = args.collect();
    let options: Vec<(&str, &str)> =
        options.iter().map(|o| o.split_once('=').expect("options are KEY=VALUE")).collect();
    let config = Config::new(&machine, &options).unwrap_or_else(|e| panic!("{e}"));
    let (host, nic) = (MemoryKind::Host, MemoryKind::Nic);
    let ping = |what| Job { kinds: [host, host], ports: 1, both: true, what };
    let (writes, _) = run(
        &config,
        ping(
            |h, e, first| {
                if first { write_latency(h, &e[0], true) } else { write_latency(h, &e[0], false) * 0.0 }
            },
        ),
    );
    let (sends, events) = run(
        &config,
        ping(
            |h, e, first| {
                if first { send_latency(h, &e[0], true) } else { send_latency(h, &e[0], false) * 0.0 }
            },
        ),
    );
    println!("{machine}: one way of 8 bytes: write {writes:.2} us, send {sends:.2} us");
    println!("{} events per message, connecting included", events / 2 / ROUNDS);
    println!(
        "MB/s of 64 KiB writes        1 port   1 port bi  2 ports  2 ports bi   events per packet, M events/s"
    );
    for (name, kinds) in [
        ("host to host", [host, host]),
        ("nic to nic", [nic, nic]),
        ("nic to host", [nic, host]),
        ("host to nic", [host, nic]),
    ] {
        print!("{name:<26}");
        let (mut events, mut packets, begin) = (0, 0, host::real::host().now());
        for (ports, both) in [(1, false), (1, true), (2, false), (2, true)] {
            let (rate, n) =
                run(&config, Job { kinds, ports, both, what: |h, e, _| stream(h, e, 64 << 10, 200) });
            (events, packets) = (events + n, packets + 200 * 32 * ports as u64 * (1 + u64::from(both)));
            print!("{rate:10.1}");
        }
        let took = (host::real::host().now() - begin).as_secs_f64();
        println!("{:12.1} {:10.1}", events as f64 / packets as f64, events as f64 / took / 1e6);
    }
}
