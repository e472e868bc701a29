//! `blocking`: the latency of sends when the receiver sleeps instead of polling (thesis 2.2.6, Figures 3.6 and 4.9).
//!
//! `wait=poll` never yields the core. `wait=event` arms the completion queue, polls once more, and sleeps until the
//! completion channel's event: the pattern of ibv_get_cq_event(3). `wait=park` is `Cq::wait`, which polls for a while
//! and then sleeps. With `part=extra`, samples of polling and of the other kind alternate on one connection.

use results::variant::{Variant, factor};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use verbs::host::{Host, Span, Time};
use verbs::{CompChannel, Mr, RecvWr, SendOp, SendWr, Wc};

use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{Depth, Endpoint, Poster, check, place};
use crate::experiment::harness::hub::without;
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::{over, placements, with};
use crate::experiment::{Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Receives that are always posted.
const RECEIVES: u32 = 16;
/// Round trips of either kind in an operation.
const TOGETHER: u64 = 8;

pub(crate) struct Blocking;

impl Experiment for Blocking {
    fn name(&self) -> &'static str {
        "blocking"
    }

    fn about(&self) -> &'static str {
        "latency of sends when the receiver sleeps until an event, and what that adds to polling"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/blocking.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let send = placements("send", &[("host", "host")]);
        let extra = with(&with(&send[0], factor::WAIT, "event"), factor::PART, "extra");
        let waits: &[&str] = if quick { &["poll", "event"] } else { &["poll", "park", "event"] };
        over(&send, factor::WAIT, waits).into_iter().chain([extra]).collect()
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[8, 4096] } else { &[1, 8, 64, 256, 1024, 4096, 16_384, 65_536] })
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let extra = variant.has(factor::PART);
        Metric {
            name: if extra { "blocking_overhead" } else { "one_way_latency" },
            unit: "us",
            about: match extra {
                true => {
                    "one-way latency with sleeping until an event less that with polling, in turns; 0 if not above"
                }
                false => "half the round trip of a ping-pong in which both sides wait in this way",
            },
            scale: Scale::Time(2.0),
        }
    }

    /// A reading can be zero.
    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Sleeper::prepare(session)?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Poll,
    Park,
    Event,
}

struct Sleeper {
    client: bool,
    waits: Waits,
    /// Alternates with polling, whose time is subtracted.
    extra: bool,
    link: Endpoint,
    channel: CompChannel,
    poster: Poster,
    source: Mr,
    sink: Mr,
    size: u32,
    seed: u64,
}

impl Sleeper {
    fn prepare(session: &mut Session<'_>) -> Result<Self, Fault> {
        let size = session.cell.length()?;
        let waits = match session.cell.factor(factor::WAIT)? {
            "poll" => Waits::Poll,
            "park" => Waits::Park,
            "event" => Waits::Event,
            other => return Err(Fault::Meaningless(format!("waiting by {other}"))),
        };
        let every = session.settings.signal;
        let (mut link, channel) =
            Endpoint::with_channel(session.device, Depth::new(2 * every + 1, RECEIVES))?;
        let source = place(session, &link.pd, factor::SOURCE, size as usize)?;
        let sink = place(session, &link.pd, factor::SINK, size as usize)?;
        link.post_receives(0, RECEIVES, &[sink.sge(0, size)])?;
        link.connect(session)?;
        meet(session)?;
        Ok(Self {
            client: session.is_client(),
            waits,
            extra: session.cell.variant.has(factor::PART),
            link,
            channel,
            poster: Poster::new(every),
            source,
            sink,
            size,
            seed: session.settings.seed,
        })
    }

    /// Waits for a receive.
    fn get(&self, host: &Host, waits: Waits, deadline: Option<Time>) -> Result<Wc, Fault> {
        let cq = &self.link.recv_cq;
        let wc = match waits {
            Waits::Poll => cq.spin(deadline)?,
            Waits::Park => cq.wait(deadline)?,
            Waits::Event => loop {
                if let Some(wc) = cq.poll_one()? {
                    break wc;
                }
                cq.req_notify(false)?;
                // A completion that arrived before arming makes no event.
                if let Some(wc) = cq.poll_one()? {
                    break wc;
                }
                self.sleep(host, deadline)?;
            },
        };
        check(wc, "a receive")
    }

    /// Sleeps until the channel has an event, and takes it.
    fn sleep(&self, host: &Host, deadline: Option<Time>) -> Result<(), Fault> {
        let Some(fd) = self.channel.fd() else {
            return Ok(self.channel.get_event(deadline).map(drop)?);
        };
        while self.channel.poll_event().is_none() {
            let left =
                deadline.map_or(Span::from_secs(1), |at| without(at - Time::ZERO, host.now() - Time::ZERO));
            if left == Span::ZERO {
                return Err(Fault::TimedOut("the peer's message"));
            }
            sleep_on(fd, left)?;
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self) -> Result<(), Fault> {
        let sges = [self.source.sge(0, self.size)];
        self.poster.post(&self.link, SendWr::new(0, SendOp::Send, &sges))
    }

    fn ping(&mut self, host: &Host, waits: Waits, deadline: Option<Time>) -> Result<(), Fault> {
        if !self.client {
            self.get(host, waits, deadline)?;
        }
        self.put()?;
        self.poster.reap(&self.link, deadline)?;
        if self.client {
            self.get(host, waits, deadline)?;
        }
        Ok(self.link.qp.post_recv(&RecvWr::new(0, &[self.sink.sge(0, self.size)]))?)
    }

    /// Runs `count` round trips; returns their time.
    fn several(
        &mut self,
        host: &Host,
        waits: Waits,
        count: u64,
        deadline: Option<Time>,
    ) -> Result<Span, Fault> {
        let began = host.now();
        (0..count).try_for_each(|_| self.ping(host, waits, deadline))?;
        Ok(host.now() - began)
    }
}

/// Sleeps in poll(2) for at most `left`.
fn sleep_on(fd: BorrowedFd<'_>, left: Span) -> Result<(), Fault> {
    let left = left.to_std();
    let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(why) => Err(Fault::Machine(format!("sleeping on a completion channel: {why}"))),
    }
}

impl Side for Sleeper {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.buf().fill(0x5a);
        self.sink.buf().fill(0);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| {
            let (host, waits, count) = (s.host, self.waits, count * TOGETHER);
            let base = match self.extra {
                true => self.several(host, Waits::Poll, count, deadline)?,
                false => Span::ZERO,
            };
            Ok(without(self.several(host, waits, count, deadline)?, base))
        })
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let (len, client) = (self.size as usize, self.client);
        pattern::fill(self.source.buf(), 0, len, self.seed ^ u64::from(client))?;
        self.sink.buf().fill(0);
        meet(session)?;
        self.ping(session.host, self.waits, session.deadline())?;
        pattern::compare(self.sink.buf(), 0, len, self.seed ^ u64::from(!client))
    }

    fn messages(&self) -> u64 {
        TOGETHER
    }
}
