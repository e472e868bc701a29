//! One side of a connection with all kinds of traffic, driven by a thread that polls, computes, sleeps or waits at
//! random, so that the connection moves between this thread and the NIC thread.
//!
//! Both sides run the same code. Each owns a window of the other's memory, which only it writes and reads back, and a
//! counter, to which only it adds. Its messages are numbered.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{CompChannel, MemoryKind, RemoteAddr, SendOp, Wc, WcOpcode};

use nic_iwarp::{Completion, FpduSize, IwarpConfig, Mpa, open};

use crate::support::child::{recv_line, send_line};
use crate::support::endpoint::Endpoint;
use crate::support::{PATIENCE, Rng};

/// Bytes of a region: windows at the front, then the counter, then space for receives.
pub(crate) const LEN: usize = 1 << 20;
const SLOT: usize = 64 << 10;
const SLOTS: u64 = 4;
/// The source of a window's data, and the destination when it is read back.
const SOURCE_AT: u64 = 256 << 10;
const BACK_AT: u64 = 512 << 10;
const COUNTER_AT: u64 = 768 << 10;
const OLD_AT: u64 = COUNTER_AT + 64;
const RECEIVE_AT: u64 = 800 << 10;
const MESSAGE_AT: u64 = 900 << 10;
const MESSAGE: usize = 256;
const RECEIVES: u64 = 64;
/// Minimum number of turns (see `pass_time`), even on a busy machine.
const TURNS: u64 = 250;

/// Number of device configurations.
pub(crate) const KINDS: u64 = 4;

fn config(kind: u64) -> IwarpConfig {
    let plain = IwarpConfig::default();
    match kind {
        0 => plain,
        1 => IwarpConfig { crc: true, ..plain },
        2 => IwarpConfig { completion: Completion::Sent, fpdu: FpduSize::Bytes(3001), ..plain },
        _ => IwarpConfig { mpa: Mpa::V1, crc: true, fpdu: FpduSize::Segment, ..plain },
    }
}

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunCounts {
    pub(crate) written: u64,
    pub(crate) read: u64,
    pub(crate) added: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) turns: u64,
}

/// An operation that has not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Write(u64),
    Read(u64),
    Add,
    Send,
}

/// One side.
pub(crate) struct MixedTraffic {
    end: Endpoint,
    channel: CompChannel,
    rng: Rng,
    /// The content of each of its slots at the peer.
    slots: [Vec<u8>; SLOTS as usize],
    /// Posted operations in order, with their numbers.
    open: VecDeque<(u64, Job)>,
    next: u64,
    count: RunCounts,
    finished: bool,
    peer_finished: bool,
}

/// The content of message `number` of the side with this seed.
fn message(seed: u64, number: u64) -> Vec<u8> {
    Rng::new(seed << 32 | number).bytes(MESSAGE)
}

impl MixedTraffic {
    /// A side on a device with one of [`KINDS`] configurations. The receive queue reports to a channel.
    pub(crate) fn new(kind: u64) -> Self {
        let device = open(&host::real::host(), &config(kind)).expect("an iWARP device");
        let channel = device.create_comp_channel().expect("a channel");
        let pd = device.alloc_pd().expect("a domain");
        let send = device.create_cq(1024).expect("a completion queue");
        let receive = device.create_cq_with(1024, &channel).expect("a completion queue");
        let end = Endpoint::with(&device, pd, send, receive, LEN);
        let slots = std::array::from_fn(|_| vec![0; SLOT]);
        Self {
            end,
            channel,
            rng: Rng::new(0),
            slots,
            open: VecDeque::new(),
            next: 0,
            count: RunCounts::default(),
            finished: false,
            peer_finished: false,
        }
    }

    /// The endpoint, to be connected.
    pub(crate) fn end(&mut self) -> &mut Endpoint {
        &mut self.end
    }

    /// Runs for `limit` and at least [`TURNS`] turns, then ends together with the peer, whose seed is `peer_seed`.
    #[track_caller]
    pub(crate) fn run(&mut self, seed: u64, peer_seed: u64, limit: Duration) -> RunCounts {
        self.rng = Rng::new(seed);
        (0..RECEIVES).for_each(|number| self.post_receive(number));
        let began = Instant::now();
        while !(self.finished && self.peer_finished && self.open.is_empty()) {
            assert!(began.elapsed() < limit + PATIENCE, "no progress: {:?} {:?}", self.count, self.open);
            if began.elapsed() < limit || self.count.turns < TURNS {
                (0..self.rng.below(6)).for_each(|_| self.post(seed));
            } else if !self.finished {
                self.finish();
            }
            self.pass_time();
            self.poll_completions(peer_seed);
        }
        self.end.check_canaries();
        self.count
    }

    fn remote(&self, offset: u64) -> RemoteAddr {
        let base = self.end.peer.host;
        RemoteAddr { addr: base.addr + offset, ..base }
    }

    fn post_receive(&self, number: u64) {
        let at = RECEIVE_AT + number % RECEIVES * MESSAGE as u64;
        self.end.post_recv(number, MemoryKind::Host, at, MESSAGE as u32);
    }

    fn submit(&mut self, job: Job, op: SendOp, at: u64, len: usize) {
        self.end.post(self.next, op, MemoryKind::Host, at, len as u32);
        self.open.push_back((self.next, job));
        self.next += 1;
    }

    /// Posts an operation, if the resources that it needs are free.
    fn post(&mut self, seed: u64) {
        if self.open.len() >= 32 {
            return;
        }
        let slot = self.rng.below(SLOTS);
        let busy = |job: Job| self.open.iter().any(|(_, other)| *other == job);
        match self.rng.below(4) {
            0 if !busy(Job::Write(slot)) && !busy(Job::Read(slot)) => {
                let bytes = self.rng.bytes(SLOT);
                let len = [8, 300, 4096, SLOT][self.rng.below(4) as usize];
                let at = SOURCE_AT + slot * SLOT as u64;
                self.end.host.buf().write(at as usize, &bytes[..len]).expect("inside");
                self.slots[slot as usize][..len].copy_from_slice(&bytes[..len]);
                let to = self.remote(slot * SLOT as u64);
                self.submit(Job::Write(slot), SendOp::Write(to), at, len);
            }
            1 if !busy(Job::Write(slot)) && !busy(Job::Read(slot)) => {
                let from = self.remote(slot * SLOT as u64);
                self.submit(Job::Read(slot), SendOp::Read(from), BACK_AT + slot * SLOT as u64, SLOT);
            }
            2 if !busy(Job::Add) => {
                let op = SendOp::FetchAdd { remote: self.remote(COUNTER_AT), add: 1 };
                self.submit(Job::Add, op, OLD_AT, 8);
            }
            // As many as the peer has receives for: the peer reposts each receive when it has been consumed.
            3 if !busy(Job::Send) => {
                let bytes = message(seed, self.count.sent);
                self.end.host.buf().write(MESSAGE_AT as usize, &bytes).expect("inside");
                self.count.sent += 1;
                self.submit(Job::Send, SendOp::Send, MESSAGE_AT, MESSAGE);
            }
            _ => {}
        }
    }

    /// Sends a message of one byte, which announces that no more will follow.
    fn finish(&mut self) {
        if !self.open.iter().any(|(_, job)| *job == Job::Send) {
            self.submit(Job::Send, SendOp::Send, MESSAGE_AT, 1);
            self.finished = true;
        }
    }

    /// Lets time pass in a random way.
    fn pass_time(&mut self) {
        self.count.turns += 1;
        let long = Duration::from_micros(20 + self.rng.below(1500));
        let began = Instant::now();
        match self.rng.below(5) {
            // Computes.
            0 => while began.elapsed() < long {},
            1 => std::thread::sleep(long),
            2 => {
                let span = host::Span::from_us(long.as_micros() as u64);
                let deadline = host::real::host().after(span);
                // Handles a completion here, if there was one.
                if let Ok(wc) = self.end.send_cq.wait(deadline) {
                    self.completed(&wc);
                }
            }
            3 => self.sleep_on_channel(long),
            _ => {
                while began.elapsed() < long {
                    if let Some(wc) = self.end.send_cq.poll_one().expect("no overrun") {
                        self.completed(&wc);
                    }
                }
            }
        }
    }

    /// Sleeps in poll(2) until a message arrives, as a program with an event loop does.
    fn sleep_on_channel(&mut self, limit: Duration) {
        self.end.recv_cq.req_notify(false).expect("armed");
        let fd = self.channel.fd().expect("a descriptor");
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
        if poll(&mut fds, Some(&limit)).expect("poll(2)") > 0 {
            assert!(self.channel.poll_event().is_some(), "readable without an event");
        }
    }

    /// Handles all completions.
    fn poll_completions(&mut self, peer_seed: u64) {
        while let Some(wc) = self.end.send_cq.poll_one().expect("no overrun") {
            self.completed(&wc);
        }
        while let Some(wc) = self.end.recv_cq.poll_one().expect("no overrun") {
            self.received(&wc, peer_seed);
        }
    }

    #[track_caller]
    fn completed(&mut self, wc: &Wc) {
        let (number, job) = self.open.pop_front().unwrap_or_else(|| panic!("nothing was open: {wc:?}"));
        assert!(wc.is_ok() && wc.wr_id == number, "{job:?} {number}: {wc:?}");
        match job {
            Job::Write(_) => self.count.written += 1,
            Job::Read(slot) => {
                let at = BACK_AT as usize + slot as usize * SLOT;
                let got = self.end.host.buf().to_vec(at..at + SLOT).expect("inside");
                assert!(got == self.slots[slot as usize], "slot {slot} holds something else");
                self.count.read += 1;
            }
            Job::Add => {
                let mut old = [0; 8];
                self.end.host.buf().read(OLD_AT as usize, &mut old).expect("inside");
                assert_eq!(u64::from_ne_bytes(old), self.count.added, "added once each");
                self.count.added += 1;
            }
            Job::Send => {}
        }
    }

    #[track_caller]
    fn received(&mut self, wc: &Wc, peer_seed: u64) {
        assert!(wc.is_ok() && wc.opcode == WcOpcode::Recv && !self.peer_finished, "{wc:?}");
        if wc.byte_len == 1 {
            self.peer_finished = true;
            return;
        }
        let number = self.count.received;
        assert_eq!(wc.wr_id, number, "in order");
        let at = (RECEIVE_AT + number % RECEIVES * MESSAGE as u64) as usize;
        let got = self.end.host.buf().to_vec(at..at + MESSAGE).expect("inside");
        assert!(got == message(peer_seed, number), "message {number} has other content");
        self.count.received += 1;
        self.post_receive(number + RECEIVES);
    }
}

/// Child: the other side, on a device of its own. Reads the line `PORT SEED PEER_SEED MILLISECONDS KIND`; prints its
/// statistics.
pub(crate) fn mixed_traffic_role() {
    let line = recv_line().expect("a line");
    let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
    let mut traffic = MixedTraffic::new(words[4]);
    traffic.end().connect(words[0] as u16);
    let count = traffic.run(words[1], words[2], Duration::from_millis(words[3]));
    send_line(format!("{} {}", count.sent, count.received));
    // The queue pair lives until the other side has seen everything.
    recv_line();
}
