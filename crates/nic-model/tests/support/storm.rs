//! Two machines with several connections, on which one side writes, sends, reads and adds at random, until a
//! cable is cut, a machine dies, or all requests have completed.
//!
//! Checked: each request and each receive completes exactly once and in order; the first failure has a
//! fitting status, and the rest is flushed; messages arrive in order and complete; the data of completed
//! writes are in place; connections end with one `Disconnected` at each living side; no side waits forever.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use nic_model::Config;
use verbs::host::world::{self, Ended, FiberKind, World};
use verbs::host::{Host, Rng, Span, Time};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Mr, Pd, Qp, QpCap, QpInit, QpState, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, Wc, WcOpcode, WcStatus,
};

/// Connections between the two machines.
const CONNECTIONS: usize = 3;
/// Requests on each.
const REQUESTS: u64 = 60;
/// Bytes of the server's memory that each request may use.
const SLOT: usize = 16 << 10;
/// Requests and receives outstanding on each connection.
const DEPTH: u32 = 16;
/// Bytes of the memory that reads fetch.
const READABLE: usize = 64 << 10;
/// Longer than any part of this takes without permanent faults.
const PATIENCE: Span = Span::from_secs(30);
/// When an unanswered connection is given up.
const ANSWER: Span = Span::from_ms(200);

/// Bytes that identify connection, number and offset.
fn pattern(connection: usize, number: u64, len: usize) -> Vec<u8> {
    Rng::new((connection as u64) << 32 | number).bytes(len)
}

/// The length of request `number` of a connection.
fn length(seed: u64, connection: usize, number: u64) -> usize {
    let mut rng = Rng::new(seed ^ (connection as u64) << 40 ^ number << 8);
    match rng.below(4) {
        0 => rng.below(65) as usize,
        1 => 2048 - 32 + rng.below(64) as usize,
        _ => rng.below(SLOT as u64 + 1) as usize,
    }
}

/// The faults in the world of this seed.
fn faults(seed: u64) -> Vec<(&'static str, String)> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut options = Vec::new();
    let mut set = |key, value: u64| options.push((key, value.to_string()));
    if rng.below(2) == 0 {
        set("faults.loss_ppm", rng.below(20_000));
    }
    if rng.below(2) == 0 {
        set("faults.delay_ns", rng.below(20_000));
    }
    if rng.below(3) == 0 {
        set("faults.stall_ppm", rng.below(20_000));
        set("faults.stall_ns", rng.below(100_000));
    }
    let at = 300 + rng.below(6_000);
    match rng.below(5) {
        0 => {}
        1 | 2 => {
            set("faults.cut_us", at);
            set("faults.cut_node", rng.below(2));
            set("faults.cut_port", 1 + rng.below(2));
        }
        _ => {
            set("faults.death_us", at);
            set("faults.death_node", rng.below(2));
        }
    }
    options
}

/// Runs the storm of this seed.
///
/// # Errors
/// A description of all errors.
pub(crate) fn run(seed: u64, fiber_kind: FiberKind) -> Result<Ended, String> {
    let options = faults(seed);
    let options: Vec<(&str, &str)> = options.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let config = Config::new("mt23108-nicmem", &options).map_err(|e| e.to_string())?;
    let mut world =
        World::new(world::Config { seed, fiber_kind, max_events: 20_000_000, ..world::Config::default() });
    let (client, server) = (world.add_node("client"), world.add_node("server"));
    let memory = Buf::alloc(CONNECTIONS * REQUESTS as usize * SLOT).expect("memory");
    let done = Arc::new(Mutex::new(Vec::new()));
    let (hosts, configs) = ((client.host(), server.host()), (config.clone(), config));
    let (target, marks) = (memory.clone(), done.clone());
    let serve = move || Server::open(&hosts.1, &configs.1, &target).run(seed);
    let ask = move || Client::open(&hosts.0, &configs.0, seed).run(&marks);
    world.spawn("server", &[&server], serve).map_err(|e| e.to_string())?;
    world.spawn("client", &[&client], ask).map_err(|e| e.to_string())?;
    let ended = world.run().map_err(|failure| format!("{failure}\nwith the faults {options:?}"))?;
    for &(connection, number) in done.lock().expect("no panic").iter() {
        let len = length(seed, connection, number);
        let at = (connection * REQUESTS as usize + number as usize) * SLOT;
        if memory.to_vec(at..at + len).expect("inside") != pattern(connection, number, len) {
            return Err(format!("write {number} of connection {connection} completed and is not there"));
        }
    }
    Ok(ended)
}

/// The objects of one side.
struct Endpoint {
    host: Host,
    device: Device,
    pd: Pd,
    cm: Cm,
}

impl Endpoint {
    fn open(host: &Host, config: &Config) -> Self {
        let device = nic_model::open(host, config).expect("a card");
        let (pd, cm) = (device.alloc_pd().expect("a domain"), device.create_cm().expect("a channel"));
        Self { host: host.clone(), device, pd, cm }
    }

    fn pair(&self) -> (Qp, Cq, Cq) {
        let queue = || self.device.create_cq(4 * DEPTH).expect("a queue");
        let (send_cq, recv_cq) = (queue(), queue());
        let cap = QpCap { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..QpCap::default() };
        let qp = self.pd.create_qp(&QpInit::new(&send_cq).recv_cq(&recv_cq).cap(cap)).expect("a queue pair");
        (qp, send_cq, recv_cq)
    }

    fn deadline(&self) -> Option<Time> {
        self.host.after(PATIENCE)
    }
}

/// The responding side.
struct Server {
    endpoint: Endpoint,
    memory: Mr,
    readable: Mr,
}

/// A connection at the server.
struct ServerConn {
    qp: Qp,
    recv_cq: Cq,
    room: Mr,
    /// Posted receives, oldest first.
    posted: VecDeque<u64>,
    next: u64,
    /// Number of messages that have arrived.
    arrived: u64,
    connection: usize,
    has_ended: bool,
}

impl Server {
    fn open(host: &Host, config: &Config, memory: &Buf) -> Self {
        let endpoint = Endpoint::open(host, config);
        let memory = endpoint.pd.reg_mr(memory, Access::ALL).expect("a region");
        let readable = Buf::alloc(READABLE).expect("memory");
        readable.write(0, &pattern(99, 0, READABLE)).expect("inside");
        let readable = endpoint.pd.reg_mr(&readable, Access::REMOTE_READ).expect("a region");
        Self { endpoint, memory, readable }
    }

    fn run(&self, seed: u64) {
        let addrs = self.endpoint.device.attr().port_addrs.clone();
        let listen =
            |i: usize| self.endpoint.cm.listen(SocketAddr::new(addrs[i], 700), 8).expect("a listener");
        let _listeners = [listen(0), listen(1)];
        let mut accepted: Vec<ServerConn> = Vec::new();
        let mut requests = 0;
        let deadline = self.endpoint.deadline();
        // The request of a failed connection may never arrive.
        let quiet = |host: &Host| host.after(ANSWER * 3);
        let mut patience = quiet(&self.endpoint.host);
        while requests < CONNECTIONS || accepted.iter().any(|a| !a.has_ended) {
            assert!(self.endpoint.host.now() < deadline.expect("a deadline"), "the server waits for ever");
            match self.endpoint.cm.poll_event() {
                Some(event) => {
                    requests += usize::from(matches!(event, CmEvent::ConnectRequest(_)));
                    self.event(event, &mut accepted);
                    patience = quiet(&self.endpoint.host);
                }
                None if requests < CONNECTIONS && self.endpoint.host.now() >= patience.expect("a time") => {
                    requests = CONNECTIONS;
                }
                None => {}
            }
            for a in &mut accepted {
                self.receive(seed, a);
            }
            self.endpoint.host.charge(Span::from_us(1));
        }
        for a in &mut accepted {
            self.drain(seed, a);
        }
    }

    fn event(&self, event: CmEvent, accepted: &mut Vec<ServerConn>) {
        match event {
            CmEvent::ConnectRequest(request) => {
                let connection = usize::from(request.private_data[0]);
                let (qp, _, recv_cq) = self.endpoint.pair();
                let room = Buf::alloc(DEPTH as usize * SLOT).expect("memory");
                let room = self.endpoint.pd.reg_mr(&room, Access::LOCAL_WRITE).expect("a region");
                let (posted, next, arrived) = (VecDeque::new(), 0, 0);
                let mut a =
                    ServerConn { qp, recv_cq, room, posted, next, arrived, connection, has_ended: false };
                (0..DEPTH).for_each(|_| post_receive(&mut a));
                let mut answer = Vec::new();
                for mr in [&self.memory, &self.readable] {
                    answer.extend(mr.addr().to_le_bytes());
                    answer.extend(mr.rkey().to_le_bytes());
                }
                self.endpoint
                    .cm
                    .accept(request, &a.qp, &ConnParam::with_private_data(answer))
                    .expect("accept");
                accepted.push(a);
            }
            CmEvent::Established { .. } => {}
            CmEvent::Disconnected { qp_num } | CmEvent::ConnectFailed { qp_num, .. } => {
                let a = accepted.iter_mut().find(|a| a.qp.num() == qp_num).expect("a known queue pair");
                assert!(!std::mem::replace(&mut a.has_ended, true), "one end is enough");
                assert_eq!(a.qp.state(), QpState::Error);
            }
            other @ CmEvent::Rejected { .. } => panic!("{other:?}"),
        }
    }

    /// Processes the messages that have arrived.
    fn receive(&self, seed: u64, a: &mut ServerConn) {
        while let Some(wc) = a.recv_cq.poll_one().expect("no overrun") {
            self.received(seed, a, wc);
            if wc.is_ok() {
                post_receive(a);
            }
        }
    }

    fn received(&self, seed: u64, a: &mut ServerConn, wc: Wc) {
        assert_eq!(Some(wc.wr_id), a.posted.pop_front(), "receives complete once and in order: {wc:?}");
        if !wc.is_ok() {
            return assert_eq!(wc.status, WcStatus::WrFlushErr);
        }
        let number = u64::from(wc.imm.expect("every message has its number"));
        assert!(number >= a.arrived, "messages come in order");
        a.arrived = number + 1;
        let len = length(seed, a.connection, number);
        if wc.opcode == WcOpcode::Recv {
            assert_eq!(wc.byte_len as usize, len);
            let at = (wc.wr_id % u64::from(DEPTH)) as usize * SLOT;
            let got = a.room.buf().to_vec(at..at + len).expect("inside");
            assert!(got == pattern(a.connection, number, len), "message {number} is damaged");
        } else {
            let at = (a.connection * REQUESTS as usize + number as usize) * SLOT;
            let got = self.memory.buf().to_vec(at..at + len).expect("inside");
            assert!(got == pattern(a.connection, number, len), "write {number} is damaged");
        }
    }

    /// After the end: all posted receives are flushed.
    fn drain(&self, seed: u64, a: &mut ServerConn) {
        while !a.posted.is_empty() {
            let wc = a.recv_cq.wait(self.endpoint.deadline()).expect("a flush for every receive");
            self.received(seed, a, wc);
        }
        assert_eq!(a.recv_cq.poll_one(), Ok(None), "nothing completes twice");
    }
}

fn post_receive(a: &mut ServerConn) {
    let at = a.next % u64::from(DEPTH) * SLOT as u64;
    let sges = [a.room.sge(at, SLOT as u32)];
    a.qp.post_recv(&RecvWr::new(a.next, &sges)).expect("room for a receive");
    a.posted.push_back(a.next);
    a.next += 1;
}

/// The requesting side.
struct Client {
    endpoint: Endpoint,
    seed: u64,
    rng: Rng,
    /// No cable is cut and no machine dies: nothing may fail.
    fair: bool,
    /// Connections that ended while others were being made.
    ended: Vec<u32>,
}

/// A connection at the client.
struct ClientConn {
    connection: usize,
    qp: Qp,
    send_cq: Cq,
    local: Mr,
    memory: RemoteAddr,
    readable: RemoteAddr,
    /// Outstanding requests, oldest first, with kind and whether they are signaled.
    posted: VecDeque<(u64, RequestKind, bool)>,
    next: u64,
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum RequestKind {
    Write,
    WriteImm,
    Send,
    Read(usize),
}

/// Completed writes: connection and number.
type CompletedWrites = Mutex<Vec<(usize, u64)>>;

impl Client {
    fn open(host: &Host, config: &Config, seed: u64) -> Self {
        let faults = config.machine.params.faults;
        let fair = faults.cut_us == 0.0 && faults.death_us == 0.0;
        Self { endpoint: Endpoint::open(host, config), seed, rng: Rng::new(seed), fair, ended: Vec::new() }
    }

    fn run(&mut self, done: &CompletedWrites) {
        self.endpoint.host.charge(Span::from_us(50));
        let mut made: Vec<ClientConn> =
            (0..CONNECTIONS).filter_map(|connection| self.connect(connection)).collect();
        let deadline = self.endpoint.deadline().expect("a deadline");
        while made.iter().any(|m| !m.posted.is_empty() || (!m.failed && m.next < REQUESTS)) {
            assert!(self.endpoint.host.now() < deadline, "the client waits for ever");
            for m in &mut made {
                while !m.failed && m.next < REQUESTS && m.posted.len() < DEPTH as usize {
                    self.post(m);
                }
                while let Some(wc) = m.send_cq.poll_one().expect("no overrun") {
                    completed(m, wc, done);
                }
            }
            self.endpoint.host.charge(Span::from_us(1));
        }
        assert!(
            !self.fair || (made.len() == CONNECTIONS && made.iter().all(|m| !m.failed)),
            "nothing may fail"
        );
        for m in &made {
            assert_eq!(m.send_cq.poll_one(), Ok(None), "nothing completes twice");
            self.endpoint.cm.disconnect(&m.qp).expect("a connection");
        }
        let mut open: Vec<u32> = made.iter().map(|m| m.qp.num()).collect();
        open.retain(|num| !self.ended.contains(num));
        while !open.is_empty() {
            match self.endpoint.cm.get_event(self.endpoint.deadline()).expect("an end for every connection") {
                CmEvent::Disconnected { qp_num } => {
                    let at = open.iter().position(|num| *num == qp_num).expect("one end is enough");
                    open.remove(at);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(self.endpoint.cm.poll_event().is_none(), "one end is enough");
    }

    fn connect(&mut self, connection: usize) -> Option<ClientConn> {
        let (qp, send_cq, _) = self.endpoint.pair();
        let local = Buf::alloc(REQUESTS as usize * SLOT).expect("memory");
        let local = self.endpoint.pd.reg_mr(&local, Access::LOCAL_WRITE).expect("a region");
        let addr = SocketAddr::from(([10, 1 + (connection % 2) as u8, 0, 2], 700));
        let param = ConnParam { timeout: ANSWER, ..ConnParam::with_private_data([connection as u8]) };
        self.endpoint.cm.connect(&qp, addr, &param).expect("connect");
        let data = loop {
            match self.endpoint.cm.get_event(self.endpoint.deadline()).expect("an answer") {
                CmEvent::Established { qp_num, private_data, .. } if qp_num == qp.num() => {
                    break private_data;
                }
                CmEvent::ConnectFailed { qp_num, .. } if qp_num == qp.num() => return None,
                // An earlier connection may have ended meanwhile; its requests will show that.
                CmEvent::Disconnected { qp_num } => self.ended.push(qp_num),
                other => panic!("{other:?}"),
            }
        };
        let remote = |at: usize| RemoteAddr {
            addr: u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes")),
            rkey: u32::from_le_bytes(data[at + 8..at + 12].try_into().expect("four bytes")),
        };
        let (memory, readable) = (remote(0), remote(12));
        let (posted, next, failed) = (VecDeque::new(), 0, false);
        Some(ClientConn { connection, qp, send_cq, local, memory, readable, posted, next, failed })
    }

    fn post(&mut self, m: &mut ClientConn) {
        let (number, len) = (m.next, length(self.seed, m.connection, m.next));
        let at = number as usize * SLOT;
        let target = m.memory.offset(((m.connection * REQUESTS as usize + number as usize) * SLOT) as u64);
        let from = self.rng.below((READABLE - SLOT) as u64) as usize;
        let (kind, op) = match self.rng.below(4) {
            0 => (RequestKind::Write, SendOp::Write(target)),
            1 => (RequestKind::WriteImm, SendOp::WriteImm(target, number as u32)),
            2 => (RequestKind::Send, SendOp::SendImm(number as u32)),
            _ => (RequestKind::Read(from), SendOp::Read(m.readable.offset(from as u64))),
        };
        if !matches!(kind, RequestKind::Read(_)) {
            m.local.buf().write(at, &pattern(m.connection, number, len)).expect("inside");
        }
        let sges = [m.local.sge(at as u64, len as u32)];
        let mut wr = SendWr::new(number, op, &sges);
        // The last request and every fourth one are signaled, so that slots are freed.
        let is_signaled = self.rng.below(2) == 0 || number + 1 == REQUESTS || number % 4 == 3;
        if !is_signaled {
            wr = wr.unsignaled();
        }
        if self.rng.below(8) == 0 {
            wr = wr.with(SendFlags::FENCE);
        }
        if m.qp.post_send(&wr).is_ok() {
            m.posted.push_back((number, kind, is_signaled));
            m.next += 1;
        } else {
            m.failed = true;
        }
    }
}

/// Processes a completion: of the oldest signaled request, or of the oldest request if it failed.
fn completed(m: &mut ClientConn, wc: Wc, done: &CompletedWrites) {
    loop {
        let (number, kind, is_signaled) =
            m.posted.pop_front().unwrap_or_else(|| panic!("nothing was posted: {wc:?}"));
        if number != wc.wr_id {
            assert!(!is_signaled && number < wc.wr_id && !m.failed, "{wc:?} overtakes {number}");
            succeeded(m, number, kind, done);
            continue;
        }
        if wc.is_ok() {
            assert!(!m.failed, "{wc:?} after a failure");
            succeeded(m, number, kind, done);
        } else {
            let first = [WcStatus::RetryExcErr, WcStatus::WrFlushErr];
            let legal = if m.failed { &first[1..] } else { &first[..] };
            assert!(legal.contains(&wc.status), "{wc:?}");
            m.failed = true;
        }
        return;
    }
}

fn succeeded(m: &ClientConn, number: u64, kind: RequestKind, done: &CompletedWrites) {
    match kind {
        RequestKind::Write | RequestKind::WriteImm => {
            done.lock().expect("no panic").push((m.connection, number))
        }
        RequestKind::Send => {}
        RequestKind::Read(from) => {
            let len = m.local.buf().len().min(SLOT);
            let at = number as usize * SLOT;
            let got = m.local.buf().to_vec(at..at + len).expect("inside");
            let want = &pattern(99, 0, READABLE)[from..from + len];
            let same = got.iter().zip(want).take_while(|(a, b)| a == b).count();
            let read = got.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            assert!(same >= read, "read {number} is damaged at byte {same} of {read}");
        }
    }
}
