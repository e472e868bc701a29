//! iWARP beside the raw TCP that it runs on, between the same two processes, each pinned to a core:
//! `cargo run --release -p nic-soft --example iwarp_speed [-- ROUNDS [OPTION...]]`, options `sent` (requests complete when
//! TCP has them), `mss` (FPDUs fit segments) and `at=ADDRESS` with `serve=ADDRESS:PORT` for two hosts or namespaces.
//!
//! Rounds take turns between raw TCP and iWARP, and what is printed is the median of each round's ratio: a machine whose
//! speed wanders, wanders for both.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;

use host::real::pin_to_core;
use host::{Host, Span};
use nic_soft::iwarp::{Completion, FpduSize, IwarpConfig, open};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Mr, Qp, QpCap, QpInit, RecvWr, RemoteAddr, SendOp, SendWr,
};

const PINGS: u64 = 2000;
const LARGE: u32 = 1 << 20;
const LARGES: u64 = 200;
const SMALLS: u64 = 100_000;
const WINDOW: u64 = 64;

/// One process's end of everything.
struct Side {
    host: Host,
    client: bool,
    control: TcpStream,
    raw: TcpStream,
}

/// A connected queue pair with memory at both ends, on a host of its own: whoever polls there works for it alone.
struct Link {
    host: Host,
    qp: Qp,
    cq: Cq,
    recv_cq: Cq,
    near: Mr,
    far: RemoteAddr,
    _cm: Cm,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| args.iter().any(|arg| arg == name);
    let valued = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name)).map(str::to_owned);
    let rounds = args.first().and_then(|arg| arg.parse().ok()).unwrap_or(9);
    let at: IpAddr = valued("at=").map_or(Ipv4Addr::LOCALHOST.into(), |at| at.parse().expect("an address"));
    let completion = if option("sent") { Completion::Sent } else { Completion::Placed };
    let fpdu = if option("mss") { FpduSize::Segment } else { FpduSize::Largest };
    let config = IwarpConfig { completion, fpdu, ..IwarpConfig::default() };
    let (mut side, child) = match (valued("join="), valued("serve=")) {
        (Some(addr), _) => (Side::join(addr.parse().expect("an address")), None),
        (None, Some(addr)) => (Side::serve(TcpListener::bind(addr).expect("a port")), None),
        (None, None) => {
            let listener = TcpListener::bind(SocketAddr::new(at, 0)).expect("a port");
            let child = spawn(listener.local_addr().expect("bound"), &args);
            (Side::serve(listener), Some(child))
        }
    };
    pin_to_core(usize::from(!side.client)).expect("a core");
    measure(&mut side, &config, at, rounds);
    if let Some(mut child) = child {
        child.wait().expect("the other side");
    }
}

fn spawn(addr: SocketAddr, args: &[String]) -> Child {
    let own = std::env::current_exe().expect("this program");
    Command::new(own).args(args).arg(format!("join={addr}")).spawn().expect("another process")
}

fn measure(side: &mut Side, config: &IwarpConfig, at: IpAddr, rounds: usize) {
    let plain = side.link(config, at);
    let crc = side.link(&IwarpConfig { crc: true, ..config.clone() }, at);
    let mut table: Vec<(&str, Vec<f64>, Vec<f64>)> = Vec::new();
    let mut note = |name, raw: f64, own: f64| match table.iter_mut().find(|row| row.0 == name) {
        Some(row) => {
            row.1.push(raw);
            row.2.push(own);
        }
        None => table.push((name, vec![raw], vec![own])),
    };
    for _ in 0..rounds {
        let raw = side.raw_pings();
        note("8 B write, one way, us", raw, side.write_pings(&plain));
        if std::env::args().any(|arg| arg == "brief") {
            continue;
        }
        note("8 B send, one way, us", raw, side.send_pings(&plain));
        note("8 B write with CRC, one way, us", raw, side.write_pings(&crc));
        let raw = side.raw_stream();
        note("1 MiB write, GB/s", raw, side.stream(&plain));
        note("1 MiB write with CRC, GB/s", raw, side.stream(&crc));
        let pings = 0.5 / side.write_pings(&plain);
        note("8 B writes, M/s beside ping-pongs", pings, side.rate(&plain));
    }
    if !side.client {
        return;
    }
    for (name, raw, own) in &mut table {
        let mut ratios: Vec<f64> = raw.iter().zip(own.iter()).map(|(raw, own)| own / raw).collect();
        println!(
            "{name:36} raw {:8.3}  iwarp {:8.3}  ratio {:.3}",
            median(raw),
            median(own),
            median(&mut ratios)
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Side {
    fn serve(listener: TcpListener) -> Self {
        let control = listener.accept().expect("the other side").0;
        let raw = listener.accept().expect("the other side").0;
        Self::new(false, control, raw)
    }

    fn join(addr: SocketAddr) -> Self {
        let control = TcpStream::connect(addr).expect("the other side");
        let raw = TcpStream::connect(addr).expect("the other side");
        Self::new(true, control, raw)
    }

    fn new(client: bool, control: TcpStream, raw: TcpStream) -> Self {
        raw.set_nodelay(true).and_then(|()| raw.set_nonblocking(true)).expect("options");
        Self { host: host::real::host(), client, control, raw }
    }

    /// Says some bytes and hears as many.
    fn exchange<const N: usize>(&mut self, mine: [u8; N]) -> [u8; N] {
        let mut theirs = [0; N];
        self.control.write_all(&mine).expect("the other side");
        self.control.read_exact(&mut theirs).expect("the other side");
        theirs
    }

    fn link(&mut self, config: &IwarpConfig, at: IpAddr) -> Link {
        let host = host::real::host();
        let device = open(&host, config).expect("a device");
        let pd = device.alloc_pd().expect("a domain");
        let [cq, recv_cq] = [(); 2].map(|()| device.create_cq(1024).expect("a queue"));
        let cap = QpCap { max_send_wr: 256, max_recv_wr: 256, ..QpCap::default() };
        let qp = pd.create_qp(&QpInit::new(&cq).recv_cq(&recv_cq).cap(cap)).expect("a queue pair");
        let buf = Buf::alloc(2 * LARGE as usize).expect("memory");
        buf.fill(0);
        let near = pd.reg_mr(&buf, Access::ALL).expect("a region");
        let cm = device.create_cm().expect("a manager");
        let listener = (!self.client).then(|| cm.listen(SocketAddr::new(at, 0), 1).expect("a port"));
        let port = listener.as_ref().map_or(0, |listener| listener.addr().port());
        let port = u16::from_le_bytes(self.exchange(port.to_le_bytes()));
        if self.client {
            let ip = self.control.peer_addr().expect("connected").ip();
            cm.connect(&qp, SocketAddr::new(ip, port), &ConnParam::default()).expect("connect");
        }
        loop {
            match cm.get_event(self.host.after(Span::from_secs(10))).expect("an event") {
                CmEvent::ConnectRequest(request) => {
                    cm.accept(request, &qp, &ConnParam::default()).expect("accept");
                }
                CmEvent::Established { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        let mine = near.remote(0);
        let mut place = [0; 12];
        place[..8].copy_from_slice(&mine.addr.to_le_bytes());
        place[8..].copy_from_slice(&mine.rkey.to_le_bytes());
        let theirs = self.exchange(place);
        let addr = u64::from_le_bytes(theirs[..8].try_into().expect("eight"));
        let rkey = u32::from_le_bytes(theirs[8..].try_into().expect("four"));
        Link { host, qp, cq, recv_cq, near, far: RemoteAddr { addr, rkey }, _cm: cm }
    }

    fn write_raw(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.raw.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    fn read_raw(&mut self, bytes: &mut [u8]) {
        let mut got = 0;
        while got < bytes.len() {
            match self.raw.read(&mut bytes[got..]) {
                Ok(n) => got += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    /// Microseconds one way.
    fn timed(&mut self, mut ping: impl FnMut(&mut Self, u64), mut pong: impl FnMut(&mut Self, u64)) -> f64 {
        self.exchange([0]);
        let began = self.host.now();
        for turn in 1..=PINGS {
            if self.client {
                ping(self, turn);
                pong(self, turn);
            } else {
                pong(self, turn);
                ping(self, turn);
            }
        }
        let span = self.host.now() - began;
        self.exchange([0]);
        span.as_ns_f64() / 2000.0 / PINGS as f64
    }

    fn raw_pings(&mut self) -> f64 {
        self.timed(|side, turn| side.write_raw(&turn.to_le_bytes()), |side, _| side.read_raw(&mut [0; 8]))
    }

    fn write_pings(&mut self, link: &Link) -> f64 {
        let host = link.host.clone();
        let word = link.near.buf().word(LARGE as usize).expect("aligned");
        word.store(0, Ordering::Release);
        let target = SendOp::Write(link.far.offset(LARGE.into()));
        self.timed(
            |_, turn| link.put(&host, turn, target),
            |_, turn| {
                let seen = || (word.load(Ordering::Acquire) == turn).then_some(());
                host.poll("a write", host.after(Span::from_secs(10)), seen).expect("a write");
            },
        )
    }

    fn send_pings(&mut self, link: &Link) -> f64 {
        let host = link.host.clone();
        let receive = || link.qp.post_recv(&RecvWr::new(7, &[link.near.sge(0, 8)])).expect("post");
        receive();
        let us = self.timed(
            |_, turn| link.put(&host, turn, SendOp::Send),
            |_, turn| {
                let wc = link.recv_cq.spin(host.after(Span::from_secs(10))).expect("a message");
                assert!(wc.is_ok() && wc.wr_id == 7, "{wc:?}");
                if turn < PINGS {
                    receive();
                }
            },
        );
        self.exchange([0]);
        us
    }

    /// The better of two ways of reading: over and over, and asleep until something is there.
    fn raw_stream(&mut self) -> f64 {
        let spinning = self.raw_stream_once();
        self.raw.set_nonblocking(false).expect("an option");
        let sleeping = self.raw_stream_once();
        self.raw.set_nonblocking(true).expect("an option");
        spinning.max(sleeping)
    }

    fn raw_stream_once(&mut self) -> f64 {
        let mut bytes = vec![1; LARGE as usize];
        self.exchange([0]);
        let began = self.host.now();
        for _ in 0..LARGES {
            if self.client { self.write_raw(&bytes) } else { self.read_raw(&mut bytes) }
        }
        if self.client {
            self.read_raw(&mut [0])
        } else {
            self.write_raw(&[0])
        }
        (LARGES * u64::from(LARGE)) as f64 / (self.host.now() - began).as_ns_f64()
    }

    fn stream(&mut self, link: &Link) -> f64 {
        self.exchange([0]);
        let began = self.host.now();
        if self.client {
            link.pump(&link.host, LARGES, 8, 1, &[link.near.sge(0, LARGE)]);
        }
        let span = self.host.now() - began;
        self.wait_for_client(link);
        (LARGES * u64::from(LARGE)) as f64 / span.as_ns_f64()
    }

    /// Millions a second.
    fn rate(&mut self, link: &Link) -> f64 {
        self.exchange([0]);
        let began = self.host.now();
        if self.client {
            link.pump(&link.host, SMALLS, WINDOW, 16, &[link.near.sge(0, 8)]);
        }
        let span = self.host.now() - began;
        self.wait_for_client(link);
        SMALLS as f64 * 1000.0 / span.as_ns_f64()
    }

    /// The target looks at its memory meanwhile, as one who waits for data does.
    fn wait_for_client(&mut self, link: &Link) {
        let word = link.near.buf().word(LARGE as usize + 64).expect("aligned");
        if self.client {
            let bytes = 1_u64.to_le_bytes();
            let wr = SendWr::inline(0, SendOp::Write(link.far.offset(u64::from(LARGE) + 64)), &bytes);
            link.qp.post_send(&wr).expect("post");
            link.reap(&link.host);
        } else {
            let seen = || (word.swap(0, Ordering::AcqRel) == 1).then_some(());
            link.host.poll("the end", self.host.after(Span::from_secs(60)), seen).expect("the end");
        }
        self.exchange([0]);
    }
}

impl Link {
    /// Sends the number of the turn; one in 16 is signalled, and its completion taken 16 turns later.
    fn put(&self, host: &Host, turn: u64, op: SendOp) {
        let bytes = turn.to_le_bytes();
        let wr = SendWr::inline(turn, op, &bytes);
        self.qp.post_send(&if turn.is_multiple_of(16) { wr } else { wr.unsignaled() }).expect("post");
        if turn.is_multiple_of(16) && turn > 16 {
            self.reap(host);
        }
        if turn == PINGS {
            self.reap(host);
        }
    }

    fn reap(&self, host: &Host) {
        let wc = self.cq.spin(host.after(Span::from_secs(10))).expect("a completion");
        assert!(wc.is_ok(), "{wc:?}");
    }

    /// Posts `count` writes, at most `window` of them outstanding, one in `every` signalled.
    fn pump(&self, host: &Host, count: u64, window: u64, every: u64, data: &[verbs::Sge]) {
        let mut done = 0;
        for number in 1..=count {
            let wr = SendWr::new(number, SendOp::Write(self.far), data);
            let signalled = number % every == 0 || number == count;
            self.qp.post_send(&if signalled { wr } else { wr.unsignaled() }).expect("post");
            while number - done >= window || number == count && done < count {
                let wc = self.cq.spin(host.after(Span::from_secs(10))).expect("a completion");
                assert!(wc.is_ok(), "{wc:?}");
                done = wc.wr_id;
            }
        }
    }
}
