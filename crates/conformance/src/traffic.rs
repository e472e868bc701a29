//! Random traffic in both directions, with every byte and every completion checked: for tests that break something
//! meanwhile, which a device of several rails must survive.
//!
//! Checked: requests complete once, in order and successfully; messages arrive once, in order and complete, and no
//! earlier than the data written before them; completed writes are visible; reads return the current data.

use std::collections::VecDeque;
use std::net::SocketAddr;

use host::{Rng, Span};

use super::Env;
use super::harness::conn::{Endpoint, Setup};
use verbs::{Access, Buf, CmEvent, ConnParam, Mr, QpCap, RecvWr, SendFlags, SendOp, SendWr, Wc, WcOpcode};

/// Requests and receives outstanding at each end.
const DEPTH: usize = 16;
/// Slots for requests, enough that a slot is reused only long after its request has completed.
const SLOTS: u64 = 4 * DEPTH as u64;

/// The traffic to generate.
pub struct Traffic<'a> {
    /// Seed of everything random.
    pub seed: u64,
    /// Minimum number of requests of each end.
    pub requests: u64,
    /// Bytes of the longest request.
    pub longest: usize,
    /// Called repeatedly with the total number of completed requests; returns whether there have been enough.
    pub meanwhile: &'a mut dyn FnMut(u64) -> bool,
    /// Maps the listener's address to the address to connect to.
    pub detour: &'a dyn Fn(SocketAddr) -> SocketAddr,
    /// Whether ends sleep instead of polling when there is nothing to do.
    pub sleeps: bool,
}

/// A posted request, as its end remembers it.
#[derive(Clone, Copy)]
struct PostedRequest {
    number: u64,
    op: WcOpcode,
    signaled: bool,
}

/// One end with its own half of the traffic.
struct TrafficEnd<'a> {
    end: &'a Endpoint,
    /// The number of the end: part of all patterns.
    side: u64,
    plan: (u64, usize, u64),
    rng: Rng,
    /// Memory of requests, of messages, of the peer's writes, and of the peer's reads.
    out: Mr,
    room: Mr,
    target: Mr,
    source: Mr,
    posted: VecDeque<PostedRequest>,
    next: u64,
    done: u64,
    /// Numbers of the requests that consume a receive of the peer; and for each request whether it writes.
    messages: VecDeque<u64>,
    writes: Vec<bool>,
    /// All writes before this one have been checked at the peer.
    seen: u64,
    receives: u64,
    received: u64,
}

/// The bytes of a request.
pub(super) fn pattern(side: u64, number: u64, len: usize) -> Vec<u8> {
    let mut word = side << 56 | number << 8 | 1;
    let next = |word: &mut u64| {
        *word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *word ^ *word >> 29
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next(&mut word).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

fn length(plan: (u64, usize, u64), side: u64, number: u64) -> usize {
    let mut rng = Rng::new(plan.0 ^ side << 40 ^ number << 8);
    match rng.index(4) {
        0 => rng.index(65),
        1 => rng.index(4096),
        _ => rng.index(plan.1 + 1),
    }
}

fn region(end: &Endpoint, len: usize) -> Mr {
    end.pd.reg_mr(&Buf::alloc(len).expect("memory"), Access::ALL - Access::REMOTE_ATOMIC).expect("a region")
}

/// Runs the traffic until everything has arrived.
///
/// # Panics
/// If data was lost, duplicated, out of order or damaged, a request failed, or the traffic did not finish in time.
pub fn run(env: &Env, traffic: &mut Traffic<'_>) {
    let cap = QpCap { max_send_wr: DEPTH as u32, max_recv_wr: DEPTH as u32, ..QpCap::default() };
    let setup = Setup { cap, len: 64, ..Setup::default() };
    let ends = [Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup)];
    let plan = (traffic.seed, traffic.longest, traffic.requests);
    let half = |side: usize| TrafficEnd::new(&ends[side], side as u64, plan);
    let mut halves = [half(0), half(1)];
    halves.iter_mut().for_each(|half| (0..DEPTH).for_each(|_| half.post_receive()));
    connect(env, traffic, &ends);
    let deadline = env.waiter.deadline().expect("a deadline");
    let mut enough = false;
    while !enough || halves.iter().any(|half| half.done < half.next || !half.messages.is_empty()) {
        assert!(
            env.a.host().now() < deadline,
            "no progress before the deadline; (posted, completed, received): {:?}",
            halves.each_ref().map(|half| (half.next, half.done, half.received))
        );
        let [a, b] = &mut halves;
        let any = a.progress(b, enough) | b.progress(a, enough);
        enough |= (traffic.meanwhile)(a.done + b.done) && a.next.min(b.next) >= plan.2;
        env.a.host().charge(Span::from_us(1));
        if traffic.sleeps && !any {
            let pause = env.a.host().after(Span::from_us(200));
            let wc = ends[0].send_cq.wait(pause).ok();
            let [a, b] = &mut halves;
            wc.into_iter().for_each(|wc| a.on_completed(b, wc));
        }
    }
    for half in &halves {
        assert_eq!(half.end.send_cq.poll_one(), Ok(None), "nothing completes twice");
        assert_eq!(half.end.recv_cq.poll_one(), Ok(None), "nothing arrives twice");
    }
}

fn connect(env: &Env, traffic: &Traffic<'_>, [a, b]: &[Endpoint; 2]) {
    let listener = b.cm.listen(env.addr(), 8).expect("a listener");
    a.cm.connect(&a.qp, (traffic.detour)(listener.addr()), &ConnParam::default()).expect("connect");
    let request = env.waiter.request(&b.cm);
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    for end in [a, b] {
        match env.waiter.event(&end.cm, "Established") {
            CmEvent::Established { qp_num, .. } if qp_num == end.qp.num() => {}
            other => panic!("{other:?}"),
        }
    }
}

impl<'a> TrafficEnd<'a> {
    fn new(end: &'a Endpoint, side: u64, plan: (u64, usize, u64)) -> Self {
        let all = SLOTS as usize * plan.1;
        let source = region(end, 2 * plan.1);
        source.buf().write(0, &pattern(side, 1 << 40, 2 * plan.1)).expect("inside");
        Self {
            end,
            side,
            plan,
            rng: Rng::new(plan.0.wrapping_mul(2) + side),
            out: region(end, all),
            room: region(end, DEPTH * plan.1),
            target: region(end, all),
            source,
            posted: VecDeque::new(),
            next: 0,
            done: 0,
            messages: VecDeque::new(),
            writes: Vec::new(),
            seen: 0,
            receives: 0,
            received: 0,
        }
    }

    fn slot_offset(&self, number: u64) -> usize {
        (number % SLOTS) as usize * self.plan.1
    }

    fn post_receive(&mut self) {
        let at = self.receives % DEPTH as u64 * self.plan.1 as u64;
        let sges = [self.room.sge(at, self.plan.1 as u32)];
        self.end.qp.post_recv(&RecvWr::new(self.receives, &sges)).expect("room for a receive");
        self.receives += 1;
    }

    /// Posts as many requests as fit, unless there have been enough, and polls completions. Returns whether anything
    /// happened.
    fn progress(&mut self, peer: &mut Self, enough: bool) -> bool {
        let before = (self.next, self.done, self.received);
        // The last one of every four is signaled.
        while (!enough || !self.next.is_multiple_of(4)) && self.posted.len() < DEPTH {
            self.post(peer);
        }
        while let Some(wc) = self.end.send_cq.poll_one().expect("no overrun") {
            self.on_completed(peer, wc);
        }
        while let Some(wc) = self.end.recv_cq.poll_one().expect("no overrun") {
            self.on_received(peer, wc);
        }
        before != (self.next, self.done, self.received)
    }

    fn post(&mut self, peer: &Self) {
        let (number, len) = (self.next, length(self.plan, self.side, self.next));
        let at = self.slot_offset(number);
        let target = peer.target.remote(at as u64);
        let from = self.rng.index(self.plan.1) as u64;
        let (op, kind) = match self.rng.index(5) {
            0 | 1 => (SendOp::Write(target), WcOpcode::Write),
            2 => (SendOp::WriteImm(target, number as u32), WcOpcode::Write),
            3 => (SendOp::SendImm(number as u32), WcOpcode::Send),
            _ => (SendOp::Read(peer.source.remote(from)), WcOpcode::Read),
        };
        let reads = kind == WcOpcode::Read;
        // The source offset of a read is part of its number.
        let bytes = if reads { vec![0; len] } else { pattern(self.side, number, len) };
        self.out.buf().write(at, &bytes).expect("inside");
        let sges = [self.out.sge(at as u64, len as u32)];
        let mut wr = SendWr::new(number << 24 | from, op, &sges);
        let signaled = self.rng.index(2) == 0 || number % 4 == 3;
        if !signaled {
            wr = wr.unsignaled();
        }
        if self.rng.index(8) == 0 {
            wr = wr.with(SendFlags::FENCE);
        }
        self.end.qp.post_send(&wr).expect("room for a request");
        if matches!(op, SendOp::SendImm(_) | SendOp::WriteImm(..)) {
            self.messages.push_back(number);
        }
        self.writes.push(matches!(op, SendOp::Write(_) | SendOp::WriteImm(..)));
        self.posted.push_back(PostedRequest { number: wr.wr_id, op: kind, signaled });
        self.next += 1;
    }

    fn on_completed(&mut self, peer: &Self, wc: Wc) {
        assert!(wc.is_ok(), "request {} of {}: {wc:?}", wc.wr_id >> 24, self.side);
        loop {
            let posted = self.posted.pop_front().unwrap_or_else(|| panic!("nothing was posted: {wc:?}"));
            let (number, from) = (posted.number >> 24, (posted.number & 0xff_ffff) as usize);
            let len = length(self.plan, self.side, number);
            if self.writes[number as usize] {
                self.check_write(peer, number);
            } else if posted.op == WcOpcode::Read {
                let want = &pattern(1 - self.side, 1 << 40, 2 * self.plan.1)[from..from + len];
                let at = self.slot_offset(number);
                let got = self.out.buf().to_vec(at..at + len).expect("inside");
                assert!(got == want, "read {number} of {} is damaged", self.side);
            }
            self.done += 1;
            self.seen = self.seen.max(number + 1);
            if posted.number == wc.wr_id {
                assert_eq!(wc.opcode, posted.op);
                return;
            }
            assert!(!posted.signaled, "{wc:?} overtakes {number}");
        }
    }

    /// Checks that a write is visible that has completed, or that precedes a message that has arrived.
    fn check_write(&self, peer: &Self, number: u64) {
        let len = length(self.plan, self.side, number);
        let at = self.slot_offset(number);
        let got = peer.target.buf().to_vec(at..at + len).expect("inside");
        let want = pattern(self.side, number, len);
        let same = got.iter().zip(&want).take_while(|(a, b)| a == b).count();
        assert!(same == len, "write {number} of {} is not there from byte {same} of {len} on", self.side);
    }

    fn on_received(&mut self, peer: &mut Self, wc: Wc) {
        assert!(wc.is_ok(), "receive {} of {}: {wc:?}", wc.wr_id, self.side);
        assert_eq!(wc.wr_id, self.received, "receives complete once and in order");
        let number = peer.messages.pop_front().unwrap_or_else(|| panic!("nothing was sent: {wc:?}"));
        assert_eq!(wc.imm, Some(number as u32), "messages come once and in order");
        let len = length(self.plan, peer.side, number);
        assert_eq!(wc.byte_len as usize, len, "message {number} of {}", peer.side);
        if wc.opcode == WcOpcode::Recv {
            let at = (wc.wr_id % DEPTH as u64) as usize * self.plan.1;
            let got = self.room.buf().to_vec(at..at + len).expect("inside");
            assert!(got == pattern(peer.side, number, len), "message {number} of {} is damaged", peer.side);
        }
        // All earlier writes that have not been checked; their slots cannot have been reused.
        for before in std::mem::replace(&mut peer.seen, number + 1)..=number {
            if peer.writes[before as usize] {
                peer.check_write(self, before);
            }
        }
        self.received += 1;
        self.post_receive();
    }
}
