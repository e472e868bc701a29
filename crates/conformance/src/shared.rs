//! Messages of several queue pairs into one shared receive queue, of which every byte and every completion is checked: for tests
//! that break things meanwhile, which a device of several rails must survive.
//!
//! Checked: messages arrive once, in their sender's order and whole; all that were delivered arrive; receives come back once.

use std::collections::VecDeque;

use host::{Rng, Span};

use super::Env;
use super::harness::check::ok;
use super::harness::conn::{End, Setup, connect};
use super::traffic::pattern;
use verbs::{RecvWr, SendOp, SendWr, Srq, SrqInit, WcOpcode};

/// Receives there are: fewer than messages that may be on their way.
const RECEIVES: u64 = 8;
/// Messages of a sender on their way.
const DEPTH: u64 = 4;
/// Bytes of the longest.
const LONGEST: usize = 8 << 10;

/// What is sent.
pub struct Crowd<'a> {
    /// What is random follows from it.
    pub seed: u64,
    /// Queue pairs that send, each to one of its own.
    pub senders: u64,
    /// Messages of each, at least.
    pub messages: u64,
    /// Called again and again, with how many messages have been delivered in all; whether there have been enough.
    pub meanwhile: &'a mut dyn FnMut(u64) -> bool,
}

/// A queue pair, and the one that it sends to.
struct Flow {
    number: u64,
    from: End,
    to: End,
    sent: u64,
    delivered: u64,
    received: u64,
    /// Bytes of messages that have not arrived.
    lens: VecDeque<usize>,
}

/// Where messages are received.
struct Room<'a> {
    srq: &'a Srq,
    end: &'a End,
    /// Receives that lie in the queue.
    posted: [bool; RECEIVES as usize],
}

/// Runs until all has arrived.
///
/// # Panics
/// When something was lost, came twice, out of order or damaged, failed, or did not end.
pub fn run(env: &Env, crowd: &mut Crowd<'_>) {
    let pd = env.b.alloc_pd().expect("a protection domain");
    let srq = pd.create_srq(SrqInit { max_wr: RECEIVES as u32, max_sge: 1 }).expect("a shared receive queue");
    let setup = Setup { len: LONGEST * RECEIVES as usize, ..Setup::default() };
    let home = End::with_srq(env, &env.b, &setup, Some(&srq));
    let mut ways: Vec<Flow> = (0..crowd.senders).map(|number| Flow::new(env, &setup, &srq, number)).collect();
    let mut room = Room { srq: &srq, end: &home, posted: [false; RECEIVES as usize] };
    (0..RECEIVES).for_each(|at| room.post(at));
    let deadline = env.waiter.deadline().expect("a deadline");
    let (mut rng, mut enough) = (Rng::new(crowd.seed), false);
    while !enough || ways.iter().any(|way| way.delivered.min(way.received) < way.sent) {
        assert!(
            env.a.host().now() < deadline,
            "it stands still; (sent, delivered, received): {:?}",
            ways.iter().map(|way| (way.sent, way.delivered, way.received)).collect::<Vec<_>>()
        );
        let before: u64 = ways.iter().map(|way| way.sent + way.delivered + way.received).sum();
        for way in &mut ways {
            if !enough && way.sent - way.delivered < DEPTH {
                way.send(rng.index(LONGEST + 1));
            }
            way.look(&mut room);
        }
        let delivered = ways.iter().map(|way| way.delivered).sum();
        enough |= (crowd.meanwhile)(delivered) && ways.iter().all(|way| way.sent >= crowd.messages);
        let any = before != ways.iter().map(|way| way.sent + way.delivered + way.received).sum();
        // What breaks takes a while to mend.
        env.a.host().charge(Span::from_us(if any { 1 } else { 20 }));
    }
    for way in &ways {
        assert_eq!(way.from.send_cq.poll_one(), Ok(None), "nothing completes twice");
        assert_eq!(way.to.recv_cq.poll_one(), Ok(None), "nothing arrives twice");
    }
}

impl Flow {
    fn new(env: &Env, setup: &Setup, srq: &Srq, number: u64) -> Self {
        let from = End::new(env, &env.a, setup);
        let to = End::with_srq(env, &env.b, setup, Some(srq));
        connect(env, &from, &to, setup);
        Self { number, from, to, sent: 0, delivered: 0, received: 0, lens: VecDeque::new() }
    }

    fn send(&mut self, len: usize) {
        let at = (self.sent % RECEIVES) as usize * LONGEST;
        self.from.host.buf().write(at, &pattern(self.number, self.sent, len)).expect("inside");
        let piece = [self.from.host.sge(at as u64, len as u32)];
        self.from.post(&SendWr::new(self.sent, SendOp::SendImm(self.sent as u32), &piece));
        self.lens.push_back(len);
        self.sent += 1;
    }

    /// Takes what has been delivered, and what has arrived.
    fn look(&mut self, room: &mut Room<'_>) {
        self.receive(room);
        while let Some(wc) = self.from.send_cq.poll_one().expect("no overrun") {
            ok(wc, self.delivered, WcOpcode::Send);
            self.delivered += 1;
        }
    }

    fn receive(&mut self, room: &mut Room<'_>) {
        while let Some(wc) = self.to.recv_cq.poll_one().expect("no overrun") {
            let what = format!("message {} of {}: {wc:?}", self.received, self.number);
            assert!(wc.is_ok() && wc.qp_num == self.to.qp.num(), "{what}");
            assert_eq!(wc.imm, Some(self.received as u32), "messages come once and in order: {what}");
            let len = self.lens.pop_front().unwrap_or_else(|| panic!("nothing was sent: {what}"));
            assert!(wc.byte_len as usize == len, "{len} bytes were sent: {what}");
            let got = room.take(wc.wr_id, len);
            assert!(got == pattern(self.number, self.received, len), "damaged: {what}");
            self.received += 1;
            room.post(wc.wr_id);
        }
    }
}

impl Room<'_> {
    fn post(&mut self, at: u64) {
        let piece = [self.end.host.sge(at * LONGEST as u64, LONGEST as u32)];
        self.srq.post_recv(&RecvWr::new(at, &piece)).expect("room for a receive");
        self.posted[at as usize] = true;
    }

    /// What a receive has brought.
    fn take(&mut self, at: u64, len: usize) -> Vec<u8> {
        let was = std::mem::replace(&mut self.posted[at as usize], false);
        assert!(was, "receive {at} comes back twice");
        let from = at as usize * LONGEST;
        self.end.host.buf().to_vec(from..from + len).expect("inside")
    }
}
