//! `availability`: how much the processor can compute while messages go both ways, without the bandwidth falling
//! (thesis 2.2.4, Figures 3.4(b) and 4.7).
//!
//! In an iteration each side posts receives, starts its sends, computes for a time C, and waits until all messages
//! have been sent and received. `compute=P` sets C to P % of the time of an iteration without computing: the curve.
//! `quantity=share` finds the knee.
//!
//! The knee is found from both ends of the curve. An iteration takes T0 without computing. An iteration that computes
//! for much longer takes C + o, where o is the processor's own work for the messages. With C up to T0 - o all of that
//! fits into T0; beyond it bandwidth falls. So the share is 1 - o / T0. Whether the curve follows its two straight
//! lines is measured too, and noted: the bandwidth at the knee.

use results::variant::{Variant, factor};
use verbs::host::{Span, Time};
use verbs::{Mr, RecvWr, SendOp, SendWr};

use crate::experiment::harness::compute::{Turn, Worker};
use crate::experiment::harness::contract::level;
use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{Depth, Endpoint, place};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample;
use crate::experiment::harness::variants::{over, placements, with};
use crate::experiment::{Axis, Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Messages each way in an iteration.
const MESSAGES: u32 = 4;
/// Iterations that are timed together in the search, and times that this is done: the median counts.
const TOGETHER: u64 = 4;
const TIMES: usize = 5;
/// Computing that is long, in iterations without any.
const LONG: u64 = 3;

pub(crate) struct Availability;

const COMPUTE: Axis = Axis {
    factor: factor::COMPUTE,
    low: 0,
    high: 1000,
    about: "% of an undisturbed iteration that is computed for",
};

impl Experiment for Availability {
    fn name(&self) -> &'static str {
        "availability"
    }

    fn about(&self) -> &'static str {
        "bandwidth both ways during computation, and the share of time that can be computed before it falls"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/availability.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[COMPUTE]
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let send = placements("send", &[("host", "host")]);
        let levels: &[&str] = if quick {
            &["0", "90"]
        } else {
            &["0", "25", "50", "75", "90", "95", "99", "100", "125", "200"]
        };
        let curve = over(&send, COMPUTE.factor, levels);
        send.iter().map(|one| with(one, factor::QUANTITY, "share")).chain(curve).collect()
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[1 << 20] } else { &[4 << 10, 64 << 10, 1 << 20] })
    }

    fn metric(&self, variant: &Variant) -> Metric {
        match is_search(variant) {
            true => Metric {
                name: "compute_share",
                unit: "%",
                about: "largest share of the time that can be computed while bandwidth stays what it is without: \
                        1 - o / T0, where an iteration takes T0 without computing, and o more than the computation \
                        where that is long",
                scale: Scale::Plain,
            },
            false => Metric {
                name: "bandwidth",
                unit: "MB/s",
                about: "bytes of both directions over the time of an iteration that also computes",
                scale: Scale::Bandwidth(2.0),
            },
        }
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        if is_search(variant) { Sampling::ONCE } else { Sampling::LONG }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Overlap::prepare(session)?))
    }
}

fn is_search(variant: &Variant) -> bool {
    variant.has(factor::QUANTITY)
}

struct Overlap {
    client: bool,
    link: Endpoint,
    source: Mr,
    sink: Mr,
    size: u32,
    worker: Worker,
    /// Per cent of an iteration; `None` searches.
    percent: Option<u64>,
    /// How long to compute.
    compute: Span,
    note: Option<String>,
    seed: u64,
}

/// The client's instruction to the server; `None` ends a search.
type Task = Option<Turn>;

impl Overlap {
    fn prepare(session: &mut Session<'_>) -> Result<Self, Fault> {
        let (size, cell) = (session.cell.length()?, session.cell);
        let percent = if is_search(&cell.variant) { None } else { Some(level(cell, &COMPUTE)?) };
        // The peer can be one iteration ahead.
        let mut link = Endpoint::create(session.device, Depth::new(MESSAGES, 2 * MESSAGES))?;
        let source = place(session, &link.pd, factor::SOURCE, size as usize)?;
        let sink = place(session, &link.pd, factor::SINK, size as usize)?;
        link.post_receives(0, MESSAGES, &[sink.sge(0, size)])?;
        let worker = Worker::calibrated(session.host);
        link.connect(session)?;
        meet(session)?;
        Ok(Self {
            client: session.is_client(),
            link,
            source,
            sink,
            size,
            worker,
            percent,
            compute: Span::ZERO,
            note: None,
            seed: session.settings.seed,
        })
    }

    fn iterate(&self, s: &Session<'_>, deadline: Option<Time>) -> Result<(), Fault> {
        let (link, sges) = (&self.link, [self.source.sge(0, self.size)]);
        let into = [self.sink.sge(0, self.size)];
        let receive = RecvWr::new(0, &into);
        (0..MESSAGES).try_for_each(|_| link.qp.post_recv(&receive))?;
        (0..MESSAGES).try_for_each(|_| link.qp.post_send(&SendWr::new(0, SendOp::Send, &sges)))?;
        self.worker.compute(s.host, self.compute);
        (0..MESSAGES).try_for_each(|_| link.sent(deadline, "a message").map(drop))?;
        (0..MESSAGES).try_for_each(|_| link.received(deadline, "a receive").map(drop))
    }

    /// Runs `count` iterations, at both sides.
    fn run(&self, s: &Session<'_>, count: u64) -> Result<Span, Fault> {
        let (began, deadline) = (s.host.now(), s.deadline());
        (0..count).try_for_each(|_| self.iterate(s, deadline))?;
        Ok(s.host.now() - began)
    }

    /// The time in ps of an iteration with this much computation; the server is informed first.
    fn time(&mut self, s: &mut Session<'_>, compute_ps: u64) -> Result<f64, Fault> {
        self.compute = Span::from_ps(compute_ps);
        let iterations = 1 + TOGETHER * TIMES as u64;
        s.send_info::<Task>(&Some(Turn { computing: compute_ps, iterations }))?;
        self.run(s, 1)?;
        let mut times = [0.0; TIMES];
        for time in &mut times {
            *time = self.run(s, TOGETHER)?.as_ps() as f64 / TOGETHER as f64;
        }
        times.sort_by(f64::total_cmp);
        Ok(times[TIMES / 2])
    }

    /// Follows the client's instructions until it is done.
    fn follow(&mut self, s: &mut Session<'_>) -> Result<(), Fault> {
        while let Some(Turn { computing, iterations }) = s.receive_info::<Task>()? {
            s.go_on()?;
            self.compute = Span::from_ps(computing);
            self.run(s, iterations)?;
        }
        Ok(())
    }

    /// The knee, in per cent.
    fn search(&mut self, s: &mut Session<'_>) -> Result<f64, Fault> {
        let alone = self.time(s, 0)?;
        let long = LONG * alone as u64;
        // Measured twice, so that an error in one of the two counts less.
        let own = [long, 2 * long].map(|c| self.time(s, c).map(|took| (took - c as f64).max(0.0)));
        let [a, b] = own;
        let own = a?.min(b?);
        let knee = (alone - own).max(0.0);
        let there = self.time(s, knee as u64)?;
        s.send_info::<Task>(&None)?;
        let rate = 2.0 * f64::from(MESSAGES) * f64::from(self.size) / alone * 1e6;
        self.note = Some(format!(
            "{rate:.0} MB/s without computing; the processor's own work {:.2} us of {:.2} us; at the knee {:.0} % of \
             that bandwidth",
            own / 1e6,
            alone / 1e6,
            100.0 * alone / there.max(1.0)
        ));
        Ok(100.0 * knee / alone.max(1.0))
    }
}

impl Side for Overlap {
    /// Also finds how long computing has to be.
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.buf().fill(0x5a);
        self.sink.buf().fill(0);
        let Some(percent) = self.percent else { return Ok(()) };
        if !self.client {
            self.follow(session)?;
            self.compute = Span::from_ps(session.receive_info::<Turn>()?.computing);
            return Ok(());
        }
        let alone = self.time(session, 0)?;
        session.send_info::<Task>(&None)?;
        self.compute = Span::from_ps(alone as u64 * percent / 100);
        self.note = Some(format!("computes for {:.2} us", self.compute.as_ps() as f64 / 1e6));
        session.send_info(&Turn { computing: self.compute.as_ps(), iterations: 1 })
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        if self.percent.is_some() {
            return sample(s, round, readings, |s, count, deadline| {
                (0..count).try_for_each(|_| self.iterate(s, deadline))
            });
        }
        for _ in 0..round.samples {
            s.go_on()?;
            if self.client {
                readings.push(self.search(s)?);
            } else {
                self.follow(s)?;
            }
        }
        Ok(())
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let (len, client) = (self.size as usize, self.client);
        pattern::fill(self.source.buf(), 0, len, self.seed ^ u64::from(client))?;
        self.sink.buf().fill(0);
        self.compute = Span::ZERO;
        meet(session)?;
        self.run(session, 1)?;
        pattern::compare(self.sink.buf(), 0, len, self.seed ^ u64::from(!client))
    }

    fn messages(&self) -> u64 {
        if self.percent.is_some() { MESSAGES.into() } else { 1 }
    }

    fn note(&self) -> Option<String> {
        self.note.clone()
    }
}
