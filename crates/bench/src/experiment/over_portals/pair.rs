//! [`Pair`]: messages between two ranks: a ping-pong, and windows of messages in one direction or both.

use verbs::host::{Host, Span, Time};

use super::super::harness::timing::sample_spans;
use super::super::{Fault, Round, Session, Side};
use super::port::Port;

/// The timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// A ping-pong; each message traverses `behind` list entries before its own.
    PingPong { behind: u64 },
    /// A window of messages, then an answer.
    OneWay,
    /// A window of messages both ways, then an answer.
    BothWays,
    /// A window of messages to rank 0, which posts their receives, in three calls each, as they arrive.
    Late,
}

/// The quantity reported for a ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// How long it takes.
    Time,
    /// The part of it that a component of the card takes.
    Component(usize),
    /// The remainder: MPI and Portals in the processes.
    Library,
    /// Interrupts for each message.
    Interrupts,
    /// Messages of a window that arrived before their receive.
    Unexpected,
}

/// Bits of messages, of answers, and of entries that nothing matches.
const DATA: u64 = 1;
const ANSWER: u64 = 2;
const NOTHING: u64 = 3;
/// Bytes of an answer.
const ANSWER_BYTES: u64 = 4;

/// One of two ranks.
pub(super) struct Pair {
    port: Port,
    flow: Flow,
    reading: Reading,
    size: u64,
    window: u64,
    /// The name of the next receive.
    next: u64,
    /// The last receive of a ping-pong.
    posted: u64,
}

impl Pair {
    pub(super) fn prepare(session: &mut Session<'_>, flow: Flow, reading: Reading) -> Result<Self, Fault> {
        let (size, window) = (session.cell.size, u64::from(session.settings.window));
        // Messages of a window are contiguous, as their answer is.
        let room = size.max(ANSWER_BYTES).next_multiple_of(64);
        let port = Port::open(session, 2, 2 * room, room)?;
        let mut pair = Self { port, flow, reading, size, window, next: 1, posted: 0 };
        if let Flow::PingPong { behind } = flow {
            (0..behind).try_for_each(|_| pair.port.post(pair.sink(), pair.size, NOTHING, 0))?;
            // Rank 0 posts when it has sent.
            if !session.is_client() {
                pair.post_next()?;
            }
        }
        Ok(pair)
    }

    /// The offset of the receive buffer.
    fn sink(&self) -> u64 {
        self.size.max(ANSWER_BYTES).next_multiple_of(64)
    }

    fn post(&mut self, bits: u64, len: u64) -> Result<u64, Fault> {
        let name = self.next;
        self.next += 1;
        self.port.post(self.sink(), len, bits, name)?;
        Ok(name)
    }

    /// Round trips of rank 0. The receive of the next message is posted after a send, while that is in flight.
    fn ping_pong(
        &mut self,
        session: &Session<'_>,
        count: u64,
        deadline: Option<Time>,
    ) -> Result<Span, Fault> {
        let (host, peer) = (session.host.clone(), 1 - session.rank);
        let (began, mut told) = (host.now(), Span::ZERO);
        for _ in 0..count {
            if session.is_client() {
                self.port.send(peer, 0, self.size, DATA)?;
                self.post_next()?;
            }
            self.port.wait(self.posted, deadline)?;
            told += self.told(&host);
            if !session.is_client() {
                self.port.send(peer, 0, self.size, DATA)?;
                self.post_next()?;
            }
        }
        let all = host.now() - began;
        Ok(match self.reading {
            Reading::Time | Reading::Unexpected => all,
            Reading::Library => Span::from_ps((all.as_ps() / 2).saturating_sub(told.as_ps())),
            Reading::Component(_) | Reading::Interrupts => told,
        })
    }

    fn post_next(&mut self) -> Result<(), Fault> {
        self.posted = self.post(DATA, self.size)?;
        Ok(())
    }

    /// The quantity from the profile of the received message.
    fn told(&self, host: &Host) -> Span {
        let Some(profile) = fabric::profile(host) else { return Span::ZERO };
        match self.reading {
            Reading::Time | Reading::Unexpected => Span::ZERO,
            Reading::Component(component) => profile.spent[component],
            Reading::Library => profile.ended - profile.began,
            // A picosecond each.
            Reading::Interrupts => Span::from_ps(profile.interrupts.into()),
        }
    }

    /// A window of messages, from rank 0 or from both, and its answer. All receives are posted when the first message is sent; from
    /// then on it is timed.
    fn window(&mut self, session: &Session<'_>, deadline: Option<Time>) -> Result<Span, Fault> {
        let (is_both, peer) = (self.flow == Flow::BothWays, 1 - session.rank);
        let (sends, receives) = (session.is_client() || is_both, !session.is_client() || is_both);
        let count = if receives { self.window } else { 0 };
        let ready = self.post(ANSWER, ANSWER_BYTES)?;
        let names = (0..count).map(|_| self.post(DATA, self.size)).collect::<Result<Vec<u64>, Fault>>()?;
        let answer = self.post(ANSWER, ANSWER_BYTES)?;
        self.port.send(peer, 0, ANSWER_BYTES, ANSWER)?;
        self.port.wait(ready, deadline)?;
        let began = session.host.now();
        if sends {
            (0..self.window).try_for_each(|_| self.port.send(peer, 0, self.size, DATA))?;
        }
        for name in names {
            self.port.wait(name, deadline)?;
        }
        self.port.send(peer, 0, ANSWER_BYTES, ANSWER)?;
        self.port.wait(answer, deadline)?;
        Ok(session.host.now() - began)
    }
}

impl Pair {
    /// A window of messages to rank 0, which announces that it is ready and only then posts; returns how many arrived
    /// before their receive.
    fn late(&mut self, session: &Session<'_>, deadline: Option<Time>) -> Result<Span, Fault> {
        let before = self.port.unexpected;
        if session.is_client() {
            self.port.send(1, 0, ANSWER_BYTES, ANSWER)?;
            let first = self.next;
            self.next += self.window;
            for name in first..self.next {
                self.port.post_by_parts(self.sink(), self.size, DATA, name)?;
            }
            (first..self.next).try_for_each(|name| self.port.wait(name, deadline).map(drop))?;
        } else {
            let ready = self.post(ANSWER, ANSWER_BYTES)?;
            self.port.wait(ready, deadline)?;
            (0..self.window).try_for_each(|_| self.port.send(0, 0, self.size, DATA))?;
        }
        // A picosecond each.
        Ok(Span::from_ps(self.port.unexpected - before))
    }
}

impl Side for Pair {
    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        sample_spans(session, round, readings, |session, count, deadline| {
            if let Flow::PingPong { .. } = self.flow {
                return self.ping_pong(session, count, deadline);
            }
            (0..count).try_fold(Span::ZERO, |all, _| {
                let window = if self.flow == Flow::Late { Self::late } else { Self::window };
                Ok(all + window(self, session, deadline)?)
            })
        })
    }

    fn messages(&self) -> u64 {
        if matches!(self.flow, Flow::PingPong { .. } | Flow::Late) { 1 } else { self.window }
    }
}
