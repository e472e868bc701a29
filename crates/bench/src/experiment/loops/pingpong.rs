//! [`PingPong`]: one operation at a time, alternating or by both sides simultaneously. Shared by latency and bilat.
//!
//! A write is noticed by polling the last byte of the sink. That byte changes with every message and is never 0, so
//! that stale data cannot be taken for new. When both sides send simultaneously, the peer can be one message ahead,
//! so messages alternate between two sinks; and as the own last message may still be queued in the NIC, they come
//! from two sources.
//!
//! No deferrable work is done between seeing the peer's message and posting the answer: the next request is prepared,
//! completions are polled and receives are reposted while the peer is busy.

use results::variant::factor;
use std::sync::atomic::Ordering;

use verbs::host::{Host, Span, Time};
use verbs::{MemoryKind, Mr, QpState, RemoteAddr, SendOp, SendWr, Sge, WriteOrder};

use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{Depth, Endpoint, Poster, exchange, inline_limit, place};
use crate::experiment::harness::pattern;
use crate::experiment::{Fault, Round, Session, Side};

/// The timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Send,
    Write,
    WriteImm,
    /// A write, followed by an empty send.
    WriteSend,
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
            "write-send" => Self::WriteSend,
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
/// Polls of memory between two checks of the queue pair's state.
const LOOKS: u32 = 1 << 14;
/// Messages that are compared completely.
const CHECKED: u64 = 3;
/// Messages up to this size are sent from two buffers in turn, so that one can be prepared while the other is sent.
/// When both sides send simultaneously, writes of any size do so: the peer's message only proves that the own message
/// before the last has arrived.
const TWO_SOURCES_MAX: u32 = 4096;

/// One side of a ping-pong.
pub(crate) struct PingPong {
    op: Op,
    client: bool,
    both: bool,
    link: Endpoint,
    source: Mr,
    sink: Mr,
    remote: RemoteAddr,
    size: u32,
    /// Distance of the two sinks; 0 for one.
    stride: u64,
    /// Distance of the two sources; 0 for one.
    source_stride: u64,
    /// The message itself, if it travels within the request; else empty.
    inline: Vec<u8>,
    /// The request that [`put`](Self::put) will post.
    next: (SendOp, [Sge; 1]),
    poster: Poster,
    turn: u64,
    received: u64,
    /// Consumed receives that must be reposted.
    owed: u32,
    patience: Span,
    seed: u64,
    /// Compared messages whose last byte was visible before earlier bytes, at either side.
    late: u64,
}

impl PingPong {
    /// Connects and allocates; with `both`, both sides send simultaneously.
    pub(crate) fn prepare(session: &mut Session<'_>, both: bool) -> Result<Self, Fault> {
        let op = Op::of(session.cell.factor(factor::OP)?)?;
        let size = if op.is_atomic() { 8 } else { session.cell.length()? };
        let stride = if both { u64::from(size).next_multiple_of(4096) } else { 0 };
        let every = if op.is_fetch() { 1 } else { session.settings.signal };
        let inline = inline_limit(session, size);
        let requests = if op == Op::WriteSend { 2 } else { 1 };
        let depth = Depth { inline, ..Depth::new(requests * (2 * every + 1), RECEIVES) };
        let mut link = Endpoint::create(session.device, depth)?;
        let twice = !op.is_fetch() && (size <= TWO_SOURCES_MAX || (both && op == Op::Write));
        // Where the offset in a page is a factor, both sources have it.
        let grain = if session.cell.variant.has(factor::SOURCE_OFFSET) { 4096 } else { 64 };
        let source_stride = if twice { u64::from(size).next_multiple_of(grain) } else { 0 };
        let source = place(session, &link.pd, factor::SOURCE, source_stride as usize + size as usize)?;
        let sink = place(session, &link.pd, factor::SINK, stride as usize + size as usize)?;
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
            source_stride,
            inline: vec![0; inline as usize],
            next: (SendOp::Send, [Sge::default()]),
            poster: Poster::new(every),
            turn: 0,
            received: 0,
            owed: 0,
            patience: Span::from_ms(session.settings.patience_ms),
            seed: session.settings.seed,
            late: 0,
        };
        if !op.is_fetch() && op != Op::Write {
            (0..RECEIVES).try_for_each(|_| side.receive())?;
        }
        if !op.is_fetch() {
            side.prepare_put(1)?;
        }
        // Neither side sends before all receives are posted.
        meet(session)?;
        Ok(side)
    }

    /// The offset of message `turn` within the sink.
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

    /// Prepares message `turn`. With one source the previous message must have arrived.
    #[inline]
    fn prepare_put(&mut self, turn: u64) -> Result<(), Fault> {
        let remote = self.remote.offset(self.slot(turn));
        let from = (turn & 1) * self.source_stride;
        let op = match self.op {
            Op::Send => SendOp::Send,
            Op::WriteImm => SendOp::WriteImm(remote, turn as u32),
            _ => SendOp::Write(remote),
        };
        self.next = (op, [self.source.sge(from, self.size)]);
        if self.op == Op::Write {
            match self.inline.last_mut() {
                Some(last) => *last = mark(turn),
                None if self.source_stride > 0 => self.mark_source(turn)?,
                // A single source may still be on its way.
                None => {}
            }
        }
        Ok(())
    }

    fn mark_source(&self, turn: u64) -> Result<(), Fault> {
        let last = (turn & 1) * self.source_stride + u64::from(self.size) - 1;
        self.source.buf().byte(last as usize)?.store(mark(turn), Ordering::Release);
        Ok(())
    }

    /// Sends message `turn`, which is prepared.
    #[inline]
    fn put(&mut self, turn: u64) -> Result<(), Fault> {
        let (op, sges) = &self.next;
        let wr = if self.inline.is_empty() {
            if self.op == Op::Write && self.source_stride == 0 {
                self.mark_source(turn)?;
            }
            SendWr::new(0, *op, sges)
        } else {
            SendWr::inline(0, *op, &self.inline)
        };
        if self.op == Op::WriteSend {
            self.link.qp.post_send(&wr.unsignaled())?;
            return self.poster.post(&self.link, SendWr::new(0, SendOp::Send, &[]));
        }
        self.poster.post(&self.link, wr)
    }

    /// Runs `count` operations.
    pub(crate) fn several(&mut self, host: &Host, count: u64, deadline: Option<Time>) -> Result<(), Fault> {
        (0..count).try_for_each(|_| self.iterate(host, deadline))
    }

    /// Work to do before message `turn` + 1, off the critical path.
    #[inline]
    fn catch_up(&mut self, turn: u64, deadline: Option<Time>) -> Result<(), Fault> {
        self.prepare_put(turn + 1)?;
        self.poster.reap(&self.link, deadline)?;
        while self.owed > 0 {
            self.owed -= 1;
            self.receive()?;
        }
        Ok(())
    }

    /// Waits for message `turn`.
    #[inline]
    fn get(&mut self, host: &Host, turn: u64, deadline: Option<Time>) -> Result<(), Fault> {
        if self.op != Op::Write {
            self.owed += 1;
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
        if self.client && !self.both {
            self.put(turn)?;
            self.catch_up(turn, deadline)?;
            return self.get(host, turn, deadline);
        }
        if self.both {
            self.put(turn)?;
            // Only this proves that the previous own message has arrived, so that its buffers can be reused.
            self.get(host, turn, deadline)?;
        } else {
            self.get(host, turn, deadline)?;
            self.put(turn)?;
        }
        self.catch_up(turn, deadline)
    }

    #[inline]
    fn fetch(&mut self, turn: u64, deadline: Option<Time>) -> Result<(), Fault> {
        let remote = self.remote;
        let (op, local) = match self.op {
            Op::Cas => (SendOp::CompareSwap { remote, compare: turn - 1, swap: turn }, &self.source),
            Op::Fadd => (SendOp::FetchAdd { remote, add: 1 }, &self.source),
            _ => (SendOp::Read(remote), &self.sink),
        };
        self.link.qp.post_send(&SendWr::new(turn, op, &[local.sge(0, self.size)]))?;
        self.link.sent(deadline, "a fetch").map(drop)
    }

    /// The content seed of message `turn` from the client or from the server.
    fn pattern_seed(&self, turn: u64, from_client: bool) -> u64 {
        self.seed ^ (turn << 1) ^ u64::from(from_client)
    }

    /// Compares some messages completely: every mismatch is collected until both sides are done.
    fn verify_messages(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        // The last byte of a write is its mark.
        let len = self.size as usize - usize::from(self.op == Op::Write);
        // If writes are unordered, the mark says that a message has begun to arrive, not that all of it has.
        let attr = self.link.qp.pd().device().attr();
        let order = match self.sink.buf().kind() {
            MemoryKind::Host => attr.write_order,
            MemoryKind::Nic => attr.write_order_dm,
        };
        let unordered = self.op == Op::Write && order == WriteOrder::None;
        let mut verdict = Ok(());
        for _ in 0..CHECKED {
            self.settle(session)?;
            self.turn += 1;
            let turn = self.turn;
            let deadline = session.deadline();
            let first = self.client || self.both;
            if first {
                self.put_pattern(turn)?;
            }
            self.get(session.host, turn, deadline)?;
            let slot = self.slot(turn) as usize;
            let (buf, seed) = (self.sink.buf(), self.pattern_seed(turn, !self.client));
            let found = match unordered {
                true => pattern::compare_in_a_moment(session.host, buf, (slot, len), seed),
                false => pattern::compare(buf, slot, len, seed).map(|()| false),
            };
            self.late += u64::from(found == Ok(true));
            verdict = verdict.and(found.map(drop));
            if !first {
                self.put_pattern(turn)?;
            }
            self.catch_up(turn, deadline)?;
        }
        if unordered && self.client {
            self.late += session.receive_info::<u64>()?;
        } else if unordered {
            session.send_info(&self.late)?;
        }
        verdict
    }

    /// Sends message `turn` with unique contents.
    fn put_pattern(&mut self, turn: u64) -> Result<(), Fault> {
        self.fill_sources(self.pattern_seed(turn, self.client))?;
        self.prepare_put(turn)?;
        self.put(turn)
    }

    /// When both sides send simultaneously, the peer's message proves nothing about the own last one: it may still be
    /// in flight, and its buffer must not change.
    fn settle(&self, session: &mut Session<'_>) -> Result<(), Fault> {
        if self.both { meet(session) } else { Ok(()) }
    }

    /// Fills every place that messages go out from.
    fn fill_sources(&mut self, seed: u64) -> Result<(), Fault> {
        let buf = self.source.buf();
        for from in [0, self.source_stride as usize] {
            pattern::fill(buf, from, self.size as usize, seed)?;
        }
        Ok(buf.read(0, &mut self.inline)?)
    }

    fn verify_reads(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let len = self.size as usize;
        let mut verdict = Ok(());
        for k in 0..CHECKED {
            let seed = self.pattern_seed(k, false);
            if self.client {
                session.receive_info::<()>()?;
                self.fetch(k, session.deadline())?;
                verdict = verdict.and(pattern::compare(self.sink.buf(), 0, len, seed));
                session.send_info(&())?;
            } else {
                pattern::fill(self.source.buf(), 0, len, seed)?;
                session.send_info(&())?;
                session.receive_info::<()>()?;
            }
        }
        verdict
    }

    /// Checks that every atomic operation has counted.
    fn verify_atomics(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        if !self.client {
            return session.send_info(&self.sink.buf().word(0)?.load(Ordering::Acquire));
        }
        let (found, done): (u64, u64) = (session.receive_info()?, self.turn);
        let old = self.source.buf().word(0)?.load(Ordering::Acquire);
        if found == done && old + 1 == done {
            return Ok(());
        }
        Err(Fault::Corrupt(format!("after {done} atomics the word is {found}, and the last one saw {old}")))
    }
}

/// The last byte of write `turn`: different from the previous one, and never 0.
fn mark(turn: u64) -> u8 {
    (turn % 251) as u8 + 1
}

impl Side for PingPong {
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.settle(session)?;
        if !self.op.is_atomic() {
            self.fill_sources(self.seed)?;
            self.sink.buf().fill(0);
            if !self.op.is_fetch() {
                self.prepare_put(self.turn + 1)?;
            }
        }
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        let host = s.host;
        if !self.client {
            if self.op.is_fetch() {
                return Ok(());
            }
            let all = round.operations();
            for done in (0..all).step_by(1024) {
                s.go_on()?;
                let deadline = s.deadline();
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

    fn note(&self) -> Option<String> {
        let all = 2 * CHECKED;
        (self.late > 0).then(|| {
            format!(
                "the last byte was seen before others in {} of {all} messages that were compared; all were right a moment later",
                self.late
            )
        })
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
