//! Messages of several queue pairs into one shared receive queue, with every byte and every completion checked: for
//! tests that break something meanwhile, which a device of several rails must survive.
//!
//! Checked: messages arrive once, in their sender's order and complete; all delivered ones arrive; receives complete
//! once.

use std::collections::VecDeque;

use host::{Rng, Span};

use super::Env;
use super::harness::check::expect_success;
use super::harness::conn::{Endpoint, Setup, connect};
use super::traffic::pattern;
use verbs::{RecvWr, SendOp, SendWr, Srq, SrqInit, WcOpcode};

/// Number of receives: fewer than messages that may be in flight.
const RECEIVES: u64 = 8;
/// Messages of a sender in flight.
const DEPTH: u64 = 4;
/// Bytes of the longest message.
const LONGEST: usize = 8 << 10;

/// The messages to send.
pub struct SharedTraffic<'a> {
    /// Seed of everything random.
    pub seed: u64,
    /// Number of sending queue pairs, each connected to its own receiver.
    pub senders: u64,
    /// Minimum number of messages of each sender.
    pub messages: u64,
    /// Called repeatedly with the total number of delivered messages; returns whether there have been enough.
    pub meanwhile: &'a mut dyn FnMut(u64) -> bool,
}

/// A sending queue pair, and its receiver.
struct Sender {
    number: u64,
    from: Endpoint,
    to: Endpoint,
    sent: u64,
    delivered: u64,
    received: u64,
    /// Lengths in bytes of messages that have not arrived.
    lens: VecDeque<usize>,
}

/// The shared receive queue and its memory.
struct SharedQueue<'a> {
    srq: &'a Srq,
    end: &'a Endpoint,
    /// Receives that are posted to the queue.
    posted: [bool; RECEIVES as usize],
}

/// Runs until all messages have arrived.
///
/// # Panics
/// If a message was lost, duplicated, out of order or damaged, failed, or did not arrive in time.
pub fn run(env: &Env, traffic: &mut SharedTraffic<'_>) {
    let pd = env.b.alloc_pd().expect("a protection domain");
    let srq = pd.create_srq(SrqInit { max_wr: RECEIVES as u32, max_sge: 1 }).expect("a shared receive queue");
    let setup = Setup { len: LONGEST * RECEIVES as usize, ..Setup::default() };
    let home = Endpoint::with_srq(env, &env.b, &setup, Some(&srq));
    let mut senders: Vec<Sender> =
        (0..traffic.senders).map(|number| Sender::new(env, &setup, &srq, number)).collect();
    let mut queue = SharedQueue { srq: &srq, end: &home, posted: [false; RECEIVES as usize] };
    (0..RECEIVES).for_each(|at| queue.post(at));
    let deadline = env.waiter.deadline().expect("a deadline");
    let (mut rng, mut enough) = (Rng::new(traffic.seed), false);
    while !enough || senders.iter().any(|sender| sender.delivered.min(sender.received) < sender.sent) {
        assert!(
            env.a.host().now() < deadline,
            "no progress before the deadline; (sent, delivered, received): {:?}",
            senders.iter().map(|sender| (sender.sent, sender.delivered, sender.received)).collect::<Vec<_>>()
        );
        let before: u64 = senders.iter().map(|sender| sender.sent + sender.delivered + sender.received).sum();
        for sender in &mut senders {
            if !enough && sender.sent - sender.delivered < DEPTH {
                sender.send(rng.index(LONGEST + 1));
            }
            sender.poll(&mut queue);
        }
        let delivered = senders.iter().map(|sender| sender.delivered).sum();
        enough |=
            (traffic.meanwhile)(delivered) && senders.iter().all(|sender| sender.sent >= traffic.messages);
        let any =
            before != senders.iter().map(|sender| sender.sent + sender.delivered + sender.received).sum();
        // Recovery from a failure takes a while.
        env.a.host().charge(Span::from_us(if any { 1 } else { 20 }));
    }
    for sender in &senders {
        assert_eq!(sender.from.send_cq.poll_one(), Ok(None), "nothing completes twice");
        assert_eq!(sender.to.recv_cq.poll_one(), Ok(None), "nothing arrives twice");
    }
}

impl Sender {
    fn new(env: &Env, setup: &Setup, srq: &Srq, number: u64) -> Self {
        let from = Endpoint::new(env, &env.a, setup);
        let to = Endpoint::with_srq(env, &env.b, setup, Some(srq));
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

    /// Polls completions of sends and receives.
    fn poll(&mut self, queue: &mut SharedQueue<'_>) {
        self.receive(queue);
        while let Some(wc) = self.from.send_cq.poll_one().expect("no overrun") {
            expect_success(wc, self.delivered, WcOpcode::Send);
            self.delivered += 1;
        }
    }

    fn receive(&mut self, queue: &mut SharedQueue<'_>) {
        while let Some(wc) = self.to.recv_cq.poll_one().expect("no overrun") {
            let what = format!("message {} of {}: {wc:?}", self.received, self.number);
            assert!(wc.is_ok() && wc.qp_num == self.to.qp.num(), "{what}");
            assert_eq!(wc.imm, Some(self.received as u32), "messages come once and in order: {what}");
            let len = self.lens.pop_front().unwrap_or_else(|| panic!("nothing was sent: {what}"));
            assert!(wc.byte_len as usize == len, "{len} bytes were sent: {what}");
            let got = queue.take_bytes(wc.wr_id, len);
            assert!(got == pattern(self.number, self.received, len), "damaged: {what}");
            self.received += 1;
            queue.post(wc.wr_id);
        }
    }
}

impl SharedQueue<'_> {
    fn post(&mut self, at: u64) {
        let piece = [self.end.host.sge(at * LONGEST as u64, LONGEST as u32)];
        self.srq.post_recv(&RecvWr::new(at, &piece)).expect("room for a receive");
        self.posted[at as usize] = true;
    }

    /// The bytes of a receive.
    fn take_bytes(&mut self, at: u64, len: usize) -> Vec<u8> {
        let was = std::mem::replace(&mut self.posted[at as usize], false);
        assert!(was, "receive {at} comes back twice");
        let from = at as usize * LONGEST;
        self.end.host.buf().to_vec(from..from + len).expect("inside")
    }
}
