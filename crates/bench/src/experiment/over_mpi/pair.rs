//! [`Pair`]: messages between pairs of ranks. Rank r of the first half sends to rank r of the second.

use datatypes::{Basic, Datatype};
use mpi::{Buffer, Collective, Comm, Mode, PeerTag, Process, Request};
use verbs::Buf;
use verbs::host::Span;

use super::super::harness::compute::Worker;
use super::super::harness::pattern;
use super::super::harness::timing::sample_spans;
use super::super::{Fault, Round, Session, Side};
use super::join::join;

/// The timed quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// A ping-pong.
    PingPong,
    /// A window of messages, then an answer.
    OneWay,
    /// A window of messages both ways, then an answer.
    BothWays,
    /// The part of an exchange hidden behind computation.
    Overlap,
}

/// Bytes of the message that answers a window.
const ANSWER: i64 = 4;
/// Tags of messages and of answers.
const DATA: i32 = 1;
const ANSWERED: i32 = 2;

/// The operation of one rank in a pair, and its memory.
pub(super) struct Pair {
    comm: Comm,
    flow: Flow,
    /// The rank of the peer, and whether this rank is in the sending half.
    peer: i32,
    sends: bool,
    pairs: u64,
    source: Buf,
    sink: Buf,
    out: Buffer,
    into: Buffer,
    answer: Buffer,
    requests: Vec<Request>,
    window: u64,
    worker: Option<Worker>,
    seed: u64,
    /// Last field, so that it outlives pending operations.
    _process: Process,
}

/// An error of the status that a request ended with.
fn ended(status: mpi::Status) -> Result<(), Fault> {
    Ok(status.ok().map(drop)?)
}

impl Pair {
    pub(super) fn prepare(session: &mut Session<'_>, flow: Flow, ranks: u32) -> Result<Self, Fault> {
        let size = session.cell.length()? as usize;
        if !ranks.is_multiple_of(2) {
            return Err(Fault::Meaningless(format!("pairs of {ranks} ranks")));
        }
        let process = join(session, ranks)?;
        let half = ranks / 2;
        let sends = session.rank < half;
        let peer = if sends { session.rank + half } else { session.rank - half };
        let (source, sink) = (Buf::alloc(size)?, Buf::alloc(size)?);
        let bytes = Datatype::from(Basic::Byte);
        let window = u64::from(session.settings.window.max(1));
        Ok(Self {
            comm: process.world().clone(),
            flow,
            peer: peer as i32,
            sends,
            pairs: u64::from(half),
            out: Buffer::of(&source, 0, size as i64, &bytes)?,
            into: Buffer::of(&sink, 0, size as i64, &bytes)?,
            answer: Buffer::of(&Buf::alloc(ANSWER as usize)?, 0, ANSWER, &bytes)?,
            source,
            sink,
            requests: Vec::with_capacity(2 * window as usize),
            window,
            worker: (flow == Flow::Overlap).then(|| Worker::calibrated(session.host)),
            seed: session.settings.seed,
            _process: process,
        })
    }

    fn with(&self, tag: i32) -> PeerTag {
        PeerTag { rank: self.peer, tag }
    }

    fn send(&self) -> Result<(), Fault> {
        Ok(self.comm.send(Mode::Standard, &self.out, self.with(DATA))?)
    }

    fn receive(&self) -> Result<(), Fault> {
        ended(self.comm.receive(self.into.clone(), self.with(DATA))?)
    }

    fn ping_pong(&self) -> Result<(), Fault> {
        if self.sends {
            self.send()?;
            self.receive()
        } else {
            self.receive()?;
            self.send()
        }
    }

    /// A window of messages, receives posted first, and the answer to it.
    fn window(&mut self) -> Result<(), Fault> {
        let (both, with) = (self.flow == Flow::BothWays, self.with(DATA));
        for _ in 0..if both || !self.sends { self.window } else { 0 } {
            self.requests.push(self.comm.ireceive(self.into.clone(), with)?);
        }
        for _ in 0..if both || self.sends { self.window } else { 0 } {
            self.requests.push(self.comm.isend(Mode::Standard, &self.out, with)?);
        }
        self.requests.drain(..).try_for_each(|mut request| ended(request.wait()))?;
        if self.sends {
            ended(self.comm.receive(self.answer.clone(), self.with(ANSWERED))?)
        } else {
            Ok(self.comm.send(Mode::Standard, &self.answer, self.with(ANSWERED))?)
        }
    }

    /// The time of a message each way, with `computing` done between starting and completing it.
    fn exchange(&self, s: &Session<'_>, computing: Span) -> Result<Span, Fault> {
        self.comm.collective(&Collective::Barrier)?;
        let began = s.host.now();
        let mut receiving = self.comm.ireceive(self.into.clone(), self.with(DATA))?;
        let mut sending = self.comm.isend(Mode::Standard, &self.out, self.with(DATA))?;
        if let Some(worker) = self.worker.filter(|_| computing > Span::ZERO) {
            worker.compute(s.host, computing);
        }
        ended(receiving.wait())?;
        ended(sending.wait())?;
        Ok(s.host.now() - began)
    }

    /// The percentage of an exchange hidden by computing for as long, over `count` exchanges together.
    fn hidden(&self, s: &Session<'_>, count: u64) -> Result<f64, Fault> {
        let (mut alone, mut beside) = (Span::ZERO, Span::ZERO);
        for _ in 0..count {
            let one = self.exchange(s, Span::ZERO)?;
            alone += one;
            beside += self.exchange(s, one)?;
        }
        let (alone, beside) = (alone.as_ps() as f64, beside.as_ps() as f64);
        Ok(((2.0 * alone - beside) / alone.max(1.0)).clamp(0.0, 1.0) * 100.0)
    }

    fn operate(&mut self, s: &Session<'_>, count: u64) -> Result<Span, Fault> {
        if self.pairs > 1 {
            // No pair is measured while another has not begun.
            self.comm.collective(&Collective::Barrier)?;
        }
        let began = s.host.now();
        for _ in 0..count {
            match self.flow {
                Flow::PingPong => self.ping_pong()?,
                Flow::OneWay | Flow::BothWays => self.window()?,
                Flow::Overlap => self.exchange(s, Span::ZERO).map(drop)?,
            }
        }
        Ok(s.host.now() - began)
    }

    /// Samples of a quantity that is no time.
    fn overlaps(&self, s: &Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        self.hidden(s, round.lead_in)?;
        for _ in 0..round.samples {
            s.go_on()?;
            let hidden = self.hidden(s, round.batch)?;
            if s.is_client() {
                readings.push(hidden);
            }
        }
        Ok(())
    }
}

impl Side for Pair {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.fill(0x5a);
        self.sink.fill(0xa5);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        if self.flow == Flow::Overlap {
            return self.overlaps(s, round, readings);
        }
        sample_spans(s, round, readings, |s, count, _| self.operate(s, count))
    }

    /// One more operation, with unique contents of each rank.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let contents = |rank: u64| self.seed ^ (rank << 32);
        let receives = !self.sends || self.flow != Flow::OneWay;
        pattern::fill(&self.source, 0, self.source.len(), contents(session.rank.into()))?;
        self.sink.fill(0);
        self.operate(session, 1)?;
        let expected = self.seed ^ ((self.peer as u64) << 32);
        if receives { pattern::compare(&self.sink, 0, self.sink.len(), expected) } else { Ok(()) }
    }

    fn messages(&self) -> u64 {
        match self.flow {
            Flow::OneWay | Flow::BothWays => self.window * self.pairs,
            Flow::PingPong | Flow::Overlap => 1,
        }
    }
}
