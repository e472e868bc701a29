//! `scaling`: the time of an operation on one connection, with few and with many other connections open.
//!
//! All queue pairs of a side share their completion queues and take receives from a shared queue. The cost of the
//! other connections is what a device must poll, or no longer has in its caches, although they are idle.

use verbs::host::{Span, Time};
use verbs::{
    Cm, CompChannel, ConnParam, Cq, Listener, Mr, Pd, Qp, QpCap, QpInit, RecvWr, RemoteAddr, SendOp, SendWr,
    Srq, SrqInit, Wc,
};

use crate::experiment::harness::contract::level;
use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{check, establish, exchange, reachable, register};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::over;
use crate::experiment::{
    Axis, Cell, Experiment, Fault, Metric, Needs, Round, Sampling, Scale, Session, Settings, Side,
};
use results::variant::{Variant, factor, variant};

pub(crate) struct Scaling;

const QPS: Axis =
    Axis { factor: factor::QPS, low: 1, high: 16_384, about: "connected queue pairs, of which one is used" };
/// Bytes of a message.
const SIZE: u32 = 8;
/// Offset of the receive buffer in a side's memory, and the memory's size.
const SINK: u64 = 64;
const MEMORY: usize = 4096;
/// Receives that are always posted, and receives posted together while the time is taken.
const SPARE: u32 = 64;
const TOGETHER: u64 = 32;
/// Maximum queue pairs with a completion when all have one: a shared queue must have their receives.
const FULL_MAX: usize = 1024;
/// Entries of a completion queue, and completions taken by one poll.
const CQE: u32 = 4096;
const POLL_MAX: usize = 16;

impl Experiment for Scaling {
    fn name(&self) -> &'static str {
        "scaling"
    }

    fn about(&self) -> &'static str {
        "single operations with 1 to 8000 queue pairs that share their queues, one of which is used"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/scaling.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[QPS]
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let all = Op::ALL.map(|op| variant(&[(factor::OP, op.name())]));
        if quick {
            over(&all[..2], QPS.factor, &["1", "64", "1024"])
        } else {
            over(&all, QPS.factor, &["1", "64", "1024", "8000"])
        }
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(SIZE.into())
    }

    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        let connections = level(cell, &QPS).unwrap_or(1);
        Needs { bytes: 2 * MEMORY as u64, processes: 2, connections }
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let op = variant.get(factor::OP).and_then(Op::of);
        let (name, about, scale) = op.unwrap_or(Op::Write).metric();
        Metric { name, unit: "us", about, scale: Scale::Time(scale) }
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        match variant.get(factor::OP).and_then(Op::of) {
            Some(Op::Full) => Sampling { long: true, samples: Some(50) },
            Some(Op::Post) => crate::experiment::loops::calls::SAMPLES,
            _ => Sampling::default(),
        }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let name = session.cell.factor(factor::OP)?;
        let op = Op::of(name).ok_or_else(|| Fault::Meaningless(format!("the operation {name}")))?;
        let qps = level(session.cell, &QPS)?;
        Ok(Box::new(Crowd::prepare(session, op, qps)?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Write,
    Send,
    Event,
    Invalidate,
    Register,
    Post,
    Full,
    Empty,
    Async,
}

impl Op {
    const ALL: [Self; 9] = [
        Self::Write,
        Self::Send,
        Self::Event,
        Self::Invalidate,
        Self::Register,
        Self::Post,
        Self::Full,
        Self::Empty,
        Self::Async,
    ];

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    /// As a level of the factor `op`.
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Send => "send",
            Self::Event => "event",
            Self::Invalidate => "invalidate",
            Self::Register => "register",
            Self::Post => "post-srq",
            Self::Full => "poll-full",
            Self::Empty => "poll-empty",
            Self::Async => "async-event",
        }
    }

    /// The metric's name, what is timed, and the number of timed things per operation.
    fn metric(self) -> (&'static str, &'static str, f64) {
        match self {
            Self::Write => ("completion_time", "from the post of an RDMA write until its completion", 1.0),
            Self::Send => {
                ("one_way_latency", "half the round trip of sends to receives of a shared queue", 2.0)
            }
            Self::Event => (
                "one_way_latency",
                "half the round trip of sends whose receivers arm a queue and sleep until its event",
                2.0,
            ),
            Self::Invalidate => (
                "round_trip",
                "until a region has been registered, its key sent, and invalidated by the send that answers",
                1.0,
            ),
            Self::Register => ("call_time", "within the calls that register 4 KiB and deregister them", 1.0),
            Self::Post => ("call_time", "within the call that posts a receive to a shared queue", 1.0),
            Self::Full => (
                "call_time",
                "within polls, for each completion, while every queue pair (of at most 1,024) has one",
                1.0,
            ),
            Self::Empty => ("call_time", "within a poll that finds nothing", 1.0),
            Self::Async => ("call_time", "within the call that asks for an asynchronous event", 1.0),
        }
    }
}

/// One side: connections that share queues.
struct Crowd {
    op: Op,
    client: bool,
    seed: u64,
    qps: Vec<Qp>,
    send_cq: Cq,
    recv_cq: Cq,
    channel: CompChannel,
    srq: Srq,
    pd: Pd,
    mine: Mr,
    theirs: RemoteAddr,
    _listener: Option<Listener>,
}

impl Crowd {
    fn prepare(session: &mut Session<'_>, op: Op, count: usize) -> Result<Self, Fault> {
        let (device, client, seed) = (session.device, session.is_client(), session.settings.seed);
        let (pd, channel, cm) = (device.alloc_pd()?, device.create_comp_channel()?, device.create_cm()?);
        let cqe = CQE.min(device.attr().max_cqe);
        let (send_cq, recv_cq) = (device.create_cq(cqe)?, device.create_cq_with(cqe, &channel)?);
        let receives = SPARE + count.clamp(TOGETHER as usize, FULL_MAX) as u32;
        let srq = pd.create_srq(SrqInit { max_wr: receives, max_sge: 1 })?;
        let mine = register("host", &pd, MEMORY)?;
        let cap = QpCap { max_send_wr: 16, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let init = QpInit { srq: Some(srq.clone()), ..QpInit::new(&send_cq) }.recv_cq(&recv_cq).cap(cap);
        let qps = (0..count).map(|_| pd.create_qp(&init)).collect::<verbs::Result<Vec<_>>>()?;
        let listener = connect(session, &cm, &qps)?;
        let theirs = exchange(session, &mine)?;
        let crowd = Self {
            op,
            client,
            seed,
            qps,
            send_cq,
            recv_cq,
            channel,
            srq,
            pd,
            mine,
            theirs,
            _listener: listener,
        };
        (0..SPARE).try_for_each(|_| crowd.renew())?;
        // Neither side sends before receives are posted.
        meet(session)?;
        Ok(crowd)
    }

    /// The queue pair that is used.
    fn qp(&self) -> &Qp {
        &self.qps[self.qps.len() / 2]
    }

    /// Posts a receive.
    fn renew(&self) -> Result<(), Fault> {
        Ok(self.srq.post_recv(&RecvWr::new(0, &[self.mine.sge(SINK, SIZE)]))?)
    }

    /// Posts a request and waits for its completion.
    fn post(&self, qp: &Qp, op: SendOp, deadline: Option<Time>) -> Result<(), Fault> {
        qp.post_send(&SendWr::new(0, op, &[self.mine.sge(0, SIZE)]))?;
        check(self.send_cq.spin(deadline)?, "a request").map(drop)
    }

    /// Sends a message, and waits until it has been sent.
    fn send(&self, deadline: Option<Time>) -> Result<(), Fault> {
        self.post(self.qp(), SendOp::Send, deadline)
    }

    /// Waits for a message, and posts the receive again.
    fn receive(&self, deadline: Option<Time>) -> Result<Wc, Fault> {
        let wc = check(self.recv_cq.spin(deadline)?, "a message")?;
        self.renew()?;
        Ok(wc)
    }

    /// Sleeps until a message arrives, and reposts the receive.
    fn be_woken(&self, deadline: Option<Time>) -> Result<(), Fault> {
        loop {
            self.recv_cq.req_notify(false)?;
            if let Some(wc) = self.recv_cq.poll_one()? {
                check(wc, "a message")?;
                return self.renew();
            }
            self.channel.get_event(deadline)?;
        }
    }

    /// Messages there and back, as each side waits for them.
    fn ping_pong(
        &self,
        count: u64,
        deadline: Option<Time>,
        receive: impl Fn(&Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for _ in 0..count {
            if self.client {
                self.send(deadline)?;
                receive(self)?;
            } else {
                receive(self)?;
                self.send(deadline)?;
            }
        }
        Ok(())
    }

    /// The server's keys are sent to the client, whose answers invalidate them.
    fn invalidate(&self, count: u64, deadline: Option<Time>) -> Result<(), Fault> {
        for _ in 0..count {
            if self.client {
                let key = self.receive(deadline)?.imm;
                let key = key.ok_or_else(|| Fault::Corrupt("a key came without itself".into()))?;
                self.post(self.qp(), SendOp::SendInv(key), deadline)?;
                continue;
            }
            let region = self.pd.reg_mr(self.mine.buf(), self.pd.device().attr().all_access())?;
            self.post(self.qp(), SendOp::SendImm(region.rkey()), deadline)?;
            if self.receive(deadline)?.invalidated != Some(region.rkey()) {
                return Err(Fault::Corrupt("a key was not invalidated".into()));
            }
        }
        Ok(())
    }

    /// Calls that the client makes while the server waits for its message.
    fn calls(
        &self,
        s: &Session<'_>,
        deadline: Option<Time>,
        count: u64,
        mut call: impl FnMut() -> Result<(), Fault>,
    ) -> Result<Span, Fault> {
        let began = s.host.now();
        if !self.client {
            self.receive(deadline)?;
            return Ok(s.host.now() - began);
        }
        (0..count).try_for_each(|_| call())?;
        let spent = s.host.now() - began;
        self.send(deadline)?;
        Ok(spent)
    }

    /// The client posts receives, the server uses them up.
    fn posts(&self, s: &Session<'_>, deadline: Option<Time>, count: u64) -> Result<Span, Fault> {
        let mut spent = Span::ZERO;
        for done in (0..count).step_by(TOGETHER as usize) {
            let some = TOGETHER.min(count - done);
            spent += self.calls(s, deadline, some, || self.renew())?;
            for _ in 0..some {
                match self.client {
                    true => check(self.recv_cq.spin(deadline)?, "a message").map(drop)?,
                    false => self.send(deadline)?,
                }
            }
        }
        Ok(spent)
    }

    /// Every queue pair, up to as many as there are receives, gets a message; the client polls when all have arrived.
    fn all_at_once(&self, s: &mut Session<'_>, deadline: Option<Time>, count: u64) -> Result<Span, Fault> {
        let some = self.messages();
        let mut spent = Span::ZERO;
        for _ in 0..count {
            if self.client {
                (0..some - u64::from(SPARE).min(some)).try_for_each(|_| self.renew())?;
                meet(s)?;
            } else {
                meet(s)?;
                self.qps[..some as usize].iter().try_for_each(|qp| self.post(qp, SendOp::Send, deadline))?;
            }
            meet(s)?;
            if self.client {
                spent += self.take(s, some, deadline)?;
                (0..u64::from(SPARE).min(some)).try_for_each(|_| self.renew())?;
            }
        }
        Ok(spent)
    }

    fn take(&self, s: &Session<'_>, some: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        let mut wcs = [Wc::default(); POLL_MAX];
        let (mut got, began) = (0, s.host.now());
        while got < some {
            match self.recv_cq.poll(&mut wcs)? {
                // Waits for a late completion.
                0 => got += check(self.recv_cq.spin(deadline)?, "a message").map(|_| 1)?,
                n => {
                    wcs[..n].iter().try_for_each(|wc| check(*wc, "a message").map(drop))?;
                    got += n as u64;
                }
            }
        }
        Ok(s.host.now() - began)
    }

    fn work(&self, s: &mut Session<'_>, count: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        let began = s.host.now();
        match self.op {
            Op::Write => {
                let write = || self.post(self.qp(), SendOp::Write(self.theirs), deadline);
                return self.calls(s, deadline, count, write);
            }
            Op::Register => {
                return self.calls(s, deadline, count, || {
                    Ok(self.pd.reg_mr(self.mine.buf(), self.pd.device().attr().all_access())?.dereg()?)
                });
            }
            Op::Empty => {
                return self.calls(s, deadline, count, || match self.recv_cq.poll_one()? {
                    None => Ok(()),
                    Some(_) => Err(Fault::Corrupt("a completion came that nobody asked for".into())),
                });
            }
            Op::Async => {
                // Existing events are about connections of earlier cells, and are consumed in the lead-in.
                return self.calls(s, deadline, count, || {
                    s.device.poll_async_event();
                    Ok(())
                });
            }
            Op::Post => return self.posts(s, deadline, count),
            Op::Full => return self.all_at_once(s, deadline, count),
            Op::Send => self.ping_pong(count, deadline, |side| side.receive(deadline).map(drop))?,
            Op::Event => self.ping_pong(count, deadline, |side| side.be_woken(deadline))?,
            Op::Invalidate => self.invalidate(count, deadline)?,
        }
        Ok(s.host.now() - began)
    }
}

/// Connects all of a side's queue pairs, one after the other; the caller must keep the listener.
fn connect(session: &mut Session<'_>, cm: &Cm, qps: &[Qp]) -> Result<Option<Listener>, Fault> {
    if session.is_client() {
        let addr = reachable(session.receive_info()?, 1, session)?;
        for qp in qps {
            cm.connect(qp, addr, &ConnParam::default())?;
            establish(session, cm, &[], 1)?;
        }
        return Ok(None);
    }
    // The client is never more than one request ahead.
    let listener = cm.listen(session.listen_addr(0)?, 2)?;
    session.send_info(&listener.addr())?;
    establish(session, cm, &qps.iter().collect::<Vec<_>>(), qps.len())?;
    Ok(Some(listener))
}

impl Side for Crowd {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| self.work(s, count, deadline))
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let deadline = session.deadline();
        if !self.client {
            self.receive(deadline)?;
            return pattern::compare(self.mine.buf(), 0, SIZE as usize, self.seed);
        }
        pattern::fill(self.mine.buf(), 0, SIZE as usize, self.seed)?;
        self.post(self.qp(), SendOp::Write(self.theirs), deadline)?;
        self.send(deadline)
    }

    fn messages(&self) -> u64 {
        if self.op == Op::Full { self.qps.len().min(FULL_MAX) as u64 } else { 1 }
    }
}
