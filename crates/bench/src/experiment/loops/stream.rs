//! [`Stream`]: many messages in flight. Shared by bandwidth, bibw and rate.
//!
//! W messages are posted; whenever W/2 have completed, W/2 more. Only the last message of each half is signaled (with
//! `signal=1`, each is): its completion implies that of the whole half. An operation is a burst of messages; all use
//! the same buffers.
//!
//! A message split over two ports is two writes, one on the connection of each port; it has completed when both have.
//! A stream within one device uses a connection of the device with itself.

use results::variant::factor;
use verbs::host::Time;
use verbs::{Mr, RecvWr, SendOp, SendWr, Sge, Wc};

use crate::experiment::harness::edge::{Edge, meet};
use crate::experiment::harness::endpoint::{
    Depth, Endpoint, check, exchange, inline_limit, join, loopback, part, place,
};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample;
use crate::experiment::{Fault, Round, Session, Settings, Side};

/// Which side streams, and what ends a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The client streams; the server's acknowledgement of the last message ends it.
    Push,
    /// Both stream; the last incoming message ends it.
    Both,
    /// The client streams; its own last completion ends it.
    Local,
    /// The client streams from a device to itself.
    Alone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Send,
    Write,
    Read,
}

/// Maximum ports that a message is split over.
const LANES: usize = 2;
/// `wr_id` of requests without data. Requests whose completion frees half a window have the number of their lane, and
/// so have receives.
const CONTROL: u64 = LANES as u64;
/// `wr_id` of messages within a half, if each is signaled.
const MEMBER: u64 = CONTROL + 1;
/// Immediate values of messages that carry no data.
const START: u32 = 1;
const LAST: u32 = 2;
const ACK: u32 = 3;
/// Control messages that may be outstanding.
const SPARE: u32 = 8;
/// Bytes of a burst and its messages at least and at most, if its length is not given.
const BURST: (u64, u64, u64) = (16 << 20, 8, 2048);
/// Bytes and messages of short bursts. A burst takes milliseconds on a slow device, and a cell has at least eight in each launch.
const BURST_SHORT: (u64, u64, u64) = (4 << 20, 4, 512);
/// Completions taken per poll.
const REAP: usize = 16;

/// A connection, and the part of each message sent over it.
struct Lane {
    link: Endpoint,
    /// Offset of the part.
    at: usize,
    op: SendOp,
    sges: [Sge; 1],
    /// The data to send, if inline; else empty.
    inline: Vec<u8>,
    /// Halves of the window that have not completed.
    halves: u32,
    /// Last messages of a burst that have arrived.
    lasts: u32,
}

impl Lane {
    /// The requests for the last message of a half, and for the messages before it, each signaled or unsignaled.
    fn requests(&self, wr_id: u64, each: bool) -> [SendWr<'_>; 2] {
        let last = if self.inline.is_empty() {
            SendWr::new(wr_id, self.op, &self.sges)
        } else {
            SendWr::inline(wr_id, self.op, &self.inline)
        };
        [last, if each { SendWr { wr_id: MEMBER, ..last } } else { last.unsignaled() }]
    }
}

/// One side of a stream.
pub(crate) struct Stream {
    op: Op,
    flow: Flow,
    client: bool,
    lanes: Vec<Lane>,
    source: Mr,
    sink: Mr,
    size: u32,
    half: u32,
    /// Whether each message is signalled.
    each: bool,
    burst: u64,
    seed: u64,
    wcs: [Wc; REAP],
    /// Data messages still to post.
    to_post: u64,
    /// Control messages that have not completed.
    controls: u32,
    starts: u32,
    acks: u32,
    /// The other end of a connection of the device with itself.
    _far: Option<Endpoint>,
}

/// Messages of a burst.
pub(crate) fn burst(settings: &Settings, size: u32) -> u64 {
    let (bytes, least, most) = if settings.short { BURST_SHORT } else { BURST };
    let by_size = (bytes / u64::from(size.max(1))).clamp(least, most);
    if settings.burst > 0 { settings.burst.into() } else { by_size }
}

impl Stream {
    pub(crate) fn prepare(session: &mut Session<'_>, flow: Flow) -> Result<Self, Fault> {
        let ports = session.ports()?;
        let op = match session.cell.factor(factor::OP)? {
            "write" | "copy" => Op::Write,
            "send" if ports == 1 => Op::Send,
            "read" if ports == 1 && flow != Flow::Both => Op::Read,
            other => return Err(Fault::Meaningless(format!("such a stream of {other}"))),
        };
        let (size, settings) = (session.cell.length()?, session.settings);
        let limit = session.device.attr().max_qp_wr.saturating_sub(SPARE);
        let asked = match session.cell.variant.get(factor::WINDOW).map(|text| text.parse()) {
            Some(Ok(window @ 2..=4096)) => window,
            Some(_) => return Err(Fault::Meaningless("a window that is not 2 to 4096 messages".into())),
            None => settings.window,
        };
        let window = asked.min(limit).max(2);
        let receives = if op == Op::Send { (4 * window).min(limit) } else { 0 };
        let inline = inline_limit(session, size);
        let depth = Depth { inline, ..Depth::new(window + SPARE, receives + SPARE) };
        let pd = session.device.alloc_pd()?;
        let source = place(session, &pd, factor::SOURCE, size as usize)?;
        let sink = place(session, &pd, factor::SINK, size as usize)?;
        let mut links = match flow {
            Flow::Alone => loopback(session, &pd, depth)?,
            _ => Endpoint::several(&pd, depth, ports)?,
        };
        let far = if flow == Flow::Alone { links.pop() } else { None };
        let remote = if far.is_some() {
            sink.remote(0)
        } else {
            for (port, link) in links.iter_mut().enumerate() {
                link.post_receives(port as u64, depth.recv, &data_sges(op, &sink, size))?;
                join(session, Edge { port, ..Edge::PAIR }, Some(link))?;
            }
            exchange(session, if op == Op::Read { &source } else { &sink })?
        };
        let lane = |(port, link)| {
            let (at, len) = part(size, ports, port);
            let remote = remote.offset(at);
            let (op, sge) = match op {
                Op::Send => (SendOp::Send, source.sge(at, len)),
                Op::Write => (SendOp::Write(remote), source.sge(at, len)),
                Op::Read => (SendOp::Read(remote), sink.sge(at, len)),
            };
            let inline = vec![0; if inline > 0 { len as usize } else { 0 }];
            Lane { link, at: at as usize, op, sges: [sge], inline, halves: 0, lasts: 0 }
        };
        Ok(Self {
            op,
            flow: if op == Op::Read { Flow::Local } else { flow },
            client: session.is_client(),
            lanes: links.into_iter().enumerate().map(lane).collect(),
            source,
            sink,
            size,
            half: window / 2,
            each: settings.signal == 1,
            burst: burst(settings, size),
            seed: settings.seed,
            wcs: [Wc::default(); REAP],
            to_post: 0,
            controls: 0,
            starts: 0,
            acks: 0,
            _far: far,
        })
    }

    /// Does all work that does not block.
    #[inline]
    fn step(&mut self) -> Result<(), Fault> {
        loop {
            let reaped = self.reap_sends()? + self.reap_receives()?;
            let room = self.to_post > 0 && self.lanes.iter().all(|lane| lane.halves < 2);
            if room {
                self.post_half()?;
            }
            if !room && reaped == 0 {
                return Ok(());
            }
        }
    }

    fn reap_sends(&mut self) -> Result<usize, Fault> {
        let n = self.lanes[0].link.send_cq.poll(&mut self.wcs)?;
        for wc in &self.wcs[..n] {
            match check(*wc, "a message of the stream")?.wr_id {
                CONTROL => self.controls -= 1,
                MEMBER => {}
                lane => self.lanes[lane as usize].halves -= 1,
            }
        }
        Ok(n)
    }

    fn reap_receives(&mut self) -> Result<usize, Fault> {
        if matches!(self.flow, Flow::Local | Flow::Alone) {
            return Ok(0);
        }
        let n = self.lanes[0].link.recv_cq.poll(&mut self.wcs)?;
        let sges = data_sges(self.op, &self.sink, self.size);
        for wc in &self.wcs[..n] {
            let wc = check(*wc, "a receive of the stream")?;
            let lane = &mut self.lanes[wc.wr_id as usize];
            match wc.imm {
                Some(START) => self.starts += 1,
                Some(LAST) => lane.lasts += 1,
                Some(ACK) => self.acks += 1,
                _ => {}
            }
            lane.link.qp.post_recv(&RecvWr::new(wc.wr_id, &sges))?;
        }
        Ok(n)
    }

    /// Posts half a window; the parts of a message are posted one after the other.
    fn post_half(&mut self) -> Result<(), Fault> {
        let count = u64::from(self.half).min(self.to_post);
        let other = self.lanes.len() - 1;
        let requests = [self.lanes[0].requests(0, self.each), self.lanes[other].requests(1, self.each)];
        for _ in 1..count {
            for (lane, [_, before]) in self.lanes.iter().zip(&requests) {
                lane.link.qp.post_send(before)?;
            }
        }
        for (lane, [last, _]) in self.lanes.iter().zip(&requests) {
            lane.link.qp.post_send(last)?;
        }
        self.to_post -= count;
        self.lanes.iter_mut().for_each(|lane| lane.halves += 1);
        Ok(())
    }

    fn control(&mut self, imm: u32) -> Result<(), Fault> {
        self.control_on(0, imm)
    }

    fn control_on(&mut self, lane: usize, imm: u32) -> Result<(), Fault> {
        self.controls += 1;
        let wr = SendWr::new(CONTROL, SendOp::SendImm(imm), &[]);
        Ok(self.lanes[lane].link.qp.post_send(&wr)?)
    }

    /// Sends the end-of-burst message after all data of the burst.
    fn finish(&mut self) -> Result<(), Fault> {
        (0..self.lanes.len()).try_for_each(|lane| self.control_on(lane, LAST))
    }

    /// Whether all posted requests have completed.
    fn is_idle(&self) -> bool {
        self.controls == 0 && self.has_streamed()
    }

    fn has_streamed(&self) -> bool {
        self.lanes.iter().all(|lane| lane.halves == 0)
    }

    /// Whether the other side's burst is here.
    fn has_last(&self) -> bool {
        self.lanes.iter().all(|lane| lane.lasts > 0)
    }

    fn take_last(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.lasts -= 1);
    }

    /// Steps until `done`.
    #[inline]
    fn until(
        &mut self,
        session: &Session<'_>,
        deadline: Option<Time>,
        done: fn(&Self) -> bool,
    ) -> Result<(), Fault> {
        let look = || match self.step() {
            Ok(()) => done(self).then_some(Ok(())),
            Err(fault) => Some(Err(fault)),
        };
        session.host.poll("a stream", deadline, look).unwrap_or(Err(Fault::TimedOut("the stream")))
    }

    /// One burst as timed by the client.
    fn burst(&mut self, session: &Session<'_>, messages: u64, deadline: Option<Time>) -> Result<(), Fault> {
        if self.flow == Flow::Both {
            self.control(START)?;
        }
        self.to_post = messages;
        self.until(session, deadline, |s| s.to_post == 0)?;
        match self.flow {
            Flow::Local | Flow::Alone => self.until(session, deadline, Self::has_streamed),
            Flow::Push => {
                self.finish()?;
                self.until(session, deadline, |s| s.acks > 0 && s.is_idle())?;
                self.acks -= 1;
                Ok(())
            }
            Flow::Both => self.finish_both(session, deadline),
        }
    }

    /// The end of a burst in which both sides stream.
    fn finish_both(&mut self, session: &Session<'_>, deadline: Option<Time>) -> Result<(), Fault> {
        self.finish()?;
        self.until(session, deadline, |s| s.has_last() && s.is_idle())?;
        self.take_last();
        Ok(())
    }

    /// The server's part of a burst.
    fn answer(&mut self, session: &Session<'_>, messages: u64, deadline: Option<Time>) -> Result<(), Fault> {
        match self.flow {
            Flow::Local | Flow::Alone => Ok(()),
            Flow::Push => {
                self.until(session, deadline, Self::has_last)?;
                self.take_last();
                self.control(ACK)?;
                self.until(session, deadline, |s| s.controls == 0)
            }
            Flow::Both => {
                self.until(session, deadline, |s| s.starts > 0)?;
                self.starts -= 1;
                self.to_post = messages;
                self.until(session, deadline, |s| s.to_post == 0)?;
                self.finish_both(session, deadline)
            }
        }
    }

    fn one(&mut self, session: &Session<'_>, messages: u64, deadline: Option<Time>) -> Result<(), Fault> {
        if self.client {
            self.burst(session, messages, deadline)
        } else {
            self.answer(session, messages, deadline)
        }
    }

    fn contents(&self, from_client: bool) -> u64 {
        self.seed ^ 0x5eed ^ u64::from(from_client)
    }
}

/// The receive buffer of data messages; messages of other streams carry none.
fn data_sges(op: Op, sink: &Mr, size: u32) -> [Sge; 1] {
    [sink.sge(0, if op == Op::Send { size } else { 0 })]
}

impl Side for Stream {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        pattern::fill(self.source.buf(), 0, self.size as usize, self.contents(self.client))?;
        for lane in &mut self.lanes {
            self.source.buf().read(lane.at, &mut lane.inline)?;
        }
        self.sink.buf().fill(0);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        let burst = self.burst;
        sample(s, round, readings, |s, count, deadline| {
            (0..count).try_for_each(|_| self.one(s, burst, deadline))
        })
    }

    /// Clears the sinks, streams once more, and compares the received data.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.sink.buf().fill(0);
        meet(session)?;
        self.one(session, 2, session.deadline())?;
        meet(session)?;
        let (written_here, by_client) = match (self.flow, self.op) {
            (Flow::Alone, _) => (true, true),
            (_, Op::Read) => (self.client, !self.client),
            (flow, _) => (flow == Flow::Both || !self.client, !self.client),
        };
        if !written_here {
            return Ok(());
        }
        pattern::compare(self.sink.buf(), 0, self.size as usize, self.contents(by_client))
    }

    fn messages(&self) -> u64 {
        self.burst
    }
}
