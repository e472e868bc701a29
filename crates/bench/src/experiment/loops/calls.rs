//! [`Calls`]: the time within single calls on a connection. Shared by post and poll.
//!
//! Calls are made in batches, with the clock read before and after each batch. Preparation for the next batch, such
//! as messages that consume receives, happens in between and is not timed; a separate connection synchronizes it.

use verbs::host::{Span, Time};
use verbs::{Mr, RecvWr, SendOp, SendWr};

use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{Depth, Endpoint, check, register};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::{Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Calls that are timed together.
const TOGETHER: u64 = 32;

/// The metric of a single call.
pub(crate) const CALL_US: Metric = Metric {
    name: "call_time",
    unit: "us",
    about: "time within the call, from many in a row; not until what it asks for has happened",
    scale: Scale::Time(1.0),
};

/// No more samples than necessary: the untimed work between the calls is much longer than the calls.
pub(crate) const SAMPLES: Sampling = Sampling { long: false, samples: Some(200) };

/// Which call of the device is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    PostSend,
    PostRecv,
    /// A poll that returns a completion.
    PollFull,
    PollEmpty,
}

/// One side; only the client's calls are timed.
pub(crate) struct Calls {
    call: Call,
    client: bool,
    data: Endpoint,
    control: Endpoint,
    source: Mr,
    sink: Mr,
    size: u32,
    seed: u64,
}

impl Calls {
    pub(crate) fn prepare(session: &mut Session<'_>, call: Call) -> Result<Self, Fault> {
        let size = session.cell.length()?;
        let client = session.is_client();
        let depth = Depth::new(TOGETHER as u32, TOGETHER as u32);
        let mut data = Endpoint::create(session.device, depth)?;
        let mut control = Endpoint::create(session.device, Depth::new(4, 4))?;
        let source = register("host", &data.pd, size as usize)?;
        let sink = register("host", &data.pd, size as usize)?;
        control.post_receives(0, 4, &[])?;
        data.connect(session)?;
        control.connect(session)?;
        Ok(Self { call, client, data, control, source, sink, size, seed: session.settings.seed })
    }

    /// Sends an empty message on the control connection.
    fn send(&self, deadline: Option<Time>) -> Result<(), Fault> {
        self.control.qp.post_send(&SendWr::new(0, SendOp::Send, &[]))?;
        self.control.sent(deadline, "a word").map(drop)
    }

    /// Waits for such a message, and posts the receive again.
    fn receive(&self, deadline: Option<Time>) -> Result<(), Fault> {
        self.control.received(deadline, "a word")?;
        Ok(self.control.qp.post_recv(&RecvWr::new(0, &[]))?)
    }

    /// Posts receives for the measured messages.
    fn post_receives(&self, count: u64) -> Result<(), Fault> {
        self.data.post_receives(0, count as u32, &[self.sink.sge(0, self.size)])
    }

    /// Posts messages; only the last is signaled, and its completion shows that all were sent.
    fn post_sends(&self, count: u64) -> Result<(), Fault> {
        let sges = [self.source.sge(0, self.size)];
        let last = SendWr::new(0, SendOp::Send, &sges);
        let silent = last.unsignaled();
        (1..count).try_for_each(|_| self.data.qp.post_send(&silent))?;
        Ok(self.data.qp.post_send(&last)?)
    }

    /// Takes `count` receive completions that should be ready; waits for a late one.
    fn take(&self, count: u64, deadline: Option<Time>) -> Result<(), Fault> {
        for _ in 0..count {
            match self.data.recv_cq.poll_one()? {
                Some(wc) => check(wc, "a receive")?,
                None => self.data.received(deadline, "a receive")?,
            };
        }
        Ok(())
    }

    fn look_in_vain(&self, count: u64) -> Result<(), Fault> {
        for _ in 0..count {
            if self.data.recv_cq.poll_one()?.is_some() {
                return Err(Fault::Corrupt("a completion came that nobody asked for".into()));
            }
        }
        Ok(())
    }

    /// Up to [`TOGETHER`] calls at the client.
    fn few(&self, session: &Session<'_>, count: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        let host = session.host;
        let timed = |call: &dyn Fn() -> Result<(), Fault>| {
            let began = host.now();
            call()?;
            Ok(host.now() - began)
        };
        match self.call {
            Call::PollEmpty => timed(&|| self.look_in_vain(count)),
            Call::PostSend => {
                self.receive(deadline)?;
                let span = timed(&|| self.post_sends(count))?;
                self.data.sent(deadline, "a message")?;
                Ok(span)
            }
            Call::PostRecv => {
                let span = timed(&|| self.post_receives(count))?;
                self.send(deadline)?;
                self.receive(deadline)?;
                self.take(count, deadline)?;
                Ok(span)
            }
            Call::PollFull => {
                self.post_receives(count)?;
                self.send(deadline)?;
                self.receive(deadline)?;
                timed(&|| self.take(count, deadline))
            }
        }
    }

    /// The server's part.
    fn serve(&self, count: u64, deadline: Option<Time>) -> Result<(), Fault> {
        match self.call {
            Call::PollEmpty => Ok(()),
            Call::PostSend => {
                self.post_receives(count)?;
                self.send(deadline)?;
                self.take(count, deadline)
            }
            Call::PostRecv | Call::PollFull => {
                self.receive(deadline)?;
                self.post_sends(count)?;
                self.data.sent(deadline, "a message")?;
                self.send(deadline)
            }
        }
    }

    fn operate(&self, session: &Session<'_>, count: u64) -> Result<Span, Fault> {
        let mut spent = Span::ZERO;
        for done in (0..count).step_by(TOGETHER as usize) {
            let (now, deadline) = (TOGETHER.min(count - done), session.deadline());
            if self.client {
                spent += self.few(session, now, deadline)?;
            } else {
                self.serve(now, deadline)?;
            }
        }
        Ok(spent)
    }
}

impl Side for Calls {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.buf().fill(0x5a);
        self.sink.buf().fill(0);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, _| self.operate(s, count))
    }

    /// Checks that posted messages arrive.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let len = self.size as usize;
        pattern::fill(self.source.buf(), 0, len, self.seed)?;
        self.sink.buf().fill(0);
        meet(session)?;
        self.operate(session, TOGETHER)?;
        let receives = match self.call {
            Call::PostSend => !self.client,
            Call::PostRecv | Call::PollFull => self.client,
            Call::PollEmpty => false,
        };
        if receives { pattern::compare(self.sink.buf(), 0, len, self.seed) } else { Ok(()) }
    }
}
