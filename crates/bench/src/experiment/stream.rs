//! [`Stream`]: many messages in flight. What bandwidth, bibw and rate share.
//!
//! W messages are posted; whenever W/2 have completed, W/2 more. Only the last message of each half signals: its
//! completion says that of the whole half. An operation is a burst of messages; all use the same buffers.

use verbs::host::{Span, Time};
use verbs::{Mr, RecvWr, RemoteAddr, SendOp, SendWr, Sge, Wc};

use super::link::{Depth, Link, check, exchange, inline_limit, place};
use super::{Fault, Round, Session, Side, pattern};

/// Who streams, and what ends a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The client streams; the server's acknowledgement of the last message ends it.
    Push,
    /// Both stream; the last incoming message ends it.
    Both,
    /// The client streams; its own last completion ends it.
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Send,
    Write,
    Read,
}

/// Identity of requests whose completion frees half a window.
const HALF: u64 = 1;
/// Identity of requests that carry no data.
const CONTROL: u64 = 2;
/// Immediate values of messages that carry no data.
const START: u32 = 1;
const LAST: u32 = 2;
const ACK: u32 = 3;
/// Control messages that may be outstanding.
const SPARE: u32 = 8;
/// Bytes of a burst, if its length is not given.
const BURST_BYTES: u64 = 16 << 20;
/// Completions taken at once.
const REAP: usize = 16;

/// One side of a stream.
pub(super) struct Stream {
    op: Op,
    flow: Flow,
    client: bool,
    link: Link,
    source: Mr,
    sink: Mr,
    remote: RemoteAddr,
    size: u32,
    /// The message itself, if it travels within the request; else empty.
    inline: Vec<u8>,
    half: u32,
    burst: u64,
    patience: Span,
    seed: u64,
    wcs: [Wc; REAP],
    /// Data messages still to post.
    to_post: u64,
    /// Halves of the window that have not completed.
    halves: u32,
    /// Control messages that have not completed.
    controls: u32,
    starts: u32,
    lasts: u32,
    acks: u32,
}

impl Stream {
    pub(super) fn prepare(session: &mut Session<'_>, flow: Flow) -> Result<Self, Fault> {
        let op = match session.cell.factor("op")? {
            "send" => Op::Send,
            "write" => Op::Write,
            "read" if flow != Flow::Both => Op::Read,
            other => return Err(Fault::Meaningless(format!("a stream of {other}"))),
        };
        let (size, settings) = (session.cell.length()?, session.settings);
        let limit = session.device.attr().max_qp_wr.saturating_sub(SPARE);
        let window = settings.window.min(limit).max(2);
        let receives = if op == Op::Send { (4 * window).min(limit) } else { 0 };
        let inline = inline_limit(session, size);
        let depth = Depth { send: window + SPARE, recv: receives + SPARE, inline };
        let mut link = Link::create(session.device, depth)?;
        let source = place(session, &link.pd, "source", size as usize)?;
        let sink = place(session, &link.pd, "sink", size as usize)?;
        link.post_receives(depth.recv, &data_sges(op, &sink, size))?;
        link.connect(session)?;
        let remote = exchange(session, if op == Op::Read { &source } else { &sink })?;
        let by_size = (BURST_BYTES / u64::from(size)).clamp(8, 2048);
        Ok(Self {
            op,
            flow: if op == Op::Read { Flow::Local } else { flow },
            client: session.is_client(),
            link,
            source,
            sink,
            remote,
            size,
            inline: vec![0; inline as usize],
            half: window / 2,
            burst: if settings.burst > 0 { settings.burst.into() } else { by_size },
            patience: Span::from_ms(settings.patience_ms),
            seed: settings.seed,
            wcs: [Wc::default(); REAP],
            to_post: 0,
            halves: 0,
            controls: 0,
            starts: 0,
            lasts: 0,
            acks: 0,
        })
    }

    /// Does all that can be done now.
    #[inline]
    fn step(&mut self) -> Result<(), Fault> {
        loop {
            let reaped = self.reap_sends()? + self.reap_receives()?;
            let room = self.to_post > 0 && self.halves < 2;
            if room {
                self.post_half()?;
            }
            if !room && reaped == 0 {
                return Ok(());
            }
        }
    }

    fn reap_sends(&mut self) -> Result<usize, Fault> {
        let n = self.link.send_cq.poll(&mut self.wcs)?;
        for wc in &self.wcs[..n] {
            match check(*wc, "a message of the stream")?.wr_id {
                HALF => self.halves -= 1,
                _ => self.controls -= 1,
            }
        }
        Ok(n)
    }

    fn reap_receives(&mut self) -> Result<usize, Fault> {
        if self.flow == Flow::Local {
            return Ok(0);
        }
        let n = self.link.recv_cq.poll(&mut self.wcs)?;
        let sges = data_sges(self.op, &self.sink, self.size);
        for wc in &self.wcs[..n] {
            match check(*wc, "a receive of the stream")?.imm {
                Some(START) => self.starts += 1,
                Some(LAST) => self.lasts += 1,
                Some(ACK) => self.acks += 1,
                _ => {}
            }
            self.link.qp.post_recv(&RecvWr::new(0, &sges))?;
        }
        Ok(n)
    }

    fn post_half(&mut self) -> Result<(), Fault> {
        let count = u64::from(self.half).min(self.to_post);
        let sges = [match self.op {
            Op::Read => self.sink.sge(0, self.size),
            _ => self.source.sge(0, self.size),
        }];
        let op = match self.op {
            Op::Send => SendOp::Send,
            Op::Write => SendOp::Write(self.remote),
            Op::Read => SendOp::Read(self.remote),
        };
        let last = if self.inline.is_empty() {
            SendWr::new(HALF, op, &sges)
        } else {
            SendWr::inline(HALF, op, &self.inline)
        };
        let silent = SendWr { wr_id: 0, ..last }.unsignaled();
        for _ in 1..count {
            self.link.qp.post_send(&silent)?;
        }
        self.link.qp.post_send(&last)?;
        self.to_post -= count;
        self.halves += 1;
        Ok(())
    }

    fn control(&mut self, imm: u32) -> Result<(), Fault> {
        self.controls += 1;
        Ok(self.link.qp.post_send(&SendWr::new(CONTROL, SendOp::SendImm(imm), &[]))?)
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

    /// One burst as the client sees it: what is timed.
    fn burst(&mut self, session: &Session<'_>, messages: u64, deadline: Option<Time>) -> Result<(), Fault> {
        if self.flow == Flow::Both {
            self.control(START)?;
        }
        self.to_post = messages;
        self.until(session, deadline, |s| s.to_post == 0)?;
        match self.flow {
            Flow::Local => self.until(session, deadline, |s| s.halves == 0),
            Flow::Push => {
                self.control(LAST)?;
                self.until(session, deadline, |s| s.acks > 0 && s.controls == 0 && s.halves == 0)?;
                self.acks -= 1;
                Ok(())
            }
            Flow::Both => {
                self.control(LAST)?;
                self.until(session, deadline, |s| s.lasts > 0 && s.controls == 0 && s.halves == 0)?;
                self.lasts -= 1;
                Ok(())
            }
        }
    }

    /// The same burst as the server sees it.
    fn answer(&mut self, session: &Session<'_>, messages: u64, deadline: Option<Time>) -> Result<(), Fault> {
        match self.flow {
            Flow::Local => Ok(()),
            Flow::Push => {
                self.until(session, deadline, |s| s.lasts > 0)?;
                self.lasts -= 1;
                self.control(ACK)?;
                self.until(session, deadline, |s| s.controls == 0)
            }
            Flow::Both => {
                self.until(session, deadline, |s| s.starts > 0)?;
                self.starts -= 1;
                self.to_post = messages;
                self.until(session, deadline, |s| s.to_post == 0)?;
                self.control(LAST)?;
                self.until(session, deadline, |s| s.lasts > 0 && s.controls == 0 && s.halves == 0)?;
                self.lasts -= 1;
                Ok(())
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

/// Where incoming data messages go; messages of other streams carry none.
fn data_sges(op: Op, sink: &Mr, size: u32) -> [Sge; 1] {
    [sink.sge(0, if op == Op::Send { size } else { 0 })]
}

impl Side for Stream {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        pattern::fill(self.source.buf(), 0, self.size as usize, self.contents(self.client))?;
        self.source.buf().read(0, &mut self.inline)?;
        self.sink.buf().fill(0);
        Ok(())
    }

    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let host = session.host;
        for _ in 0..round.lead_in {
            self.one(session, self.burst, host.after(self.patience))?;
        }
        for _ in 0..round.samples {
            let began = host.now();
            let deadline = Some(began + self.patience);
            for _ in 0..round.batch {
                self.one(session, self.burst, deadline)?;
            }
            if self.client {
                readings.push((host.now() - began).as_ps() as f64);
            }
        }
        Ok(())
    }

    /// Clears the sinks, streams once more, compares what lies there.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.sink.buf().fill(0);
        session.tell(&())?;
        session.hear::<()>()?;
        self.one(session, 2, session.deadline())?;
        session.tell(&())?;
        session.hear::<()>()?;
        let writes_here = match self.op {
            Op::Read => self.client,
            _ => self.flow == Flow::Both || !self.client,
        };
        if !writes_here {
            return Ok(());
        }
        pattern::compare(self.sink.buf(), 0, self.size as usize, self.contents(!self.client))
    }

    fn messages(&self) -> u64 {
        self.burst
    }
}
