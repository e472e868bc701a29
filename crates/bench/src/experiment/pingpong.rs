//! [`PingPong`]: one operation at a time, to and fro or by both sides at once. What latency and bilat share.
//!
//! A write is noticed by polling the last byte of the sink. That byte changes with every message and is never 0, so
//! that stale data cannot be taken for new. Where both sides speak at once the peer can be one message ahead, so
//! messages go to two sinks in turn.

use std::sync::atomic::Ordering;

use verbs::host::{Host, Span, Time};
use verbs::{Mr, QpState, RemoteAddr, SendOp, Sge};

use super::link::{Depth, Link, Poster, exchange, place};
use super::{Fault, Round, Session, Side, pattern};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Send,
    Write,
    WriteImm,
    Read,
    Cas,
    Fadd,
}

impl Op {
    fn of(name: &str) -> Result<Self, Fault> {
        Ok(match name {
            "send" => Self::Send,
            "write" => Self::Write,
            "write-imm" => Self::WriteImm,
            "read" => Self::Read,
            "cas" => Self::Cas,
            "fadd" => Self::Fadd,
            other => return Err(Fault::Meaningless(format!("the operation {other}"))),
        })
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::Cas | Self::Fadd)
    }

    /// Whether the target takes no part.
    fn is_fetch(self) -> bool {
        self == Self::Read || self.is_atomic()
    }
}

/// Receives that are always posted.
const RECEIVES: u32 = 16;
/// Looks at memory between two looks at the queue pair's state.
const LOOKS: u32 = 1 << 14;
/// Messages whose whole contents are compared.
const CHECKED: u64 = 3;

/// One side of a ping-pong.
pub(super) struct PingPong {
    op: Op,
    client: bool,
    both: bool,
    link: Link,
    source: Mr,
    sink: Mr,
    remote: RemoteAddr,
    size: u32,
    /// Distance of the two sinks; 0 for one.
    stride: u64,
    poster: Poster,
    turn: u64,
    received: u64,
    patience: Span,
    seed: u64,
}

impl PingPong {
    /// Connects and allocates; `both` speak at once.
    pub(super) fn prepare(session: &mut Session<'_>, both: bool) -> Result<Self, Fault> {
        let op = Op::of(session.cell.factor("op")?)?;
        let size = if op.is_atomic() { 8 } else { session.cell.length()? };
        let stride = if both { u64::from(size).next_multiple_of(4096) } else { 0 };
        let every = if op.is_fetch() { 1 } else { session.settings.signal };
        let depth = Depth { send: 2 * every + 1, recv: RECEIVES };
        let mut link = Link::create(session.device, depth)?;
        let source = place(session, &link.pd, "source", size as usize)?;
        let sink = place(session, &link.pd, "sink", stride as usize + size as usize)?;
        link.connect(session)?;
        let remote = exchange(session, if op == Op::Read { &source } else { &sink })?;
        let mut side = Self {
            op,
            client: session.is_client(),
            both,
            link,
            source,
            sink,
            remote,
            size,
            stride,
            poster: Poster::new(every),
            turn: 0,
            received: 0,
            patience: Span::from_ms(session.settings.patience_ms),
            seed: session.settings.seed,
        };
        if matches!(op, Op::Send | Op::WriteImm) {
            (0..RECEIVES).try_for_each(|_| side.receive())?;
        }
        // Nobody speaks before all receives are posted.
        session.tell(&())?;
        session.hear::<()>()?;
        Ok(side)
    }

    /// Where message `turn` goes within the sink.
    fn slot(&self, turn: u64) -> u64 {
        (turn & 1) * self.stride
    }

    /// Posts the next receive.
    #[inline]
    fn receive(&mut self) -> Result<(), Fault> {
        self.received += 1;
        let sge = [self.sink.sge(self.slot(self.received), self.size)];
        let sges: &[Sge] = if self.op == Op::Send { &sge } else { &[] };
        Ok(self.link.qp.post_recv(&verbs::RecvWr::new(0, sges))?)
    }

    /// Sends message `turn`.
    #[inline]
    fn put(&mut self, turn: u64, deadline: Option<Time>) -> Result<(), Fault> {
        let remote = self.remote.offset(self.slot(turn));
        let op = match self.op {
            Op::Send => SendOp::Send,
            Op::WriteImm => SendOp::WriteImm(remote, turn as u32),
            _ => {
                self.source.buf().byte(self.size as usize - 1)?.store(mark(turn), Ordering::Release);
                SendOp::Write(remote)
            }
        };
        let sges = [self.source.sge(0, self.size)];
        self.poster.post(&self.link, op, &sges, deadline)
    }

    /// Waits for message `turn`.
    #[inline]
    fn get(&mut self, host: &Host, turn: u64, deadline: Option<Time>) -> Result<(), Fault> {
        if self.op != Op::Write {
            return self.link.received(deadline, "a receive").map(drop);
        }
        let last = self.slot(turn) as usize + self.size as usize - 1;
        let (byte, wanted) = (self.sink.buf().byte(last)?, mark(turn));
        let qp = &self.link.qp;
        let mut looks = 0u32;
        host.poll("the last byte of a write", deadline, || {
            if byte.load(Ordering::Acquire) == wanted {
                return Some(true);
            }
            looks += 1;
            (looks.is_multiple_of(LOOKS) && qp.state() == QpState::Error).then_some(false)
        })
        .ok_or(Fault::TimedOut("the peer's write"))?
        .then_some(())
        .ok_or_else(|| Fault::Connection("the peer went away".into()))
    }

    /// One message each way, or one fetch.
    #[inline]
    fn iterate(&mut self, host: &Host, deadline: Option<Time>) -> Result<(), Fault> {
        self.turn += 1;
        let turn = self.turn;
        if self.op.is_fetch() {
            return self.fetch(turn, deadline);
        }
        if self.client || self.both {
            self.put(turn, deadline)?;
            self.get(host, turn, deadline)?;
        } else {
            self.get(host, turn, deadline)?;
            self.put(turn, deadline)?;
        }
        // Off the critical path: others are still posted.
        if self.op != Op::Write { self.receive() } else { Ok(()) }
    }

    #[inline]
    fn fetch(&mut self, turn: u64, deadline: Option<Time>) -> Result<(), Fault> {
        let remote = self.remote;
        let (op, local) = match self.op {
            Op::Cas => (SendOp::CompareSwap { remote, compare: turn - 1, swap: turn }, &self.source),
            Op::Fadd => (SendOp::FetchAdd { remote, add: 1 }, &self.source),
            _ => (SendOp::Read(remote), &self.sink),
        };
        let wr = verbs::SendWr { op, ..verbs::SendWr::new(turn, op, &[]) };
        let sges = [local.sge(0, self.size)];
        self.link.qp.post_send(&verbs::SendWr { data: verbs::Data::Sges(&sges), ..wr })?;
        self.link.sent(deadline, "a fetch").map(drop)
    }

    /// What a message of `turn` from the client or from the server holds.
    fn pattern_seed(&self, turn: u64, from_client: bool) -> u64 {
        self.seed ^ (turn << 1) ^ u64::from(from_client)
    }

    /// Messages whose contents are all compared: every mistake is kept until both sides are through.
    fn verify_messages(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        // The last byte of a write is its mark.
        let len = self.size as usize - usize::from(self.op == Op::Write);
        let mut verdict = Ok(());
        for _ in 0..CHECKED {
            self.turn += 1;
            let turn = self.turn;
            let deadline = session.deadline();
            pattern::fill(self.source.buf(), 0, self.size as usize, self.pattern_seed(turn, self.client))?;
            let first = self.client || self.both;
            if first {
                self.put(turn, deadline)?;
            }
            self.get(session.host, turn, deadline)?;
            let slot = self.slot(turn) as usize;
            let found = pattern::compare(self.sink.buf(), slot, len, self.pattern_seed(turn, !self.client));
            verdict = verdict.and(found);
            if !first {
                self.put(turn, deadline)?;
            }
            if self.op != Op::Write {
                self.receive()?;
            }
        }
        verdict
    }

    fn verify_reads(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let len = self.size as usize;
        let mut verdict = Ok(());
        for k in 0..CHECKED {
            let seed = self.pattern_seed(k, false);
            if self.client {
                session.hear::<()>()?;
                self.fetch(k, session.deadline())?;
                verdict = verdict.and(pattern::compare(self.sink.buf(), 0, len, seed));
                session.tell(&())?;
            } else {
                pattern::fill(self.source.buf(), 0, len, seed)?;
                session.tell(&())?;
                session.hear::<()>()?;
            }
        }
        verdict
    }

    /// Every one of them has counted.
    fn verify_atomics(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        if !self.client {
            return session.tell(&self.sink.buf().word(0)?.load(Ordering::Acquire));
        }
        let (found, done): (u64, u64) = (session.hear()?, self.turn);
        let old = self.source.buf().word(0)?.load(Ordering::Acquire);
        if found == done && old + 1 == done {
            return Ok(());
        }
        Err(Fault::Corrupt(format!("after {done} atomics the word is {found}, and the last one saw {old}")))
    }
}

/// The last byte of write `turn`: different from the one before, and never 0.
fn mark(turn: u64) -> u8 {
    (turn % 251) as u8 + 1
}

impl Side for PingPong {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        if !self.op.is_atomic() {
            pattern::fill(self.source.buf(), 0, self.size as usize, self.seed)?;
            self.sink.buf().fill(0);
        }
        Ok(())
    }

    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let host = session.host;
        if !self.client {
            if self.op.is_fetch() {
                return Ok(());
            }
            let all = round.operations();
            for done in (0..all).step_by(1024) {
                let deadline = host.after(self.patience);
                (done..all.min(done + 1024)).try_for_each(|_| self.iterate(host, deadline))?;
            }
            return Ok(());
        }
        let mut began = host.now();
        for _ in 0..round.lead_in {
            self.iterate(host, Some(began + self.patience))?;
        }
        began = host.now();
        for _ in 0..round.samples {
            let deadline = Some(began + self.patience);
            for _ in 0..round.batch {
                self.iterate(host, deadline)?;
            }
            let now = host.now();
            readings.push((now - began).as_ps() as f64);
            began = now;
        }
        Ok(())
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        match self.op {
            Op::Read => self.verify_reads(session),
            Op::Cas | Op::Fadd => self.verify_atomics(session),
            _ => self.verify_messages(session),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_never_zero_nor_that_of_the_message_before() {
        for turn in 0..2000 {
            assert!(mark(turn) != 0 && mark(turn) != mark(turn + 1) && mark(turn) != mark(turn + 2));
        }
    }
}
