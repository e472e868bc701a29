//! One of the two processes, and the measurements that both take part in.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use host::{Host, Span};
use nic_iwarp::IwarpConfig;
use verbs::{RecvWr, SendOp, SendWr};

use super::link::Endpoint;
use super::raw;

pub(crate) const PINGS: u64 = 2000;
pub(crate) const LARGE: u32 = 1 << 20;
pub(crate) const LARGES: u64 = 200;
const PAGES: u64 = 20_000;
const PAGE: u32 = 4096;
const SMALLS: u64 = 100_000;
const WINDOW: u64 = 64;
/// One write in this number is signaled.
const SIGNAL_INTERVAL: u64 = 16;
/// Number of reads in one round, and the pause before each, in which the target goes to sleep.
const READS: u64 = 200;
const READ_PAUSE: Span = Span::from_us(300);
/// The word of the target's memory that the client writes when it has finished.
const END_WORD: u32 = LARGE + 64;

/// What the target does while the client reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetActivity {
    /// It sleeps in a system call.
    Sleeps,
    /// It computes, without polling.
    Computes,
}

/// How the target waits for the client's final write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitMode {
    /// It polls its memory, as a waiting program does.
    Poll,
    /// It computes, and polls its memory now and then.
    Compute,
}

/// One process's end of all connections.
pub(crate) struct BenchProcess {
    pub(crate) host: Host,
    pub(crate) client: bool,
    control: TcpStream,
    pub(crate) raws: Vec<TcpStream>,
    /// Data of the raw streams.
    pub(crate) bytes: Vec<u8>,
}

impl BenchProcess {
    pub(crate) fn serve(listener: &TcpListener) -> Self {
        let control = listener.accept().expect("the other side").0;
        Self::new(false, control, raw::accept(listener))
    }

    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let control = TcpStream::connect(addr).expect("the other side");
        Self::new(true, control, raw::connect(addr))
    }

    fn new(client: bool, control: TcpStream, raws: Vec<TcpStream>) -> Self {
        control.set_nodelay(true).expect("an option");
        Self { host: host::real::host(), client, control, raws, bytes: vec![1; LARGE as usize] }
    }

    /// Sends some bytes and receives as many.
    pub(crate) fn exchange<const N: usize>(&mut self, mine: [u8; N]) -> [u8; N] {
        let mut theirs = [0; N];
        self.control.write_all(&mine).expect("the other side");
        self.control.read_exact(&mut theirs).expect("the other side");
        theirs
    }

    pub(crate) fn link(&mut self, config: &IwarpConfig, at: IpAddr) -> Endpoint {
        let peer = self.control.peer_addr().expect("connected").ip();
        let client = self.client;
        Endpoint::connect(config, client, SocketAddr::new(at, 0), peer, |place| self.exchange(place))
    }

    /// One-way time in microseconds.
    pub(crate) fn one_way_time(
        &mut self,
        mut ping: impl FnMut(&mut Self, u64),
        mut pong: impl FnMut(&mut Self, u64),
    ) -> f64 {
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

    pub(crate) fn write_one_way_time(&mut self, link: &Endpoint) -> f64 {
        let host = link.host.clone();
        let word = link.near.buf().word(LARGE as usize).expect("aligned");
        word.store(0, Ordering::Release);
        let target = SendOp::Write(link.far.offset(LARGE.into()));
        self.one_way_time(
            |_, turn| link.send_turn(turn, target),
            |_, turn| {
                let seen = || (word.load(Ordering::Acquire) == turn).then_some(());
                host.poll("a write", host.after(Span::from_secs(10)), seen).expect("a write");
            },
        )
    }

    pub(crate) fn send_one_way_time(&mut self, link: &Endpoint) -> f64 {
        let host = link.host.clone();
        let receive = || link.qp.post_recv(&RecvWr::new(7, &[link.near.sge(0, 8)])).expect("post");
        receive();
        let us = self.one_way_time(
            |_, turn| link.send_turn(turn, SendOp::Send),
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

    /// The best rate of several tries in GB/s; raw streams get as many.
    pub(crate) fn stream(&mut self, link: &Endpoint) -> f64 {
        (0..raw::KEPT).map(|_| self.stream_once(link)).fold(0.0, f64::max)
    }

    fn stream_once(&mut self, link: &Endpoint) -> f64 {
        self.exchange([0]);
        let began = self.host.now();
        if self.client {
            link.write_many(LARGES, 8, 1, &[link.near.sge(0, LARGE)]);
        }
        let span = self.host.now() - began;
        self.wait_for_client(link, WaitMode::Poll);
        (LARGES * u64::from(LARGE)) as f64 / span.as_ns_f64()
    }

    /// Rate of page-sized writes in GB/s.
    pub(crate) fn page_write_rate(&mut self, link: &Endpoint) -> f64 {
        self.exchange([0]);
        let began = self.host.now();
        if self.client {
            link.write_many(PAGES, WINDOW, SIGNAL_INTERVAL, &[link.near.sge(0, PAGE)]);
        }
        let span = self.host.now() - began;
        self.wait_for_client(link, WaitMode::Poll);
        (PAGES * u64::from(PAGE)) as f64 / span.as_ns_f64()
    }

    /// Message rate in millions per second.
    pub(crate) fn message_rate(&mut self, link: &Endpoint) -> f64 {
        self.exchange([0]);
        let began = self.host.now();
        if self.client {
            link.write_many(SMALLS, WINDOW, SIGNAL_INTERVAL, &[link.near.sge(0, 8)]);
        }
        let span = self.host.now() - began;
        self.wait_for_client(link, WaitMode::Poll);
        SMALLS as f64 * 1000.0 / span.as_ns_f64()
    }

    /// The median time of a read in microseconds.
    pub(crate) fn read_time(&mut self, link: &Endpoint, target: TargetActivity) -> f64 {
        let computes = target == TargetActivity::Computes;
        self.exchange([0]);
        if !self.client {
            if computes {
                self.wait_for_client(link, WaitMode::Compute);
            } else {
                self.exchange([0]);
            }
            return 0.0;
        }
        let mut spans: Vec<f64> = (0..READS).map(|number| self.read(link, number)).collect();
        spans.sort_by(f64::total_cmp);
        if computes {
            self.wait_for_client(link, WaitMode::Compute);
        } else {
            self.exchange([0]);
        }
        spans[spans.len() / 2]
    }

    fn read(&self, link: &Endpoint, number: u64) -> f64 {
        let pause = self.host.now() + READ_PAUSE;
        while self.host.now() < pause {
            std::hint::spin_loop();
        }
        let began = self.host.now();
        let sges = [link.near.sge(0, 8)];
        link.qp.post_send(&SendWr::new(number, SendOp::Read(link.far), &sges)).expect("post");
        link.wait_for_completion();
        (self.host.now() - began).as_ns_f64() / 1000.0
    }

    /// Waits for the client's final write.
    fn wait_for_client(&mut self, link: &Endpoint, mode: WaitMode) {
        let word = link.near.buf().word(END_WORD as usize).expect("aligned");
        if self.client {
            let bytes = 1_u64.to_le_bytes();
            let wr = SendWr::inline(0, SendOp::Write(link.far.offset(END_WORD.into())), &bytes);
            link.qp.post_send(&wr).expect("post");
            link.wait_for_completion();
        } else if mode == WaitMode::Compute {
            let mut sum = 1_u64;
            while word.swap(0, Ordering::AcqRel) != 1 {
                for step in 0..10_000 {
                    sum = black_box(sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step);
                }
            }
        } else {
            let seen = || (word.swap(0, Ordering::AcqRel) == 1).then_some(());
            link.host.poll("the end", self.host.after(Span::from_secs(60)), seen).expect("the end");
        }
        self.exchange([0]);
    }
}
