//! `hotspot`: one process, the master, serves several others one by one.
//!
//! `op=write`: it writes to slave 1, 2, ... without waiting in between; each write carries immediate data, so that
//! the slave gets a completion. The last slave answers with an empty message. The answer's own one-way time, which
//! was measured beforehand, is subtracted from the time until that answer; the remainder ends when the last slave has
//! its data. `op=read`: it reads from each slave, and the time ends with the last completion; the slaves take no
//! part. `op=send`: it sends a message to each, and waits for the answer of the last (thesis 2.2.8, Figure 4.13).
//! `op=send-receive`: it sends an empty note to each; each answers with a message; it waits for all answers (Figure
//! 4.14). Both are the thesis's, and nothing is subtracted.
//!
//! Between two operations, untimed, every slave but the last answers as well, so that none falls behind.

use results::variant::{Variant, factor};
use verbs::host::{Span, Time};
use verbs::{Mr, SendOp, Sge};

use crate::experiment::harness::edge::{Edge, carry_place, meet};
use crate::experiment::harness::endpoint::place;
use crate::experiment::harness::hub::{Hub, without};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::{FOUR, TWO, placements, with};
use crate::experiment::{Axis, Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Slaves; each is a process, or a simulated machine.
const SLAVES: Axis = Axis {
    factor: factor::SLAVES,
    low: 1,
    high: 4095,
    about: "processes that one serves; each is really there",
};

pub(crate) struct Hotspot;

impl Experiment for Hotspot {
    fn name(&self) -> &'static str {
        "hotspot"
    }

    fn about(&self) -> &'static str {
        "one process that writes to k others, reads from them, sends to them, or receives from them"
    }

    fn explain(&self) -> &'static str {
        include_str!("../../explain/hotspot.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[SLAVES]
    }

    fn crowd(&self) -> Option<&'static Axis> {
        Some(&SLAVES)
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let slaves: &[&str] = if quick { &["1", "7"] } else { &["1", "2", "4", "7"] };
        let pairs: &[(&str, &str)] = if quick { &TWO } else { &FOUR };
        let moved = ["write", "read"].map(|op| placements(op, pairs)).concat();
        let sent = ["send", "send-receive"].map(|op| placements(op, &[("host", "host")])).concat();
        let ops: Vec<Variant> = sent.into_iter().chain(moved).collect();
        slaves.iter().flat_map(|k| ops.iter().map(|v| with(v, factor::SLAVES, k))).collect()
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        Some(&[2048])
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let op = variant.get(factor::OP).unwrap_or("");
        Metric {
            name: if op.starts_with("send") { "round_time" } else { "last_arrival" },
            unit: "us",
            about: match op {
                "send" => "from the first post until the last slave's empty answer arrives",
                "send-receive" => "from the first note's post until the messages of all slaves have arrived",
                "read" => "from the first post until the responses of all slaves have arrived",
                _ => {
                    "from the first post until the last slave has its data: until its empty answer arrived, less the \
                     answer's one-way time, measured beforehand as half a ping-pong of empty messages with it"
                }
            },
            scale: Scale::Time(1.0),
        }
    }

    fn ranks(&self, variant: &Variant) -> u32 {
        1 + slaves(variant).unwrap_or(1) as u32
    }

    /// If processes outnumber cores, little may remain of an operation after subtracting the answer; a batch large
    /// enough to compensate would take for ever.
    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Spot::prepare(session)?))
    }
}

fn slaves(variant: &Variant) -> Option<usize> {
    let inside = |k: &u64| (SLAVES.low..=SLAVES.high).contains(k);
    variant.get(SLAVES.factor)?.parse().ok().filter(inside).map(|k| k as usize)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Write,
    Read,
    Send,
    SendReceive,
}

impl Op {
    /// Whether the slaves have the data at first.
    fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::SendReceive)
    }
}

/// The master, or a slave.
struct Spot {
    op: Op,
    rank: usize,
    slaves: usize,
    hub: Hub,
    /// The local or remote buffer of the writes and reads.
    memory: Mr,
    /// The requests of the master: the data to move, and the remote address.
    requests: Vec<(SendOp, [Sge; 1])>,
    size: usize,
    stride: usize,
    /// One-way time of an answer.
    one_way: Span,
    seed: u64,
}

impl Spot {
    fn prepare(session: &mut Session<'_>) -> Result<Self, Fault> {
        let op = match session.cell.factor(factor::OP)? {
            "write" => Op::Write,
            "read" => Op::Read,
            "send" => Op::Send,
            "send-receive" => Op::SendReceive,
            other => return Err(Fault::Meaningless(format!("a hot spot of {other}"))),
        };
        let slaves = slaves(&session.cell.variant).ok_or_else(|| {
            Fault::Meaningless(format!("a hot spot without {} to {} slaves", SLAVES.low, SLAVES.high))
        })?;
        let (rank, size) = (session.rank as usize, session.cell.length()?);
        let master = rank == 0;
        let pd = session.device.alloc_pd()?;
        // Responses must not overwrite each other.
        let stride = if master && op.fetches() { (size as usize).next_multiple_of(64) } else { 0 };
        let len = (slaves - 1) * stride + size as usize;
        let memory =
            place(session, &pd, if master == op.fetches() { factor::SINK } else { factor::SOURCE }, len)?;
        let own = |link: usize| memory.sge((link * stride) as u64, size);
        let links = if master { slaves } else { 1 };
        let receives = (op == Op::Send && !master) || (op == Op::SendReceive && master);
        let sinks = if receives { (0..links).map(own).collect() } else { Vec::new() };
        let mut hub = Hub::with_sinks(&pd, links, sinks)?;
        let mut requests = Vec::new();
        for slave in 1..=slaves {
            let link = if master { Some(slave - 1) } else { (rank == slave).then_some(0) };
            hub.join(session, Edge::between(0, slave), link)?;
            if let Some(remote) = carry_place(session, (slave, 0), link.map(|_| &memory))? {
                let what = match op {
                    Op::Read => SendOp::Read(remote),
                    Op::Write => SendOp::WriteImm(remote, slave as u32),
                    Op::Send | Op::SendReceive => SendOp::Send,
                };
                requests.push((what, [own(slave - 1)]));
            }
        }
        let mut side = Self {
            op,
            rank,
            slaves,
            hub,
            memory,
            requests,
            size: size as usize,
            stride,
            one_way: Span::ZERO,
            seed: session.settings.seed,
        };
        if op == Op::Write && (master || side.is_last()) {
            side.one_way = side.hub.one_way(session, if master { slaves - 1 } else { 0 }, master)?;
        }
        Ok(side)
    }

    fn is_last(&self) -> bool {
        self.rank == self.slaves
    }

    /// Runs the master's operations; returns the time of their timed parts.
    fn serve(&self, session: &Session<'_>, count: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        let (host, hub, others) = (session.host, &self.hub, self.slaves - 1);
        let mut spent = Span::ZERO;
        for _ in 0..count {
            let began = host.now();
            if self.op == Op::SendReceive {
                (0..self.slaves).try_for_each(|slave| hub.send_empty(slave))?;
                let mut last = None;
                for _ in 0..self.slaves {
                    // Reposted while the others' messages are awaited: that is part of serving many.
                    last.map_or(Ok(()), |link| hub.repost_receive(link))?;
                    last = Some(hub.wait_message(deadline)?);
                }
                spent += host.now() - began;
                last.map_or(Ok(()), |link| hub.repost_receive(link))?;
                hub.wait_requests(self.slaves, deadline)?;
                continue;
            }
            for (slave, (op, sges)) in self.requests.iter().enumerate() {
                hub.post(slave, *op, sges)?;
            }
            if self.op == Op::Read {
                hub.wait_requests(self.slaves, deadline)?;
                spent += host.now() - began;
                continue;
            }
            let last = hub.wait_message(deadline)?;
            spent += host.now() - began;
            hub.repost_receive(last)?;
            (0..others).try_for_each(|slave| hub.send_empty(slave))?;
            for _ in 0..others {
                hub.repost_receive(hub.wait_message(deadline)?)?;
            }
            hub.wait_requests(self.slaves + others, deadline)?;
        }
        Ok(without(spent, self.one_way * count))
    }

    /// A slave's part in a write or a send.
    fn answer(&self, deadline: Option<Time>) -> Result<(), Fault> {
        if self.op == Op::SendReceive {
            self.hub.wait_message(deadline)?;
            self.hub.post(0, SendOp::Send, &[self.memory.sge(0, self.size as u32)])?;
            self.hub.repost_receive(0)?;
            return self.hub.wait_requests(1, deadline);
        }
        for _ in 0..if self.is_last() { 1 } else { 2 } {
            self.hub.wait_message(deadline)?;
        }
        self.hub.send_empty(0)?;
        for _ in 0..if self.is_last() { 1 } else { 2 } {
            self.hub.repost_receive(0)?;
        }
        self.hub.wait_requests(1, deadline)
    }

    fn operate(&self, session: &Session<'_>, count: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        if self.rank == 0 {
            return self.serve(session, count, deadline);
        }
        let count = if self.op == Op::Read { 0 } else { count };
        (0..count).try_for_each(|_| self.answer(deadline))?;
        Ok(Span::ZERO)
    }
}

impl Side for Spot {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.memory.buf().fill(0x5a);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| self.operate(s, count, deadline))
    }

    /// One more operation with unique contents, different for each slave if possible.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let (buf, master) = (self.memory.buf(), self.rank == 0);
        let contents = |slave: usize| self.seed ^ if self.op.fetches() { slave as u64 } else { 0 };
        let sends = master != self.op.fetches();
        if sends {
            pattern::fill(buf, 0, self.size, contents(self.rank))?;
        } else {
            buf.fill(0);
        }
        meet(session)?;
        self.operate(session, 1, session.deadline())?;
        // The target of a read must not leave before the read has completed.
        meet(session)?;
        if sends {
            return Ok(());
        }
        let slaves = if master { 1..=self.slaves } else { 1..=1 };
        slaves.into_iter().try_for_each(|slave| {
            pattern::compare(buf, (slave - 1) * self.stride, self.size, contents(slave))
        })
    }
}
