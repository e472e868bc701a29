//! `overhead`: what a message costs the processor in a ping-pong: the call that posts it, and the poll that finds the
//! answer (thesis 2.2.4, Figures 3.4(a) and 4.6). Empty polls are idle time, and not counted.
//!
//! Each call is timed individually. The cost of reading the clock was measured beforehand, and is subtracted.

use results::variant::{Variant, factor};
use verbs::host::{Host, Span, Time};
use verbs::{Mr, RecvWr, SendOp, SendWr};

use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{Depth, Endpoint, Poster, check, inline_limit, place};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::{placements, with};
use crate::experiment::{Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Receives that are always posted.
const RECEIVES: u32 = 16;
/// Pairs of clock readings; the closest ones count.
const TRIALS: usize = 1000;

pub(crate) struct Overhead;

impl Experiment for Overhead {
    fn name(&self) -> &'static str {
        "overhead"
    }

    fn about(&self) -> &'static str {
        "processor time of a message in a ping-pong: its post, and the poll that finds the answer"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/overhead.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let send = &placements("send", &[("host", "host")])[0];
        let parts: &[&str] = if quick { &["both"] } else { &["both", "post", "poll"] };
        parts.iter().map(|part| with(send, factor::PART, part)).collect()
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[8, 4096] } else { &[1, 8, 32, 64, 65, 128, 512, 1024, 4096, 16_384, 65_536] })
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "host_overhead",
            unit: "us",
            about: "time within the call that posts a message, within the poll that finds the answer, or both; clock \
                    readings taken off",
            scale: Scale::Time(1.0),
        }
    }

    /// A reading can be zero.
    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Ends::prepare(session)?))
    }
}

struct Ends {
    client: bool,
    /// Which of the two calls count: post, poll.
    counts: [bool; 2],
    link: Endpoint,
    poster: Poster,
    source: Mr,
    sink: Mr,
    inline: Vec<u8>,
    size: u32,
    /// The time of reading the clock.
    clock: Span,
    seed: u64,
}

/// Messages of a sample: alone it would be shorter than the clock's steps.
const TOGETHER: u64 = 32;

impl Ends {
    fn prepare(session: &mut Session<'_>) -> Result<Self, Fault> {
        let size = session.cell.length()?;
        let counts = match session.cell.factor(factor::PART)? {
            "both" => [true, true],
            "post" => [true, false],
            "poll" => [false, true],
            other => return Err(Fault::Meaningless(format!("the part {other} of a message's overhead"))),
        };
        let every = session.settings.signal;
        let inline = inline_limit(session, size);
        let mut link =
            Endpoint::create(session.device, Depth { inline, ..Depth::new(2 * every + 1, RECEIVES) })?;
        let source = place(session, &link.pd, factor::SOURCE, size as usize)?;
        let sink = place(session, &link.pd, factor::SINK, size as usize)?;
        link.post_receives(0, RECEIVES, &[sink.sge(0, size)])?;
        link.connect(session)?;
        meet(session)?;
        Ok(Self {
            client: session.is_client(),
            counts,
            link,
            poster: Poster::new(every),
            source,
            sink,
            inline: vec![0; inline as usize],
            size,
            clock: clock_cost(session.host),
            seed: session.settings.seed,
        })
    }

    /// Posts the message; how long that took.
    #[inline]
    fn put(&mut self, host: &Host) -> Result<Span, Fault> {
        let sges = [self.source.sge(0, self.size)];
        let wr = match self.inline.is_empty() {
            true => SendWr::new(0, SendOp::Send, &sges),
            false => SendWr::inline(0, SendOp::Send, &self.inline),
        };
        let began = host.now();
        self.poster.post(&self.link, wr)?;
        Ok(host.now() - began)
    }

    /// Waits for the other's message; how long the poll took that found it.
    #[inline]
    fn get(&mut self, host: &Host, deadline: Option<Time>) -> Result<Span, Fault> {
        let cq = &self.link.recv_cq;
        let look = || {
            let began = host.now();
            let found = cq.poll_one().transpose()?;
            Some((found, host.now() - began))
        };
        let (wc, took) =
            host.poll("a receive", deadline, look).ok_or(Fault::TimedOut("the peer's message"))?;
        check(wc?, "a receive")?;
        Ok(took)
    }

    /// Work off the critical path.
    fn catch_up(&mut self, deadline: Option<Time>, receive: bool) -> Result<(), Fault> {
        self.poster.reap(&self.link, deadline)?;
        if receive {
            self.link.qp.post_recv(&RecvWr::new(0, &[self.sink.sge(0, self.size)]))?;
        }
        Ok(())
    }

    /// One message each way; returns this side's timed part.
    fn ping(&mut self, host: &Host, first: bool, deadline: Option<Time>) -> Result<Span, Fault> {
        let [post, poll] = if self.client {
            let post = self.put(host)?;
            self.catch_up(deadline, !first)?;
            [post, self.get(host, deadline)?]
        } else {
            let poll = self.get(host, deadline)?;
            let post = self.put(host)?;
            self.catch_up(deadline, true)?;
            [post, poll]
        };
        let net = |took: Span, counts: bool| match counts {
            true => took.as_ps().saturating_sub(self.clock.as_ps()),
            false => 0,
        };
        Ok(Span::from_ps(net(post, self.counts[0]) + net(poll, self.counts[1])))
    }

    fn several(&mut self, host: &Host, count: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        let mut spent = Span::ZERO;
        for index in 0..count {
            spent += self.ping(host, index == 0, deadline)?;
        }
        if self.client && count > 0 {
            self.catch_up(deadline, true)?;
        }
        Ok(spent)
    }
}

/// How far apart two readings of the clock are that follow each other.
fn clock_cost(host: &Host) -> Span {
    let gap = || {
        let began = host.now();
        host.now() - began
    };
    (0..TRIALS).map(|_| gap()).min().unwrap_or(Span::ZERO)
}

impl Side for Ends {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.buf().fill(0x5a);
        self.sink.buf().fill(0);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| {
            self.several(s.host, count * TOGETHER, deadline)
        })
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let (len, client) = (self.size as usize, self.client);
        pattern::fill(self.source.buf(), 0, len, self.seed ^ u64::from(client))?;
        self.source.buf().read(0, &mut self.inline)?;
        self.sink.buf().fill(0);
        meet(session)?;
        self.several(session.host, 1, session.deadline())?;
        pattern::compare(self.sink.buf(), 0, len, self.seed ^ u64::from(!client))
    }

    fn messages(&self) -> u64 {
        TOGETHER
    }
}
