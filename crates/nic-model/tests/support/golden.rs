//! Golden tables: the times of a fixed set of operations on each machine, to the picosecond, and the traces
//! of their worlds. The test `golden` compares them with the files in `tests/golden`; the example `golden`
//! writes these files.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use nic_model::Config;
use verbs::host::world::{self, FiberKind, World};
use verbs::host::{Span, Time};
use verbs::{
    Access, AsyncEvent, AtomicCap, Buf, CmEvent, CompChannel, ConnParam, Cq, Device, MemoryKind, Mr, Qp,
    QpCap, QpInit, RecvWr, SendFlags, SendOp, SendWr, Srq, SrqInit,
};

use super::storm;

/// Bytes of each end's memory.
const LEN: usize = 1 << 20;
/// Seeds of the storms in the table: the whole model with faults and two ranks.
const STORM_SEEDS: u64 = 12;
/// Requests and receives of a queue pair.
const DEPTH: u32 = 512;

/// The rows that a program has written.
type Rows = Arc<Mutex<String>>;
/// A program on two devices, which writes rows.
type Program = fn(&Device, &Device, &mut String);

/// The name of a world, the changed values of its machine, and its program.
type Setting = (&'static str, &'static [(&'static str, &'static str)], Program);

/// The worlds of each machine.
const WORLDS: &[Setting] = &[
    ("one way", &[], measure_single_operations),
    ("streams", &[], streams),
    ("receives", &[], receives),
    (
        "streams under loss, delay and stalls",
        &[
            ("faults.loss_ppm", "20000"),
            ("faults.delay_ns", "3000"),
            ("faults.stall_ppm", "20000"),
            ("faults.stall_ns", "20000"),
        ],
        streams,
    ),
    ("a cut cable", &[("faults.cut_us", "5000"), ("faults.cut_node", "1")], cut),
];

/// The names of all tables: one for each machine, and one of storms.
pub(crate) fn names() -> Vec<String> {
    // The worlds use queue pairs.
    let has = |machine: &nic_model::Machine| machine.family == nic_model::machine::Family::QueuePairs;
    let machines = nic_model::machines().into_iter().filter(has).map(|machine| machine.name);
    machines.chain(["storms".to_owned()]).collect()
}

/// The file of a table.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"))
}

/// The table computed now.
pub(crate) fn table(name: &str) -> String {
    match name {
        "storms" => storms(),
        machine => {
            WORLDS.iter().map(|(world, options, program)| run(machine, world, options, *program)).collect()
        }
    }
}

/// The lines in which two texts differ, as `diff` shows them; empty if there are none.
pub(crate) fn diff(golden: &str, now: &str) -> String {
    let (golden, now): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), now.lines().collect());
    let mut text = String::new();
    for i in 0..golden.len().max(now.len()) {
        let (old, new) = (golden.get(i), now.get(i));
        if old != new {
            old.map(|line| writeln!(text, "-{line}"));
            new.map(|line| writeln!(text, "+{line}"));
        }
    }
    text
}

fn storms() -> String {
    let mut text = String::new();
    for seed in 1..=STORM_SEEDS {
        let ended =
            storm::run(seed, FiberKind::Coroutine).unwrap_or_else(|why| panic!("storm {seed}: {why}"));
        writeln!(text, "{:<40} {}", format!("storm {seed}"), summary(ended)).expect("a string takes all");
    }
    text
}

fn summary(ended: world::Ended) -> String {
    format!("{:>16} ps {:>8} events, trace {:016x}", ended.time.as_ps(), ended.events, ended.trace)
}

/// A world with one rank that runs on two machines with a card each.
fn run(machine: &str, title: &str, options: &[(&str, &str)], program: Program) -> String {
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let (a, b) = (world.add_node("a"), world.add_node("b"));
    let config = Config::new(machine, options).expect("a machine");
    let (hosts, rows) = ([a.host(), b.host()], Rows::default());
    let own = rows.clone();
    let body = move || {
        let [a, b] = hosts.map(|host| nic_model::open(&host, &config).expect("a card"));
        program(&a, &b, &mut own.lock().expect("no panic"));
    };
    world.spawn("driver", &[&a, &b], body).expect("a fiber");
    let ended = world.run().unwrap_or_else(|failure| panic!("{machine}, {title}: {failure}"));
    let rows = rows.lock().expect("no panic");
    format!("{title}\n{rows}  {:<38} {}\n", "the world ends", summary(ended))
}

/// One row: an operation, and times since its start.
fn push_row(rows: &mut String, what: &str, times: &[Span]) {
    write!(rows, "  {what:<38}").expect("a string takes all");
    for time in times {
        write!(rows, " {:>16} ps", time.as_ps()).expect("a string takes all");
    }
    rows.push('\n');
}

/// One end of a connection.
struct Endpoint {
    device: Device,
    cq: Cq,
    qp: Qp,
    mr: Mr,
    nic: Option<Mr>,
}

impl Endpoint {
    fn new(device: &Device, srq: Option<&Srq>, channel: Option<&CompChannel>) -> Self {
        let pd = srq.map_or_else(|| device.alloc_pd().expect("a domain"), |srq| srq.pd().clone());
        let cq = match channel {
            Some(channel) => device.create_cq_with(4 * DEPTH, channel),
            None => device.create_cq(4 * DEPTH),
        };
        let (cq, host) = (cq.expect("a queue"), Buf::alloc(LEN).expect("memory"));
        let cap = QpCap {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 4,
            max_inline: 64,
            ..QpCap::default()
        };
        let init = QpInit::new(&cq).cap(cap);
        let init = if let Some(srq) = srq { init.srq(srq) } else { init };
        let qp = pd.create_qp(&init).expect("a queue pair");
        let has_nic_memory = device.attr().max_dm_size >= 2 * LEN as u64;
        let nic = has_nic_memory.then(|| device.alloc_dm(LEN).expect("NIC memory"));
        let [mr, nic] =
            [Some(host), nic].map(|buf| buf.map(|buf| pd.reg_mr(&buf, Access::ALL).expect("a region")));
        Self { device: device.clone(), cq, qp, mr: mr.expect("host memory"), nic }
    }

    fn memory(&self, kind: MemoryKind) -> Option<&Mr> {
        if kind == MemoryKind::Host { Some(&self.mr) } else { self.nic.as_ref() }
    }

    fn receive(&self, wr_id: u64, len: u32) {
        self.qp.post_recv(&RecvWr::new(wr_id, &[self.mr.sge(0, len)])).expect("room for a receive");
    }

    fn completes(&self) {
        let wc = self.cq.spin(None).expect("a completion");
        assert!(wc.is_ok(), "{wc:?}");
    }
}

/// Connects two ends by a port of the second end's card.
fn connect(a: &Endpoint, b: &Endpoint, port: usize) {
    let (near, far) = (a.device.create_cm().expect("a channel"), b.device.create_cm().expect("a channel"));
    let listener = far.listen(SocketAddr::new(b.device.attr().port_addrs[port], 0), 1).expect("a listener");
    near.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let CmEvent::ConnectRequest(request) = far.get_event(None).expect("an event") else {
        panic!("no request")
    };
    far.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    for cm in [near, far] {
        assert!(matches!(cm.get_event(None).expect("an event"), CmEvent::Established { .. }));
    }
}

fn pair(a: &Device, b: &Device, port: usize) -> (Endpoint, Endpoint) {
    let (near, far) = (Endpoint::new(a, None, None), Endpoint::new(b, None, None));
    connect(&near, &far, port);
    (near, far)
}

/// Waits until everything in flight has completed.
fn wait_until_idle(device: &Device) {
    let host = device.host();
    host.poll("the card to be idle", host.after(Span::from_us(200)), || None::<()>);
}

/// Single operations on idle cards: when the peer sees the last byte or its completion, and when the
/// requester finds its completion.
fn measure_single_operations(a: &Device, b: &Device, rows: &mut String) {
    let begin = a.host().now();
    let (near, far) = pair(a, b, 0);
    push_row(rows, "connect", &[a.host().now() - begin]);
    for kinds in [[MemoryKind::Host; 2], [MemoryKind::Nic; 2]] {
        let [Some(source), Some(target)] = [near.memory(kinds[0]), far.memory(kinds[1])] else { continue };
        for size in [8, 256, 2048, 4097, 65_536] {
            write_once(&near, (source, target), size, rows);
        }
    }
    for size in [0, 8, 256, 4097, 65_536] {
        wait_until_idle(a);
        far.receive(1, size);
        wait_until_idle(a);
        let (begin, sges) = (a.host().now(), [near.mr.sge(0, size)]);
        near.qp.post_send(&SendWr::new(1, SendOp::Send, &sges)).expect("post");
        far.completes();
        let seen = a.host().now() - begin;
        near.completes();
        push_row(rows, &format!("send {size} B"), &[seen, a.host().now() - begin]);
    }
    measure_operations_with_response(&near, &far, rows);
    variants(&near, &far, rows);
    measure_wake_from_channel(a, b, rows);
}

fn write_once(near: &Endpoint, (source, target): (&Mr, &Mr), size: u32, rows: &mut String) {
    let host = near.device.host();
    wait_until_idle(&near.device);
    let last = u64::from(size).div_ceil(8) * 8 - 8;
    source.buf().fill(7);
    let word = target.buf().word(last as usize).expect("inside");
    let old = word.load(Ordering::Acquire);
    let (begin, sges) = (host.now(), [source.sge(0, size)]);
    near.qp.post_send(&SendWr::new(1, SendOp::Write(target.remote(0)), &sges)).expect("post");
    host.poll("the bytes", None, || (word.load(Ordering::Acquire) != old).then_some(()));
    let seen = host.now() - begin;
    near.completes();
    let what = format!("write {size} B, {:?} memory", source.buf().kind());
    push_row(rows, &what, &[seen, host.now() - begin]);
    target.buf().fill(0);
}

/// Operations that return data.
fn measure_operations_with_response(near: &Endpoint, far: &Endpoint, rows: &mut String) {
    let host = near.device.host();
    let timed = |op, sges: &[verbs::Sge]| {
        wait_until_idle(&near.device);
        let begin = host.now();
        near.qp.post_send(&SendWr::new(1, op, sges)).expect("post");
        near.completes();
        host.now() - begin
    };
    for size in [8, 256, 4097, 65_536] {
        let took = timed(SendOp::Read(far.mr.remote(0)), &[near.mr.sge(0, size)]);
        push_row(rows, &format!("read {size} B"), &[took]);
    }
    if near.device.attr().atomic_cap != AtomicCap::None {
        let (remote, sges) = (far.mr.remote(0), [near.mr.sge(0, 8)]);
        push_row(rows, "fetch and add", &[timed(SendOp::FetchAdd { remote, add: 1 }, &sges)]);
        let op = SendOp::CompareSwap { remote, compare: 1, swap: 2 };
        push_row(rows, "compare and swap", &[timed(op, &sges)]);
    }
}

/// Forms of writes and sends: several pieces, inline, immediate data, and a receiver that is not ready.
fn variants(near: &Endpoint, far: &Endpoint, rows: &mut String) {
    let host = near.device.host();
    let timed = |wr: &SendWr<'_>| {
        wait_until_idle(&near.device);
        let begin = host.now();
        near.qp.post_send(wr).expect("post");
        far.completes();
        let seen = host.now() - begin;
        near.completes();
        [seen, host.now() - begin]
    };
    (0..3).for_each(|i| far.receive(i, 8192));
    let sges = [near.mr.sge(0, 100), near.mr.sge(8192, 3000), near.mr.sge(4096, 8)];
    push_row(rows, "send of 3 pieces", &timed(&SendWr::new(1, SendOp::Send, &sges)));
    push_row(rows, "send of 48 B inline", &timed(&SendWr::inline(1, SendOp::Send, &[7; 48])));
    let sges = [near.mr.sge(0, 5000)];
    let op = SendOp::WriteImm(far.mr.remote(0), 5);
    push_row(rows, "write of 5000 B with immediate", &timed(&SendWr::new(1, op, &sges)));
    wait_until_idle(&near.device);
    let begin = host.now();
    near.qp.post_send(&SendWr::new(1, SendOp::Send, &sges)).expect("post");
    host.poll("nothing", host.after(Span::from_us(300)), || None::<()>);
    far.receive(1, 8192);
    far.completes();
    let seen = host.now() - begin;
    near.completes();
    push_row(rows, "send before its receive", &[seen, host.now() - begin]);
}

/// A send that ends a sleep on a completion channel.
fn measure_wake_from_channel(a: &Device, b: &Device, rows: &mut String) {
    let channel = b.create_comp_channel().expect("a channel");
    let (near, far) = (Endpoint::new(a, None, None), Endpoint::new(b, None, Some(&channel)));
    connect(&near, &far, 0);
    far.receive(1, 8);
    far.cq.req_notify(false).expect("a channel");
    wait_until_idle(a);
    let (begin, sges) = (a.host().now(), [near.mr.sge(0, 8)]);
    near.qp.post_send(&SendWr::new(1, SendOp::Send, &sges).with(SendFlags::SIGNALED)).expect("post");
    channel.get_event(None).expect("an event");
    let woken = a.host().now() - begin;
    far.completes();
    near.completes();
    push_row(rows, "send to a sleeper", &[woken, a.host().now() - begin]);
}

/// Many requests at the same time, until the last completion is found.
fn streams(a: &Device, b: &Device, rows: &mut String) {
    let (near, far) = pair(a, b, 0);
    let one = [(&near, &far)];
    stream("256 writes of 8 B", &one, (8, 256), SendOp::Write, rows);
    stream("200 writes of 2 KiB", &one, (2048, 200), SendOp::Write, rows);
    stream("24 writes of 64 KiB", &one, (65_536, 24), SendOp::Write, rows);
    stream("24 reads of 64 KiB", &one, (65_536, 24), SendOp::Read, rows);
    let both = [(&near, &far), (&far, &near)];
    stream("16 writes of 64 KiB both ways", &both, (65_536, 16), SendOp::Write, rows);
    let second = pair(a, b, 0);
    let two = [(&near, &far), (&second.0, &second.1)];
    stream("2 connections, 100 writes of 3 KiB each", &two, (3072, 100), SendOp::Write, rows);
    if b.attr().ports > 1 {
        let other = pair(a, b, 1);
        let ports = [(&near, &far), (&other.0, &other.1)];
        stream("2 ports, 12 writes of 64 KiB each", &ports, (65_536, 12), SendOp::Write, rows);
        let all = [(&near, &far), (&other.0, &other.1), (&far, &near), (&other.1, &other.0)];
        stream("2 ports, both ways, 12 of 64 KiB each", &all, (65_536, 12), SendOp::Write, rows);
    }
    let own = pair(a, a, 0);
    stream("12 writes of 64 KiB within a card", &[(&own.0, &own.1)], (65_536, 12), SendOp::Write, rows);
}

fn stream(
    what: &str,
    ends: &[(&Endpoint, &Endpoint)],
    (size, count): (u32, u64),
    op: fn(verbs::RemoteAddr) -> SendOp,
    rows: &mut String,
) {
    let host = ends[0].0.device.host();
    wait_until_idle(&ends[0].0.device);
    let begin = host.now();
    for i in 0..count {
        for (near, far) in ends {
            let sges = [near.mr.sge(0, size)];
            let wr = SendWr::new(i, op(far.mr.remote(0)), &sges);
            near.qp.post_send(&if i + 1 == count { wr } else { wr.unsignaled() }).expect("post");
        }
    }
    for (near, _) in ends {
        near.completes();
    }
    push_row(rows, what, &[host.now() - begin]);
}

/// Messages into receive queues, of a queue pair and shared.
fn receives(a: &Device, b: &Device, rows: &mut String) {
    let (near, far) = pair(a, b, 0);
    messages("128 sends of 8 B", &[&near], &[&far], 8, &|i| far.receive(i, 8), rows);
    messages("128 sends of 4 KiB", &[&near], &[&far], 4096, &|i| far.receive(i, 4096), rows);
    if b.attr().max_srq == 0 {
        return;
    }
    let pd = b.alloc_pd().expect("a domain");
    let srq = pd.create_srq(SrqInit { max_wr: DEPTH, max_sge: 1 }).expect("a shared receive queue");
    let ends: Vec<(Endpoint, Endpoint)> =
        (0..3).map(|_| (Endpoint::new(a, None, None), Endpoint::new(b, Some(&srq), None))).collect();
    ends.iter().for_each(|(near, far)| connect(near, far, 0));
    let (nears, fars): (Vec<&Endpoint>, Vec<&Endpoint>) = ends.iter().map(|(near, far)| (near, far)).unzip();
    let memory = pd.reg_mr(&Buf::alloc(4096).expect("memory"), Access::ALL).expect("a region");
    srq.arm_limit(10).expect("a limit");
    let post = |i| srq.post_recv(&RecvWr::new(i, &[memory.sge(0, 512)])).expect("post");
    messages("128 sends of 512 B to 3 with an SRQ", &nears, &fars, 512, &post, rows);
    let limit = std::iter::from_fn(|| b.poll_async_event());
    assert!(limit.into_iter().any(|event| matches!(event, AsyncEvent::SrqLimitReached { .. })));
}

fn messages(
    what: &str,
    nears: &[&Endpoint],
    fars: &[&Endpoint],
    size: u32,
    receive: &dyn Fn(u64),
    rows: &mut String,
) {
    let (host, count) = (nears[0].device.host(), 128);
    wait_until_idle(&nears[0].device);
    (0..count).for_each(receive);
    wait_until_idle(&nears[0].device);
    let begin = host.now();
    for i in 0..count {
        let near = nears[i as usize % nears.len()];
        let sges = [near.mr.sge(0, size)];
        near.qp.post_send(&SendWr::new(i, SendOp::Send, &sges)).expect("post");
    }
    for i in 0..count as usize {
        fars[i % fars.len()].completes();
    }
    let received = host.now() - begin;
    for i in 0..count as usize {
        nears[i % nears.len()].completes();
    }
    push_row(rows, what, &[received, host.now() - begin]);
}

/// Requests posted before and after a cable is cut.
fn cut(a: &Device, b: &Device, rows: &mut String) {
    let (near, far) = pair(a, b, 0);
    let host = a.host();
    far.receive(1, 8);
    host.poll("the cut", Some(Time::ZERO + Span::from_us(4990)), || None::<()>);
    let sges = [near.mr.sge(0, 65_536)];
    for i in 0..3 {
        near.qp.post_send(&SendWr::new(i, SendOp::Write(far.mr.remote(0)), &sges)).expect("post");
    }
    for i in 0..3 {
        let wc = near.cq.spin(None).expect("a completion");
        push_row(rows, &format!("write {i}: {:?}", wc.status), &[host.now() - Time::ZERO]);
    }
    let wc = far.cq.spin(None).expect("a flush");
    push_row(rows, &format!("the peer's receive: {:?}", wc.status), &[host.now() - Time::ZERO]);
}
