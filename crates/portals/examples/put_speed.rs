//! Measures puts and their baselines in turns of one run: the round trip of 8 bytes with full events, a
//! mebibyte, the rate of short puts, and how much puts slow down a computing target, for each matcher.
//!
//! The baseline is what the device is built on: for `shm` verbs sends, and process_vm_writev(2), which
//! private memory needs; for `iwarp` a plain TCP connection. The time in which two threads hand each other a
//! word, by one cache line for each direction, shows the state of the processors: their distance changes
//! between runs on virtual machines, and all short times change with it.
//!
//! `cargo run --release -p portals --example put_speed [DEVICE...]`

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nic_util::floor::{Lines, PeerMemory, Region as FloorRegion, Role, Tcp, nonces};
use portals::{
    AckReq, Action, Engine, Entry, EntryOptions, EqHandle, EventKind, Key, Limits, List, ListId, Matcher,
    MdAddr, MdHandle, MdOptions, MemoryDescriptor, Ni, NiKind, Node, Process, PtOptions, Region, Transfer,
};
use verbs::host::{Host, Task};
use verbs::{
    Access, Buf, CmEvent, ConnParam, Cq, Data, Device, Mr, Qp, QpCap, QpInit, RecvWr, SendFlags, SendOp,
    SendWr, Wc,
};

/// Turns of a run; each measures everything once.
const TURNS: usize = 7;
/// Round trips of a turn.
const ROUNDS: u64 = 10_000;
/// Bytes of a long put.
const LONG: usize = 1 << 20;
/// Long puts of a turn.
const LONGS: u64 = 100;
/// Long puts of a turn to a target that computes.
const PUTS_TO_BUSY_TARGET: u64 = 16;
/// Steps of the work that the target does meanwhile.
const WORK_STEPS: u64 = 2_000_000;
/// The argument that makes this program only expose its memory.
const IDLE: &str = "--idle";
/// Puts in flight when their rate is measured.
const WINDOW: u64 = 64;
/// Windows of a turn: enough to hide the start of the other thread, and few enough that their events fit into
/// a queue.
const SHORTS: u64 = 1_000;
const EVENTS: u64 = 1 << 16;
const _: () = assert!(SHORTS * WINDOW < EVENTS);

/// One side's interface: an entry for all of its memory, and a descriptor of it.
struct Side {
    ni: Ni,
    eq: EqHandle,
    md: MdHandle,
    _memory: Buf,
}

impl Side {
    fn new(host: &Host, device: &str, matcher: Matcher) -> Self {
        let device = fabric::open(device, host).expect("a device");
        let memory = Buf::alloc(LONG).expect("memory");
        let key = Key::from_bytes([1; 16]);
        // SAFETY: the interface is dropped before the memory, and no one else uses that.
        let node =
            unsafe { Node::open(host, &device, address(&device), None, 0, matcher, &key) }.expect("a node");
        let ni = node.interface(NiKind { is_matching: true, is_logical: false }, Limits::default());
        let region = Region::new(memory.addr(), LONG as u64);
        let open = |engine: &mut Engine| {
            let eq = engine.eq_alloc(EVENTS as usize).expect("the first");
            engine.pt_alloc(PtOptions::empty(), Some(eq), Some(0)).expect("the first");
            let options = EntryOptions::OP_PUT | EntryOptions::EVENT_LINK_DISABLE;
            let place = ListId { pt_index: 0, list: List::Priority };
            engine.append(place, Entry::taking_all(region.clone(), options), 0).expect("room");
            let options = MdOptions::EVENT_SEND_DISABLE;
            let md = MemoryDescriptor { region, options, eq: Some(eq), counter: None };
            (eq, engine.md_bind(md).expect("room"))
        };
        let (eq, md) = ni.with_engine(open).expect("open");
        Self { ni, eq, md, _memory: memory }
    }

    fn put(&self, target: Process, length: usize, ack: AckReq) {
        let put = Transfer {
            action: Action::Put,
            put: Some(MdAddr { md: self.md, offset: 0 }),
            get: None,
            length: length as u64,
            ack,
            target,
            pt_index: 0,
            match_bits: 0,
            remote_offset: 0,
            user_ptr: 0,
            hdr_data: 0,
        };
        self.ni.transfer(&put).expect("open").expect("legal");
    }

    /// Waits for `count` events of a kind.
    fn take(&self, kind: EventKind, count: u64) {
        for _ in 0..count {
            let look = |engine: &mut Engine| engine.eq_get(self.eq).expect("a queue");
            let (event, _) = self.ni.wait("put_speed", None, look).expect("open");
            assert_eq!(event.kind, kind, "{event:?}");
        }
    }
}

fn address(device: &Device) -> Ipv4Addr {
    match device.attr().port_addrs.first() {
        Some(IpAddr::V4(address)) => *address,
        _ => Ipv4Addr::LOCALHOST,
    }
}

/// One side of a pair of connected queue pairs.
struct End {
    host: Host,
    qp: Qp,
    cq: Cq,
    memory: Mr,
}

impl End {
    fn new(host: &Host, device: &Device) -> Self {
        let pd = device.alloc_pd().expect("a domain");
        let cq = device.create_cq(256).expect("a queue");
        let cap = QpCap { max_send_wr: 128, max_recv_wr: 128, max_inline: 64, ..QpCap::default() };
        let qp = pd.create_qp(&QpInit::new(&cq).cap(cap)).expect("a queue pair");
        let memory = pd.reg_mr(&Buf::alloc(4096).expect("memory"), Access::LOCAL_WRITE).expect("a region");
        Self { host: host.clone(), qp, cq, memory }
    }

    fn receive(&self) {
        self.qp.post_recv(&RecvWr::new(0, &[self.memory.sge(0, 64)])).expect("room");
    }

    fn send(&self) {
        let data = Data::Inline(&[7; 8]);
        self.qp
            .post_send(&SendWr { wr_id: 1, op: SendOp::Send, data, flags: SendFlags::SIGNALED })
            .expect("room");
    }

    fn take(&self, count: usize) {
        let mut wcs = [Wc::default(); 4];
        let mut left = count;
        while left > 0 {
            let look =
                || Some(self.cq.poll(&mut wcs[..left.min(4)]).expect("a queue")).filter(|count| *count > 0);
            left -= self.host.wait("put_speed", &self.cq, None, look).expect("no deadline");
        }
    }
}

/// Two connected queue pairs.
fn ends(host: &Host, name: &str) -> [End; 2] {
    let devices = [0, 1].map(|_| fabric::open(name, host).expect("a device"));
    let (a, b) = (End::new(host, &devices[0]), End::new(host, &devices[1]));
    let [asks, hears] = [&devices[0], &devices[1]].map(|device| device.create_cm().expect("a channel"));
    let at = SocketAddr::new(address(&devices[1]).into(), 0);
    let listener = hears.listen(at, 1).expect("a port");
    asks.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("asked");
    let (mut open, mut asked) = (0, false);
    while open < 2 {
        match hears.poll_event() {
            Some(CmEvent::ConnectRequest(request)) if !asked => {
                hears.accept(request, &b.qp, &ConnParam::default()).expect("accepted");
                asked = true;
            }
            Some(CmEvent::Established { .. }) => open += 1,
            _ => {}
        }
        open += usize::from(matches!(asks.poll_event(), Some(CmEvent::Established { .. })));
    }
    // Connections end with the objects that made them.
    std::mem::forget((asks, hears, listener));
    [a, b]
}

/// Runs `body` on both sides for `rounds` rounds; returns nanoseconds per round.
fn both<S: Send + Sync + 'static>(
    host: &Host,
    sides: &[Arc<S>; 2],
    rounds: u64,
    body: impl Fn(&S, bool, u64) + Copy + Send + 'static,
) -> f64 {
    let other = sides[1].clone();
    let began = host.now();
    let task: Task = host.spawn("other", None, move || body(&other, false, rounds)).expect("a thread");
    body(&sides[0], true, rounds);
    task.join();
    host.now().since(began).as_ps() as f64 / 1000.0 / rounds as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One side of a pair, and the process that it puts to.
struct Puts {
    side: Side,
    to: Process,
}

/// A ping-pong of short puts.
fn ping(puts: &Puts, begins: bool, rounds: u64) {
    for round in 0..rounds {
        if begins || round > 0 {
            puts.side.put(puts.to, 8, AckReq::None);
        }
        puts.side.take(EventKind::Put, 1);
    }
    if !begins {
        puts.side.put(puts.to, 8, AckReq::None);
    }
}

/// A ping-pong of verbs sends.
fn send(end: &End, begins: bool, rounds: u64) {
    for round in 0..rounds {
        if begins || round > 0 {
            end.send();
        }
        // One completion for the send, one for the receive.
        end.take(if begins || round > 0 { 2 } else { 1 });
        end.receive();
    }
    if !begins {
        end.send();
        end.take(1);
    }
}

/// Puts in one direction, `window` of them in flight.
fn stream(puts: &Puts, begins: bool, rounds: u64, length: usize, window: u64) {
    if !begins {
        return puts.side.take(EventKind::Put, rounds);
    }
    let mut done = 0;
    for round in 0..rounds {
        puts.side.put(puts.to, length, if (round + 1) % window == 0 { AckReq::Full } else { AckReq::None });
        if (round + 1) % window == 0 && round + 1 > window {
            puts.side.take(EventKind::Ack, 1);
            done += 1;
        }
    }
    puts.side.take(EventKind::Ack, rounds / window - done);
}

/// A stream of long puts.
fn long(puts: &Puts, begins: bool, rounds: u64) {
    stream(puts, begins, rounds, LONG, 4);
}

/// A stream of short puts.
fn short(puts: &Puts, begins: bool, rounds: u64) {
    stream(puts, begins, rounds, 8, WINDOW);
}

/// Two processes of this host with an interface on the device each.
fn pair(host: &Host, device: &str, matcher: Matcher) -> [Arc<Puts>; 2] {
    let [a, b] = [0, 1].map(|_| Side::new(host, device, matcher));
    let (at_a, at_b) = (a.ni.node().me(), b.ni.node().me());
    [Arc::new(Puts { side: a, to: at_b }), Arc::new(Puts { side: b, to: at_a })]
}

/// Does `steps` steps of work.
fn work(steps: u64) -> u64 {
    (0..steps).fold(1, |sum, step| std::hint::black_box(sum ^ step).wrapping_mul(0x9e37_79b9))
}

/// How long `steps` steps of work take, in nanoseconds.
fn timed_work_ns(host: &Host, steps: u64) -> f64 {
    let began = host.now();
    std::hint::black_box(work(steps));
    host.now().since(began).as_ps() as f64 / 1000.0
}

/// This side does `steps` steps of work while the peer puts `puts_count` mebibytes into its memory. Returns how long
/// the work took, and how long all puts took, in nanoseconds.
fn compute_while_peer_puts(host: &Host, puts: &[Arc<Puts>; 2], steps: u64, puts_count: u64) -> (f64, f64) {
    let puts_ns = Arc::new(AtomicU64::new(0));
    let (initiator, result, clock) = (puts[0].clone(), puts_ns.clone(), host.clone());
    let body = move || {
        let began = clock.now();
        for _ in 0..puts_count {
            initiator.side.put(initiator.to, LONG, AckReq::Full);
            initiator.side.take(EventKind::Ack, 1);
        }
        result.store(clock.now().since(began).as_ps() / 1000, Ordering::Relaxed);
    };
    let task = host.spawn("initiator", None, body).expect("a thread");
    let work_ns = timed_work_ns(host, steps);
    task.join();
    puts[1].side.take(EventKind::Put, puts_count);
    (work_ns, puts_ns.load(Ordering::Relaxed) as f64)
}

/// The baseline of a device.
trait Floor {
    /// The names of its short and its long operation.
    fn name(&self) -> [&'static str; 2];
    /// Nanoseconds of a round trip of 8 bytes.
    fn short_ns(&self, host: &Host) -> f64;
    /// Nanoseconds of a mebibyte in one direction.
    fn long_ns(&self, host: &Host) -> f64;
}

/// Verbs sends, and copies to an idle process.
struct Memory {
    sends: [Arc<End>; 2],
    own: FloorRegion,
    peer: PeerMemory,
    _child: Idle,
}

/// A child process of this program, which exposes its memory and waits.
struct Idle(Child);

impl Drop for Idle {
    fn drop(&mut self) {
        let Self(child) = self;
        // It exits on end of file, or has exited already.
        drop(child.stdin.take());
        let _ = child.wait();
    }
}

/// The main function of this child process.
fn show_memory() {
    let region = FloorRegion::private(LONG).expect("memory");
    region.fill(1);
    println!("{}", region.addr());
    std::io::stdin().read_line(&mut String::new()).expect("an end");
}

impl Memory {
    fn new(host: &Host, device: &str) -> Self {
        let sends = ends(host, device).map(Arc::new);
        // One more than a round needs, so that no message waits for its receive.
        sends.iter().for_each(|end| (0..2).for_each(|_| end.receive()));
        let own = FloorRegion::private(LONG).expect("memory");
        own.fill(2);
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let mut child =
            command.arg(IDLE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("an address");
        let addr = line.trim().parse().expect("a number");
        let peer = PeerMemory::new(child.id(), addr, LONG).expect("another process");
        Self { sends, own, peer, _child: Idle(child) }
    }
}

impl Floor for Memory {
    fn name(&self) -> [&'static str; 2] {
        ["verbs' send", "process_vm"]
    }

    fn short_ns(&self, host: &Host) -> f64 {
        both(host, &self.sends, ROUNDS, send)
    }

    fn long_ns(&self, host: &Host) -> f64 {
        let began = host.now();
        self.peer.write_from(&self.own, LONG, LONGS).expect("allowed");
        host.now().since(began).as_ps() as f64 / 1000.0 / LONGS as f64
    }
}

/// Both ends of a TCP connection.
struct Stream([Arc<Tcp>; 2]);

impl Stream {
    fn new() -> Self {
        let nonces = nonces().expect("random numbers");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let near = std::thread::spawn(move || Tcp::connect(at, None, &nonces, 0).expect("a connection"));
        let far = Tcp::accept(&listener, &nonces, 0, &never).expect("a connection");
        Self([near.join().expect("no panic"), far].map(Arc::new))
    }
}

fn never() -> bool {
    false
}

/// A ping-pong of 8 bytes over TCP.
fn bounce(end: &Tcp, begins: bool, rounds: u64) {
    let mut bytes = [0; 8];
    for _ in 0..rounds {
        if begins {
            end.send(&bytes, 8, &never).expect("sent");
        }
        end.receive(&mut bytes, 8, &never).expect("received");
        if !begins {
            end.send(&bytes, 8, &never).expect("sent");
        }
    }
}

/// A stream of mebibytes over TCP.
fn pour(end: &Tcp, begins: bool, rounds: u64) {
    let mut bytes = vec![0; LONG];
    for _ in 0..rounds {
        if begins {
            end.send(&bytes, LONG, &never).expect("sent");
        } else {
            end.receive(&mut bytes, LONG, &never).expect("received");
        }
    }
}

impl Floor for Stream {
    fn name(&self) -> [&'static str; 2] {
        ["TCP", "TCP"]
    }

    fn short_ns(&self, host: &Host) -> f64 {
        both(host, &self.0, ROUNDS, bounce)
    }

    fn long_ns(&self, host: &Host) -> f64 {
        both(host, &self.0, LONGS, pour)
    }
}

/// Nanoseconds of a word's round trip, with one cache line for each direction.
fn mailbox_ns(host: &Host, rounds: u64) -> f64 {
    let region = Arc::new(FloorRegion::private(4096).expect("memory"));
    region.fill(0);
    let other = region.clone();
    let pong = move || {
        other.bounce((Role::Pong, Lines::Two), 0, rounds, 0, &never).expect("answered");
    };
    let task = host.spawn("other", None, pong).expect("a thread");
    // Before the other thread has started, this would measure its start.
    let begun = region.bounce((Role::Ping, Lines::Two), 0, 1, 0, &never).expect("answered");
    let began = host.now();
    region.bounce((Role::Ping, Lines::Two), begun, rounds - 1, 0, &never).expect("answered");
    let took = host.now().since(began);
    task.join();
    took.as_ps() as f64 / 1000.0 / (rounds - 1) as f64
}

/// What one turn with one matcher measures, in nanoseconds.
struct TurnTimes {
    /// A round trip of a word, by cache lines.
    mailbox_round_trip: f64,
    /// A round trip of puts of 8 bytes.
    put_round_trip: f64,
    /// One put of a stream of long ones.
    long_put: f64,
    /// One put of a stream of short ones.
    short_put: f64,
    /// The work of a target while its peer puts.
    work: f64,
    /// One long put to a target that computes.
    put_to_busy_target: f64,
}

/// Measures one turn with one matcher.
fn measure(host: &Host, puts: &[Arc<Puts>; 2]) -> TurnTimes {
    let mailbox_round_trip = mailbox_ns(host, ROUNDS);
    let put_round_trip = both(host, puts, ROUNDS, ping);
    let long_put = both(host, puts, LONGS, long);
    let short_put = both(host, puts, SHORTS * WINDOW, short);
    let (work, all_puts) = compute_while_peer_puts(host, puts, WORK_STEPS, PUTS_TO_BUSY_TARGET);
    let put_to_busy_target = all_puts / PUTS_TO_BUSY_TARGET as f64;
    TurnTimes { mailbox_round_trip, put_round_trip, long_put, short_put, work, put_to_busy_target }
}

/// The columns of the table: the quantities of [`TurnTimes`] as they are printed, most of them in relation to the
/// baseline.
const COLUMNS: usize = 7;

/// Measures puts on a device in turns with its baseline, for each matcher, and prints the medians.
fn compare(host: &Host, device: &str) {
    let floor: Box<dyn Floor> =
        if device.starts_with("shm") { Box::new(Memory::new(host, device)) } else { Box::new(Stream::new()) };
    let mut floors = [Vec::new(), Vec::new()];
    let mut columns: [[Vec<f64>; COLUMNS]; Matcher::ALL.len()] = Default::default();
    for ((matcher, _), columns) in Matcher::ALL.into_iter().zip(&mut columns) {
        // One pair at a time: spinning threads of other pairs would occupy the cores.
        let puts = &pair(host, device, matcher);
        for turn in 0..=TURNS {
            let (short_floor, long_floor) = (floor.short_ns(host), floor.long_ns(host));
            let work_alone = timed_work_ns(host, WORK_STEPS);
            let times = measure(host, puts);
            // The first turn connects and touches memory.
            if turn > 0 {
                let values = [
                    times.mailbox_round_trip / 2.0,
                    times.put_round_trip / 2.0,
                    times.put_round_trip / short_floor,
                    long_floor / times.long_put,
                    1000.0 / times.short_put,
                    times.work / work_alone,
                    times.put_to_busy_target / long_floor,
                ];
                columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
                floors.iter_mut().zip([short_floor / 2.0, long_floor]).for_each(|(of, value)| of.push(value));
            }
        }
    }
    let ([short_name, long_name], [short, long]) = (floor.name(), floors.map(median));
    println!(
        "{device}: {short_name} of 8 B, one way {short:.0} ns; {long_name} of 1 MiB {:.1} us",
        long / 1000.0
    );
    println!("medians of {TURNS} turns:");
    println!(
        "  matched by   mailbox, ns   put of 8 B, ns   / {short_name:<11}   {long_name:>10} / put, 1 MiB   million puts a second   work / alone   put to busy target / {long_name}"
    );
    for ((_, name), columns) in Matcher::ALL.into_iter().zip(columns) {
        let [mailbox, put, latency_ratio, bandwidth_ratio, rate, work_slowdown, put_slowdown] =
            columns.map(median);
        println!(
            "  {name:<12} {mailbox:>11.0}  {put:>14.0}  {latency_ratio:>14.2}  {bandwidth_ratio:>24.2}  {rate:>22.2}  {work_slowdown:>13.2}  {put_slowdown:>22.2}"
        );
    }
}

fn main() {
    let host = verbs::host::real::host();
    let mut devices: Vec<String> = std::env::args().skip(1).collect();
    if devices == [IDLE] {
        return show_memory();
    }
    if devices.is_empty() {
        devices = vec!["shm".into(), "iwarp".into()];
    }
    devices.iter().for_each(|device| compare(&host, device));
}
